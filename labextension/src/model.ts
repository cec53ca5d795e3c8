/** The panel's state: what the server last said, and how the meters were in the last two minutes. */
import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';

import { keyOf } from './tokens';
import type {
  Action,
  Api,
  Feed,
  FeedStatus,
  Sample,
  Sandbox,
  SandboxesModel,
  Snapshot
} from './tokens';

/** Often enough to see a meter move, and to colour a shield (milliseconds). */
const LOOKED_AT = 500;
const IN_BACKGROUND = 2000;
/** What the charts show (seconds). */
export const HISTORY = 120;
/** The load is a mean over so long (milliseconds). */
const LOAD_OVER = 1000;
/** A sandbox that has ended says so for this long (milliseconds). */
const ENDED = 20_000;

const messageOf = (reason: unknown): string =>
  reason instanceof Error ? reason.message : String(reason);

interface Past {
  started: number | null;
  samples: Sample[];
  /** Processor time at the last moments, from which the load is taken. */
  cpu: [number, number][];
  /** When it was first seen to have ended; null while it lives. */
  ended: number | null;
}

/** Processors in use over the last second or two: over less, when exactly each side looks would count. */
function loadOf(past: Past, time: number, cpu: number): number {
  const { cpu: marks } = past;
  while (marks[1] !== undefined && marks[1][0] <= time - LOAD_OVER) {
    marks.shift();
  }
  const [first] = marks;
  marks.push([time, cpu]);
  return first === undefined || time - first[0] < LOAD_OVER / 2
    ? 0
    : Math.max(0, ((cpu - first[1]) / (time - first[0])) * 1000);
}

export class FeedModel implements SandboxesModel {
  private readonly _changed = new Signal<this, void>(this);
  private readonly _pending = new Set<string>();
  private readonly past = new Map<string, Past>();
  private _all: readonly Sandbox[] = [];
  private _problems: readonly string[] = [];
  private _loaded = false;
  private _error: string | null = null;
  private _chosen: string | null = null;
  private _disposed = false;

  constructor(
    private readonly api: Api,
    readonly feed: Feed,
    private readonly now: () => number = () => Date.now(),
    /** Where the notebooks of a kernel lie now, by its id: they may have been renamed since it began. */
    private readonly paths: (kernel: string) => readonly string[] = () => []
  ) {
    feed.state.connect((_, snapshot) => {
      this.onState(snapshot);
    });
    feed.statusChanged.connect((_, status) => {
      this.onStatus(status);
    });
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get loaded(): boolean {
    return this._loaded;
  }

  get status(): FeedStatus {
    return this.feed.status;
  }

  get sandboxes(): readonly Sandbox[] {
    // Those that ended leave: at once where nobody saw them live, else when that has been said.
    const now = this.now();
    return this._all
      .filter(sandbox => {
        const ended = this.past.get(keyOf(sandbox))?.ended ?? null;
        return sandbox.state !== 'dead' || (ended !== null && now - ended < ENDED);
      })
      .map(sandbox => this.placed(sandbox));
  }

  get problems(): readonly string[] {
    return this._problems;
  }

  get error(): string | null {
    return this._error;
  }

  get chosen(): string | null {
    return this._chosen;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  dispose(): void {
    if (!this._disposed) {
      this._disposed = true;
      this.feed.dispose();
      Signal.clearData(this);
    }
  }

  watch(on: boolean): void {
    this.feed.open(on ? LOOKED_AT : IN_BACKGROUND);
  }

  retry(): void {
    this.feed.retry();
  }

  async act(sandbox: Sandbox, action: Action): Promise<void> {
    const key = keyOf(sandbox);
    if (this._pending.has(key)) {
      return;
    }
    this._pending.add(key);
    this._error = null;
    this._changed.emit();
    try {
      await this.api.act(sandbox.supervisor, sandbox.name, action);
    } catch (reason) {
      this._error = messageOf(reason);
    } finally {
      this._pending.delete(key);
    }
    if (!this._disposed) {
      this._changed.emit();
    }
  }

  dismiss(sandbox?: Sandbox): void {
    if (sandbox === undefined) {
      this._error = null;
    } else {
      const past = this.past.get(keyOf(sandbox));
      if (past) {
        past.ended = -Infinity;
      }
    }
    this._changed.emit();
  }

  choose(sandbox: Sandbox | null): void {
    this._chosen = sandbox === null ? null : keyOf(sandbox);
    this._changed.emit();
  }

  pending(sandbox: Sandbox): boolean {
    return this._pending.has(keyOf(sandbox));
  }

  history(sandbox: Sandbox): readonly Sample[] {
    return this.past.get(keyOf(sandbox))?.samples ?? [];
  }

  private placed(sandbox: Sandbox): Sandbox {
    const paths = sandbox.kernel === null ? [] : this.paths(sandbox.kernel);
    const [first] = paths;
    if (first === undefined || (sandbox.opens !== null && paths.includes(sandbox.opens))) {
      return sandbox;
    }
    return { ...sandbox, notebook: first, opens: first };
  }

  private onState(snapshot: Snapshot): void {
    const now = this.now();
    const keys = new Set(snapshot.sandboxes.map(keyOf));
    for (const key of this.past.keys()) {
      if (!keys.has(key)) {
        this.past.delete(key);
      }
    }
    for (const sandbox of snapshot.sandboxes) {
      this.note(sandbox, now, snapshot.now * 1000);
    }
    this._all = snapshot.sandboxes;
    this._problems = snapshot.problems;
    this._loaded = true;
    this._changed.emit();
  }

  /** `measured` is by the server's clock: messages may wait on their way, and then arrive at once. */
  private note(sandbox: Sandbox, now: number, measured: number): void {
    const key = keyOf(sandbox);
    let past = this.past.get(key);
    const dead = sandbox.state === 'dead';
    if (past?.started !== sandbox.started && !dead) {
      past = undefined;
    }
    past ??= { started: sandbox.started, samples: [], cpu: [], ended: dead ? -Infinity : null };
    past.ended = dead ? (past.ended ?? now) : null;
    this.past.set(key, past);
    if (dead) {
      return;
    }
    const { usage } = sandbox;
    if (measured <= (past.samples[past.samples.length - 1]?.time ?? -Infinity)) {
      return;
    }
    past.samples.push({
      time: measured,
      load: loadOf(past, measured, usage.cpu_total ?? 0),
      memory: usage.memory ?? 0,
      processes: usage.processes ?? 0,
      disk: usage.disk ?? 0,
      output: usage.output ?? 0,
      gpu: usage.gpu ?? 0
    });
    const first = past.samples.findIndex(sample => sample.time > measured - HISTORY * 1000);
    past.samples.splice(0, first);
  }

  private onStatus(status: FeedStatus): void {
    if (status === 'lost') {
      // Old figures must not pass for live ones.
      this._all = [];
      this._problems = [];
      this.past.clear();
      this._loaded = true;
    }
    this._changed.emit();
  }
}
