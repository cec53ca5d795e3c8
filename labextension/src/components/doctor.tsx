/** What this machine can hold: the report of `ipysandbox doctor`. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { DoctorReport } from '../tokens';
import { guaranteeText, layerText } from '../words';
import { useLoaded } from './loaded';

export interface DoctorProps {
  load: () => Promise<DoctorReport>;
  trans: TranslationBundle;
}

export function Doctor({ load, trans }: DoctorProps): React.JSX.Element {
  const { value, error, again } = useLoaded(load);
  if (error !== null) {
    return (
      <div className="jp-ipysandbox-error" role="alert">
        <p>{error}</p>
        <button type="button" className="jp-mod-styled" onClick={again}>
          {trans.__('Try again')}
        </button>
      </div>
    );
  }
  if (value === null) {
    return (
      <p className="jp-ipysandbox-message" role="status">
        {trans.__('Looking at this machine…')}
      </p>
    );
  }
  const { report } = value;
  const weaker = Object.fromEntries(report.notes.map(note => [note.guarantee, note.text]));
  return (
    <div className="jp-ipysandbox-doctor">
      <p>
        {report.gaps.length > 0
          ? trans.__('No sandbox can be started here: nothing runs with a guarantee missing.')
          : report.notes.length > 0
            ? trans.__('Sandboxes can be started here, weaker in what is named below.')
            : trans.__('Sandboxes can be started here with every guarantee.')}
      </p>
      {report.advice.map((one, index) => (
        <React.Fragment key={index}>
          <p>
            <b>{one.cause}</b>: {one.why}
          </p>
          <ul>
            {one.steps.map((step, at) => (
              <li key={at}>
                <pre>{step}</pre>
              </li>
            ))}
          </ul>
        </React.Fragment>
      ))}
      <table>
        <thead>
          <tr>
            <th scope="col">{trans.__('Held')}</th>
            <th scope="col">{trans.__('Guarantee')}</th>
            <th scope="col">{trans.__('By')}</th>
          </tr>
        </thead>
        <tbody>
          {Object.entries(report.guarantees).map(([name, layers]) => (
            <tr key={name}>
              <td>{weaker[name] === undefined ? trans.__('yes') : trans.__('weaker')}</td>
              <td title={name}>{guaranteeText(name, trans)}</td>
              <td>
                {layers.map((layer, index) => (
                  <React.Fragment key={index}>
                    {index > 0 && ', '}
                    <span title={layerText(layer, trans)}>{layer}</span>
                  </React.Fragment>
                ))}
                {weaker[name] !== undefined && <p>{trans.__('Weaker here: %1', weaker[name])}</p>}
              </td>
            </tr>
          ))}
          {report.gaps.map(gap => (
            <tr key={gap.guarantee} data-missing="true">
              <td>{trans.__('no')}</td>
              <td title={gap.guarantee}>{guaranteeText(gap.guarantee, trans)}</td>
              <td>
                {gap.reason}. {gap.remedy}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className="jp-ipysandbox-facts">
        {Object.entries(report.machine)
          .map(([name, fact]) => `${name}: ${fact}`)
          .join(' · ')}
      </p>
    </div>
  );
}
