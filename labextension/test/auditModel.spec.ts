import { beforeEach, expect, it } from 'vitest';

import { AuditModel, PAGE_SIZE, matches } from '../src/auditModel';
import type { AuditPage } from '../src/tokens';
import { ScriptedApi, ScriptedFeed, record } from './samples';

let api: ScriptedApi;
let feed: ScriptedFeed;
let model: AuditModel;
const numbers = (): number[] => model.records.map(one => one.seq);

/** A log of records up to `newest`; a page of it begins below `before`. */
function log(newest: number): (_: unknown, before: string | null) => Promise<AuditPage> {
  return (_, before) => {
    const top = before === null ? newest : Number(before) - 1;
    const count = Math.min(PAGE_SIZE, top);
    const records = Array.from({ length: count }, (__, index) => record(top - index));
    const end = top - count + 1;
    return Promise.resolve({ records, older: end > 1 ? String(end) : null });
  };
}

beforeEach(() => {
  api = new ScriptedApi();
  feed = new ScriptedFeed();
  model = new AuditModel(api, feed);
});

it('pages back and forth, and only the newest page goes on by itself', async () => {
  api.onAudit = log(250);
  await model.refresh();
  expect(numbers()[0]).toBe(250);
  feed.records.emit([record(251), record(252)]);
  expect(numbers().slice(0, 3)).toEqual([252, 251, 250]);
  await model.older();
  expect([numbers()[0], model.page]).toEqual([150, 2]);
  feed.records.emit([record(253)]);
  expect(numbers()[0]).toBe(150);
  await model.older();
  expect([numbers()[0], model.hasOlder]).toEqual([50, false]);
  await model.newer();
  expect(numbers()[0]).toBe(150);
});

it('searches on where few records fit, and stops to ask', async () => {
  let place = 1000;
  api.onAudit = () => Promise.resolve({ records: [], older: String((place -= 1)) });
  await model.setFilter({ text: 'x' });
  expect(api.paged.length).toBeLessThan(20);
  expect([model.records.length, model.hasOlder, model.busy]).toEqual([0, true, false]);
});

it('shows the answer to the last question, whichever comes last', async () => {
  let release: (page: AuditPage) => void = () => undefined;
  api.onAudit = filter =>
    filter.text === 'slow'
      ? new Promise(resolve => (release = resolve))
      : Promise.resolve({ records: [record(7)], older: null });
  const slow = model.setFilter({ text: 'slow' });
  await model.setFilter({ text: 'fast' });
  release({ records: [record(1)], older: null });
  await slow;
  expect(numbers()).toEqual([7]);
});

it('lets through what fits the filters, as the server does', () => {
  const all = { severity: 'info', action: '', sandbox: '', notebook: '', text: '' } as const;
  const one = record(1, { action: 'limit.hit', severity: 'warning' });
  expect(matches(all, one)).toBe(true);
  expect(matches({ ...all, severity: 'alert' }, one)).toBe(false);
  expect(matches({ ...all, action: 'limit.*', text: 'LIMIT' }, one)).toBe(true);
  expect(matches({ ...all, action: 'cell.*' }, one)).toBe(false);
  expect(matches({ ...all, sandbox: 'mai' }, one)).toBe(false);
});
