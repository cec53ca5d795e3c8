/** One measured quantity against its limit, drawn as a bar. */
import * as React from 'react';

/** From here on the bar warns: what runs now may soon be ended by the limit. */
const NEAR = 0.8;

export interface MeterProps {
  label: string;
  value: number;
  limit: number;
  format: (value: number) => string;
}

export function Meter({ label, value, limit, format }: MeterProps): React.JSX.Element {
  const share = limit > 0 ? value / limit : 1;
  const level = share >= 1 ? 'over' : share >= NEAR ? 'near' : 'normal';
  const text = `${format(value)} / ${format(limit)}`;
  return (
    <div className="jp-ipysandbox-meter">
      <span>{label}</span>
      <div
        className="jp-ipysandbox-track"
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={limit}
        aria-valuenow={Math.min(value, limit)}
        aria-valuetext={text}
        data-level={level}
      >
        <div
          className="jp-ipysandbox-fill"
          style={{ width: `${Math.min(100, Math.max(0, share * 100))}%` }}
        />
      </div>
      <span className="jp-ipysandbox-value">{text}</span>
    </div>
  );
}
