/** What the server names, in words: guarantees, layers, settings, and what is recorded. */
import type { TranslationBundle } from '@jupyterlab/translation';

import { baseName, bytes, duration, quantities } from './format';
import type { AuditRecord, Sandbox, SandboxState } from './tokens';

export function stateLabel(state: SandboxState, trans: TranslationBundle): string {
  switch (state) {
    case 'starting':
      return trans.__('starting');
    case 'idle':
      return trans.__('idle');
    case 'busy':
      return trans.__('running');
    case 'dead':
      return trans.__('ended');
    case 'unknown':
      return trans.__('unknown');
  }
}

/** Whose a sandbox is: its notebook's file, or the program's folder. */
export function placeText(sandbox: Sandbox, trans: TranslationBundle): string {
  const { notebook, project } = sandbox;
  if (notebook !== null) {
    return baseName(notebook);
  }
  return project === null ? trans.__('a program') : trans.__('a program in %1', baseName(project));
}

/** What its end loses, and what stays. */
export function lostText({ state, notebook }: Sandbox, trans: TranslationBundle): string {
  return [
    state === 'busy' ? trans.__('Lost: the running cell,') : trans.__('Lost:'),
    trans.__(
      'all variables and imports of this sandbox, its temporary files, and files it changed outside the folders that the policy lets it write.'
    ),
    notebook === null
      ? trans.__('Kept: the program itself,')
      : trans.__('Kept: the notebook and its own kernel,'),
    trans.__('and what is already in those folders (by default results/).')
  ].join(' ');
}

/** What a guarantee promises; its own name for one that this version does not know. */
export function guaranteeText(name: string, trans: TranslationBundle): string {
  switch (name) {
    case 'files.read':
      return trans.__('Reads only the project and what programs need; secrets stay hidden');
    case 'files.write':
      return trans.__('Writes only where the policy says');
    case 'network':
      return trans.__('Reaches no network, not even this machine');
    case 'processes':
      return trans.__('Sees and touches no process outside');
    case 'syscalls':
      return trans.__('Uses only harmless calls of the operating system');
    case 'memory':
      return trans.__('Memory stays within its limit');
    case 'cpu':
      return trans.__('Processor time stays within its limit');
    case 'disk':
      return trans.__('Disk space stays within its limit');
    case 'tasks':
      return trans.__('Number of processes stays within its limit');
    case 'devices':
      return trans.__('Reaches no device of this machine');
    case 'environment':
      return trans.__('Gets no secret from environment variables');
    default:
      return name;
  }
}

/** What holds a guarantee, for who wonders about the word. */
export function layerText(layer: string, trans: TranslationBundle): string {
  const known: [RegExp, string][] = [
    [
      /^mount namespace/,
      trans.__('The sandbox has a file system of its own, made of what it may see.')
    ],
    [/^network namespace/, trans.__('The sandbox has a network of its own that leads nowhere.')],
    [/namespace/, trans.__('The kernel keeps this apart from the rest of the machine.')],
    [
      /^landlock/i,
      trans.__(
        'The kernel allows only listed files and connections, also where another layer fails.'
      )
    ],
    [/^seccomp/i, trans.__('The kernel refuses system calls that ordinary programs do not need.')],
    [/^monitor/i, trans.__('A process outside does file calls on behalf of the code.')],
    [
      /^cgroup/i,
      trans.__('A control group: the kernel counts and limits what all processes use together.')
    ],
    [/^RLIMIT/, trans.__('A limit of the kernel for each process.')],
    [
      /^watchdog/,
      trans.__('The supervisor measures again and again and ends what goes over the limit.')
    ],
    [
      /^overlay/,
      trans.__('Changes to the project go to a copy; the files themselves stay as they are.')
    ],
    [/tmpfs/, trans.__('A file system in memory with a fixed size.')],
    [/^no capabilities/, trans.__('No process inside has any privilege of the administrator.')],
    [/^nodev/, trans.__('Device files do not work.')],
    [/affinity/, trans.__('Processes are bound to some of the processors.')],
    [
      /^clean process/,
      trans.__('The sandbox is started from a process that never held your variables.')
    ]
  ];
  return known.find(([pattern]) => pattern.test(layer))?.[1] ?? '';
}

interface Named {
  label: string;
  hint: string;
}

/** A setting of the policy in words, and what it means. */
export function settingText(key: string, trans: TranslationBundle): Named {
  const known: Record<string, [string, string]> = {
    'limits.cpu': [
      trans.__('Processor time'),
      trans.__('Most for one cell, all its processes summed')
    ],
    'limits.wall': [trans.__('Time'), trans.__('Most that one cell may take by the clock')],
    'limits.memory': [trans.__('Memory'), trans.__('Most for the whole sandbox')],
    'limits.disk': [trans.__('Disk'), trans.__('Most that it may write, temporary files included')],
    'limits.processes': [
      trans.__('Processes'),
      trans.__('Most at the same time, threads included')
    ],
    'limits.cpus': [trans.__('Processors'), trans.__('Most that it may use at the same time')],
    'limits.output': [trans.__('Output'), trans.__('Most that one cell may print and display')],
    'limits.open_files': [trans.__('Open files'), trans.__('Most for one process')],
    'limits.gpu.devices': [trans.__('Graphics cards'), trans.__('Cards that it may use')],
    'limits.gpu.memory_fraction': [
      trans.__('Graphics memory'),
      trans.__('Share of each card’s memory')
    ],
    'files.read': [trans.__('Reads'), trans.__('What code may read besides the project')],
    'files.write': [trans.__('Writes'), trans.__('Folders whose changes stay')],
    'files.workspace': [
      trans.__('Rest of the project'),
      trans.__('overlay: changes go to a copy that is dropped; readonly: they are refused')
    ],
    'files.review': [
      trans.__('Review of changes'),
      trans.__('A later version lets you look through what code has changed before it counts')
    ],
    'network.allow': [trans.__('Hosts'), trans.__('Hosts that it may reach')],
    'code.profile': [
      trans.__('Rules'),
      trans.__('What the check, which reads code before it runs, refuses')
    ],
    'code.deny': [trans.__('Also refused'), trans.__('Rules added to the profile')],
    'code.allow': [trans.__('Not refused'), trans.__('Rules taken out of the profile')],
    'output.html': [
      trans.__('HTML'),
      trans.__('sanitize: scripts are left out; isolate: they run in a frame; text: no HTML')
    ],
    'output.stdin': [trans.__('Questions'), trans.__('Whether code may ask with input()')],
    'output.widgets': [trans.__('Widgets'), trans.__('Whether ipywidgets pass, cleaned')],
    'environment.allow': [trans.__('Variables allowed'), trans.__('Host variables passed by name')],
    'data.source_path': [trans.__('Data set'), trans.__('Readable besides the project')],
    backend: [trans.__('Backend'), trans.__('How sandboxes are made')],
    require: [trans.__('Required'), trans.__('Guarantees that must not be held in a weaker form')]
  };
  const [label, hint] = known[key] ?? [key, ''];
  return { label, hint };
}

/** A setting's value as a person reads it; of what is asked for, the entry. */
export function valueText(key: string, value: unknown, trans: TranslationBundle): string {
  if (key === 'files.review' && value === 'rest') {
    return trans.__('not in this version');
  }
  if (key === 'limits.gpu.memory_fraction' && typeof value === 'number') {
    return `${Math.round(value * 100)}\u202f%`;
  }
  const text = detailText('', value);
  return key.startsWith('limits.') && !key.startsWith('limits.gpu.') ? quantities(text) : text;
}

/** Where a setting comes from, shortly. */
export function sourceText(kind: string, trans: TranslationBundle): string {
  switch (kind) {
    case 'built-in':
      return trans.__('default');
    case 'user':
      return trans.__('your file');
    case 'project':
      return trans.__('project');
    case 'policy':
      return trans.__('named file');
    case 'administrator':
      return trans.__('administrator');
    case 'cell option':
      return trans.__('cell');
    default:
      return trans.__('argument');
  }
}

/** What is recorded, in words. */
export function actionText(action: string, trans: TranslationBundle): string {
  const known: Record<string, string> = {
    'sandbox.start': trans.__('Sandbox started'),
    'sandbox.stop': trans.__('Sandbox ended'),
    'sandbox.refused': trans.__('Sandbox not started'),
    'sandbox.interrupt': trans.__('Interrupted'),
    'cell.submitted': trans.__('Cell handed in'),
    'check.verdict': trans.__('Code checked'),
    'cell.result': trans.__('Cell ended'),
    'limit.hit': trans.__('Limit reached'),
    'syscall.refused': trans.__('System call refused'),
    'network.refused': trans.__('Connection refused'),
    'output.dropped': trans.__('Output left out'),
    'policy.notice': trans.__('Policy: not granted'),
    'policy.trusted': trans.__('Policy approved'),
    'files.swept': trans.__('Files disarmed'),
    'supervisor.failed': trans.__('Supervisor failed')
  };
  return known[action] ?? action;
}

/** Kinds of records to filter by. */
export function actionKinds(trans: TranslationBundle): [string, string][] {
  return [
    ['', trans.__('Everything')],
    ['cell.*', trans.__('Cells')],
    ['sandbox.*', trans.__('Sandboxes')],
    ['limit.*', trans.__('Limits')],
    ['syscall.*', trans.__('System calls')],
    ['network.*', trans.__('Network')],
    ['check.*', trans.__('Checks')],
    ['output.*', trans.__('Outputs')],
    ['policy.*', trans.__('Policy')],
    ['files.*', trans.__('Files')],
    ['supervisor.*', trans.__('Supervisor')]
  ];
}

/** The one detail that says most about a record. */
export function recordSummary({ action, details }: AuditRecord): string {
  const text = (key: string): string => {
    const value = details[key];
    return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
  };
  const times = Number(details.count) > 1 ? ` ×${text('count')}` : '';
  switch (action) {
    case 'cell.submitted':
      return `#${text('number')}`;
    case 'cell.result':
      return `#${text('number')} ${text('status')}`;
    case 'check.verdict':
      return text('verdict');
    case 'limit.hit':
      return text('limit');
    case 'syscall.refused':
      return `${text('name')} ${text('detail')}`.trim() + times;
    case 'network.refused':
      return text('address') + times;
    default:
      return text('reason') || text('text') || text('message');
  }
}

/** Details as rows; what one holds under names of its own gets a row for each. */
export function detailRows(details: Record<string, unknown>): [string, string][] {
  return Object.entries(details).flatMap(([key, value]): [string, string][] =>
    value !== null && typeof value === 'object' && !Array.isArray(value)
      ? Object.entries(value).map(([inner, one]) => [`${key} · ${inner}`, detailText(inner, one)])
      : [[key, detailText(key, value)]]
  );
}

const SIZES = new Set(['memory', 'memory_peak', 'disk', 'output', 'size']);
const TIMES = new Set(['wall', 'cpu', 'seconds', 'elapsed']);

/** A detail's value as one text; numbers that have a unit get it. */
export function detailText(key: string, value: unknown): string {
  if (typeof value === 'number') {
    return SIZES.has(key) ? bytes(value) : TIMES.has(key) ? duration(value) : String(value);
  }
  if (Array.isArray(value)) {
    return value.map(one => detailText('', one)).join(', ');
  }
  if (value !== null && typeof value === 'object') {
    return Object.entries(value)
      .map(([inner, one]) => `${inner} ${detailText(inner, one)}`)
      .join(', ');
  }
  return String(value);
}
