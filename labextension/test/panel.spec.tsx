import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import * as React from 'react';
import { act } from 'react';
import { createRoot } from 'react-dom/client';
import type { Root } from 'react-dom/client';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { AuditModel } from '../src/auditModel';
import { Sandboxes } from '../src/components/sandboxes';
import { FeedModel } from '../src/model';
import { SandboxesPanel } from '../src/panel';
import { worst } from '../src/statusItem';
import type { Snapshot } from '../src/tokens';
import { ScriptedApi, ScriptedFeed, policy, record, sandbox } from './samples';

const trans = nullTranslator.load('ipysandbox');
const HOSTILE = '<img src=x onerror=alert(1)><script>1</script>';
let host: HTMLElement;
let root: Root;
let api: ScriptedApi;
let feed: ScriptedFeed;
let model: FeedModel;
let front: string | null;
let lacks: boolean;
const opened: [string, number | null][] = [];

beforeEach(() => {
  host = document.body.appendChild(document.createElement('div'));
  root = createRoot(host);
  api = new ScriptedApi();
  feed = new ScriptedFeed();
  model = new FeedModel(api, feed);
  front = 's/a.ipynb';
  lacks = false;
  opened.length = 0;
  Element.prototype.scrollIntoView = () => undefined;
});

afterEach(() => {
  act(() => {
    root.unmount();
  });
  model.dispose();
  document.body.replaceChildren();
  vi.unstubAllGlobals();
});

function draw(snapshot?: Partial<Snapshot>, onAction = vi.fn()): typeof onAction {
  if (snapshot) {
    feed.become('live');
    feed.state.emit({ now: 0, sandboxes: [], problems: [], ...snapshot });
  }
  act(() => {
    root.render(
      <Sandboxes
        model={model}
        notebook={{ path: 's/front.ipynb', kernel: 'k1' }}
        lacks={lacks}
        onLoad={() => opened.push(['loaded', null])}
        trans={trans}
        onAction={onAction}
        onOpen={path => opened.push([path, null])}
        onDoctor={() => undefined}
      />
    );
  });
  return onAction;
}

/** The whole panel. Lumino renders it, so nothing of it can be wrapped in act(). */
function panel(): SandboxesPanel {
  vi.stubGlobal('IS_REACT_ACT_ENVIRONMENT', false);
  const surroundings = {
    notebook: () => (front === null ? null : { path: front, kernel: null }),
    changed: new Signal<object, void>({}),
    lacks: () => lacks,
    load: () => undefined,
    saved: new Signal<object, void>({}),
    open: (path: string, line: number | null) => opened.push([path, line])
  };
  const made = new SandboxesPanel(model, new AuditModel(api, feed), api, surroundings, trans);
  Widget.attach(made, document.body);
  return made;
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

const plain = (text: string): string => text.replace(/\u202f/g, ' ');

it('says that it is looking before the first answer', () => {
  draw();
  expect(host.textContent).toContain('Looking for sandboxes');
});

it('tells how to start one when there is none', () => {
  draw({});
  expect(host.textContent).toContain('No sandbox is running');
  expect(host.textContent).toContain('%%sandbox');
});

it('says that the notebook in front has not loaded it, whoever else runs sandboxes', () => {
  draw({ sandboxes: [sandbox()] });
  expect(host.textContent).not.toContain('is not loaded');
  lacks = true;
  draw();
  expect(host.textContent).toContain('ipysandbox is not loaded in front.ipynb');
  button('Load it').click();
  expect(opened).toEqual([['loaded', null]]);
});

it('does not claim that none is running when nobody can be asked', () => {
  feed.become('lost');
  draw();
  expect(host.querySelector('[role=alert]')?.textContent).toContain('connection');
  expect(host.textContent).not.toContain('No sandbox is running');
  draw({ problems: ['Supervisor 12 did not answer.'] });
  expect(host.textContent).toContain('Supervisor 12 did not answer.');
  expect(host.textContent).not.toContain('No sandbox is running');
});

it('shows where, what, for how long and how near to each limit', () => {
  draw({ sandboxes: [sandbox()] });
  const text = plain(host.textContent);
  for (const part of ['main', 'running', 'analysis.ipynb', 'Cell 7 for 1 min 15 s of 10 min']) {
    expect(text).toContain(part);
  }
  expect(text).toContain('CPU time 4 min 30 s of 5 min');
  expect(text).toContain('Most: 1.5 GiB, 3 processes');
  const meters = [...host.querySelectorAll('[role=meter]')].map(one => [
    one.getAttribute('aria-label'),
    plain(one.getAttribute('aria-valuetext') ?? '')
  ]);
  expect(meters).toEqual([
    ['CPU', '0 / 2'],
    ['Memory', '1 GiB / 4 GiB'],
    ['Processes', '3 / 256'],
    ['Disk', '0 B / 1 GiB'],
    ['Output', '2 KiB / 32 MiB']
  ]);
  expect(text).toContain('2 guarantees held');
  expect(text).toContain('network namespace, landlock, seccomp');
  button('analysis.ipynb').click();
  expect(opened).toEqual([['study/analysis.ipynb', null]]);
});

it('shows the sandboxes of the notebook in front first', () => {
  draw({
    sandboxes: [
      sandbox({ name: 'a' }),
      sandbox({ name: 'b', opens: 's/front.ipynb' }),
      sandbox({ name: 'c', opens: null }),
      // By its kernel, wherever its notebook was when it began.
      sandbox({ name: 'd', opens: 's/before.ipynb', kernel: 'k1' }),
      sandbox({ name: 'e', opens: 's/front.ipynb', kernel: 'k2' })
    ]
  });
  const names = [...host.querySelectorAll('.jp-ipysandbox-title h3')].map(one => one.textContent);
  expect(names).toEqual(['b', 'd', 'a', 'c', 'e']);
});

it('warns of a meter that is near its limit, and draws none for what was not measured', () => {
  draw({ sandboxes: [sandbox({ usage: { memory: 3.9 * 2 ** 30 } })] });
  expect(host.querySelectorAll('[role=meter]')).toHaveLength(1);
  expect(host.querySelector('[data-level]')?.getAttribute('data-level')).toBe('near');
  expect(worst([sandbox()], trans)).toEqual({ label: 'CPU time', share: 0.9 });
});

it('says which guarantees are weaker on this machine, and how', () => {
  draw({ sandboxes: [sandbox({ weaker: { network: 'no loopback', unheard: 'of' } })] });
  expect(host.querySelector('summary')?.textContent).toBe(
    '2 guarantees held, 1 of them in a weaker form'
  );
  expect(host.querySelector('.jp-ipysandbox-weaker')?.textContent).toBe('Weaker here: no loopback');
  expect(host.textContent).not.toContain('unheard');
});

it('says that a cell waits for an answer, and which limit ended a sandbox', () => {
  draw({ sandboxes: [sandbox({ cell: { number: 1, elapsed: 2, asks: true } })] });
  expect(host.textContent).toContain('waits for your answer');
  const last = { number: 1, status: 'limit', limit: 'limit on memory: it held 5 GiB', usage: {} };
  draw({ sandboxes: [sandbox({ state: 'dead', cell: null, last })] });
  expect(host.textContent).toContain('limit on memory: it held 5 GiB');
  expect(host.querySelectorAll('[role=meter]')).toHaveLength(0);
  expect(() => button('Kill…')).toThrow('no button');
});

it('offers an interrupt only while a cell runs, and at once', () => {
  const onAction = draw({ sandboxes: [sandbox({ state: 'idle', cell: null })] });
  expect(button('Interrupt').disabled).toBe(true);
  expect(button('Kill…').disabled).toBe(false);
  draw({ sandboxes: [sandbox()] }, onAction);
  act(() => {
    button('Interrupt').click();
  });
  expect(onAction).toHaveBeenCalledWith(expect.objectContaining({ name: 'main' }), 'interrupt');
});

it('says what is lost before it kills, and kills only when that is accepted', async () => {
  feed.say(sandbox());
  const made = panel();
  await vi.waitFor(() => button('Kill…'));
  button('Kill…').click();
  const dialog = await vi.waitFor(() => {
    const found = document.querySelector('.jp-Dialog');
    expect(found?.textContent).toContain('Lost: the running cell, all variables');
    return found;
  });
  expect(dialog?.textContent).toContain('Kill sandbox "main" of analysis.ipynb?');
  button('Cancel').click();
  await vi.waitFor(() => {
    expect(document.querySelector('.jp-Dialog')).toBeNull();
  });
  expect(api.acts).toEqual([]);
  button('Kill…').click();
  await vi.waitFor(() => button('Kill'));
  button('Kill').click();
  await vi.waitFor(() => {
    expect(api.acts).toEqual([['sup1', 'main', 'kill']]);
  });
  made.dispose();
});

it('names whose sandbox would be lost, and no cell where none runs', async () => {
  feed.say(sandbox({ state: 'idle', cell: null, notebook: null, opens: null }));
  const made = panel();
  await vi.waitFor(() => button('Restart…'));
  button('Restart…').click();
  const dialog = await vi.waitFor(() => {
    const found = document.querySelector('.jp-Dialog');
    expect(found?.textContent).toContain('Restart sandbox "main" of a program in study?');
    return found;
  });
  expect(dialog?.textContent).toContain('Lost: all variables');
  expect(dialog?.textContent).not.toMatch(/running cell|notebook/);
  button('Cancel').click();
  made.dispose();
});

it('shows the policy of the notebook in front, until another is chosen by hand', async () => {
  const one = sandbox({ name: 'one', opens: 's/a.ipynb' });
  const two = sandbox({ name: 'two', opens: 's/b.ipynb' });
  const chosen = (): string | undefined =>
    document.querySelector<HTMLSelectElement>('[aria-label="Whose policy"]')?.selectedOptions[0]
      ?.textContent;
  const goes = async (to: string | null, shown: string): Promise<void> => {
    front = to;
    feed.say(one, two);
    await vi.waitFor(() => {
      expect(chosen()).toBe(shown);
    });
  };
  feed.say(one, two);
  const made = panel();
  made.select('policy');
  await goes('s/b.ipynb', 'two – analysis.ipynb');
  expect(api.looked[api.looked.length - 1]).toEqual({ supervisor: 'sup1', sandbox: 'two' });
  await goes('s/deep/c.ipynb', 'A new sandbox in deep');
  await goes('c.ipynb', 'A new sandbox in the main folder');
  await goes('s/a.ipynb', 'one – analysis.ipynb');
  const select = document.querySelector<HTMLSelectElement>('[aria-label="Whose policy"]');
  if (select) {
    select.selectedIndex = 1;
    select.dispatchEvent(new Event('change', { bubbles: true }));
  }
  await goes('s/a.ipynb', 'two – analysis.ipynb');
  await goes('c.ipynb', 'A new sandbox in the main folder');
  made.dispose();
});

it('says beside a running sandbox that its policy file can’t be used any more', async () => {
  const place = { file: '/s/ipysandbox.toml', line: 2, opens: 's/ipysandbox.toml' };
  api.view = policy({
    problem: { message: 'unknown key "memroy"', hint: null, place, others: [] },
    file: null
  });
  feed.say(sandbox({ opens: 's/a.ipynb' }));
  const made = panel();
  made.select('policy');
  await vi.waitFor(() => button('Open ipysandbox.toml:2'));
  expect(document.querySelector('[role=alert]')?.textContent).toContain('has the earlier policy');
  expect(document.body.textContent).toContain('/s/results');
  made.dispose();
});

it('shows sources by line, names of secrets, and approves what was shown and nothing else', async () => {
  const made = panel();
  made.select('policy');
  await vi.waitFor(() => button('project:3'));
  const text = plain(document.body.textContent);
  for (const part of ['Memory 4 GiB → 64 GiB', 'STUDY_API_KEY', '/s/results', 'No host can be']) {
    expect(text).toContain(part);
  }
  button('project:3').click();
  expect(opened).toEqual([['s/ipysandbox.toml', 3]]);
  button('Approve…').click();
  await vi.waitFor(() => button('Approve'));
  expect(plain(document.querySelector('.jp-Dialog')?.textContent ?? '')).toContain(
    '4 GiB → 64 GiB'
  );
  button('Approve').click();
  await vi.waitFor(() => {
    expect(api.approved).toEqual([[{ path: 's/a.ipynb' }, 'd1']]);
  });
  made.dispose();
});

it('shows every entry of what is approved, and says so where not all can be shown', async () => {
  const entries = Array.from({ length: 40 }, (_, at) => `/data/part-${at}`);
  const wishes = [{ key: 'files.read', entries: [...entries, '/home/ann/private'], total: 41 }];
  const { file } = policy();
  api.view = policy({ file: file && { ...file, wishes } });
  const made = panel();
  made.select('policy');
  await vi.waitFor(() => button('Approve…'));
  button('Approve…').click();
  await vi.waitFor(() => button('Approve'));
  const shown = [...document.querySelectorAll('.jp-Dialog code')].map(one => one.textContent);
  expect(shown).toEqual(wishes[0]?.entries);
  button('Cancel').click();
  const refused = { message: 'too long', hint: 'ipysandbox policy trust', place: null };
  const long = [{ key: 'files.read', entries, total: 900 }];
  api.view = policy({ file: file && { ...file, wishes: long, refused } });
  document.querySelector<HTMLElement>('[aria-label="Read the policy again"]')?.click();
  await vi.waitFor(() => {
    expect(document.querySelector('.jp-ipysandbox-wishes')?.textContent).toContain(
      'and 860 more, not shown here'
    );
  });
  expect(button('Approve…').disabled).toBe(true);
  made.dispose();
});

it('says how long a list is of which it shows the first', async () => {
  const { totals } = policy();
  api.view = policy({ totals: { ...totals, hidden: 233 } });
  const made = panel();
  made.select('policy');
  await vi.waitFor(() => {
    expect(document.body.textContent).toContain('Hidden, wherever they lie (233)');
  });
  expect(document.body.textContent).toContain('and 232 more');
  made.dispose();
});

it('takes the focus when it is asked for, but not when it is only there from the start', async () => {
  const made = panel();
  made.quiet = true;
  made.activate();
  await vi.waitFor(() => {
    expect(made.quiet).toBe(false);
  });
  expect(document.activeElement).toBe(document.body);
  made.activate();
  await vi.waitFor(() => {
    expect(document.activeElement?.id).toBe('ipysandbox-tab-sandboxes');
  });
  made.dispose();
});

it('shows an edit that makes no sense in its place', async () => {
  const place = { file: '/s/ipysandbox.toml', line: 2, opens: 's/ipysandbox.toml' };
  const problem = { message: 'unknown key "memroy"', hint: 'did you mean "memory"?', place };
  const others = [{ message: 'no such folder', hint: null, place: { ...place, line: 9 } }];
  api.view = policy({ problem: { ...problem, others }, settings: [], file: null });
  const made = panel();
  made.select('policy');
  await vi.waitFor(() => button('Open ipysandbox.toml:2'));
  expect(document.querySelector('[role=alert]')?.textContent).toContain('did you mean "memory"?');
  button('Open ipysandbox.toml:9').click();
  expect(opened).toEqual([['s/ipysandbox.toml', 9]]);
  made.dispose();
});

it('shows records as they come, with their details', async () => {
  api.onAudit = () => Promise.resolve({ records: [record(1)], older: null });
  feed.become('live');
  const made = panel();
  // From the tab that it begins with: what that one listens to is not what this one does.
  await vi.waitFor(() => {
    expect(document.body.textContent).toContain('Looking for sandboxes');
  });
  made.select('audit');
  await vi.waitFor(() => {
    expect(document.querySelectorAll('.jp-ipysandbox-records li')).toHaveLength(1);
  });
  const details = { limit: 'memory', value: 2 ** 30 };
  feed.records.emit([record(2, { action: 'limit.hit', severity: 'warning', details })]);
  await vi.waitFor(() => {
    expect(document.querySelector('.jp-ipysandbox-records li')?.textContent).toContain(
      'Limit reached'
    );
  });
  made.dispose();
});

it('draws what a sandbox says as text, never as markup', async () => {
  const last = { number: 1, status: HOSTILE, limit: HOSTILE, usage: {} };
  const box = sandbox({
    name: HOSTILE,
    notebook: `/${HOSTILE}`,
    backend: HOSTILE,
    guarantees: { [HOSTILE]: [HOSTILE] },
    weaker: { [HOSTILE]: HOSTILE },
    cell: null,
    last
  });
  draw({ sandboxes: [box], problems: [HOSTILE] });
  expect(host.querySelector('img, script')).toBeNull();
  expect(host.querySelector('h3')?.textContent).toBe(HOSTILE);

  const hostile = record(1, { action: HOSTILE, sandbox: HOSTILE, notebook: HOSTILE });
  hostile.details = { [HOSTILE]: HOSTILE, deep: { [HOSTILE]: [HOSTILE] } };
  api.onAudit = () => Promise.resolve({ records: [hostile], older: null });
  const made = panel();
  made.select('audit');
  await vi.waitFor(() => {
    expect(document.querySelector('.jp-ipysandbox-records summary')).not.toBeNull();
  });
  document.querySelectorAll('details').forEach(one => (one.open = true));
  made.select('policy');
  api.view = policy({ notices: [HOSTILE], read: [HOSTILE], project: HOSTILE });
  await vi.waitFor(() => button('project:3'));
  expect(document.querySelector('img, script')).toBeNull();
  made.dispose();
});
