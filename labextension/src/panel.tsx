/** The side panel: joins the model to what is drawn, and asks before state is lost. */
import { Dialog, ReactWidget, UseSignal, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { Message } from '@lumino/messaging';
import * as React from 'react';

import { Sandboxes } from './components/sandboxes';
import { shieldIcon } from './icon';
import type { Action, Sandbox, SandboxesModel } from './tokens';

export class SandboxesPanel extends ReactWidget {
  constructor(
    private readonly model: SandboxesModel,
    private readonly trans: TranslationBundle
  ) {
    super();
    this.id = 'ipysandbox-panel';
    this.addClass('jp-ipysandbox-Panel');
    this.title.icon = shieldIcon;
    this.title.caption = trans.__('Sandboxes');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('Sandboxes'));
  }

  protected override render(): React.JSX.Element {
    return (
      <UseSignal signal={this.model.changed}>
        {() => (
          <Sandboxes
            model={this.model}
            trans={this.trans}
            onAction={(sandbox, action) => void this.act(sandbox, action)}
          />
        )}
      </UseSignal>
    );
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.model.watch(true);
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.model.watch(false);
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    // A panel that is shown from the start gets no show message.
    this.model.watch(this.isVisible);
  }

  protected override onBeforeDetach(message: Message): void {
    this.model.watch(false);
    super.onBeforeDetach(message);
  }

  private async act(sandbox: Sandbox, action: Action): Promise<void> {
    if (action === 'kill' && !(await this.confirmKill(sandbox))) {
      return;
    }
    await this.model.act(sandbox, action);
  }

  private async confirmKill(sandbox: Sandbox): Promise<boolean> {
    const { trans } = this;
    const result = await showDialog({
      title: trans.__('Kill sandbox "%1"?', sandbox.name),
      body: trans.__(
        'Lost: the running cell, all variables and imports of this sandbox, its temporary files, and files it changed outside the folders that the policy lets it write. Kept: the notebook and its own kernel, and what is already in those folders (by default results/).'
      ),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Cancel') }),
        Dialog.warnButton({ label: trans.__('Kill') })
      ],
      defaultButton: 0
    });
    return result.button.accept;
  }
}
