/** Whether a notebook's kernel knows `%%sandbox`, and a way to make it so. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { Kernel } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';

import type { NotebookWidget } from './notebooks';

export const MAGIC = '%%sandbox';
export const LOAD = '%load_ext ipysandbox';

/** What it is about on the kernel's side. */
interface Message {
  header: { msg_type: string };
  content: object;
}

export class Extension {
  /** What is known of some kernel has changed. */
  readonly changed = new Signal<this, void>(this);
  /** By the kernel's id; null where it has been asked and can't say. */
  private readonly known = new Map<string, boolean | null>();

  constructor(private readonly app: JupyterFrontEnd) {}

  /** Keep up with a notebook's kernels: a new or restarted one has loaded nothing. */
  follow({ sessionContext: session }: NotebookWidget): void {
    session?.statusChanged.connect((_, status) => {
      const kernel = session.session?.kernel;
      if (kernel && /^(auto)?restarting$|^dead$/.test(status)) {
        this.known.delete(kernel.id);
        this.changed.emit();
      }
    });
    session?.iopubMessage.connect((_, message: Message) => {
      const kernel = session.session?.kernel;
      if (!kernel) {
        return;
      }
      const { msg_type: type } = message.header;
      const { code, text } = message.content as { code?: unknown; text?: unknown };
      if (type === 'execute_input' && /load_ext|ipysandbox/.test(String(code))) {
        // Answered when that cell has ended.
        void this.ask(kernel);
      } else if (type === 'stream' && String(text).includes(`magic \`${MAGIC}\` not found`)) {
        this.learn(kernel.id, false);
      }
    });
  }

  /** Whether it is known that this notebook's kernel has not loaded it; asks where that is not known yet. */
  lacks(notebook: NotebookWidget): boolean {
    const kernel = kernelOf(notebook);
    if (kernel === null) {
      return false;
    }
    if (!this.known.has(kernel.id)) {
      this.known.set(kernel.id, null);
      void this.ask(kernel);
    }
    return this.known.get(kernel.id) === false;
  }

  /** As `lacks`, asked anew: true once the kernel has answered that it does not know the magic. */
  async asked(notebook: NotebookWidget): Promise<boolean> {
    await notebook.sessionContext?.ready;
    const kernel = kernelOf(notebook);
    return kernel !== null && (await this.ask(kernel)) === false;
  }

  /** In a cell, where it stays for the next kernel and for whoever else runs the notebook. */
  async load(notebook: NotebookWidget): Promise<void> {
    const { content } = notebook;
    const shared = content.model?.sharedModel;
    let at = content.widgets.findIndex(cell => cell.model.sharedModel.source.trim() === LOAD);
    const before = content.activeCellIndex + (at < 0 ? 1 : 0);
    if (at < 0) {
      at = 0;
      shared?.insertCell(0, { cell_type: 'code', source: LOAD });
    }
    this.app.shell.activateById(notebook.id);
    // The command runs all that is selected.
    content.deselectAll();
    content.activeCellIndex = at;
    const run = this.app.commands.execute('notebook:run-cell');
    content.activeCellIndex = before;
    await run;
  }

  private async ask(kernel: Kernel.IKernelConnection): Promise<boolean | null> {
    let found: boolean | null = null;
    try {
      const { language_info: language } = await kernel.info;
      if (language.name === 'python') {
        // A question for completions: no code runs for it, and nothing is counted or kept.
        const asked = { code: MAGIC, cursor_pos: MAGIC.length };
        const { content } = await kernel.requestComplete(asked);
        found = content.status === 'ok' ? content.matches.includes(MAGIC) : null;
      }
    } catch {
      // The kernel has ended meanwhile.
    }
    this.learn(kernel.id, found);
    return found;
  }

  private learn(kernel: string, found: boolean | null): void {
    if (this.known.get(kernel) !== found) {
      this.known.set(kernel, found);
      this.changed.emit();
    }
  }
}

export function kernelOf(notebook: NotebookWidget): Kernel.IKernelConnection | null {
  return notebook.sessionContext?.session?.kernel ?? null;
}
