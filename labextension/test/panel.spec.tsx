import { nullTranslator } from '@jupyterlab/translation';
import * as React from 'react';
import { act } from 'react';
import { Widget } from '@lumino/widgets';
import { createRoot } from 'react-dom/client';
import type { Root } from 'react-dom/client';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { Sandboxes } from '../src/components/sandboxes';
import { PollingModel } from '../src/model';
import { SandboxesPanel } from '../src/panel';
import type { Snapshot } from '../src/tokens';
import { ScriptedApi, sandbox } from './samples';

const trans = nullTranslator.load('ipysandbox');
let host: HTMLElement;
let root: Root;
let api: ScriptedApi;
let model: PollingModel;

beforeEach(() => {
  host = document.body.appendChild(document.createElement('div'));
  root = createRoot(host);
  api = new ScriptedApi();
  model = new PollingModel(api);
});

afterEach(() => {
  act(() => {
    root.unmount();
  });
  model.dispose();
  document.body.replaceChildren();
});

async function draw(snapshot?: Snapshot, onAction = vi.fn()): Promise<typeof onAction> {
  if (snapshot) {
    api.answer = () => Promise.resolve(snapshot);
    await model.refresh();
  }
  act(() => {
    root.render(<Sandboxes model={model} trans={trans} onAction={onAction} />);
  });
  return onAction;
}

function button(name: string): HTMLButtonElement {
  const found = [...document.querySelectorAll('button')].find(
    one => one.textContent.trim() === name
  );
  if (!found) {
    throw new Error(`no button ${name} in ${document.body.textContent}`);
  }
  return found;
}

it('says that it is looking before the first answer', async () => {
  await draw();
  expect(host.textContent).toContain('Looking for sandboxes');
});

it('tells how to start one when there is none', async () => {
  await draw({ sandboxes: [], problems: [] });
  expect(host.textContent).toContain('No sandbox is running');
  expect(host.querySelector('code')?.textContent).toBe('%%sandbox');
});

it('does not claim that none is running when the server cannot be asked', async () => {
  api.answer = () => Promise.reject(new Error('connection refused'));
  await model.refresh().catch(() => undefined);
  await draw();
  expect(host.querySelector('[role=alert]')?.textContent).toContain('connection refused');
  expect(host.textContent).not.toContain('No sandbox is running');
});

it('does not claim that none is running when a supervisor is silent', async () => {
  await draw({ sandboxes: [], problems: ['Supervisor 12 did not answer.'] });
  expect(host.textContent).toContain('Supervisor 12 did not answer.');
  expect(host.textContent).not.toContain('No sandbox is running');
});

it('shows where, what, for how long and how near to each limit', async () => {
  await draw({ sandboxes: [sandbox()], problems: [] });
  const text = host.textContent;
  for (const part of [
    'main',
    'running',
    'analysis.ipynb · linux',
    'Cell 7 for 1 min 15 s of 10 min 0 s'
  ]) {
    expect(text).toContain(part);
  }
  const meters = [...host.querySelectorAll('[role=meter]')].map(one => [
    one.getAttribute('aria-label'),
    one.getAttribute('aria-valuetext'),
    one.getAttribute('data-level')
  ]);
  expect(meters).toEqual([
    ['CPU', '4 min 30 s / 5 min 0 s', 'near'],
    ['Memory', '1.0 GiB / 4.0 GiB', 'normal'],
    ['Processes', '3 / 256', 'normal'],
    ['Disk', '0 B / 1.0 GiB', 'normal'],
    ['Output', '2.0 KiB / 32.0 MiB', 'normal']
  ]);
  expect(text).toContain('2 guarantees held');
  expect(text).toContain('network namespace, landlock, seccomp');
});

it('says which guarantees are weaker on this machine, and how', async () => {
  const weaker = { network: 'no loopback', unheard: 'of' };
  await draw({ sandboxes: [sandbox({ weaker })], problems: [] });
  expect(host.querySelector('summary')?.textContent).toBe(
    '2 guarantees held, 1 of them in a weaker form'
  );
  const network = host.querySelector('dd');
  expect(network?.textContent).toContain('Weaker here: no loopback');
  expect(host.textContent).not.toContain('unheard');
});

it('draws no meter for what was not measured', async () => {
  await draw({ sandboxes: [sandbox({ usage: { memory: 10 } })], problems: [] });
  expect(host.querySelectorAll('[role=meter]')).toHaveLength(1);
});

it('draws what a sandbox says as text, never as markup', async () => {
  const hostile = '<img src=x onerror=alert(1)><script>1</script>';
  await draw({
    sandboxes: [
      sandbox({
        name: hostile,
        notebook: hostile,
        backend: hostile,
        guarantees: { [hostile]: [hostile] },
        weaker: { [hostile]: hostile }
      })
    ],
    problems: [hostile]
  });
  expect(host.querySelector('img, script')).toBeNull();
  expect(host.querySelector('h3')?.textContent).toBe(hostile);
});

it('offers an interrupt only while a cell runs, and a kill until the end', async () => {
  await draw({ sandboxes: [sandbox({ state: 'idle', cell: null })], problems: [] });
  expect(button('Interrupt').disabled).toBe(true);
  expect(button('Kill…').disabled).toBe(false);
  await draw({ sandboxes: [sandbox({ state: 'dead', cell: null })], problems: [] });
  expect(button('Kill…').disabled).toBe(true);
});

it('interrupts at once', async () => {
  const onAction = await draw({ sandboxes: [sandbox()], problems: [] });
  act(() => {
    button('Interrupt').click();
  });
  expect(onAction).toHaveBeenCalledWith(expect.objectContaining({ name: 'main' }), 'interrupt');
});

it('says what is lost before it kills, and kills only when that is accepted', async () => {
  // Lumino renders the panel, so nothing here can be wrapped in act().
  vi.stubGlobal('IS_REACT_ACT_ENVIRONMENT', false);
  api.answer = () => Promise.resolve({ sandboxes: [sandbox()], problems: [] });
  await model.refresh();
  const panel = new SandboxesPanel(model, trans);
  Widget.attach(panel, document.body);
  await vi.waitFor(() => button('Kill…'));

  button('Kill…').click();
  const dialog = await vi.waitFor(() => {
    const found = document.querySelector('.jp-Dialog');
    expect(found?.textContent).toContain('Lost: the running cell, all variables');
    return found;
  });
  expect(dialog?.textContent).toContain('Kill sandbox "main"?');
  button('Cancel').click();
  await vi.waitFor(() => {
    expect(document.querySelector('.jp-Dialog')).toBeNull();
  });
  expect(api.acts).toEqual([]);

  button('Kill…').click();
  await vi.waitFor(
    () => document.querySelector('.jp-Dialog') ?? Promise.reject(new Error('no dialog'))
  );
  button('Kill').click();
  await vi.waitFor(() => {
    expect(api.acts).toEqual([['sup1', 'main', 'kill']]);
  });
  panel.dispose();
  vi.unstubAllGlobals();
});
