/** The only place that talks to the server. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { Action, Api, Sandbox, Snapshot } from './tokens';

/** The answer to GET ipysandbox/state; ipysandbox/server/bounded.py bounds every value in it. */
interface StateAnswer {
  supervisors: {
    id: string;
    error: string | null;
    sandboxes: Omit<Sandbox, 'supervisor'>[];
  }[];
}

export class ServerApi implements Api {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  async snapshot(): Promise<Snapshot> {
    const answer = (await this.request(['state'], { method: 'GET' })) as StateAnswer;
    const sandboxes: Sandbox[] = [];
    const problems: string[] = [];
    for (const supervisor of answer.supervisors) {
      if (supervisor.error !== null) {
        problems.push(supervisor.error);
      }
      for (const sandbox of supervisor.sandboxes) {
        sandboxes.push({ ...sandbox, supervisor: supervisor.id });
      }
    }
    return { sandboxes, problems };
  }

  async act(supervisor: string, name: string, action: Action): Promise<void> {
    await this.request(['sandboxes', supervisor, name, action], { method: 'POST' });
  }

  private async request(path: string[], init: RequestInit): Promise<unknown> {
    const parts = path.map(part => encodeURIComponent(part));
    const url = URLExt.join(this.settings.baseUrl, 'ipysandbox', ...parts);
    const response = await ServerConnection.makeRequest(url, init, this.settings);
    const text = await response.text();
    if (!response.ok) {
      throw new Error(
        messageOf(text) ?? `The server answered ${response.status} to ${path.join('/')}.`
      );
    }
    return JSON.parse(text) as unknown;
  }
}

/** The message of a JSON error; null for anything else, such as a proxy's HTML page. */
function messageOf(text: string): string | null {
  try {
    const body = JSON.parse(text) as { message?: unknown };
    return typeof body.message === 'string' && body.message !== '' ? body.message : null;
  } catch {
    return null;
  }
}
