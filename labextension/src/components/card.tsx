/** One sandbox: what it is, what it does now, how near it is to its limits, and the buttons that stop it. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { bytes, count, duration } from '../format';
import type { Action, Quantity, Sandbox, SandboxState } from '../tokens';
import { Meter } from './meter';

export interface CardProps {
  sandbox: Sandbox;
  pending: boolean;
  trans: TranslationBundle;
  onAction: (action: Action) => void;
}

function stateLabel(state: SandboxState, trans: TranslationBundle): string {
  switch (state) {
    case 'starting':
      return trans.__('starting');
    case 'idle':
      return trans.__('idle');
    case 'busy':
      return trans.__('running');
    case 'dead':
      return trans.__('ended');
    case 'unknown':
      return trans.__('unknown');
  }
}

function meters(
  trans: TranslationBundle
): { quantity: Quantity; label: string; format: (value: number) => string }[] {
  return [
    { quantity: 'cpu', label: trans.__('CPU'), format: duration },
    { quantity: 'memory', label: trans.__('Memory'), format: bytes },
    { quantity: 'processes', label: trans.__('Processes'), format: count },
    { quantity: 'disk', label: trans.__('Disk'), format: bytes },
    { quantity: 'output', label: trans.__('Output'), format: bytes }
  ];
}

export function Card({ sandbox, pending, trans, onAction }: CardProps): React.JSX.Element {
  const { name, state, notebook, backend, cell, usage, limits, guarantees, weaker } = sandbox;
  const held = Object.entries(guarantees);
  const less = held.filter(([guarantee]) => weaker[guarantee] !== undefined).length;
  const dead = state === 'dead';
  return (
    <li className="jp-ipysandbox-card" aria-label={trans.__('Sandbox %1', name)}>
      <div className="jp-ipysandbox-title">
        <h3>{name}</h3>
        <span className="jp-ipysandbox-state" data-state={state}>
          {stateLabel(state, trans)}
        </span>
      </div>
      <p className="jp-ipysandbox-where">
        {notebook === null ? backend : `${notebook} · ${backend}`}
      </p>
      {cell !== null && (
        <p className="jp-ipysandbox-cell">
          {limits.wall === undefined
            ? trans.__('Cell %1 for %2', cell.number, duration(cell.elapsed))
            : trans.__(
                'Cell %1 for %2 of %3',
                cell.number,
                duration(cell.elapsed),
                duration(limits.wall)
              )}
        </p>
      )}
      <div className="jp-ipysandbox-meters">
        {meters(trans).map(({ quantity, label, format }) => {
          const value = usage[quantity];
          const limit = limits[quantity];
          // Nothing is drawn for what was not measured: a bar at zero would claim that it was.
          return value === undefined || limit === undefined ? null : (
            <Meter key={quantity} label={label} value={value} limit={limit} format={format} />
          );
        })}
      </div>
      {held.length > 0 && (
        <details className="jp-ipysandbox-guarantees">
          <summary>
            {trans._n('%1 guarantee held', '%1 guarantees held', held.length)}
            {less > 0 && trans.__(', %1 of them in a weaker form', less)}
          </summary>
          <dl>
            {held.map(([guarantee, layers]) => (
              <React.Fragment key={guarantee}>
                <dt>{guarantee}</dt>
                <dd>
                  {layers.join(', ')}
                  {weaker[guarantee] !== undefined && (
                    <p className="jp-ipysandbox-weaker">
                      {trans.__('Weaker here: %1', weaker[guarantee])}
                    </p>
                  )}
                </dd>
              </React.Fragment>
            ))}
          </dl>
        </details>
      )}
      <div className="jp-ipysandbox-buttons">
        <button
          type="button"
          className="jp-mod-styled"
          disabled={pending || state !== 'busy'}
          aria-label={trans.__('Interrupt the cell that runs in %1', name)}
          title={trans.__(
            'Stops the running cell. A cell that does not stop within a few seconds is killed with its sandbox, and its variables are lost.'
          )}
          onClick={() => {
            onAction('interrupt');
          }}
        >
          {trans.__('Interrupt')}
        </button>
        <button
          type="button"
          className="jp-mod-styled jp-mod-warn"
          disabled={pending || dead}
          aria-label={trans.__('Kill %1', name)}
          onClick={() => {
            onAction('kill');
          }}
        >
          {trans.__('Kill…')}
        </button>
      </div>
    </li>
  );
}
