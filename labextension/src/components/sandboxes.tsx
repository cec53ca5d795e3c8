/** The list of sandboxes with its loading, empty and error states. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { LOAD, MAGIC } from '../extension';
import { baseName } from '../format';
import { belongs, keyOf } from '../tokens';
import type { Action, Front, Sandbox, SandboxesModel } from '../tokens';
import { Card } from './card';

export interface SandboxesProps {
  /** The notebook in front: its sandboxes come first. */
  notebook: Front | null;
  /** Its kernel does not know `%%sandbox`. */
  lacks: boolean;
  model: SandboxesModel;
  trans: TranslationBundle;
  onLoad: () => void;
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
      <Missing {...props} />
      <Body {...props} />
    </>
  );
}

/** What keeps the notebook in front from running any sandboxed cell, whoever else runs some. */
function Missing(props: SandboxesProps): React.JSX.Element | null {
  const { lacks, notebook, trans, onLoad } = props;
  return !lacks || notebook === null ? null : (
    <div className="jp-ipysandbox-missing" role="status">
      <p>
        {trans.__(
          'ipysandbox is not loaded in %1: its cells with %2 do not run before “%3” has run.',
          baseName(notebook.path),
          MAGIC,
          LOAD
        )}
      </p>
      <button type="button" className="jp-mod-styled" onClick={onLoad}>
        {trans.__('Load it')}
      </button>
    </div>
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
  const own = (sandbox: Sandbox): boolean => belongs(sandbox, notebook);
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
      {!props.lacks && (
        <>
          <p>{trans.__('Load the extension once in a notebook:')}</p>
          <pre>{LOAD}</pre>
        </>
      )}
      <p>{trans.__('Put this on top of a cell to run it in a sandbox:')}</p>
      <pre>{MAGIC}</pre>
    </div>
  );
}
