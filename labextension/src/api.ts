/** The only place that asks the server; what comes by itself is feed.ts. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type {
  Action,
  Api,
  AuditFilter,
  AuditPage,
  DoctorReport,
  PolicySubject,
  PolicyView
} from './tokens';

type Query = Record<string, string>;

export class ServerApi implements Api {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  async act(supervisor: string, name: string, action: Action): Promise<void> {
    await this.request(['sandboxes', supervisor, name, action], { method: 'POST' });
  }

  async policy(subject: PolicySubject): Promise<PolicyView> {
    return (await this.request(['policy'], { method: 'GET' }, { ...subject })) as PolicyView;
  }

  async approve(subject: PolicySubject, digest: string): Promise<void> {
    const body = JSON.stringify({ ...subject, digest });
    await this.request(['policy', 'trust'], { method: 'POST', body });
  }

  async audit(filter: AuditFilter, before: string | null, size: number): Promise<AuditPage> {
    const query = { ...given(filter), size: String(size), ...(before === null ? {} : { before }) };
    return (await this.request(['audit'], { method: 'GET' }, query)) as AuditPage;
  }

  async verify(): Promise<{ ok: boolean; text: string }> {
    const found = await this.request(['audit', 'verify'], { method: 'GET' });
    return found as { ok: boolean; text: string };
  }

  exportUrl(filter: AuditFilter, format: 'jsonl' | 'csv'): string {
    const token = this.settings.appendToken && this.settings.token !== '';
    const query = {
      ...given(filter),
      format,
      ...(token ? { token: this.settings.token } : {})
    };
    return this.url(['audit', 'export'], query);
  }

  async doctor(): Promise<DoctorReport> {
    return (await this.request(['doctor'], { method: 'GET' })) as DoctorReport;
  }

  private url(path: string[], query: Query): string {
    const parts = path.map(part => encodeURIComponent(part));
    const asked = Object.keys(query).length > 0 ? URLExt.objectToQueryString(query) : '';
    return URLExt.join(this.settings.baseUrl, 'ipysandbox', ...parts) + asked;
  }

  private async request(path: string[], init: RequestInit, query: Query = {}): Promise<unknown> {
    const response = await ServerConnection.makeRequest(this.url(path, query), init, this.settings);
    const text = await response.text();
    if (!response.ok) {
      throw new Error(
        messageOf(text) ?? `The server answered ${response.status} to ${path.join('/')}.`
      );
    }
    return JSON.parse(text) as unknown;
  }
}

/** The filters that are set. */
function given(filter: AuditFilter): Query {
  return Object.fromEntries<string>(Object.entries(filter).filter(([, value]) => value !== ''));
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
