// The node's reports of the last five minutes, for charts. The history begins when the dashboard is opened, or earlier
// if the node's first report contains older rates. A chart's line has a gap if no report arrived for HOLE_MS.

import type { Stats } from "./told.ts";

export interface Past {
  /** Seconds since 1970. */
  at: number[];
  records: (number | null)[];
  bytes: (number | null)[];
  memory: (number | null)[];
  rss: (number | null)[];
  cpu: (number | null)[];
  connections: (number | null)[];
}

const KEPT = 300;
const HOLE_MS = 5_000;

let past: Past = empty();
let last = 0;

export function remember(stats: Stats): Past {
  if (stats.at_ms <= last) return past;
  if (last === 0 && stats.history) begin(stats);
  if (last > 0 && stats.at_ms - last > HOLE_MS) push(last / 1000 + 1, null);
  push(stats.at_ms / 1000, stats);
  last = stats.at_ms;
  // Creates a new object, because charts draw again only if the object is another one.
  past = { ...past };
  return past;
}

export function remembered(): Past {
  return past;
}

/** Clears the history, because another node or another process responds. */
export function forgetPast(): void {
  past = empty();
  last = 0;
}

function begin(stats: Stats): void {
  const { step_ms, records, bytes } = stats.history ?? { step_ms: 1000, records: [], bytes: [] };
  records.forEach((value, index) => {
    const at = stats.at_ms - (records.length - index) * step_ms;
    push(at / 1000, null);
    past.records[past.records.length - 1] = value;
    past.bytes[past.bytes.length - 1] = bytes[index] ?? null;
  });
}

function push(at: number, stats: Stats | null): void {
  const add = (list: (number | null)[], value: number | null | undefined) => keep(list, value ?? null);
  keep(past.at, at);
  add(past.records, stats?.rates?.records_per_s);
  add(past.bytes, stats?.rates?.bytes_per_s);
  add(past.memory, stats?.memory?.used_bytes);
  add(past.rss, stats?.process?.rss_bytes);
  add(past.cpu, stats?.process?.cpu_percent);
  add(past.connections, stats?.connections?.open);
}

function keep<T>(list: T[], value: T): void {
  list.push(value);
  if (list.length > KEPT) list.shift();
}

function empty(): Past {
  return { at: [], records: [], bytes: [], memory: [], rss: [], cpu: [], connections: [] };
}
