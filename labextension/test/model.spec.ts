import { afterEach, expect, it, vi } from 'vitest';

import { PollingModel } from '../src/model';
import { ScriptedApi, sandbox } from './samples';

const models: PollingModel[] = [];

function makeModel(): { api: ScriptedApi; model: PollingModel } {
  const api = new ScriptedApi();
  const model = new PollingModel(api);
  models.push(model);
  return { api, model };
}

afterEach(() => {
  vi.useRealTimers();
  for (const model of models.splice(0)) {
    model.dispose();
  }
});

it('asks the server nothing until somebody looks', async () => {
  const { api, model } = makeModel();
  await Promise.resolve();
  expect(api.asked).toBe(0);
  expect(model.loaded).toBe(false);
});

it('asks at once and again while watched, and no more once not', async () => {
  vi.useFakeTimers();
  const { api, model } = makeModel();
  model.watch(true);
  await vi.advanceTimersByTimeAsync(3500);
  expect(api.asked).toBeGreaterThanOrEqual(3);
  model.watch(false);
  const asked = api.asked;
  await vi.advanceTimersByTimeAsync(60_000);
  expect(api.asked).toBe(asked);
});

it('asks a server that fails less and less often', async () => {
  vi.useFakeTimers();
  const { api, model } = makeModel();
  api.answer = () => Promise.reject(new Error('down'));
  model.watch(true);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(api.asked).toBeGreaterThan(2);
  expect(api.asked).toBeLessThan(30);
});

it('tells its listeners when the sandboxes are there', async () => {
  const { api, model } = makeModel();
  api.answer = () => Promise.resolve({ sandboxes: [sandbox()], problems: ['one is silent'] });
  let signals = 0;
  model.changed.connect(() => (signals += 1));
  await model.refresh();
  expect(signals).toBeGreaterThan(0);
  expect(model.loaded).toBe(true);
  expect(model.sandboxes.map(box => box.name)).toEqual(['main']);
  expect(model.problems).toEqual(['one is silent']);
  expect(model.error).toBeNull();
});

it('shows no old figures when the server fails, and recovers', async () => {
  const { api, model } = makeModel();
  api.answer = () => Promise.resolve({ sandboxes: [sandbox()], problems: [] });
  await model.refresh();
  api.answer = () => Promise.reject(new Error('the server is gone'));
  await model.refresh().catch(() => undefined);
  expect(model.sandboxes).toEqual([]);
  expect(model.error).toBe('the server is gone');
  api.answer = () => Promise.resolve({ sandboxes: [sandbox()], problems: [] });
  await model.refresh();
  expect(model.error).toBeNull();
  expect(model.sandboxes).toHaveLength(1);
});

it('sends a second press of the same button only after the first is answered', async () => {
  const { api, model } = makeModel();
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

it('keeps saying why a button failed while the state itself still arrives', async () => {
  const { api, model } = makeModel();
  api.onAct = () => Promise.reject(new Error('no sandbox named main'));
  await model.act(sandbox(), 'interrupt');
  expect(model.error).toBe('no sandbox named main');
  await model.refresh();
  expect(model.error).toBeNull();
});
