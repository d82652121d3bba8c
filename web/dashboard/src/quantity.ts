// Formats numbers for display: SI prefixes, bytes in KiB and MiB as in the command line, and a thin space between
// number and unit.

const SI = ["", "k", "M", "G", "T", "P"];
const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
const THIN = "\u202f";

/** A count with an SI prefix: 1234567 → "1.23 M". Numbers below 10,000 have all digits. */
export function count(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return "–";
  if (Math.abs(value) < 10_000) return value.toLocaleString("en", { maximumFractionDigits: value < 10 && !Number.isInteger(value) ? 2 : 0 });
  return scaled(value, 1000, SI, "");
}

export function rate(value: number | null | undefined): string {
  return value == null ? "–" : `${count(value)}/s`;
}

export function bytes(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return "–";
  return Math.abs(value) < 1000 ? `${Math.round(value)}${THIN}B` : scaled(value, 1024, BINARY, "B");
}

export function byteRate(value: number | null | undefined): string {
  return value == null ? "–" : `${bytes(value)}/s`;
}

/** A number with all digits, in groups, for values that users compare or copy. */
export function exact(value: number | bigint | null | undefined): string {
  return value == null ? "–" : value.toLocaleString("en");
}

export function percent(share: number | null | undefined): string {
  return share == null || !Number.isFinite(share) ? "–" : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)}${THIN}%`;
}

/** A duration, given in seconds, as "340 ms", "12 s", "3 min", "2.4 h" or "5 d". */
export function span(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  const s = Math.abs(seconds);
  if (s < 1e-6) return `${(s * 1e9).toFixed(0)}${THIN}ns`;
  if (s < 1e-3) return `${three(s * 1e6)}${THIN}µs`;
  if (s < 1) return `${three(s * 1e3)}${THIN}ms`;
  if (s < 120) return `${three(s)}${THIN}s`;
  if (s < 7200) return `${three(s / 60)}${THIN}min`;
  if (s < 172_800) return `${three(s / 3600)}${THIN}h`;
  return `${three(s / 86_400)}${THIN}d`;
}

/** A point in time: only the time of day if it is today, otherwise also the date. */
export function moment(at: Date | number | string | null | undefined): string {
  if (at == null) return "–";
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return String(at);
  const time = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? time : `${date.toISOString().slice(0, 10)} ${time}`;
}

export function ago(at: Date | number | string | null | undefined, now = Date.now()): string {
  if (at == null) return "–";
  const seconds = (now - new Date(at).getTime()) / 1000;
  return seconds < 0.5 ? "now" : `${span(seconds)} ago`;
}

/** A number and its noun: plural(3, "topic") → "3 topics". */
export function plural(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

function scaled(value: number, base: number, prefixes: string[], unit: string): string {
  let power = 0;
  let rest = value;
  while (Math.abs(rest) >= 999.5 && power < prefixes.length - 1) {
    rest /= base;
    power += 1;
  }
  return `${three(rest)}${THIN}${prefixes[power]}${unit}`;
}

function three(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 || Number.isInteger(value) ? 0 : size >= 9.995 ? 1 : 2);
}
