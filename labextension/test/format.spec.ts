import { expect, it } from 'vitest';

import { bytes, count, duration, moment, quantities } from '../src/format';

it.each([
  [0, '0 B'],
  [1023, '1023 B'],
  [1536, '1.5 KiB'],
  [4 * 2 ** 30, '4 GiB'],
  [9e15, '8185 TiB']
])('writes %d bytes as %s', (value, text) => {
  expect(bytes(value)).toBe(text.replace(/ /g, '\u202f'));
});

it.each([
  [0.04, '0.0 s'],
  [9.94, '9.9 s'],
  [59.7, '1 min'],
  [300, '5 min'],
  [75, '1 min 15 s'],
  [7380, '2 h 3 min']
])('writes %d seconds as %s', (value, text) => {
  expect(duration(value)).toBe(text.replace(/ /g, '\u202f'));
});

it.each([
  ['5min', '5 min'],
  ['90s', '1 min 30 s'],
  ['4GiB → 64GiB', '4 GiB → 64 GiB'],
  ['20ms', '20 ms'],
  ['256', '256']
])('writes %s of a policy file as %s', (value, text) => {
  expect(quantities(value).replace(/\u202f/g, ' ')).toBe(text);
});

it('writes the day of a record that is not of today', () => {
  const at = '2031-05-01T12:00:00.000000+00:00';
  expect(moment(at, new Date(at))).not.toContain(',');
  expect(moment(at, new Date('2031-06-01'))).toContain(',');
  expect(moment('no time')).toBe('no time');
});

it('writes a count whole', () => {
  expect(count(3)).toBe('3');
});
