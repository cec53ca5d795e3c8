import { afterEach, beforeEach, expect, it } from 'vitest';

import { FeedModel } from '../src/model';
import { ScriptedApi, ScriptedFeed, sandbox } from './samples';

let api: ScriptedApi;
let feed: ScriptedFeed;
let model: FeedModel;
let now: number;

beforeEach(() => {
  now = 0;
  api = new ScriptedApi();
  feed = new ScriptedFeed();
  model = new FeedModel(api, feed, () => now);
});

afterEach(() => {
  model.dispose();
});

it('asks for figures more often while somebody looks', () => {
  model.watch(false);
  model.watch(true);
  expect(feed.paces[1]).toBeLessThan(feed.paces[0] ?? 0);
});

it('shows no old figures when the connection is lost, and recovers', () => {
  feed.say(sandbox());
  expect(model.sandboxes).toHaveLength(1);
  feed.become('lost');
  expect(model.sandboxes).toEqual([]);
  expect(model.status).toBe('lost');
  feed.say(sandbox());
  expect(model.sandboxes).toHaveLength(1);
});

it('says where a notebook is now, that was renamed since its sandbox began', () => {
  const paths = ['s/other.ipynb', 's/new.ipynb'];
  model = new FeedModel(api, feed, undefined, kernel => (kernel === 'k1' ? paths : []));
  feed.say(sandbox({ kernel: 'k1' }), sandbox({ kernel: 'k2' }));
  expect(model.sandboxes.map(one => [one.notebook, one.opens])).toEqual([
    ['s/other.ipynb', 's/other.ipynb'],
    ['/home/ann/study/analysis.ipynb', 'study/analysis.ipynb']
  ]);
  paths.push('study/analysis.ipynb'); // one of two of the same kernel
  expect(model.sandboxes[0]?.opens).toBe('study/analysis.ipynb');
});

it('keeps two minutes of meters, and forgets those of a sandbox that was replaced', () => {
  for (let second = 0; second <= 300; second += 1) {
    feed.now = second;
    feed.say(sandbox({ usage: { cpu_total: second * 1.5, memory: second } }));
  }
  const history = model.history(sandbox());
  expect(history).toHaveLength(120);
  expect(history[history.length - 1]).toMatchObject({ load: 1.5, memory: 300 });
  feed.say(sandbox({ usage: { cpu_total: 9999 } })); // of the same moment, so of no duration
  expect(model.history(sandbox())).toHaveLength(120);
  feed.say(sandbox({ started: 2000, usage: { cpu_total: 0 } }));
  expect(model.history(sandbox())).toHaveLength(1);
});

it('says of a sandbox that it has ended, and takes its card away soon or when asked to', () => {
  const dead = sandbox({ state: 'dead', cell: null });
  feed.say(dead, sandbox({ name: 'other' }));
  expect(model.sandboxes.map(box => box.name)).toEqual(['other']);
  feed.say(sandbox());
  feed.say(dead);
  expect(model.sandboxes).toHaveLength(1);
  now += 60_000;
  feed.say(dead);
  expect(model.sandboxes).toEqual([]);
  feed.say(sandbox({ started: 3000 }));
  feed.say(sandbox({ started: 3000, state: 'dead' }));
  expect(model.sandboxes).toHaveLength(1);
  model.dismiss(dead);
  expect(model.sandboxes).toEqual([]);
});

it('sends a second press of the same button only after the first is answered', async () => {
  let release: () => void = () => undefined;
  api.onAct = () => new Promise(resolve => (release = resolve));
  const box = sandbox();
  const first = model.act(box, 'kill');
  expect(model.pending(box)).toBe(true);
  expect(model.pending(sandbox({ supervisor: 'sup2' }))).toBe(false);
  await model.act(box, 'kill');
  expect(api.acts).toEqual([['sup1', 'main', 'kill']]);
  release();
  await first;
  expect(model.pending(box)).toBe(false);
});

it('keeps saying why a button failed until that is read', async () => {
  api.onAct = () => Promise.reject(new Error('no sandbox named main'));
  await model.act(sandbox(), 'interrupt');
  feed.say(sandbox());
  expect(model.error).toBe('no sandbox named main');
  model.dismiss();
  expect(model.error).toBeNull();
});
