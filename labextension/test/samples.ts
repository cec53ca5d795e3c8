/** Sandboxes to draw, and a server that a test scripts. */
import type { Action, Api, Sandbox, Snapshot } from '../src/tokens';

export function sandbox(changes: Partial<Sandbox> = {}): Sandbox {
  return {
    supervisor: 'sup1',
    name: 'main',
    state: 'busy',
    notebook: 'analysis.ipynb',
    backend: 'linux',
    cell: { number: 7, elapsed: 75 },
    usage: { cpu: 270, memory: 1 << 30, processes: 3, disk: 0, output: 2048 },
    limits: {
      cpu: 300,
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

export class ScriptedApi implements Api {
  readonly acts: [string, string, Action][] = [];
  asked = 0;
  answer: () => Promise<Snapshot> = () => Promise.resolve({ sandboxes: [], problems: [] });
  onAct: () => Promise<void> = () => Promise.resolve();

  snapshot(): Promise<Snapshot> {
    this.asked += 1;
    return this.answer();
  }

  act(supervisor: string, name: string, action: Action): Promise<void> {
    this.acts.push([supervisor, name, action]);
    return this.onAct();
  }
}
