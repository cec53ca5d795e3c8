/** The list of sandboxes with its loading, empty and error states. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { keyOf } from '../tokens';
import type { Action, Sandbox, SandboxesModel } from '../tokens';
import { Card } from './card';

export interface SandboxesProps {
  /** The notebook in front: its sandboxes come first. */
  notebook: string | null;
  model: SandboxesModel;
  trans: TranslationBundle;
  onAction: (sandbox: Sandbox, action: Action) => void;
  onOpen: (path: string) => void;
  onDoctor: () => void;
}

export function Sandboxes(props: SandboxesProps): React.JSX.Element {
  const { model, trans } = props;
  return (
    <>
      {model.status === 'lost' && (
        <div className="jp-ipysandbox-error" role="alert">
          <p>{trans.__('The connection to the server is lost. Trying again…')}</p>
          <button
            type="button"
            className="jp-mod-styled"
            onClick={() => {
              model.retry();
            }}
          >
            {trans.__('Try now')}
          </button>
        </div>
      )}
      {model.error !== null && (
        <div className="jp-ipysandbox-error" role="alert">
          <p>{model.error}</p>
          <button
            type="button"
            className="jp-mod-styled"
            onClick={() => {
              model.dismiss();
            }}
          >
            {trans.__('Close')}
          </button>
        </div>
      )}
      {model.problems.map((problem, index) => (
        <div key={index} className="jp-ipysandbox-error" role="status">
          {problem}
        </div>
      ))}
      <Body {...props} />
    </>
  );
}

function Body(props: SandboxesProps): React.JSX.Element | null {
  const { model, notebook, trans, onAction, onOpen, onDoctor } = props;
  if (!model.loaded) {
    return (
      <p className="jp-ipysandbox-message" role="status">
        {trans.__('Looking for sandboxes…')}
      </p>
    );
  }
  const own = (sandbox: Sandbox): boolean => sandbox.opens !== null && sandbox.opens === notebook;
  const sandboxes = [
    ...model.sandboxes.filter(own),
    ...model.sandboxes.filter(sandbox => !own(sandbox))
  ];
  if (sandboxes.length > 0) {
    return (
      <ul className="jp-ipysandbox-cards">
        {sandboxes.map(sandbox => (
          <Card
            key={keyOf(sandbox)}
            sandbox={sandbox}
            history={model.history(sandbox)}
            pending={model.pending(sandbox)}
            chosen={model.chosen === keyOf(sandbox)}
            trans={trans}
            onAction={action => {
              onAction(sandbox, action);
            }}
            onOpen={onOpen}
            onDoctor={onDoctor}
            onDismiss={() => {
              model.dismiss(sandbox);
            }}
          />
        ))}
      </ul>
    );
  }
  // "None" would be a guess while a supervisor or the server can't be asked.
  if (model.status === 'lost' || model.problems.length > 0) {
    return null;
  }
  return (
    <div className="jp-ipysandbox-message">
      <p>{trans.__('No sandbox is running.')}</p>
      <p>{trans.__('Load the extension once in a notebook:')}</p>
      <pre>%load_ext ipysandbox</pre>
      <p>{trans.__('Then put this on top of a cell to run it in a sandbox:')}</p>
      <pre>%%sandbox</pre>
    </div>
  );
}
