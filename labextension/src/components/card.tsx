/** One sandbox: what it is, what it does now, how near it is to its limits, and the buttons that stop it. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { baseName, bytes, count, duration, processors } from '../format';
import type { Action, Sample, Sandbox } from '../tokens';
import { stateLabel } from '../words';
import { Chart } from './chart';
import { Guarantees } from './guarantees';

export interface CardProps {
  sandbox: Sandbox;
  history: readonly Sample[];
  pending: boolean;
  chosen: boolean;
  trans: TranslationBundle;
  onAction: (action: Action) => void;
  onOpen: (path: string) => void;
  onDoctor: () => void;
  onDismiss: () => void;
}

export function Card(props: CardProps): React.JSX.Element {
  const { sandbox, chosen, trans, onDismiss } = props;
  const { name, state, cell } = sandbox;
  const node = React.useRef<HTMLLIElement>(null);
  React.useEffect(() => {
    if (chosen) {
      node.current?.scrollIntoView({ block: 'nearest' });
      node.current?.focus();
    }
  }, [chosen]);
  const dead = state === 'dead';
  return (
    <li
      ref={node}
      tabIndex={-1}
      className="jp-ipysandbox-card"
      data-chosen={chosen}
      data-state={state}
      aria-label={trans.__('Sandbox %1', name)}
    >
      <div className="jp-ipysandbox-title">
        <h3>{name}</h3>
        <span className="jp-ipysandbox-state" data-state={state}>
          {cell?.asks ? trans.__('waits for your answer') : stateLabel(state, trans)}
        </span>
        {dead && (
          <button
            type="button"
            className="jp-ipysandbox-close"
            aria-label={trans.__('Take the card of %1 away', name)}
            onClick={onDismiss}
          >
            ×
          </button>
        )}
      </div>
      <Where {...props} />
      <Doing sandbox={sandbox} trans={trans} />
      {!dead && (
        <>
          <Meters {...props} />
          <Held {...props} />
          <Buttons {...props} />
        </>
      )}
    </li>
  );
}

function Where({ sandbox, trans, onOpen }: CardProps): React.JSX.Element {
  const { notebook, opens, project } = sandbox;
  const place = notebook ?? project;
  return (
    <p className="jp-ipysandbox-where">
      {opens !== null && notebook !== null ? (
        <button
          type="button"
          className="jp-ipysandbox-link"
          title={trans.__('Go to %1', notebook)}
          onClick={() => {
            onOpen(opens);
          }}
        >
          {baseName(notebook)}
        </button>
      ) : (
        <span title={place ?? ''}>{place === null ? '' : baseName(place)}</span>
      )}
      {notebook === null && place !== null && <span> {trans.__('(a program, no notebook)')}</span>}
    </p>
  );
}

/** The cell that runs, or how the last one ended. */
function Doing({ sandbox, trans }: Pick<CardProps, 'sandbox' | 'trans'>): React.JSX.Element | null {
  const { state, cell, last, limits } = sandbox;
  if (cell !== null) {
    return (
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
    );
  }
  const how = last === null ? null : ended(last.status, trans);
  return (
    <>
      {last !== null && (
        <p className="jp-ipysandbox-cell">
          {trans.__('Cell %1 %2', last.number, how)}
          {last.usage.wall !== undefined && ` · ${duration(last.usage.wall)}`}
          {last.usage.cpu !== undefined && ` · ${trans.__('CPU %1', duration(last.usage.cpu))}`}
        </p>
      )}
      {last?.limit && (last.status === 'limit' || state === 'dead') && (
        <p className="jp-ipysandbox-why">{last.limit}</p>
      )}
      {state === 'dead' && (
        <p className="jp-ipysandbox-cell">
          {trans.__('Its variables are gone; the next cell starts a new sandbox.')}
        </p>
      )}
    </>
  );
}

function ended(status: string, trans: TranslationBundle): string {
  switch (status) {
    case 'ok':
      return trans.__('finished');
    case 'error':
      return trans.__('raised an error');
    case 'refused':
      return trans.__('was refused');
    case 'limit':
      return trans.__('met a limit');
    case 'interrupted':
      return trans.__('was interrupted');
    case 'died':
      return trans.__('was ended');
    default:
      return status;
  }
}

function Meters({ sandbox, history, trans }: CardProps): React.JSX.Element {
  const { usage, limits } = sandbox;
  const points = (field: keyof Sample): [number, number][] =>
    history.map(sample => [sample.time, sample[field]]);
  const newest = history[history.length - 1];
  const load = newest?.load ?? 0;
  const busiest = history.reduce((most, sample) => Math.max(most, sample.load), 0);
  const crowded = history.reduce((most, sample) => Math.max(most, sample.processes), 0);
  const charts: (React.JSX.Element | null)[] = [];
  const add = (
    field: keyof Sample,
    label: string,
    hint: string,
    value: number | undefined,
    limit: number | undefined,
    format: (value: number) => string
  ): void => {
    // Nothing is drawn for what was not measured: a line at zero would claim that it was.
    if (value !== undefined && limit !== undefined) {
      charts.push(
        <Chart
          key={field}
          label={label}
          hint={hint}
          value={value}
          limit={limit}
          format={format}
          points={points(field)}
        />
      );
    }
  };
  const used = usage.cpu_total === undefined ? undefined : load;
  add('load', trans.__('CPU'), trans.__('Processors in use now'), used, limits.cpus, processors);
  const held = trans.__('Memory that all its processes hold together');
  add('memory', trans.__('Memory'), held, usage.memory, limits.memory, bytes);
  const counted = trans.__('Processes and threads; a few of them run the sandbox itself');
  add('processes', trans.__('Processes'), counted, usage.processes, limits.processes, count);
  const written = trans.__('Temporary files, changes and what it wrote to writable folders');
  add('disk', trans.__('Disk'), written, usage.disk, limits.disk, bytes);
  const shown = trans.__('What the running cell has printed and displayed');
  add('output', trans.__('Output'), shown, usage.output, limits.output, bytes);
  if (usage.gpu_allowed) {
    const card = trans.__('Memory on the graphics card that is nearest to its share');
    add('gpu', trans.__('GPU memory'), card, usage.gpu, usage.gpu_allowed, bytes);
  }
  const peaks = [
    ...(usage.memory_peak === undefined ? [] : [bytes(usage.memory_peak)]),
    ...(busiest >= 0.05 ? [trans.__('%1 CPUs', processors(Math.round(busiest * 10) / 10))] : []),
    ...(crowded > 0 ? [trans._n('%1 process', '%1 processes', Math.round(crowded))] : [])
  ];
  const cpu = usage.cpu;
  return (
    <>
      <div className="jp-ipysandbox-charts">
        {charts}
        <div
          className="jp-ipysandbox-chart"
          title={trans.__(
            'A sandbox has no network in this version; tries are in the audit trail.'
          )}
        >
          <div className="jp-ipysandbox-chart-text">
            <span className="jp-ipysandbox-chart-label">{trans.__('Network')}</span>
            <span className="jp-ipysandbox-chart-value">{trans.__('none')}</span>
          </div>
        </div>
      </div>
      <p className="jp-ipysandbox-peaks">
        {sandbox.cell !== null && cpu !== undefined && limits.cpu !== undefined && (
          <span title={trans.__('Processor time of this cell, of what a cell may use')}>
            {trans.__('CPU time %1 of %2', duration(cpu), duration(limits.cpu))}
            {peaks.length > 0 && ' · '}
          </span>
        )}
        {peaks.length > 0 && (
          <span title={trans.__('The most since it started, as far as it was seen')}>
            {trans.__('Most: %1', peaks.join(', '))}
          </span>
        )}
      </p>
    </>
  );
}

const Held = React.memo(
  function Held({ sandbox, trans, onDoctor }: CardProps): React.JSX.Element | null {
    const { backend, guarantees, weaker } = sandbox;
    const held = Object.keys(guarantees);
    const less = held.filter(guarantee => weaker[guarantee] !== undefined).length;
    return held.length === 0 ? null : (
      <details className="jp-ipysandbox-held">
        <summary>
          {trans._n('%1 guarantee held', '%1 guarantees held', held.length)}
          {less > 0 && trans.__(', %1 of them in a weaker form', less)}
        </summary>
        <Guarantees guarantees={guarantees} weaker={weaker} trans={trans} />
        <p>
          {trans.__('Backend: %1.', backend)}{' '}
          <button type="button" className="jp-ipysandbox-link" onClick={onDoctor}>
            {trans.__('What this machine can hold')}
          </button>
        </p>
      </details>
    );
  },
  (before, after) =>
    JSON.stringify([before.sandbox.guarantees, before.sandbox.weaker]) ===
    JSON.stringify([after.sandbox.guarantees, after.sandbox.weaker])
);

function Buttons({ sandbox, pending, trans, onAction }: CardProps): React.JSX.Element {
  const { name, state } = sandbox;
  const button = (
    action: Action,
    label: string,
    aria: string,
    title: string,
    disabled: boolean
  ): React.JSX.Element => (
    <button
      type="button"
      className={action === 'kill' ? 'jp-mod-styled jp-mod-warn' : 'jp-mod-styled'}
      disabled={disabled}
      aria-label={aria}
      title={title}
      onClick={() => {
        onAction(action);
      }}
    >
      {label}
    </button>
  );
  return (
    <div className="jp-ipysandbox-buttons">
      {button(
        'interrupt',
        trans.__('Interrupt'),
        trans.__('Interrupt the cell that runs in %1', name),
        trans.__(
          'Stops the running cell and keeps the variables. Code that goes on for 5 seconds all the same is killed with its sandbox.'
        ),
        pending || state !== 'busy'
      )}
      {button(
        'restart',
        trans.__('Restart…'),
        trans.__('Restart %1', name),
        trans.__('Starts the sandbox anew: its variables are lost.'),
        pending
      )}
      {button(
        'kill',
        trans.__('Kill…'),
        trans.__('Kill %1', name),
        trans.__('Ends every process of the sandbox at once: its variables are lost.'),
        pending
      )}
    </div>
  );
}
