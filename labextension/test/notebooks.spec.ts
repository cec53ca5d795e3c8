import { expect, it } from 'vitest';

import { sandboxOf } from '../src/notebooks';

it.each([
  ['%%sandbox', 'main'],
  ['%%sandbox\nprint(1)', 'main'],
  ['%%sandbox two --memory 2GiB\n1', 'two'],
  ['%%sandbox --memory 2GiB -i a,b two\n1', 'two'],
  ['%%sandbox --fresh\n1', 'main'],
  ['%%sandboxed\n1', null],
  ['# a word\n%%sandbox\n1', null],
  ['%sandbox status', null],
  ['', null]
])('finds the sandbox of the cell %j: %s', (source, name) => {
  expect(sandboxOf(source)).toBe(name);
});
