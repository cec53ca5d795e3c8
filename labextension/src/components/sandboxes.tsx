/** The list of sandboxes with its loading, empty and error states. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { Action, Sandbox, SandboxesModel } from '../tokens';
import { Card } from './card';

export interface SandboxesProps {
  model: SandboxesModel;
  trans: TranslationBundle;
  onAction: (sandbox: Sandbox, action: Action) => void;
}

export function Sandboxes({ model, trans, onAction }: SandboxesProps): React.JSX.Element {
  return (
    <>
      <h2 className="jp-ipysandbox-header">{trans.__('Sandboxes')}</h2>
      {model.error !== null && (
        <div className="jp-ipysandbox-error" role="alert">
          <p>{model.error}</p>
          <button type="button" className="jp-mod-styled" onClick={() => void model.refresh()}>
            {trans.__('Try again')}
          </button>
        </div>
      )}
      {model.problems.map((problem, index) => (
        <div key={index} className="jp-ipysandbox-error" role="status">
          {problem}
        </div>
      ))}
      <Body model={model} trans={trans} onAction={onAction} />
    </>
  );
}

function Body({ model, trans, onAction }: SandboxesProps): React.JSX.Element | null {
  if (!model.loaded) {
    return (
      <p className="jp-ipysandbox-message" role="status">
        {trans.__('Looking for sandboxes…')}
      </p>
    );
  }
  if (model.sandboxes.length > 0) {
    return (
      <ul className="jp-ipysandbox-cards">
        {model.sandboxes.map(sandbox => (
          <Card
            key={JSON.stringify([sandbox.supervisor, sandbox.name])}
            sandbox={sandbox}
            pending={model.pending(sandbox)}
            trans={trans}
            onAction={action => {
              onAction(sandbox, action);
            }}
          />
        ))}
      </ul>
    );
  }
  // "None" would be a guess while a supervisor or the server can't be asked.
  if (model.error !== null || model.problems.length > 0) {
    return null;
  }
  return (
    <p className="jp-ipysandbox-message">
      {trans.__('No sandbox is running. Put this on top of a cell to run it in one:')}{' '}
      <code>%%sandbox</code>
    </p>
  );
}
