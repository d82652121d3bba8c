/** The events of a subscription: notices, and records as objects for iteration. */

import type { Position } from "./bytes.js";
import { bytesText } from "./bytes.js";
import type { Batch } from "./batch.js";
import type { DunlinError } from "./errors.js";

export type NoticeEvent =
  /** The subscriber has missed the records from `first` to `last`, and continues after them. */
  | { type: "gap"; topic: string; partition: number; epoch: number; first: number; last: number; records: number }
  /** The subscriber has still to read more than half of the retained records, and may soon miss records. */
  | { type: "lagging"; topic: string; partition: number; behind: number; retained: number }
  /** The log began a new epoch. The last records of the old epoch may be unknown. */
  | { type: "epoch"; topic: string; partition: number; old: number; lastSeen: number; knownThrough?: number; newFirst: Position }
  /** The state after the record at this position. Later records follow. docs/feeds.md describes the bytes. */
  | { type: "state"; topic: string; partition: number; position: Position; checksum: bigint; bytes: Uint8Array }
  /** The checksum of the state at the subscriber's position. */
  | { type: "checksum"; topic: string; partition: number; position: Position; checksum: bigint }
  /**
   * Whether a publisher of the state is connected, the time of the last change of this, and the time at which the
   * newest record was appended. Times are in ms since 1970.
   */
  | { type: "publishers"; topic: string; partition: number; connected: boolean; sinceMs: number; lastAppendMs?: number }
  | { type: "deleted"; topic: string; partition: number; last: Position }
  /** The node has announced all logs that match the pattern. `logs` is their number. */
  | { type: "subscribed"; logs: number }
  /** The connection is restored. The records of the time without a connection follow, or a gap. */
  | { type: "reconnected" }
  /** The subscription has ended. */
  | { type: "ended"; error: DunlinError };

/** A record whose fields are copies. */
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

/** Copies the current record of the batch. */
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
