/**
 * Publishes to a topic. The publisher numbers its records under a producer id. If the connection is lost before a
 * record is acknowledged, the publisher sends the record again, and the node does not append it twice.
 */

import { type Fields, type Position, textBytes, type Writer } from "./bytes.js";
import { Code, DunlinError } from "./errors.js";
import { Flag, FLAG_ACK, ToNode } from "./kinds.js";

export interface PublishOptions {
  /** The record's key. Records with the same key are in the same partition, and keep their order. */
  key?: string | Uint8Array;
  headers?: readonly (readonly [string, string | Uint8Array])[];
  eventTimeMs?: number;
  /** The subject for replies. */
  reply?: string;
}

export interface Published {
  topic: string;
  partition: number;
  /** The record's position; undefined if a later record was acknowledged with the same message. */
  position: Position | undefined;
  acknowledged: "memory" | "written" | "synced" | "quorum";
  duplicate: boolean;
  /** Whether the topic began a new epoch since the previous acknowledgement. Acknowledged records may then be lost. */
  newEpoch: boolean;
}

/** The part of the client that a publisher uses. */
export interface PublisherPort {
  readonly out: Writer | undefined;
  wrote(): void;
  forget(publisher: Publisher): void;
  /** The largest number of unacknowledged bytes that the node accepts. */
  readonly inFlightBytesMax: number;
}

interface Sent {
  frame: Uint8Array;
  flags: number;
  seq: number;
  /** Whether an earlier attempt may have appended the record. No other record may then have the same number. */
  mayBeAppended?: boolean;
  resolve?: (published: Published) => void;
  reject?: (error: DunlinError) => void;
}

interface Partition {
  next: number;
  inFlight: Sent[];
  waiting: Sent[];
  /** The number of the first refused record. Once `inFlight` is empty, the next record gets it. 0 without a refusal. */
  again: number;
  refusedLater: Sent[];
  /** Records of unknown outcome. They are sent again under their numbers, before any other record. */
  unknown: Sent[];
}

/** Codes with which the log refuses a record after checking for duplicates: the log does not contain such a record. */
const REFUSED_BY_LOG: ReadonlySet<number> = new Set([
  Code.SeqMoved,
  Code.DuplicateForgotten,
  Code.ProducerGap,
  Code.ProducerFenced,
  Code.Reducer,
  Code.StateLost,
]);

/** The largest number of bytes of records without a result. Further records are refused. */
const WAITING_BYTES_MAX = 64 << 20;
const LEVELS = ["memory", "written", "synced", "quorum"] as const;

/** A publisher of a topic. */
export class Publisher {
  /** The reason why the publisher has ended. */
  ended: DunlinError | undefined;
  private readonly producer: bigint;
  private opened: { partitions: number; recordBytesMax: number; topic: string; prefix: string } | undefined;
  private partitions: Partition[] = [];
  /** Whether the node creates the topic when a publisher needs it; undefined until the node has reported that. */
  private byItself: boolean | undefined;
  /** The position of the last acknowledged record of each partition. */
  private readonly acknowledged = new Map<number, Position>();
  private newEpoch = false;
  private readonly unopened: { payload: Uint8Array; options: PublishOptions; sent: Omit<Sent, "frame" | "seq"> }[] = [];
  private bytes = 0;
  private inFlightBytes = 0;
  private drained: (() => void)[] = [];
  private failure: DunlinError | undefined;

  /** @internal */
  constructor(
    readonly id: number,
    readonly subject: string,
    private readonly port: PublisherPort,
  ) {
    const random = crypto.getRandomValues(new BigUint64Array(1))[0]!;
    this.producer = random === 0n ? 1n : random;
  }

  /** Publishes one record, and waits for its acknowledgement. */
  publish(payload: string | Uint8Array, options: PublishOptions = {}): Promise<Published> {
    return new Promise((resolve, reject) => this.add(payload, options, { flags: FLAG_ACK, resolve, reject }));
  }

  /** Publishes one record without waiting. `flush` throws the error if the record is refused. */
  send(payload: string | Uint8Array, options: PublishOptions = {}): void {
    this.add(payload, options, { flags: 0 });
  }

  /** Waits until the node has answered all sent records. Throws the first refusal since the last call. */
  async flush(): Promise<void> {
    if (!this.ended) {
      for (const partition of this.partitions) this.resendUnknown(partition);
      this.pump();
    }
    if (!this.ended && this.bytes > 0) await new Promise<void>((resolve) => this.drained.push(resolve));
    const failed = this.failure ?? this.ended;
    this.failure = undefined;
    if (failed) throw failed;
  }

  close(): void {
    if (this.ended) return;
    this.port.out?.message(ToNode.CLOSE_PUBLISHER, (out) => out.u32(this.id));
    this.port.wrote();
    this.end(new DunlinError(Code.NotOpen, "the publisher was closed"));
  }

  private add(payload: string | Uint8Array, options: PublishOptions, sent: Omit<Sent, "frame" | "seq">): void {
    const bytes = typeof payload === "string" ? textBytes(payload) : payload;
    const refused =
      this.ended ??
      (this.bytes + bytes.length > WAITING_BYTES_MAX
        ? new DunlinError(Code.Limit, "bytes that wait to be published", [BigInt(WAITING_BYTES_MAX)])
        : undefined);
    if (refused) return this.refuse(sent, refused);
    if (!this.opened) {
      // The payload is copied, because the caller may overwrite its buffer immediately.
      this.unopened.push({ payload: bytes.slice(), options, sent });
      this.bytes += bytes.length + 1;
      return;
    }
    this.queue(bytes, options, sent);
    this.pump();
  }

  /**
   * Moves records of unknown outcome to the front of the waiting records. If the node has already appended such a
   * record, it acknowledges the record as a duplicate.
   */
  private resendUnknown(partition: Partition): void {
    const unknown = partition.unknown.splice(0);
    for (const sent of unknown) this.bytes += sent.frame.length;
    partition.waiting.unshift(...unknown);
  }

  private queue(payload: Uint8Array, options: PublishOptions, sent: Omit<Sent, "frame" | "seq">): void {
    const { prefix, partitions, recordBytesMax } = this.opened!;
    const tail = this.subject.startsWith(prefix) ? this.subject.slice(prefix.length) : "";
    const key = typeof options.key === "string" ? textBytes(options.key) : options.key;
    let frame: Uint8Array;
    try {
      frame = encodeFrame(tail, key, payload, options);
    } catch (error) {
      // The error concerns only this record. If it were thrown, it would also stop the caller's work on other records.
      return this.refuse(sent, new DunlinError(Code.BadFrame, (error as Error).message));
    }
    if (frame.length > recordBytesMax) {
      const text = `${frame.length} bytes, ${recordBytesMax} allowed`;
      return this.refuse(sent, new DunlinError(40, text, [BigInt(frame.length), BigInt(recordBytesMax)]));
    }
    const partition = key && partitions > 1 ? Number(fnv1a(key) % BigInt(partitions)) : 0;
    this.bytes += frame.length;
    this.partitions[partition]!.waiting.push({ ...sent, frame, seq: 0 });
  }

  private refuse(sent: Omit<Sent, "frame" | "seq">, error: DunlinError): void {
    if (sent.reject) sent.reject(error);
    else this.failure ??= error;
  }

  /** Sends waiting records, as far as the limits allow. */
  private pump(): void {
    const { out } = this.port;
    if (!out || !this.opened) return;
    this.writeWaiting(out);
    this.port.wrote();
  }

  /** Writes waiting records until the limit of unacknowledged bytes is reached. */
  private writeWaiting(out: Writer): void {
    for (const [number, partition] of this.partitions.entries()) {
      if (partition.again === 0 && partition.waiting.length > 0) this.resendUnknown(partition);
      while (partition.again === 0 && partition.waiting.length > 0) {
        if (this.inFlightBytes > 0 && this.inFlightBytes + partition.waiting[0]!.frame.length + 48 > this.port.inFlightBytesMax) return;
        this.write(out, number, partition, partition.waiting.shift()!);
      }
    }
  }

  private write(out: Writer, number: number, partition: Partition, sent: Sent): void {
    if (sent.seq === 0) sent.seq = partition.next;
    partition.next = Math.max(partition.next, sent.seq + 1);
    partition.inFlight.push(sent);
    this.inFlightBytes += sent.frame.length + 48;
    out.message(
      ToNode.PUBLISH,
      (out) => out.u32(this.id).u32(number).u64(0).u64(sent.seq).u32(1).u32(sent.frame.length).raw(sent.frame),
      sent.flags,
    );
  }

  /** @internal Opens the publisher on a new connection, and sends unacknowledged records again. */
  begin(out: Writer): void {
    this.opened = undefined;
    this.inFlightBytes = 0;
    const { byItself } = this;
    if (byItself !== undefined) {
      // If the topic was created explicitly and then deleted, the node must not create it again with default settings.
      out.message(ToNode.EXPECT_TOPIC, (out) => {
        out.u32(this.id).bool(byItself).u32(this.acknowledged.size);
        for (const [partition, position] of this.acknowledged) out.u16(partition).position(position);
      });
    }
    out.message(ToNode.OPEN_PUBLISHER, (out) => out.u32(this.id).u64(this.producer).u32(0).text(this.subject));
  }

  /** @internal */
  open(fields: Fields): void {
    const partitions = fields.u16();
    const recordBytesMax = fields.u32();
    this.opened = { partitions, recordBytesMax, topic: fields.text(), prefix: fields.text() };
    while (this.partitions.length < partitions) {
      this.partitions.push({ next: 1, inFlight: [], waiting: [], again: 0, refusedLater: [], unknown: [] });
    }
    for (const partition of this.partitions) {
      // Unacknowledged records are sent again under the same numbers. If the node has already appended such a record,
      // it acknowledges the record as a duplicate.
      partition.waiting = [...partition.inFlight, ...partition.refusedLater.map((sent) => ({ ...sent, seq: 0 })), ...partition.waiting];
      if (partition.again > 0) {
        partition.next = partition.again;
        partition.waiting = partition.waiting.map((sent) => (sent.mayBeAppended ? sent : { ...sent, seq: 0 }));
      }
      Object.assign(partition, { inFlight: [], again: 0, refusedLater: [] });
    }
    for (const { payload, options, sent } of this.unopened.splice(0)) {
      this.bytes -= payload.length + 1;
      this.queue(payload, options, sent);
    }
    this.pump();
    this.look();
  }

  /** @internal Stores whether the node creates the topic when a publisher needs it. */
  topicIs(fields: Fields): void {
    this.byItself = fields.bool();
  }

  /** @internal The node has acknowledged all records up to a number. */
  published(fields: Fields): void {
    const number = fields.u32();
    const through = fields.u64();
    const position = fields.position();
    const acknowledged = LEVELS[fields.u8()] ?? "memory";
    const duplicate = fields.bool();
    const partition = this.partitions[number];
    const before = this.acknowledged.get(number);
    this.newEpoch ||= before !== undefined && before.epoch !== position.epoch;
    this.acknowledged.set(number, position);
    while (partition?.inFlight[0] && partition.inFlight[0].seq <= through) {
      const sent = partition.inFlight.shift()!;
      this.done(sent);
      const at = sent.seq === through ? position : undefined;
      if (!sent.resolve) continue;
      const { newEpoch } = this;
      this.newEpoch = false;
      sent.resolve({ topic: this.opened?.topic ?? "", partition: number, position: at, acknowledged, duplicate, newEpoch });
    }
    this.recover(partition);
  }

  /** @internal */
  refusedRecords(fields: Fields, readRefusal: (fields: Fields) => DunlinError): void {
    const partition = this.partitions[fields.u32()];
    const first = fields.u64();
    const count = fields.u32();
    const error = readRefusal(fields);
    if (!partition) return;
    const isRefused = (sent: Sent): boolean => sent.seq >= first && sent.seq < first + count;
    const refused = partition.inFlight.filter(isRefused);
    partition.inFlight = partition.inFlight.filter((sent) => !isRefused(sent));
    for (const sent of refused) {
      this.inFlightBytes -= sent.frame.length + 48;
      // The node refused this record only because it had refused an earlier record. The record is sent again under
      // another number.
      if (error.code === Code.ProducerGap && partition.again > 0) {
        partition.refusedLater.push(sent);
      } else {
        this.bytes -= sent.frame.length;
        this.refuse(sent, error);
        const mayBeAppended = error.code === Code.OutcomeUnknown || (sent.mayBeAppended && !REFUSED_BY_LOG.has(error.code));
        // If the owner refused an earlier record, it has not appended this record.
        if (mayBeAppended && sent.seq === (partition.again || sent.seq) + partition.unknown.length) {
          partition.unknown.push({ frame: sent.frame, flags: sent.flags, seq: sent.seq, mayBeAppended });
        }
        partition.again = Math.min(partition.again || first, first);
      }
    }
    if (error.code === Code.Closed && this.opened && this.port.out) {
      // The topic was deleted. Another topic with the same name may exist now.
      this.newEpoch ||= this.acknowledged.size > 0;
      this.acknowledged.clear();
      this.port.out.message(ToNode.CLOSE_PUBLISHER, (out) => out.u32(this.id));
      this.begin(this.port.out);
      this.port.wrote();
    }
    this.recover(partition);
  }

  /** Once no record is in flight, continues with the refused record's number for the next record. */
  private recover(partition: Partition | undefined): void {
    if (partition && partition.again > 0 && partition.inFlight.length === 0) {
      partition.next = partition.again;
      partition.again = 0;
      const again = partition.refusedLater.splice(0).map((sent) => ({ ...sent, seq: 0 }));
      partition.waiting = [...again, ...partition.waiting];
    }
    this.pump();
    this.look();
  }

  private done(sent: Sent): void {
    this.bytes -= sent.frame.length;
    this.inFlightBytes -= sent.frame.length + 48;
  }

  private look(): void {
    if (this.bytes > 0) return;
    for (const resolve of this.drained.splice(0)) resolve();
  }

  /** @internal Ends the publisher. */
  end(error: DunlinError): void {
    if (this.ended) return;
    this.ended = error;
    this.port.forget(this);
    const all = this.partitions.flatMap(({ inFlight, refusedLater, waiting }) => [...inFlight, ...refusedLater, ...waiting]);
    for (const sent of [...all, ...this.unopened.map(({ sent }) => sent)]) this.refuse(sent, error);
    this.partitions = [];
    this.unopened.length = 0;
    this.bytes = 0;
    this.look();
  }
}

/** The maximum of a field's length, of the number of headers, and of the length of all fields: 16 bits in a frame. */
const FIELD_MAX = 0xffff;

/** Encodes a record's frame, including its padding. Throws a `RangeError` if a field is too long for a frame. */
export function encodeFrame(tail: string, key: Uint8Array | undefined, payload: Uint8Array, options: PublishOptions): Uint8Array {
  const parts: Uint8Array[] = [];
  let flags = 0;
  const length16 = (length: number, what: string): Uint8Array => {
    if (length > FIELD_MAX) throw new RangeError(`${what}: ${length}, at most ${FIELD_MAX} are allowed`);
    return Uint8Array.of(length & 0xff, length >> 8);
  };
  const field = (flag: number, bytes: Uint8Array): void => {
    flags |= flag;
    parts.push(length16(bytes.length, "bytes of a subject, key or reply"), bytes);
  };
  if (options.eventTimeMs !== undefined) {
    const time = new Uint8Array(8);
    new DataView(time.buffer).setBigUint64(0, BigInt(Math.round(options.eventTimeMs * 1e3)) * 1000n, true);
    flags |= Flag.EVENT_TIME;
    parts.push(time);
  }
  if (tail) field(Flag.SUBJECT, textBytes(tail));
  if (key) field(Flag.KEY, key);
  if (options.reply) field(Flag.REPLY, textBytes(options.reply));
  if (options.headers?.length) {
    flags |= Flag.HEADERS;
    parts.push(length16(options.headers.length, "headers"));
    for (const [name, value] of options.headers) {
      const [n, v] = [textBytes(name), typeof value === "string" ? textBytes(value) : value];
      parts.push(length16(n.length, "bytes of a header's name"), length16(v.length, "bytes of a header's value"), n, v);
    }
  }
  const meta = 8 + parts.reduce((sum, part) => sum + part.length, 0);
  length16(meta, "bytes of all fields");
  const length = 8 + meta + payload.length;
  const frame = new Uint8Array((length + 7) & ~7);
  const view = new DataView(frame.buffer);
  view.setUint32(0, length, true);
  view.setUint8(4, 1);
  view.setUint8(5, flags);
  view.setUint16(6, meta, true);
  let at = 16;
  for (const part of parts) {
    frame.set(part, at);
    at += part.length;
  }
  frame.set(payload, at);
  return frame;
}

/** The hash FNV-1a with 64 bits, which selects a key's partition. */
export function fnv1a(bytes: Uint8Array): bigint {
  let hash = 0xcbf29ce484222325n;
  for (const byte of bytes) hash = ((hash ^ BigInt(byte)) * 0x100000001b3n) & 0xffffffffffffffffn;
  return hash;
}
