/** What a subscription tells besides records, and records for those who iterate. */

import type { Position } from "./bytes.js";
import { bytesText } from "./bytes.js";
import type { Batch } from "./batch.js";
import type { DunlinError } from "./errors.js";

export type NoticeEvent =
  /** These records are lost to this reader, which goes on behind them. */
  | { type: "gap"; topic: string; partition: number; epoch: number; first: number; last: number; records: number }
  /** More than half of the history lies ahead: records may be lost soon. */
  | { type: "lagging"; topic: string; partition: number; behind: number; retained: number }
  /** The log began anew; what its last records were may not be known. */
  | { type: "epoch"; topic: string; partition: number; old: number; lastSeen: number; knownThrough?: number; newFirst: Position }
  /** The state up to here (docs/feeds.md has the bytes); records go on behind it. */
  | { type: "state"; topic: string; partition: number; position: Position; checksum: bigint; bytes: Uint8Array }
  /** What the state adds up to where the reader stands. */
  | { type: "checksum"; topic: string; partition: number; position: Position; checksum: bigint }
  /** Whether a publisher of the state is connected, since when, and when the newest record was appended; ms since 1970. */
  | { type: "publishers"; topic: string; partition: number; connected: boolean; sinceMs: number; lastAppendMs?: number }
  | { type: "deleted"; topic: string; partition: number; last: Position }
  /** All logs that there are were told. */
  | { type: "subscribed"; logs: number }
  /** The connection is back; what was missed follows, as records or as a gap. */
  | { type: "reconnected" }
  /** The subscription is over. */
  | { type: "ended"; error: DunlinError };

/** A record of which everything was copied. */
export interface RecordEvent {
  type: "record";
  topic: string;
  subject: string;
  partition: number;
  position: Position;
  payload: Uint8Array;
  key?: Uint8Array;
  headers: [string, Uint8Array][];
  reply?: string;
  appendTimeMs: number;
  eventTimeMs?: number;
  text(): string;
  json<T = unknown>(): T;
}

export type Event = RecordEvent | NoticeEvent;

/** A copy of the record that the batch stands on. */
export function recordEvent(batch: Batch): RecordEvent {
  const payload = batch.payload.slice();
  const key = batch.key()?.slice();
  const reply = batch.reply();
  const eventTimeMs = batch.eventTimeMs();
  return {
    type: "record",
    topic: batch.log.topic,
    subject: batch.subject(),
    partition: batch.log.partition,
    position: { epoch: batch.epoch, seq: batch.seq },
    payload,
    ...(key && { key }),
    headers: batch.headers().map(([name, value]) => [name, value.slice()]),
    ...(reply !== undefined && { reply }),
    appendTimeMs: batch.appendTimeMs(),
    ...(eventTimeMs !== undefined && { eventTimeMs }),
    text: () => bytesText(payload),
    json: <T>() => JSON.parse(bytesText(payload)) as T,
  };
}
