/** Opens a file of the server in the page, at a line where one is given. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { IDocumentWidget } from '@jupyterlab/docregistry';
import type { Widget } from '@lumino/widgets';

/** What is used of JupyterLab's editor. */
interface Editor {
  setCursorPosition(position: { line: number; column: number }): void;
  revealPosition?(position: { line: number; column: number }): void;
  focus(): void;
}
type FileWidget = IDocumentWidget<Widget & { editor?: Editor; ready?: Promise<void> }>;

export async function openAt(
  app: JupyterFrontEnd,
  path: string,
  line: number | null
): Promise<void> {
  const options = line === null ? { path } : { path, factory: 'Editor' };
  const opened = (await app.commands.execute('docmanager:open', options)) as FileWidget | undefined;
  if (!opened || line === null) {
    return;
  }
  await opened.context.ready;
  await opened.content.ready;
  const position = { line: line - 1, column: 0 };
  opened.content.editor?.setCursorPosition(position);
  opened.content.editor?.revealPosition?.(position);
  opened.content.editor?.focus();
}
