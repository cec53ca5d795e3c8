import { expect, it } from 'vitest';

import { magicOf, merged, sandboxOf } from '../src/notebooks';

it.each([
  ['%%sandbox', 'main'],
  ['%%sandbox\nprint(1)', 'main'],
  ['%%sandbox two --memory 2GiB\n1', 'two'],
  ['%%sandbox --memory 2GiB -i a,b two\n1', 'two'],
  ['%%sandbox --fresh\n1', 'main'],
  ['%%sandboxed\n1', null],
  ['# a word\n\n  # two\n%%sandbox\n1', 'main'],
  ['# a word\n%%sandbox two -i x\n1', 'two'],
  ['x = 1\n%%sandbox\n1', null],
  ['# %%sandbox', null],
  ['%%sandbox?\n1', null],
  ['# a word\n%%sandbox??', null],
  ['?%%sandbox\n1', null],
  ['>>> 1\n>>> %%sandbox\n>>> 1', null],
  ["# a word\r'''\n%%sandbox\n'''\r1", null],
  ['%sandbox status', null],
  ['', null]
])('finds the sandbox of the cell %j: %s', (source, name) => {
  expect(sandboxOf(source)).toBe(name);
});

it('knows the line that stands for a cell, and keeps it once when cells are merged', () => {
  expect(magicOf('# a\n%%sandbox two -i x\n1')).toBe('%%sandbox two -i x');
  expect(magicOf('1\n2')).toBeNull();
  expect(merged('%%sandbox\na = 1\n\n%%sandbox\nb = 2')).toBe('%%sandbox\na = 1\n\nb = 2');
  expect(merged('%%sandbox\na\n\n%%sandbox two\nb')).toBe('%%sandbox\na\n\n%%sandbox two\nb');
  expect(merged('a\n\n%%sandbox\nb\n\n%%sandbox\nc')).toContain('%%sandbox\nb\n\n%%sandbox\nc');
});
