/** In notebooks: a shield on each `%%sandbox` cell, and a button that puts `%%sandbox` on top of new cells. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { DocumentRegistry, IDocumentWidget } from '@jupyterlab/docregistry';
import type { Kernel } from '@jupyterlab/services';
import { ToolbarButton } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';
import { DisposableDelegate } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

import { LOAD, MAGIC, kernelOf } from './extension';
import type { Extension } from './extension';
import { shieldIcon } from './icon';
import { belongs } from './tokens';
import type { Front, Sandbox, SandboxesModel } from './tokens';
import { stateLabel } from './words';

/** What a new cell begins with, and all that it holds before something is typed. */
const BEGUN = `${MAGIC}\n`;
const OPTION = 'ipysandbox';

/** What is used of JupyterLab's notebook: a dependency on all of it would be needed for these types alone. */
interface SharedCell {
  cell_type: string;
  source: string;
  setSource(value: string): void;
  updateSource(start: number, end: number, value: string): void;
  transact(change: () => void, undoable: boolean): void;
}
interface Editor {
  host: HTMLElement;
  hasFocus(): boolean;
  focus(): void;
  getCursorPosition(): { line: number; column: number };
  setCursorPosition(position: { line: number; column: number }): void;
}
interface CellModel {
  sharedModel: SharedCell;
  contentChanged: ISignal<unknown, unknown>;
}
interface CellWidget extends Widget {
  model: CellModel;
  /** Null while the cell is too far out of view to have one. */
  editor: Editor | null;
}
interface NotebookModel {
  cells: {
    changed: ISignal<unknown, { type: string; newValues: CellModel[] }>;
  };
  sharedModel: { insertCell(at: number, cell: { cell_type: string; source: string }): unknown };
  getMetadata(key: string): unknown;
  setMetadata(key: string, value: unknown): void;
  deleteMetadata(key: string): void;
}
export interface NotebookWidget extends IDocumentWidget {
  content: Widget & {
    widgets: readonly CellWidget[];
    model: NotebookModel | null;
    modelContentChanged: ISignal<unknown, unknown>;
    activeCell: CellWidget | null;
    activeCellIndex: number;
    deselectAll(): void;
  };
  toolbar: IDocumentWidget['toolbar'];
  sessionContext?: {
    ready: Promise<void>;
    session: { kernel: Kernel.IKernelConnection | null } | null;
    statusChanged: ISignal<unknown, string>;
    iopubMessage: ISignal<unknown, { header: { msg_type: string }; content: object }>;
  };
}

/** The line that sends a cell to a sandbox, as it is written; null for a cell that runs in none. */
export function magicOf(source: string): string | null {
  // Comments and empty lines may stand above it: ipysandbox puts them below. A \r ends a comment too: what follows it
  // may make a text of what looks like the magic.
  const found = /^(?:[ \t]*(?:#[^\n\r]*)?\n)*[ \t]*(%%sandbox(?:[ \t][^\n]*)?)(?:\n|$)/.exec(
    source
  );
  return found?.[1] ?? null;
}

/** The name of the sandbox that a cell runs in; null where it runs in none. */
export function sandboxOf(source: string): string | null {
  const line = magicOf(source);
  if (line === null) {
    return null;
  }
  const [, ...words] = line.split(/[ \t]+/).filter(word => word !== '');
  const valued = /^(-[pio]|--(policy|input|output|timeout|cpu|memory|backend))$/;
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at] ?? '';
    if (valued.test(word)) {
      at += 1;
    } else if (!word.startsWith('-')) {
      return word;
    }
  }
  return 'main';
}

/** A cell that was made of several: the line of the first stands for all, and is no code further down. */
export function merged(source: string): string {
  const magic = magicOf(source);
  const lines = source.split('\n');
  const first = lines.findIndex(line => line.trimStart() === magic);
  return lines.filter((line, at) => magic === null || at <= first || line !== magic).join('\n');
}

/** Whether new cells of this notebook begin with the magic; kept in the notebook itself. */
export function newCellsSandboxed(notebook: NotebookWidget): boolean {
  const kept = notebook.content.model?.getMetadata(OPTION) as { new_cells?: unknown } | undefined;
  return kept?.new_cells === 'sandbox';
}

export interface NotebooksOptions {
  model: SandboxesModel;
  trans: TranslationBundle;
  extension: Extension;
  shields: () => boolean;
  /** Settings that have to do with notebooks have changed. */
  settingsChanged: ISignal<unknown, void>;
  show: (sandbox: Sandbox | null) => void;
}

/** Looks after every notebook that is open. */
export class Notebooks implements DocumentRegistry.IWidgetExtension<
  NotebookWidget,
  DocumentRegistry.IModel
> {
  readonly toggled = new Signal<this, NotebookWidget>(this);
  private readonly open = new Set<NotebookWidget>();
  private last: NotebookWidget | null = null;
  /** The cells that came to a notebook last, and whether one went, since the last command. */
  private came: CellModel[] = [];
  private went = false;

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly options: NotebooksOptions
  ) {
    options.model.changed.connect(() => {
      this.drawAll();
    });
    options.settingsChanged.connect(() => {
      this.drawAll();
    });
    app.commands.commandExecuted.connect((_, { id }) => {
      if (this.current !== null && id === 'notebook:split-cell-at-cursor') {
        this.keepSplit(this.current);
      } else if (this.current !== null && id.startsWith('notebook:merge-cell')) {
        keepMerged(this.current);
      }
      this.came = [];
      this.went = false;
    });
  }

  /** The notebook in front. */
  get current(): NotebookWidget | null {
    const { currentWidget } = this.app.shell;
    return [...this.open].find(notebook => notebook === currentWidget) ?? null;
  }

  /** The notebook in front, or the last one that was while its policy file, say, is. */
  get latest(): NotebookWidget | null {
    this.last = this.current ?? this.last;
    return this.last !== null && this.open.has(this.last) ? this.last : null;
  }

  createNew(notebook: NotebookWidget): IDisposable {
    const { content, context } = notebook;
    const button = this.button(notebook);
    notebook.toolbar.insertAfter('cellType', 'ipysandbox-new-cells', button);
    this.open.add(notebook);
    const draw = (): void => {
      this.draw(notebook);
    };
    const attend = (): void => {
      const cells = content.model?.cells;
      cells?.changed.connect((_, change) => {
        this.came = change.type === 'add' ? change.newValues : this.came;
        this.went ||= change.type === 'remove';
        if (change.type === 'add' && newCellsSandboxed(notebook)) {
          for (const cell of change.newValues) {
            begin(notebook, cell);
          }
        }
      });
      content.modelContentChanged.connect(draw);
      this.toggled.emit(notebook);
      draw();
    };
    void context.ready.then(() => {
      if (!notebook.isDisposed) {
        attend();
      }
    });
    guard(notebook);
    this.options.extension.follow(notebook);
    return new DisposableDelegate(() => {
      this.open.delete(notebook);
      content.modelContentChanged.disconnect(draw);
      button.dispose();
    });
  }

  /** From now on, new cells of this notebook are sandboxed, or are not any more. */
  toggle(notebook: NotebookWidget): void {
    const { model } = notebook.content;
    if (newCellsSandboxed(notebook)) {
      model?.deleteMetadata(OPTION);
    } else {
      model?.setMetadata(OPTION, { new_cells: 'sandbox' });
      // The empty cells that are there already, above all the one that is about to be filled, are new cells too.
      for (const cell of notebook.content.widgets) {
        begin(notebook, cell.model);
      }
      void this.offer(notebook);
    }
    this.toggled.emit(notebook);
  }

  /** Say so where the kernel does not know the magic yet, and offer what helps. */
  private async offer(notebook: NotebookWidget): Promise<void> {
    const { extension, trans } = this.options;
    if (!(await extension.asked(notebook)) || !newCellsSandboxed(notebook)) {
      return;
    }
    const { button } = await showDialog({
      title: trans.__('ipysandbox is not loaded in this notebook'),
      body: trans.__(
        'Its kernel does not know %1 yet: cells that begin with it do not run before “%2” has run.',
        MAGIC,
        LOAD
      ),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Not now') }),
        Dialog.okButton({ label: trans.__('Load it') })
      ]
    });
    if (button.accept) {
      await extension.load(notebook);
    }
    notebook.content.activate();
  }

  /** All parts of a sandboxed cell that was split stay in its sandbox. */
  private keepSplit(notebook: NotebookWidget): void {
    const { widgets } = notebook.content;
    const [top] = this.came;
    const first = widgets.findIndex(cell => cell.model === top);
    const magic = top === undefined ? null : magicOf(top.sharedModel.source);
    if (first < 0 || magic === null) {
      return;
    }
    // JupyterLab puts the upper parts above the cell, which keeps the last one; older ones put new cells for all.
    const parts = this.came.length + (this.went ? 0 : 1);
    for (const { model, editor } of widgets.slice(first + 1, first + parts)) {
      if (model.sharedModel.cell_type === 'code' && magicOf(model.sharedModel.source) === null) {
        model.sharedModel.updateSource(0, 0, `${magic}\n`);
        toCode(editor);
      }
    }
  }

  /** The sandbox of a name that belongs to a notebook. */
  find(notebook: NotebookWidget, name: string): Sandbox | null {
    return this.of(notebook).find(sandbox => sandbox.name === name) ?? null;
  }

  /** All of one notebook. */
  of(notebook: NotebookWidget): Sandbox[] {
    const front = frontOf(notebook);
    return this.options.model.sandboxes.filter(sandbox => belongs(sandbox, front));
  }

  private button(notebook: NotebookWidget): ToolbarButton {
    const { trans } = this.options;
    const button = new ToolbarButton({
      icon: shieldIcon,
      className: 'jp-ipysandbox-toggle',
      tooltip: trans.__('Run new cells sandboxed'),
      pressedTooltip: trans.__('New cells are sandboxed'),
      pressed: false,
      // The next key is the notebook's: with the button focused, Shift+Enter would press it again and run nothing.
      noFocusOnClick: true,
      onClick: () => {
        this.toggle(notebook);
        notebook.content.activate();
      }
    });
    const update = (_: unknown, which: NotebookWidget): void => {
      if (which === notebook) {
        button.pressed = newCellsSandboxed(notebook);
      }
    };
    this.toggled.connect(update);
    button.disposed.connect(() => {
      this.toggled.disconnect(update);
    });
    return button;
  }

  private drawAll(): void {
    this.open.forEach(notebook => {
      if (notebook.isVisible) {
        this.draw(notebook);
      }
    });
  }

  private draw(notebook: NotebookWidget): void {
    for (const cell of notebook.content.widgets) {
      const { cell_type: type, source } = cell.model.sharedModel;
      const code = type === 'code' && this.options.shields();
      this.drawShield(notebook, cell, code ? sandboxOf(source) : null);
    }
  }

  private drawShield(notebook: NotebookWidget, cell: CellWidget, name: string | null): void {
    let shield = cell.node.querySelector<HTMLButtonElement>(':scope > .jp-ipysandbox-shield');
    if (name === null) {
      shield?.remove();
      return;
    }
    const { trans, show } = this.options;
    if (shield === null) {
      shield = document.createElement('button');
      shield.type = 'button';
      shield.className = 'jp-ipysandbox-shield';
      shieldIcon.element({ container: shield });
      shield.addEventListener('click', () => {
        const now = sandboxOf(cell.model.sharedModel.source);
        show(now === null ? null : this.find(notebook, now));
      });
      cell.node.append(shield);
    }
    const sandbox = this.find(notebook, name);
    const state = sandbox?.state ?? 'none';
    if (shield.dataset.state !== state || shield.dataset.name !== name) {
      shield.dataset.state = state;
      shield.dataset.name = name;
      const said = sandbox === null ? trans.__('not started') : stateLabel(sandbox.state, trans);
      shield.title = trans.__('Sandbox %1: %2. Click for the panel.', name, said);
      shield.setAttribute('aria-label', shield.title);
    }
  }
}

/** A notebook as sandboxes are matched with it. */
export function frontOf(notebook: NotebookWidget): Front {
  return { path: notebook.context.path, kernel: kernelOf(notebook)?.id ?? null };
}

function keepMerged(notebook: NotebookWidget): void {
  const shared = notebook.content.activeCell?.model.sharedModel;
  const source = shared === undefined ? '' : merged(shared.source);
  if (shared?.cell_type === 'code' && source !== shared.source) {
    shared.setSource(source);
  }
}

/** A new cell without content gets the magic; what is pasted stays as it is. */
function begin(notebook: NotebookWidget, model: CellModel): void {
  const { sharedModel } = model;
  if (sharedModel.cell_type === 'code' && sharedModel.source === '') {
    // After the change that added it: the list of cells must not change while it tells of a change.
    queueMicrotask(() => {
      if (sharedModel.source === '') {
        // Not to be undone: "undo" after a few words would take the magic away along with them.
        sharedModel.transact(() => {
          sharedModel.setSource(BEGUN);
        }, false);
        const cell = notebook.content.widgets.find(one => one.model === model);
        toCode(cell?.editor);
      }
    });
  }
}

/**
 * Who enters a cell that holds the magic alone comes to the line below it: what is typed or pasted above the magic or
 * behind it would not run in the sandbox. From there the first line can be reached on purpose, by key or by a click.
 */
function guard(notebook: NotebookWidget): void {
  const { node } = notebook.content;
  const clicked = new WeakSet<CellModel>();
  const entered = (event: Event): CellWidget | undefined =>
    notebook.content.widgets.find(
      cell =>
        cell.model.sharedModel.source === BEGUN && cell.editor?.host.contains(event.target as Node)
    );
  node.addEventListener('focusin', event => {
    const cell = newCellsSandboxed(notebook) ? entered(event) : undefined;
    // After what gave it the focus: an arrow key's way in sets the cursor only then.
    queueMicrotask(() => {
      toCode(cell?.editor);
    });
  });
  // Before the editor sees it, which would put the cursor where the click was.
  node.addEventListener(
    'mousedown',
    event => {
      const cell = event.button === 0 && newCellsSandboxed(notebook) ? entered(event) : undefined;
      const editor = cell?.editor;
      // A new cell may have the focus before anybody has looked at it: the first click counts as entering, too.
      if (cell && editor && !(editor.hasFocus() && clicked.has(cell.model))) {
        clicked.add(cell.model);
        event.preventDefault();
        editor.focus();
        toCode(editor);
      }
    },
    true
  );
}

/** From the magic's line to the one below. */
function toCode(editor: Editor | null | undefined): void {
  if (editor?.getCursorPosition().line === 0) {
    editor.setCursorPosition({ line: 1, column: 0 });
  }
}
