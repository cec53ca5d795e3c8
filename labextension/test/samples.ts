/** Sandboxes and records to draw, and a server that a test scripts. */
import { Signal } from '@lumino/signaling';

import type {
  Action,
  Api,
  AuditFilter,
  AuditPage,
  AuditRecord,
  DoctorReport,
  Feed,
  FeedStatus,
  PolicySubject,
  PolicyView,
  Sandbox,
  Snapshot
} from '../src/tokens';

export function sandbox(changes: Partial<Sandbox> = {}): Sandbox {
  return {
    supervisor: 'sup1',
    kernel: null,
    name: 'main',
    state: 'busy',
    notebook: '/home/ann/study/analysis.ipynb',
    opens: 'study/analysis.ipynb',
    project: '/home/ann/study',
    started: 1000,
    backend: 'linux',
    cell: { number: 7, elapsed: 75, asks: false },
    last: null,
    usage: {
      cpu: 270,
      cpu_total: 400,
      memory: 1 << 30,
      memory_peak: 1.5 * (1 << 30),
      processes: 3,
      disk: 0,
      output: 2048
    },
    limits: {
      cpu: 300,
      cpus: 2,
      wall: 600,
      memory: 4 * (1 << 30),
      processes: 256,
      disk: 1 << 30,
      output: 32 << 20
    },
    guarantees: { network: ['network namespace', 'landlock', 'seccomp'], memory: ['cgroup'] },
    weaker: {},
    ...changes
  };
}

export function record(seq: number, changes: Partial<AuditRecord> = {}): AuditRecord {
  return {
    seq,
    time: '2031-05-01T12:00:00.000000+00:00',
    severity: 'info',
    action: 'cell.result',
    sandbox: 'main',
    notebook: 'a.ipynb',
    pid: 1,
    details: { number: seq, status: 'ok' },
    ...changes
  };
}

export function policy(changes: Partial<PolicyView> = {}): PolicyView {
  const place = { file: '/s/ipysandbox.toml', line: 3, opens: 's/ipysandbox.toml' };
  return {
    project: '/s',
    too_wide: false,
    settings: [
      {
        key: 'limits.memory',
        value: '2GiB',
        source: { kind: 'project', label: 'project file /s/ipysandbox.toml', place }
      },
      {
        key: 'limits.disk',
        value: '1GiB',
        source: { kind: 'built-in', label: 'built-in default', place: null }
      }
    ],
    read: ['/s'],
    write: ['/s/results'],
    hidden: ['.env'],
    protected: ['.git'],
    variables: { passed: ['LANG'], withheld: ['STUDY_API_KEY'], not_passed: [], unset: [] },
    totals: {
      read: 1,
      write: 1,
      hidden: 1,
      protected: 1,
      notices: 0,
      passed: 1,
      withheld: 1,
      not_passed: 0,
      unset: 0
    },
    notices: [],
    problem: null,
    file: {
      place: { ...place, line: null },
      digest: 'd1',
      trusted: false,
      wishes: [{ key: 'limits.memory', entries: ['4GiB → 64GiB'], total: 1 }],
      refused: null
    },
    ...changes
  };
}

export class ScriptedApi implements Api {
  readonly acts: [string, string, Action][] = [];
  readonly approved: [PolicySubject, string][] = [];
  readonly looked: PolicySubject[] = [];
  readonly paged: [AuditFilter, string | null][] = [];
  view: PolicyView = policy();
  onAct: () => Promise<void> = () => Promise.resolve();
  onAudit: (filter: AuditFilter, before: string | null) => Promise<AuditPage> = () =>
    Promise.resolve({ records: [], older: null });

  act(supervisor: string, name: string, action: Action): Promise<void> {
    this.acts.push([supervisor, name, action]);
    return this.onAct();
  }

  policy(subject: PolicySubject): Promise<PolicyView> {
    this.looked.push(subject);
    return Promise.resolve(this.view);
  }

  approve(subject: PolicySubject, digest: string): Promise<void> {
    this.approved.push([subject, digest]);
    return Promise.resolve();
  }

  audit(filter: AuditFilter, before: string | null): Promise<AuditPage> {
    this.paged.push([filter, before]);
    return this.onAudit(filter, before);
  }

  verify(): Promise<{ ok: boolean; text: string }> {
    return Promise.resolve({ ok: true, text: 'complete' });
  }

  exportUrl(_: AuditFilter, format: string): string {
    return `/export?format=${format}`;
  }

  doctor(): Promise<DoctorReport> {
    return Promise.reject(new Error('no doctor here'));
  }
}

export class ScriptedFeed implements Feed {
  readonly statusChanged = new Signal<this, FeedStatus>(this);
  readonly state = new Signal<this, Snapshot>(this);
  readonly records = new Signal<this, AuditRecord[]>(this);
  readonly paces: number[] = [];
  status: FeedStatus = 'closed';
  now = 0;
  isDisposed = false;

  open(interval: number): void {
    this.paces.push(interval);
  }

  retry(): void {
    return;
  }

  dispose(): void {
    this.isDisposed = true;
  }

  become(status: FeedStatus): void {
    this.status = status;
    this.statusChanged.emit(status);
  }

  say(...sandboxes: Sandbox[]): void {
    this.become('live');
    this.state.emit({ now: this.now, sandboxes, problems: [] });
  }
}
