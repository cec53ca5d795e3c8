/** The audit trail as the panel pages it: the newest page goes on by itself, older ones stand still. */
import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';

import type { Api, AuditFilter, AuditRecord, Feed, Severity } from './tokens';

export const PAGE_SIZE = 100;
/** Parts of the log that are searched for one page before a person is asked whether to go on. */
const MOST_STEPS = 12;
/** The newest page grows by what comes, up to this; then it begins anew. */
const MOST_SHOWN = 3 * PAGE_SIZE;
const SEVERITIES: readonly Severity[] = ['info', 'warning', 'alert'];

export const EVERYTHING: AuditFilter = {
  severity: 'info',
  action: '',
  sandbox: '',
  notebook: '',
  text: ''
};

export class AuditModel {
  private readonly _changed = new Signal<this, void>(this);
  private _filter = EVERYTHING;
  private _records: AuditRecord[] = [];
  private _older: string | null = null;
  /** Where this page and those before it begin; the newest begins at null. */
  private places: (string | null)[] = [null];
  private _busy = false;
  private _error: string | null = null;
  private asked = 0;
  /** What came while the page was being loaded. */
  private waiting: AuditRecord[] = [];
  private readonly names = { sandbox: new Set<string>(), notebook: new Set<string>() };

  constructor(
    private readonly api: Api,
    feed: Feed
  ) {
    feed.records.connect((_, records) => {
      this.onRecords(records);
    });
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get filter(): AuditFilter {
    return this._filter;
  }

  get records(): readonly AuditRecord[] {
    return this._records;
  }

  get busy(): boolean {
    return this._busy;
  }

  get error(): string | null {
    return this._error;
  }

  /** Whether there may be older records; with few found, the search simply has not gone further yet. */
  get hasOlder(): boolean {
    return this._older !== null;
  }

  get page(): number {
    return this.places.length;
  }

  /** Names that occur in what was seen so far. */
  seen(field: 'sandbox' | 'notebook'): string[] {
    return [...this.names[field]].sort();
  }

  async refresh(): Promise<void> {
    this.places = [null];
    await this.load();
  }

  async setFilter(change: Partial<AuditFilter>): Promise<void> {
    this._filter = { ...this._filter, ...change };
    await this.refresh();
  }

  async older(): Promise<void> {
    if (this._older !== null) {
      this.places.push(this._older);
      await this.load();
    }
  }

  async newer(): Promise<void> {
    if (this.places.length > 1) {
      this.places.pop();
      await this.load();
    }
  }

  private async load(): Promise<void> {
    const asked = ++this.asked;
    this._busy = true;
    this._error = null;
    this._changed.emit();
    try {
      let place = this.places[this.places.length - 1] ?? null;
      let found: AuditRecord[] = [];
      for (let step = 0; step < MOST_STEPS; step += 1) {
        const page = await this.api.audit(this._filter, place, PAGE_SIZE - found.length);
        if (asked !== this.asked) {
          return;
        }
        found = [...found, ...page.records];
        place = page.older;
        if (place === null || found.length >= PAGE_SIZE) {
          break;
        }
      }
      this._records = found;
      this._older = place;
      this.note(found);
    } catch (reason) {
      if (asked !== this.asked) {
        return;
      }
      this._records = [];
      this._older = null;
      this._error = reason instanceof Error ? reason.message : String(reason);
    }
    this._busy = false;
    this._changed.emit();
    this.onRecords(this.waiting.splice(0));
  }

  private onRecords(records: AuditRecord[]): void {
    this.note(records);
    if (this.places.length > 1) {
      return;
    }
    if (this._busy) {
      this.waiting = [...this.waiting, ...records].slice(-PAGE_SIZE);
      return;
    }
    const newest = this._records[0]?.seq ?? 0;
    const fresh = records.filter(record => record.seq > newest && matches(this._filter, record));
    if (fresh.length > 0) {
      this._records = [...fresh.reverse(), ...this._records];
      this._changed.emit();
      if (this._records.length > MOST_SHOWN) {
        void this.refresh();
      }
    }
  }

  private note(records: readonly AuditRecord[]): void {
    for (const record of records) {
      for (const field of ['sandbox', 'notebook'] as const) {
        const name = record[field];
        if (name !== null && this.names[field].size < 200) {
          this.names[field].add(name);
        }
      }
    }
  }
}

/** As the server's filter. */
export function matches(filter: AuditFilter, record: AuditRecord): boolean {
  const { action } = filter;
  const kind = action.endsWith('*')
    ? record.action.startsWith(action.slice(0, -1))
    : action === '' || record.action === action;
  return (
    kind &&
    SEVERITIES.indexOf(record.severity) >= SEVERITIES.indexOf(filter.severity) &&
    (filter.sandbox === '' || record.sandbox === filter.sandbox) &&
    (filter.notebook === '' || record.notebook === filter.notebook) &&
    (filter.text === '' || JSON.stringify(record).toLowerCase().includes(filter.text.toLowerCase()))
  );
}
