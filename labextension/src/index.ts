/** Adds the panel "Sandboxes" to JupyterLab and Notebook 7, with its commands, shields and status bar item. */
import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { PageConfig } from '@jupyterlab/coreutils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';

import { ServerApi } from './api';
import { AuditModel } from './auditModel';
import { Extension } from './extension';
import { SocketFeed } from './feed';
import { FeedModel } from './model';
import { Notebooks, frontOf, newCellsSandboxed } from './notebooks';
import { openAt } from './open';
import { SandboxesPanel } from './panel';
import type { Tab } from './panel';
import { StatusItem } from './statusItem';
import type { Sandbox } from './tokens';

const PLUGIN = 'ipysandbox:panel';

const plugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'Shows what each sandbox does and may do, and stops it.',
  autoStart: true,
  // All optional: Notebook 7 has no layout to restore and no status bar.
  optional: [ITranslator, ICommandPalette, ILayoutRestorer, ISettingRegistry, IStatusBar],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    registry: ISettingRegistry | null,
    statusBar: IStatusBar | null
  ) => {
    const trans = (translator ?? nullTranslator).load('ipysandbox');
    const { serviceManager } = app;
    const api = new ServerApi(serviceManager.serverSettings);
    const feed = new SocketFeed(serviceManager.serverSettings);
    const { sessions } = serviceManager;
    const paths = (kernel: string): string[] =>
      [...sessions.running()]
        .filter(session => session.type === 'notebook' && session.kernel?.id === kernel)
        .map(session => session.path);
    const model = new FeedModel(api, feed, undefined, paths);
    const extension = new Extension(app);
    const settings = new Settings();
    const notebooks: Notebooks = new Notebooks(app, {
      model,
      trans,
      extension,
      shields: () => settings.shields,
      settingsChanged: settings.changed,
      show: sandbox => {
        show('sandboxes', sandbox);
      }
    });
    const around = new Signal<object, void>({});
    for (const changed of [sessions.runningChanged, extension.changed, app.shell.currentChanged]) {
      (changed as ISignal<unknown, unknown> | undefined)?.connect(() => {
        around.emit();
      });
    }
    const panel = new SandboxesPanel(
      model,
      new AuditModel(api, feed),
      api,
      {
        notebook: () => (notebooks.latest === null ? null : frontOf(notebooks.latest)),
        changed: around,
        lacks: () => notebooks.latest !== null && extension.lacks(notebooks.latest),
        load: () => {
          if (notebooks.latest !== null) {
            void extension.load(notebooks.latest);
          }
        },
        saved: serviceManager.contents.fileChanged,
        open: (path, line) => void openAt(app, path, line)
      },
      trans
    );
    const show = (tab: Tab, sandbox: Sandbox | null = null): void => {
      panel.select(tab);
      model.choose(sandbox);
      app.shell.activateById(panel.id);
    };
    panel.disposed.connect(() => {
      model.dispose();
    });
    // Below the rank of JupyterLab's own panels, so that it adds itself at the end of the bar.
    app.shell.add(panel, 'right', { rank: 900 });
    restorer?.add(panel, panel.id);
    app.docRegistry.addWidgetExtension('Notebook', notebooks);
    model.watch(false);

    const item = new StatusItem(model, trans, () => {
      show('sandboxes');
    });
    const itemChanged = new Signal<object, void>({});
    for (const changed of [model.changed, settings.changed]) {
      (changed as ISignal<unknown, void>).connect(() => {
        itemChanged.emit();
      });
    }
    statusBar?.registerStatusItem('ipysandbox:status', {
      item,
      align: 'right',
      rank: 900,
      isActive: () => settings.statusBar && model.sandboxes.length > 0,
      activeStateChanged: itemChanged
    });
    addCommands({ app, palette, trans, panel, notebooks, show });
    void settings.load(registry).then(async () => {
      await app.restored;
      // The server's page says so where it was started to show the panel, as by `make lab`.
      if (settings.openAtStart || PageConfig.getOption('ipysandboxOpen') === 'true') {
        panel.quiet = true;
        show('sandboxes');
      }
    });
  }
};

/** The user's settings, with their defaults until they are read. */
class Settings {
  readonly changed = new Signal<this, void>(this);
  shields = true;
  statusBar = true;
  openAtStart = false;

  async load(registry: ISettingRegistry | null): Promise<void> {
    try {
      const found = await registry?.load(PLUGIN);
      const read = (): void => {
        this.shields = found?.composite.shields !== false;
        this.statusBar = found?.composite.statusBar !== false;
        this.openAtStart = found?.composite.openAtStart === true;
        this.changed.emit();
      };
      found?.changed.connect(read);
      read();
    } catch (reason) {
      console.warn('ipysandbox: the settings can’t be read; defaults are used.', reason);
    }
  }
}

interface Parts {
  app: JupyterFrontEnd;
  palette: ICommandPalette | null;
  trans: TranslationBundle;
  panel: SandboxesPanel;
  notebooks: Notebooks;
  show: (tab: Tab) => void;
}

function addCommands(parts: Parts): void {
  const { app, palette, trans, panel, notebooks, show } = parts;
  const add = (
    id: string,
    label: string,
    execute: () => void,
    more: { isEnabled?: () => boolean; isToggled?: () => boolean } = {}
  ): void => {
    app.commands.addCommand(id, {
      label,
      describedBy: { args: { type: 'object', properties: {} } },
      execute,
      ...more
    });
    palette?.addItem({ command: id, category: trans.__('Sandbox') });
  };
  const mine = (): Sandbox[] => {
    const { current } = notebooks;
    return current === null ? [] : notebooks.of(current);
  };
  const busy = (): Sandbox[] => mine().filter(sandbox => sandbox.state === 'busy');
  const living = (): Sandbox[] => mine().filter(sandbox => sandbox.state !== 'dead');
  add('ipysandbox:open', trans.__('Show Sandboxes'), () => {
    show('sandboxes');
  });
  add('ipysandbox:policy', trans.__('Show Policy'), () => {
    show('policy');
  });
  add('ipysandbox:audit', trans.__('Show Audit Trail'), () => {
    show('audit');
  });
  add(
    'ipysandbox:doctor',
    trans.__('What This Machine Can Hold (Doctor)'),
    () => void panel.doctor()
  );
  add(
    'ipysandbox:interrupt',
    trans.__('Interrupt This Notebook’s Sandbox'),
    () => {
      busy().forEach(sandbox => void panel.act(sandbox, 'interrupt'));
    },
    { isEnabled: () => busy().length > 0 }
  );
  /** One question for each: a notebook may have several, and the answer need not be the same. */
  const ask = async (action: 'restart' | 'kill'): Promise<void> => {
    for (const sandbox of living()) {
      await panel.act(sandbox, action);
    }
  };
  const any = { isEnabled: (): boolean => living().length > 0 };
  add(
    'ipysandbox:restart',
    trans.__('Restart This Notebook’s Sandbox…'),
    () => void ask('restart'),
    any
  );
  add('ipysandbox:kill', trans.__('Kill This Notebook’s Sandbox…'), () => void ask('kill'), any);
  add(
    'ipysandbox:new-cells',
    trans.__('Run New Cells Sandboxed'),
    () => {
      const { current } = notebooks;
      if (current !== null) {
        notebooks.toggle(current);
      }
    },
    {
      isEnabled: () => notebooks.current !== null,
      isToggled: () => notebooks.current !== null && newCellsSandboxed(notebooks.current)
    }
  );
}

export default plugin;
