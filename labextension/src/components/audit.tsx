/** The audit trail: what ran and what it tried, newest first and live, with filters, details, verify and export. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { AuditModel } from '../auditModel';
import { PAGE_SIZE } from '../auditModel';
import { baseName, moment } from '../format';
import type { AuditFilter, AuditRecord, FeedStatus, Severity } from '../tokens';
import { actionKinds, actionText, detailRows, recordSummary } from '../words';

/** While somebody types, the server is not asked for every letter (milliseconds). */
const TYPING = 300;

export interface AuditProps {
  model: AuditModel;
  status: FeedStatus;
  trans: TranslationBundle;
  verify: () => Promise<{ ok: boolean; text: string }>;
  exportUrl: (filter: AuditFilter, format: 'jsonl' | 'csv') => string;
}

export function Audit(props: AuditProps): React.JSX.Element {
  const { model, status, trans } = props;
  React.useEffect(() => {
    void model.refresh();
  }, [model, status]);
  const { records, busy, error, page, hasOlder } = model;
  // Where there is but one, its name on every line says nothing.
  const named = model.seen('sandbox').length > 1;
  const live = page === 1 && status === 'live';
  return (
    <>
      <Filters {...props} />
      <Tools {...props} />
      {error !== null && (
        <div className="jp-ipysandbox-error" role="alert">
          <p>{error}</p>
          <button type="button" className="jp-mod-styled" onClick={() => void model.refresh()}>
            {trans.__('Try again')}
          </button>
        </div>
      )}
      <p className="jp-ipysandbox-live" data-live={live} role="status">
        {busy
          ? trans.__('Searching…')
          : live
            ? trans.__('Newest first; new records appear by themselves.')
            : page > 1
              ? trans.__('Page %1; new records are on the first.', page)
              : trans.__('Not connected.')}
      </p>
      {records.length === 0 && !busy && error === null && (
        <p className="jp-ipysandbox-message">
          {hasOlder
            ? trans.__('Nothing found so far. The search can go further back.')
            : trans.__('No record fits.')}
        </p>
      )}
      <ul className="jp-ipysandbox-records" aria-busy={busy}>
        {records.map(record => (
          <Row key={record.seq} record={record} named={named} trans={trans} />
        ))}
      </ul>
      {(page > 1 || hasOlder) && (
        <div className="jp-ipysandbox-buttons">
          <button
            type="button"
            className="jp-mod-styled"
            disabled={busy || page === 1}
            onClick={() => void model.newer()}
          >
            {trans.__('‹ Newer')}
          </button>
          <button
            type="button"
            className="jp-mod-styled"
            disabled={busy || !hasOlder}
            onClick={() => void model.older()}
          >
            {records.length < PAGE_SIZE && hasOlder
              ? trans.__('Search further back ›')
              : trans.__('Older ›')}
          </button>
        </div>
      )}
    </>
  );
}

function Filters({ model, trans }: AuditProps): React.JSX.Element {
  const { filter } = model;
  const [text, setText] = React.useState(filter.text);
  React.useEffect(() => {
    if (text === model.filter.text) {
      return;
    }
    const timer = window.setTimeout(() => void model.setFilter({ text }), TYPING);
    return () => {
      window.clearTimeout(timer);
    };
  }, [model, text]);
  const select = (
    label: string,
    value: string,
    options: [string, string][],
    change: (value: string) => Partial<AuditFilter>
  ): React.JSX.Element => (
    <select
      aria-label={label}
      title={label}
      value={value}
      onChange={event => void model.setFilter(change(event.target.value))}
    >
      {options.map(([key, shown]) => (
        <option key={key} value={key}>
          {shown}
        </option>
      ))}
    </select>
  );
  const severities: [string, string][] = [
    ['info', trans.__('All severities')],
    ['warning', trans.__('Warnings and alerts')],
    ['alert', trans.__('Alerts')]
  ];
  const sandboxes: [string, string][] = [
    ['', trans.__('All sandboxes')],
    ...model.seen('sandbox').map((name): [string, string] => [name, name])
  ];
  const notebooks: [string, string][] = [
    ['', trans.__('All notebooks')],
    ...model.seen('notebook').map((name): [string, string] => [name, baseName(name)])
  ];
  return (
    <div className="jp-ipysandbox-filters" role="search">
      <input
        type="search"
        placeholder={trans.__('Search text')}
        aria-label={trans.__('Search the audit trail for text')}
        maxLength={200}
        value={text}
        onChange={event => {
          setText(event.target.value);
        }}
      />
      {select(trans.__('Kind'), filter.action, actionKinds(trans), action => ({ action }))}
      {select(trans.__('Severity'), filter.severity, severities, severity => ({
        severity: severity as Severity
      }))}
      {select(trans.__('Sandbox'), filter.sandbox, sandboxes, sandbox => ({ sandbox }))}
      {select(trans.__('Notebook'), filter.notebook, notebooks, notebook => ({ notebook }))}
    </div>
  );
}

function Tools({ model, trans, verify, exportUrl }: AuditProps): React.JSX.Element {
  const [found, setFound] = React.useState<{ ok: boolean; text: string } | null>(null);
  const [running, setRunning] = React.useState(false);
  const run = async (): Promise<void> => {
    setRunning(true);
    try {
      setFound(await verify());
    } catch (reason) {
      setFound({ ok: false, text: reason instanceof Error ? reason.message : String(reason) });
    }
    setRunning(false);
  };
  const download = (format: 'jsonl' | 'csv', label: string, title: string): React.JSX.Element => (
    <a
      className="jp-ipysandbox-link"
      href={exportUrl(model.filter, format)}
      download={`ipysandbox-audit.${format}`}
      title={title}
    >
      {label}
    </a>
  );
  return (
    <>
      <div className="jp-ipysandbox-tools">
        <button
          type="button"
          className="jp-mod-styled"
          disabled={running}
          title={trans.__('Reads all of it and says whether a record is missing')}
          onClick={() => void run()}
        >
          {running ? trans.__('Verifying…') : trans.__('Verify')}
        </button>
        <span>
          {trans.__('Export:')}{' '}
          {download('jsonl', 'JSONL', trans.__('What fits the filters, one JSON object a line'))}{' '}
          {download('csv', 'CSV', trans.__('What fits the filters, as a table'))}
        </span>
      </div>
      {found !== null && (
        <p className={found.ok ? 'jp-ipysandbox-note' : 'jp-ipysandbox-error'} role="status">
          {found.text}
        </p>
      )}
    </>
  );
}

const Row = React.memo(function Row(props: {
  record: AuditRecord;
  named: boolean;
  trans: TranslationBundle;
}): React.JSX.Element {
  const { record, named, trans } = props;
  const [open, setOpen] = React.useState(false);
  const { severity, action, sandbox } = record;
  return (
    <li data-severity={severity}>
      <details
        onToggle={event => {
          setOpen(event.currentTarget.open);
        }}
      >
        <summary>
          <time dateTime={record.time} title={record.time}>
            {moment(record.time)}
          </time>{' '}
          <b title={action}>{actionText(action, trans)}</b>
          {severity !== 'info' && (
            <span className="jp-ipysandbox-severity">
              {severity === 'alert' ? trans.__('alert') : trans.__('warning')}
            </span>
          )}{' '}
          <span>{recordSummary(record)}</span>{' '}
          {named && sandbox !== null && <span className="jp-ipysandbox-of">{sandbox}</span>}
        </summary>
        {open && <Details record={record} trans={trans} />}
      </details>
    </li>
  );
});

function Details(props: { record: AuditRecord; trans: TranslationBundle }): React.JSX.Element {
  const { record, trans } = props;
  const rows: [string, string][] = [
    [trans.__('number'), String(record.seq)],
    [trans.__('time'), record.time],
    [trans.__('kind'), record.action],
    ...(record.notebook === null
      ? []
      : [[trans.__('notebook'), record.notebook] as [string, string]]),
    ...(record.sandbox === null ? [] : [[trans.__('sandbox'), record.sandbox] as [string, string]]),
    ...detailRows(record.details)
  ];
  return (
    <dl className="jp-ipysandbox-details">
      {rows.map(([key, value], index) => (
        <div key={index}>
          <dt>{key}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
