/** What the panel knows about sandboxes: the shapes that the server extension sends and the models' interfaces. */
import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';

export type SandboxState = 'starting' | 'idle' | 'busy' | 'dead' | 'unknown';

/** What can be asked of a sandbox. */
export type Action = 'interrupt' | 'kill' | 'restart';

/** A quantity that has both a measured value and a limit, in the unit of the policy (seconds, bytes, a count). */
export type Quantity = 'cpu' | 'memory' | 'processes' | 'disk' | 'output';

export interface Sandbox {
  /** Of the supervisor that owns it: names are unique only within one. */
  supervisor: string;
  /** The Jupyter kernel that it belongs to, by its id; null for a program's. */
  kernel: string | null;
  name: string;
  state: SandboxState;
  notebook: string | null;
  /** The notebook's path on the server's file list, where it is on it. */
  opens: string | null;
  project: string | null;
  /** Seconds since the epoch; another value is another sandbox of the same name. */
  started: number | null;
  backend: string;
  /** The running cell; elapsed in seconds. asks: it waits for an answer to input(). */
  cell: { number: number; elapsed: number; asks: boolean } | null;
  /** How the cell before ended. */
  last: {
    number: number;
    status: string;
    limit: string | null;
    usage: Partial<Record<'wall' | 'cpu' | 'memory_peak' | 'processes_peak' | 'output', number>>;
  } | null;
  /** cpu is the running cell's, cpu_total the sandbox's; gpu_allowed is 0 for one without a card. */
  usage: Partial<
    Record<Quantity | 'cpu_total' | 'memory_peak' | 'files' | 'gpu' | 'gpu_allowed', number>
  >;
  limits: Partial<Record<Quantity | 'wall' | 'cpus', number>>;
  /** Each guarantee with the layers that hold it. */
  guarantees: Record<string, string[]>;
  /** Those of them that this machine holds in a weaker form, with what is weaker. */
  weaker: Record<string, string>;
}

export interface Snapshot {
  /** When it was measured, by the server's clock (seconds). */
  now: number;
  sandboxes: Sandbox[];
  /** Supervisors that were found but could not be asked, one sentence each. */
  problems: string[];
}

/** A file, a line in it, and its path on the server's file list where it can be opened there. */
export interface Place {
  file: string;
  line: number | null;
  opens: string | null;
}

export interface Problem {
  message: string;
  hint: string | null;
  place: Place | null;
}

/** What is wrong with a policy file, with what else is wrong with the same file. */
export interface Problems extends Problem {
  others: Problem[];
}

export interface Setting {
  key: string;
  value: unknown;
  source: { kind: string; label: string; place: Place | null };
}

export type Variables = 'passed' | 'withheld' | 'not_passed' | 'unset';

/** One thing that a project asks for beyond what its user allows: of a list, each entry, or the first of very many. */
export interface Wish {
  key: string;
  entries: string[];
  total: number;
}

export interface PolicyView {
  project: string;
  too_wide: boolean;
  settings: Setting[];
  read: string[];
  write: string[];
  hidden: string[];
  protected: string[];
  /** Environment variables by name. */
  variables: Record<Variables, string[]>;
  /** How many there are of each: the server tells the first of a long list. */
  totals: Record<'read' | 'write' | 'hidden' | 'protected' | 'notices' | Variables, number>;
  notices: string[];
  problem: Problems | null;
  /** The project's own policy file, with what of it does not count before it is approved. */
  file: {
    place: Place;
    digest: string;
    trusted: boolean;
    wishes: Wish[];
    refused: Problem | null;
  } | null;
}

/** Whose policy is looked at: a sandbox's, or the one that would hold for a notebook. */
export type PolicySubject = { supervisor: string; sandbox: string } | { path: string };

export type Severity = 'info' | 'warning' | 'alert';

export interface AuditRecord {
  seq: number;
  time: string;
  severity: Severity;
  action: string;
  sandbox: string | null;
  notebook: string | null;
  pid: number | null;
  details: Record<string, unknown>;
}

/** Empty texts are no filter. */
export interface AuditFilter {
  severity: Severity;
  /** An action, or a pattern such as "limit.*". */
  action: string;
  sandbox: string;
  notebook: string;
  text: string;
}

export interface AuditPage {
  records: AuditRecord[];
  /** Where the next page begins; null: this was the last. */
  older: string | null;
}

export interface DoctorReport {
  report: {
    ok: boolean;
    machine: Record<string, string>;
    guarantees: Record<string, string[]>;
    status: Record<string, string>;
    gaps: { guarantee: string; reason: string; remedy: string }[];
    notes: { guarantee: string; text: string }[];
    advice: { cause: string; why: string; steps: string[] }[];
  };
  text: string;
}

/** The server extension, as the models see it. */
export interface Api {
  act(supervisor: string, name: string, action: Action): Promise<void>;
  policy(subject: PolicySubject): Promise<PolicyView>;
  approve(subject: PolicySubject, digest: string): Promise<void>;
  audit(filter: AuditFilter, before: string | null, size: number): Promise<AuditPage>;
  verify(): Promise<{ ok: boolean; text: string }>;
  /** The address of a download. */
  exportUrl(filter: AuditFilter, format: 'jsonl' | 'csv'): string;
  doctor(): Promise<DoctorReport>;
}

export type FeedStatus = 'closed' | 'connecting' | 'live' | 'lost';

/** What comes by itself. */
export interface Feed extends IDisposable {
  readonly status: FeedStatus;
  readonly statusChanged: ISignal<Feed, FeedStatus>;
  readonly state: ISignal<Feed, Snapshot>;
  readonly records: ISignal<Feed, AuditRecord[]>;
  /** Connect, or ask for another pace: milliseconds between two states. */
  open(interval: number): void;
  /** Try at once instead of waiting. */
  retry(): void;
}

/** Measured at one moment; load is in processors. */
export interface Sample {
  time: number;
  load: number;
  memory: number;
  processes: number;
  disk: number;
  output: number;
  gpu: number;
}

export interface SandboxesModel extends IDisposable {
  readonly changed: ISignal<SandboxesModel, void>;
  /** False until the first answer or failure. */
  readonly loaded: boolean;
  /** Whether what is shown is of now. */
  readonly status: FeedStatus;
  readonly sandboxes: readonly Sandbox[];
  readonly problems: readonly string[];
  /** Why the last button failed; null when all is well. */
  readonly error: string | null;
  /** The sandbox whose card was asked for, by its key. */
  readonly chosen: string | null;
  /** Ask often while somebody is looking. */
  watch(on: boolean): void;
  retry(): void;
  act(sandbox: Sandbox, action: Action): Promise<void>;
  /** Take away the error, or the card of a sandbox that has ended. */
  dismiss(sandbox?: Sandbox): void;
  choose(sandbox: Sandbox | null): void;
  /** Whether this sandbox has a button pressed that isn't answered yet. */
  pending(sandbox: Sandbox): boolean;
  history(sandbox: Sandbox): readonly Sample[];
}

/** A notebook that is open: its path on the server's file list, and its kernel's id while it has one. */
export interface Front {
  path: string;
  kernel: string | null;
}

/** Whether a sandbox is a notebook's. By its kernel where both are known: a path may have changed since it began. */
export function belongs(sandbox: Sandbox, notebook: Front | null): boolean {
  if (notebook === null) {
    return false;
  }
  return sandbox.kernel !== null && notebook.kernel !== null
    ? sandbox.kernel === notebook.kernel
    : sandbox.opens !== null && sandbox.opens === notebook.path;
}

export const keyOf = (sandbox: { supervisor: string; name: string }): string =>
  JSON.stringify([sandbox.supervisor, sandbox.name]);
