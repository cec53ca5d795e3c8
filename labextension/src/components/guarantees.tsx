/** What a sandbox promises and what holds each promise, in words first and with the layers' names behind them. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { guaranteeText, layerText } from '../words';

export interface GuaranteesProps {
  guarantees: Record<string, string[]>;
  weaker: Record<string, string>;
  trans: TranslationBundle;
}

export function Guarantees({ guarantees, weaker, trans }: GuaranteesProps): React.JSX.Element {
  return (
    <ul className="jp-ipysandbox-guarantees">
      {Object.entries(guarantees).map(([name, layers]) => (
        <li key={name} data-weaker={weaker[name] !== undefined}>
          <span title={name}>{guaranteeText(name, trans)}</span>
          <small>
            {layers.map((layer, index) => (
              <React.Fragment key={index}>
                {index > 0 && ', '}
                <span title={layerText(layer, trans)}>{layer}</span>
              </React.Fragment>
            ))}
          </small>
          {weaker[name] !== undefined && (
            <p className="jp-ipysandbox-weaker">{trans.__('Weaker here: %1', weaker[name])}</p>
          )}
        </li>
      ))}
    </ul>
  );
}
