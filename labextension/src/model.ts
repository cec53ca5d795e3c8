/** The panel's state: what the server last said, kept fresh while the panel is visible. */
import { Poll } from '@lumino/polling';
import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';

import type { Action, Api, Sandbox, SandboxesModel } from './tokens';

/** Often enough to see a meter move. */
const INTERVAL_MS = 1000;
/** A server that doesn't answer is asked less and less often, down to this. */
const BACKOFF_MS = 30_000;

const keyOf = (sandbox: Sandbox): string => JSON.stringify([sandbox.supervisor, sandbox.name]);

const messageOf = (reason: unknown): string =>
  reason instanceof Error ? reason.message : String(reason);

export class PollingModel implements SandboxesModel {
  private readonly api: Api;
  private readonly poll: Poll;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _pending = new Set<string>();
  private _sandboxes: readonly Sandbox[] = [];
  private _problems: readonly string[] = [];
  private _loaded = false;
  private _stateError: string | null = null;
  private _actionError: string | null = null;

  constructor(api: Api) {
    this.api = api;
    this.poll = new Poll({
      name: 'ipysandbox:state',
      auto: false,
      factory: () => this.fetch(),
      frequency: { interval: INTERVAL_MS, max: BACKOFF_MS, backoff: true },
      // Also asks nothing while the browser tab is in the background.
      standby: 'when-hidden'
    });
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get loaded(): boolean {
    return this._loaded;
  }

  get sandboxes(): readonly Sandbox[] {
    return this._sandboxes;
  }

  get problems(): readonly string[] {
    return this._problems;
  }

  get error(): string | null {
    return this._actionError ?? this._stateError;
  }

  get isDisposed(): boolean {
    return this.poll.isDisposed;
  }

  dispose(): void {
    if (!this.isDisposed) {
      this.poll.dispose();
      Signal.clearData(this);
    }
  }

  watch(on: boolean): void {
    void (on ? this.poll.start() : this.poll.stop());
  }

  async refresh(): Promise<void> {
    this._actionError = null;
    await this.poll.refresh();
    await this.poll.tick;
  }

  async act(sandbox: Sandbox, action: Action): Promise<void> {
    const key = keyOf(sandbox);
    if (this._pending.has(key)) {
      return;
    }
    this._pending.add(key);
    this._actionError = null;
    this._changed.emit();
    try {
      await this.api.act(sandbox.supervisor, sandbox.name, action);
    } catch (reason) {
      this._actionError = messageOf(reason);
    } finally {
      this._pending.delete(key);
    }
    if (!this.isDisposed) {
      this._changed.emit();
      await this.poll.refresh();
    }
  }

  pending(sandbox: Sandbox): boolean {
    return this._pending.has(keyOf(sandbox));
  }

  private async fetch(): Promise<void> {
    try {
      const { sandboxes, problems } = await this.api.snapshot();
      this._sandboxes = sandboxes;
      this._problems = problems;
      this._stateError = null;
    } catch (reason) {
      // Old figures must not pass for live ones.
      this._sandboxes = [];
      this._problems = [];
      this._stateError = messageOf(reason);
      throw reason;
    } finally {
      this._loaded = true;
      this._changed.emit();
    }
  }
}
