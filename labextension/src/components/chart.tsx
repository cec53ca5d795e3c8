/** One measured quantity: its value against its limit, and how it was in the last two minutes. */
import * as React from 'react';

import { HISTORY } from '../model';

/** From here on the meter warns: what runs now may soon be ended by the limit. */
const NEAR = 0.8;
const WIDTH = 120;
const HEIGHT = 26;
/** Of the height, what lies below the limit's line. */
const ROOM = 22;

export interface ChartProps {
  label: string;
  hint: string;
  value: number;
  limit: number;
  format: (value: number) => string;
  /** Moments (milliseconds) and values; where there are none, a bar stands for the value alone. */
  points: readonly (readonly [number, number])[];
}

export const Chart = React.memo(function Chart(props: ChartProps): React.JSX.Element {
  const { label, hint, value, limit, format, points } = props;
  const share = limit > 0 ? value / limit : 1;
  const level = share >= 1 ? 'over' : share >= NEAR ? 'near' : 'normal';
  const now = format(value);
  const most = format(limit);
  return (
    <div className="jp-ipysandbox-chart" data-level={level} title={hint}>
      <div className="jp-ipysandbox-chart-text">
        <span className="jp-ipysandbox-chart-label">{label}</span>
        <span className="jp-ipysandbox-chart-value">
          <b>{now}</b> <span>/ {most}</span>
        </span>
      </div>
      <div
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={limit}
        aria-valuenow={Math.min(value, limit)}
        aria-valuetext={`${now} / ${most}`}
      >
        <svg
          viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
          preserveAspectRatio="none"
          aria-hidden="true"
          focusable="false"
        >
          <path className="jp-ipysandbox-chart-area" d={area(points, limit)} />
          <path className="jp-ipysandbox-chart-line" d={line(points, limit)} />
          <path className="jp-ipysandbox-chart-limit" d={`M0 ${HEIGHT - ROOM}H${WIDTH}`} />
        </svg>
      </div>
    </div>
  );
}, same);

/** A chart whose newest point is the same is the same: points are only added. */
function same(before: ChartProps, after: ChartProps): boolean {
  return (
    before.label === after.label &&
    before.value === after.value &&
    before.limit === after.limit &&
    before.points.length === after.points.length &&
    before.points[before.points.length - 1]?.[0] === after.points[after.points.length - 1]?.[0]
  );
}

const tenths = (value: number): number => Math.round(value * 10) / 10;

function heightOf(value: number, limit: number): number {
  const share = limit > 0 ? Math.min(value / limit, HEIGHT / ROOM) : 1;
  return HEIGHT - share * ROOM;
}

function line(points: ChartProps['points'], limit: number): string {
  const last = points[points.length - 1];
  if (!last) {
    return '';
  }
  let path = '';
  points.forEach(([time, value], index) => {
    // Within a flat stretch only its ends matter: most sandboxes do nothing most of the time.
    if (value !== points[index - 1]?.[1] || value !== points[index + 1]?.[1]) {
      const x = WIDTH - ((last[0] - time) / 1000 / HISTORY) * WIDTH;
      path += `${path === '' ? 'M' : 'L'}${tenths(x)} ${tenths(heightOf(value, limit))}`;
    }
  });
  return path;
}

function area(points: ChartProps['points'], limit: number): string {
  const [first, last] = [points[0], points[points.length - 1]];
  if (!first || !last) {
    return '';
  }
  const left = WIDTH - ((last[0] - first[0]) / 1000 / HISTORY) * WIDTH;
  return `${line(points, limit)}L${WIDTH} ${HEIGHT}L${tenths(left)} ${HEIGHT}Z`;
}
