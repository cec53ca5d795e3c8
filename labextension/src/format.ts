/** Numbers as a person reads them. */

const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
/** Between a number and its unit: they stay on one line. */
const NARROW = '\u202f';

/** Bytes with a binary unit, as the policy file writes them: 1536 → "1.5 KiB". */
export function bytes(value: number): string {
  let unit = 0;
  while (value >= 1024 && unit < BYTE_UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 || Number.isInteger(value) ? 0 : 1;
  return `${value.toFixed(digits)}${NARROW}${BYTE_UNITS[unit] ?? ''}`;
}

/** Seconds; from a minute on with minutes, from an hour on with hours: 75 → "1 min 15 s". */
export function duration(seconds: number): string {
  if (seconds < 10 && !Number.isInteger(seconds)) {
    return `${seconds.toFixed(1)}${NARROW}s`;
  }
  const whole = Math.round(seconds);
  if (whole < 60) {
    return `${whole}${NARROW}s`;
  }
  if (whole < 3600) {
    return joined(Math.floor(whole / 60), 'min', whole % 60, 's');
  }
  return joined(Math.floor(whole / 3600), 'h', Math.floor((whole % 3600) / 60), 'min');
}

function joined(large: number, unit: string, small: number, smallUnit: string): string {
  const first = `${large}${NARROW}${unit}`;
  return small === 0 ? first : `${first}${NARROW}${small}${NARROW}${smallUnit}`;
}

const SECONDS: Record<string, number> = { s: 1, min: 60, h: 3600, d: 86_400 };

/** Times and sizes as a policy file writes them, in the form of all others here: "90s" → "1 min 30 s". */
export function quantities(text: string): string {
  return text.replace(/\b(\d+(?:\.\d+)?)([A-Za-z]+)\b/g, (_, number: string, unit: string) => {
    const seconds = SECONDS[unit];
    return seconds === undefined ? `${number}${NARROW}${unit}` : duration(Number(number) * seconds);
  });
}

export function count(value: number): string {
  return String(Math.round(value));
}

/** Processors in use: 0.04 → "0.0", 1.25 → "1.3". */
export function processors(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}

/** The moment of a record, here: the time for today, with the day before that. */
export function moment(iso: string, now: Date = new Date()): string {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) {
    return iso;
  }
  const time = at.toLocaleTimeString([], { hour12: false });
  return at.toDateString() === now.toDateString() ? time : `${at.toLocaleDateString()}, ${time}`;
}

/** The last part of a path, which is what people call a file. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1) || path;
}
