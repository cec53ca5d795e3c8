/** The side panel: joins the models to what is drawn, and asks before state is lost or a policy is approved. */
import { Dialog, ReactWidget, UseSignal, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';
import * as React from 'react';

import type { AuditModel } from './auditModel';
import { Audit } from './components/audit';
import { Doctor } from './components/doctor';
import { Policy, WishList } from './components/policy';
import { Sandboxes } from './components/sandboxes';
import { Tabs } from './components/tabs';
import { shieldIcon } from './icon';
import type {
  Action,
  Api,
  Front,
  PolicySubject,
  PolicyView,
  Sandbox,
  SandboxesModel
} from './tokens';
import { lostText, placeText } from './words';

export type Tab = 'sandboxes' | 'policy' | 'audit';

/** What the panel asks of the page around it. */
export interface Surroundings {
  /** The notebook in front, or that was before something else. */
  notebook: () => Front | null;
  /** What is said here may have changed. */
  changed: ISignal<unknown, void>;
  /** Whether that notebook's kernel is known not to have loaded ipysandbox; and what loads it. */
  lacks: () => boolean;
  load: () => void;
  /** Something was saved. */
  saved: ISignal<unknown, unknown>;
  open: (path: string, line: number | null) => void;
}

export class SandboxesPanel extends ReactWidget {
  /** For one time: shown without being asked for, and the focus stays where it is. */
  quiet = false;
  private tab: Tab = 'sandboxes';
  private readonly tabChanged = new Signal<this, void>(this);

  constructor(
    private readonly model: SandboxesModel,
    private readonly audit: AuditModel,
    private readonly api: Api,
    private readonly surroundings: Surroundings,
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

  select(tab: Tab): void {
    this.tab = tab;
    this.tabChanged.emit();
  }

  /** What this machine can hold, over the page. */
  async doctor(): Promise<void> {
    const { api, trans } = this;
    const load = (): Promise<unknown> => api.doctor();
    const body = ReactWidget.create(<Doctor load={load as Api['doctor']} trans={trans} />);
    body.addClass('jp-ipysandbox-DoctorDialog');
    // What scrolls has to be reached by keys.
    body.node.tabIndex = 0;
    await showDialog({
      title: trans.__('What this machine can hold'),
      body,
      buttons: [Dialog.okButton({ label: trans.__('Close') })]
    });
  }

  /** Do it, after saying what is lost. */
  async act(sandbox: Sandbox, action: Action): Promise<void> {
    if (action === 'interrupt' || (await this.confirm(sandbox, action))) {
      await this.model.act(sandbox, action);
    }
  }

  protected override render(): React.JSX.Element {
    const { trans } = this;
    return (
      <UseSignal signal={this.tabChanged}>
        {() => (
          <>
            <Tabs
              label={trans.__('Sandboxes')}
              tabs={[
                ['sandboxes', trans.__('Sandboxes')],
                ['policy', trans.__('Policy')],
                ['audit', trans.__('Audit')]
              ]}
              current={this.tab}
              onSelect={tab => {
                this.select(tab);
              }}
            />
            <div
              id="ipysandbox-view"
              role="tabpanel"
              tabIndex={0}
              aria-labelledby={`ipysandbox-tab-${this.tab}`}
            >
              {this.view()}
            </div>
          </>
        )}
      </UseSignal>
    );
  }

  /** Each with a key: UseSignal listens to the signal that it was made with, so none may take another's place. */
  private view(): React.JSX.Element {
    const { audit, model, surroundings, trans } = this;
    switch (this.tab) {
      case 'sandboxes':
        return (
          <UseSignal key="sandboxes" signal={model.changed}>
            {() => (
              <UseSignal signal={surroundings.changed}>
                {() => (
                  <Sandboxes
                    model={model}
                    notebook={surroundings.notebook()}
                    lacks={surroundings.lacks()}
                    trans={trans}
                    onLoad={surroundings.load}
                    onAction={(sandbox, action) => void this.act(sandbox, action)}
                    onOpen={path => {
                      surroundings.open(path, null);
                    }}
                    onDoctor={() => void this.doctor()}
                  />
                )}
              </UseSignal>
            )}
          </UseSignal>
        );
      case 'policy':
        return (
          <UseSignal key="policy" signal={model.changed} shouldUpdate={this.othersRun}>
            {() => (
              <Policy
                model={model}
                trans={trans}
                notebook={surroundings.notebook()}
                saved={surroundings.saved}
                load={this.loadPolicy}
                approve={this.approve}
                onOpen={surroundings.open}
              />
            )}
          </UseSignal>
        );
      case 'audit':
        return (
          <UseSignal key="audit" signal={audit.changed}>
            {() => (
              <UseSignal signal={model.changed} shouldUpdate={this.othersRun}>
                {() => (
                  <Audit
                    model={audit}
                    status={model.status}
                    trans={trans}
                    verify={this.verify}
                    exportUrl={this.exportUrl}
                  />
                )}
              </UseSignal>
            )}
          </UseSignal>
        );
    }
  }

  /** Whether what is chosen among has changed: figures alone change nothing there. */
  private readonly othersRun = (): boolean => {
    const now = JSON.stringify([
      this.model.status,
      this.model.chosen,
      this.surroundings.notebook(),
      ...this.model.sandboxes.map(({ supervisor, name, opens, started, state }) => [
        supervisor,
        name,
        opens,
        started,
        state === 'dead'
      ])
    ]);
    const changed = now !== this.ran;
    this.ran = now;
    return changed;
  };
  private ran = '';

  private readonly loadPolicy = (subject: PolicySubject): Promise<PolicyView> =>
    this.api.policy(subject);

  private readonly verify = (): Promise<{ ok: boolean; text: string }> => this.api.verify();

  private readonly exportUrl: Api['exportUrl'] = (filter, format) =>
    this.api.exportUrl(filter, format);

  private readonly approve = async (subject: PolicySubject, view: PolicyView): Promise<boolean> => {
    const { trans } = this;
    const { file } = view;
    if (file === null) {
      return false;
    }
    const result = await showDialog({
      title: trans.__('Approve this project’s policy?'),
      body: (
        <div>
          <p>{trans.__('Code in sandboxes of this project may then have:')}</p>
          <WishList wishes={file.wishes} trans={trans} />
          <p>
            {trans.__(
              'It counts for the file as it is now, from the next new sandbox on. A change of the file asks again.'
            )}
          </p>
        </div>
      ),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Cancel') }),
        Dialog.warnButton({ label: trans.__('Approve') })
      ],
      defaultButton: 0
    });
    if (result.button.accept) {
      await this.api.approve(subject, file.digest);
    }
    return result.button.accept;
  };

  /** Asked for by a command, a click or the bar's button: the next key is the panel's. */
  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    const { quiet } = this;
    this.quiet = false;
    const focus = (): void => {
      const card = this.node.querySelector<HTMLElement>('.jp-ipysandbox-card[data-chosen=true]');
      (card ?? this.node.querySelector<HTMLElement>(`#ipysandbox-tab-${this.tab}`))?.focus();
    };
    if (!quiet) {
      // When it is drawn, and after the command palette has given the focus back to where it was.
      void this.renderPromise?.then(() => requestAnimationFrame(focus));
    }
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

  private async confirm(sandbox: Sandbox, action: 'kill' | 'restart'): Promise<boolean> {
    const { trans } = this;
    const kill = action === 'kill';
    // Names are unique within one notebook only.
    const place = placeText(sandbox, trans);
    const result = await showDialog({
      title: kill
        ? trans.__('Kill sandbox "%1" of %2?', sandbox.name, place)
        : trans.__('Restart sandbox "%1" of %2?', sandbox.name, place),
      body: lostText(sandbox, trans),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Cancel') }),
        Dialog.warnButton({ label: kill ? trans.__('Kill') : trans.__('Restart') })
      ],
      defaultButton: 0
    });
    return result.button.accept;
  }
}
