import { ServerConnection } from '@jupyterlab/services';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { SocketFeed } from '../src/feed';
import type { AuditRecord, Sandbox, Snapshot } from '../src/tokens';
import { record, sandbox } from './samples';

class FakeSocket {
  static all: FakeSocket[] = [];
  readyState = 0;
  readonly sent: string[] = [];
  onopen: () => void = () => undefined;
  onclose: () => void = () => undefined;
  onmessage: (event: { data: string }) => void = () => undefined;

  constructor(readonly url: string) {
    FakeSocket.all.push(this);
  }

  send(text: string): void {
    this.sent.push(text);
  }

  close(): void {
    this.readyState = 3;
  }

  accept(): void {
    this.readyState = 1;
    this.onopen();
  }

  say(message: unknown): void {
    this.onmessage({ data: typeof message === 'string' ? message : JSON.stringify(message) });
  }
}

const last = (): FakeSocket => {
  const found = FakeSocket.all[FakeSocket.all.length - 1];
  if (!found) {
    throw new Error('no connection');
  }
  return found;
};
const STATE = { type: 'state', now: 1, supervisors: [], message: null };
let feed: SocketFeed;
let states: Snapshot[];
let records: AuditRecord[];

beforeEach(() => {
  vi.useFakeTimers();
  FakeSocket.all = [];
  const settings = ServerConnection.makeSettings({
    baseUrl: 'http://jupyter.invalid/user/ann/',
    wsUrl: 'ws://jupyter.invalid/user/ann/',
    token: 'secret-token',
    appendToken: false,
    WebSocket: FakeSocket as unknown as typeof WebSocket
  });
  feed = new SocketFeed(settings);
  states = [];
  records = [];
  feed.state.connect((_, state) => states.push(state));
  feed.records.connect((_, found) => records.push(...found));
  feed.open(500);
});

afterEach(() => {
  feed.dispose();
  vi.useRealTimers();
});

it('joins what several supervisors run, and what could not be asked', () => {
  expect(last().url).toBe('ws://jupyter.invalid/user/ann/ipysandbox/feed');
  last().accept();
  expect(last().sent).toEqual(['{"interval":500}']);
  const plain: Partial<Sandbox> = sandbox();
  delete plain.supervisor;
  last().say({
    type: 'state',
    supervisors: [
      { id: 'a', error: null, sandboxes: [plain] },
      { id: 'b', error: 'b did not answer', sandboxes: [] }
    ],
    message: null
  });
  expect(states[0]?.sandboxes.map(box => [box.supervisor, box.name])).toEqual([['a', 'main']]);
  expect(states[0]?.problems).toEqual(['b did not answer']);
  expect(feed.status).toBe('live');
});

it('connects again after a break, less and less often, and goes on where it was', () => {
  last().accept();
  last().say(STATE);
  last().say({ type: 'records', records: [record(41), record(42)] });
  last().say('no message');
  last().onclose();
  expect(feed.status).toBe('lost');
  vi.advanceTimersByTime(60_000);
  expect(FakeSocket.all.length).toBeLessThan(9);
  expect(last().url).toMatch(/\/feed\?after=42$/);
  last().accept();
  last().say(STATE);
  expect(feed.status).toBe('live');
  expect(records.map(one => one.seq)).toEqual([41, 42]);
});

it('takes a connection that has fallen silent for lost', () => {
  last().accept();
  last().say(STATE);
  const silent = last();
  vi.advanceTimersByTime(19_000);
  expect(feed.status).toBe('live');
  vi.advanceTimersByTime(2000);
  expect(feed.status).toBe('lost');
  silent.say(STATE);
  expect(feed.status).toBe('lost');
});
