import { expect, it } from 'vitest';

import { bytes, count, duration } from '../src/format';

it.each([
  [0, '0 B'],
  [1023, '1023 B'],
  [1536, '1.5 KiB'],
  [4 * 2 ** 30, '4.0 GiB'],
  [9e15, '8185 TiB']
])('writes %d bytes as %s', (value, text) => {
  expect(bytes(value)).toBe(text);
});

it.each([
  [0.04, '0.0 s'],
  [9.94, '9.9 s'],
  [59.7, '1 min 0 s'],
  [75, '1 min 15 s'],
  [7380, '2 h 3 min']
])('writes %d seconds as %s', (value, text) => {
  expect(duration(value)).toBe(text);
});

it('writes a count whole', () => {
  expect(count(3)).toBe('3');
});
