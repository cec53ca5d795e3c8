/** In notebooks: a shield on each `%%sandbox` cell, and a button that puts `%%sandbox` on top of new cells. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { DocumentRegistry, IDocumentWidget } from '@jupyterlab/docregistry';
import { ToolbarButton } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';
import { DisposableDelegate } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

import { shieldIcon } from './icon';
import type { Sandbox, SandboxesModel } from './tokens';
import { stateLabel } from './words';

const MAGIC = '%%sandbox';
/** What a new cell begins with, and all that it holds before something is typed. */
const BEGUN = `${MAGIC}\n`;
const OPTION = 'ipysandbox';

/** What is used of JupyterLab's notebook: a dependency on all of it would be needed for these types alone. */
interface SharedCell {
  cell_type: string;
  source: string;
  setSource(value: string): void;
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
  };
  toolbar: IDocumentWidget['toolbar'];
  sessionContext?: unknown;
}

/** The name of the sandbox that a cell runs in; null for a cell that runs in none. */
export function sandboxOf(source: string): string | null {
  const line = /^%%sandbox(?:[ \t]+([^\n]*))?(?:\n|$)/.exec(source);
  if (!line) {
    return null;
  }
  const words = (line[1] ?? '').split(/[ \t]+/).filter(word => word !== '');
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

/** Whether new cells of this notebook begin with the magic; kept in the notebook itself. */
export function newCellsSandboxed(notebook: NotebookWidget): boolean {
  const kept = notebook.content.model?.getMetadata(OPTION) as { new_cells?: unknown } | undefined;
  return kept?.new_cells === 'sandbox';
}

export interface NotebooksOptions {
  model: SandboxesModel;
  trans: TranslationBundle;
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
    }
    this.toggled.emit(notebook);
  }

  /** The sandbox of a name that belongs to a notebook. */
  find(notebook: NotebookWidget, name: string): Sandbox | null {
    const { path } = notebook.context;
    const named = this.options.model.sandboxes.filter(sandbox => sandbox.name === name);
    return named.find(sandbox => sandbox.opens === path) ?? null;
  }

  /** All of one notebook. */
  of(notebook: NotebookWidget): Sandbox[] {
    const { path } = notebook.context;
    return this.options.model.sandboxes.filter(sandbox => sandbox.opens === path);
  }

  private button(notebook: NotebookWidget): ToolbarButton {
    const { trans } = this.options;
    const button = new ToolbarButton({
      icon: shieldIcon,
      className: 'jp-ipysandbox-toggle',
      tooltip: trans.__('Run new cells sandboxed'),
      pressedTooltip: trans.__('New cells are sandboxed'),
      pressed: false,
      onClick: () => {
        this.toggle(notebook);
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
