/** Batches of received records. The fields of records are views into the received bytes. */

import { bytesText, padded, u64 } from "./bytes.js";
import { Flag } from "./kinds.js";

/** One log of a subscription. */
export interface Log {
  readonly topic: string;
  readonly partition: number;
  readonly channel: number;
  /** The common start of all subjects of the log. A record's frame contains only the rest of its subject. */
  readonly subjectPrefix: string;
  /** The position of the last record that the client passed to the subscriber. */
  position: { epoch: number; seq: number };
}

/**
 * Consecutive records of one log. The batch and its views are valid only during the callback, because the connection
 * reuses the bytes. The first call of `next()` moves to the first record, and each further call to the next record.
 */
export class Batch {
  log!: Log;
  epoch = 0;
  prevSeq = 0;
  firstSeq = 0;
  count = 0;
  /** The records' frames. */
  bytes!: Uint8Array;
  view!: DataView;

  /** The sequence number of the batch's current record. */
  seq = 0;
  payloadOffset = 0;
  payloadLength = 0;

  private nextAt = 0;
  private left = 0;
  private meta = 0;
  private flags = 0;

  /** @internal */
  reset(log: Log, epoch: number, prevSeq: number, firstSeq: number, count: number, bytes: Uint8Array): void {
    this.log = log;
    this.epoch = epoch;
    this.prevSeq = prevSeq;
    this.firstSeq = firstSeq;
    this.count = count;
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.rewind();
  }

  /** @internal Removes the first records, which the subscriber has already received. */
  skip(records: number): void {
    for (let n = 0; n < records && this.next(); n++);
    this.bytes = this.bytes.subarray(this.nextAt);
    this.view = new DataView(this.bytes.buffer, this.bytes.byteOffset, this.bytes.byteLength);
    this.firstSeq += records;
    this.count -= records;
    this.rewind();
  }

  /** Moves back to the position before the first record. */
  rewind(): void {
    this.nextAt = 0;
    this.left = this.count;
    this.seq = this.firstSeq - 1;
  }

  /** Moves to the next record; returns false after the last. */
  next(): boolean {
    if (this.left === 0) return false;
    const at = this.nextAt;
    const length = this.view.getUint32(at, true);
    const metaLength = this.view.getUint16(at + 6, true);
    if (length < 16 || 8 + metaLength > length || at + length > this.bytes.length) {
      throw new RangeError("a record that is not whole");
    }
    this.left--;
    this.flags = this.view.getUint8(at + 5);
    this.meta = at + 8;
    this.payloadOffset = at + 8 + metaLength;
    this.payloadLength = length - 8 - metaLength;
    this.nextAt = at + padded(length);
    this.seq++;
    return true;
  }

  /** A view of the payload; copy it to keep it. */
  get payload(): Uint8Array {
    return this.bytes.subarray(this.payloadOffset, this.payloadOffset + this.payloadLength);
  }

  text(): string {
    return bytesText(this.payload);
  }

  json<T = unknown>(): T {
    return JSON.parse(this.text()) as T;
  }

  /** The time at which the node appended the record, ns since 1970. */
  appendTimeNs(): bigint {
    return this.view.getBigUint64(this.meta, true);
  }

  appendTimeMs(): number {
    return u64(this.view, this.meta) / 1e6;
  }

  /** The time of the event according to the publisher, ns since 1970. */
  eventTimeMs(): number | undefined {
    return this.flags & Flag.EVENT_TIME ? u64(this.view, this.meta + 8) / 1e6 : undefined;
  }

  subject(): string {
    const tail = this.field(Flag.SUBJECT);
    return tail ? this.log.subjectPrefix + bytesText(tail) : this.log.subjectPrefix || this.log.topic;
  }

  /** A view of the key. */
  key(): Uint8Array | undefined {
    return this.field(Flag.KEY);
  }

  /** The subject for replies. */
  reply(): string | undefined {
    const reply = this.field(Flag.REPLY);
    return reply && bytesText(reply);
  }

  /** The headers: each has a name, and a view of its value. */
  headers(): [string, Uint8Array][] {
    const found: [string, Uint8Array][] = [];
    if (!(this.flags & Flag.HEADERS)) return found;
    let at = this.fieldsEnd();
    let left = this.view.getUint16(at, true);
    at += 2;
    for (; left > 0; left--) {
      const nameLength = this.view.getUint16(at, true);
      const valueLength = this.view.getUint16(at + 2, true);
      const value = at + 4 + nameLength;
      found.push([bytesText(this.bytes.subarray(at + 4, value)), this.bytes.subarray(value, value + valueLength)]);
      at = value + valueLength;
    }
    return found;
  }

  private fixedEnd(): number {
    return this.meta + 8 + (this.flags & Flag.EVENT_TIME ? 8 : 0) + (this.flags & Flag.EXPIRES ? 8 : 0);
  }

  private field(wanted: number): Uint8Array | undefined {
    let at = this.fixedEnd();
    for (const flag of [Flag.SUBJECT, Flag.KEY, Flag.REPLY]) {
      if (!(this.flags & flag)) continue;
      const length = this.view.getUint16(at, true);
      if (flag === wanted) return this.bytes.subarray(at + 2, at + 2 + length);
      at += 2 + length;
    }
    return undefined;
  }

  private fieldsEnd(): number {
    let at = this.fixedEnd();
    for (const flag of [Flag.SUBJECT, Flag.KEY, Flag.REPLY]) {
      if (this.flags & flag) at += 2 + this.view.getUint16(at, true);
    }
    return at;
  }
}
