/** What the panel knows about sandboxes: the shapes that the server extension sends and the model's interface. */
import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';

export type SandboxState = 'starting' | 'idle' | 'busy' | 'dead' | 'unknown';

/** What can be asked of a running sandbox. */
export type Action = 'interrupt' | 'kill';

/** A quantity that has both a measured value and a limit, in the unit of the policy (seconds, bytes, a count). */
export type Quantity = 'cpu' | 'memory' | 'processes' | 'disk' | 'output';

export interface Sandbox {
  /** Of the supervisor that owns it: names are unique only within one. */
  supervisor: string;
  name: string;
  state: SandboxState;
  notebook: string | null;
  backend: string;
  /** The running cell; elapsed in seconds. */
  cell: { number: number; elapsed: number } | null;
  usage: Partial<Record<Quantity, number>>;
  limits: Partial<Record<Quantity | 'wall', number>>;
  /** Each guarantee with the layers that hold it. */
  guarantees: Record<string, string[]>;
  /** Those of them that this machine holds in a weaker form, with what is weaker. */
  weaker: Record<string, string>;
}

export interface Snapshot {
  sandboxes: Sandbox[];
  /** Supervisors that were found but could not be asked, one sentence each. */
  problems: string[];
}

/** The server extension, as the model sees it. */
export interface Api {
  snapshot(): Promise<Snapshot>;
  act(supervisor: string, name: string, action: Action): Promise<void>;
}

export interface SandboxesModel extends IDisposable {
  readonly changed: ISignal<SandboxesModel, void>;
  /** False until the first answer or failure. */
  readonly loaded: boolean;
  readonly sandboxes: readonly Sandbox[];
  readonly problems: readonly string[];
  /** Why the server or the last button failed; null when all is well. */
  readonly error: string | null;
  /** Ask repeatedly while somebody is looking. */
  watch(on: boolean): void;
  refresh(): Promise<void>;
  act(sandbox: Sandbox, action: Action): Promise<void>;
  /** Whether this sandbox has a button pressed that isn't answered yet. */
  pending(sandbox: Sandbox): boolean;
}
