/** Adds the panel "Sandboxes" to JupyterLab and Notebook 7. */
import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { ServerApi } from './api';
import { PollingModel } from './model';
import { SandboxesPanel } from './panel';

const OPEN = 'ipysandbox:open';

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'ipysandbox:panel',
  description: 'Shows what each sandbox does and may do, and stops it.',
  autoStart: true,
  // All optional: Notebook 7 has no layout to restore.
  optional: [ITranslator, ICommandPalette, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ) => {
    const trans = (translator ?? nullTranslator).load('ipysandbox');
    const model = new PollingModel(new ServerApi(app.serviceManager.serverSettings));
    const panel = new SandboxesPanel(model, trans);
    panel.disposed.connect(() => {
      model.dispose();
    });
    // Below the rank of JupyterLab's own panels, so that it adds itself at the end of the bar.
    app.shell.add(panel, 'right', { rank: 900 });
    restorer?.add(panel, panel.id);

    app.commands.addCommand(OPEN, {
      label: trans.__('Show Sandboxes'),
      caption: trans.__('What each sandbox does and may do, and a way to stop it'),
      describedBy: { args: { type: 'object', properties: {} } },
      execute: () => {
        app.shell.activateById(panel.id);
      }
    });
    palette?.addItem({ command: OPEN, category: trans.__('Sandbox') });
  }
};

export default plugin;
