/**
 * A subscription has a position in each of its logs, detects missing records, and continues after a lost connection.
 *
 * Credit limits the bytes that the node may send. The client grants new credit when the subscriber has consumed
 * records. If a subscriber stops reading, no queue grows: the records stay in the node's log. If they leave the log,
 * the subscriber receives a gap.
 */

import { Batch, type Log } from "./batch.js";
import type { Fields, Position, Writer } from "./bytes.js";
import { runHead } from "./connection.js";
import { Code, DunlinError } from "./errors.js";
import { type Event, type NoticeEvent, recordEvent } from "./events.js";
import { ToNode } from "./kinds.js";

export interface SubscribeOptions {
  /** The position at which the subscription starts; `latest` by default. */
  from?: "latest" | "earliest" | { after: Position } | { timeMs: number };
  /** The position at which the subscription continues after a gap; `oldest` by default. */
  onGap?: "oldest" | "newest" | "fail";
  /** On state topics: whether the subscriber receives the state at the start and after a gap. */
  follow?: boolean;
  /** With `follow`: whether the node merges all changes since the last consumed record into one record. */
  conflate?: boolean;
  /** On reliable topics: whether publishers wait for this subscriber. */
  registered?: boolean;
  /** The maximum number of bytes in transit; 1 MiB by default. */
  creditBytes?: number;
  /** The name of the subscription, which operators see. */
  name?: string;
  /** Called with each batch, which is valid only during the call. The return value `false` pauses the subscription. */
  onBatch?: (batch: Batch) => boolean | void;
  onEvent?: (event: NoticeEvent) => void;
}

/** The part of the client that a subscription uses. */
export interface Port {
  /** The buffer for messages; undefined without a connection. */
  readonly out: Writer | undefined;
  wrote(): void;
  forget(subscription: Subscription): void;
  readonly stats: { records: number; gaps: number };
}

interface Channel {
  log: Log & { position: Position };
  /** After a gap: the last position before it, until the state that repairs the gap arrives. */
  owed?: Position;
  /** The received parts of an incomplete state. */
  parts?: { position: Position; checksum: bigint; total: number; bytes: Uint8Array; length: number };
  /** Whether the channel's messages are ignored, because the client has requested another channel with a new state. */
  gone: boolean;
}

/** The largest number of positions in one RESUME message, far below the node's limit. */
const RESUME_LOGS = 100;
const ON_GAP = { oldest: 0, newest: 1, fail: 2 } as const;
const CREDIT_BYTES = 1 << 20;
/** The largest state that the client assembles. */
const STATE_BYTES_MAX = 1 << 28;

/** A subscription. */
export class Subscription implements AsyncIterable<Event> {
  ended: DunlinError | undefined;
  private readonly channels = new Map<number, Channel>();
  /** The last positions in logs that the node has not announced on this connection yet, by topic and partition. */
  private before = new Map<string, { topic: string; partition: number; position: Position }>();
  /** Logs for which the subscriber requested a state while they had no channel, by topic and partition. */
  private readonly stateRequests = new Set<string>();
  /** The channels that the node will replace because a state was requested, by topic and partition. */
  private readonly replaced = new Map<string, number>();
  private subscribedOnce = false;
  private readonly credit: number;
  private granted = 0;
  private received = 0;
  private returned = 0;
  private paused = false;
  private readonly consumed = new Map<number, Position>();
  private readonly batch = new Batch();
  private queue: { event: Event; cost: number }[] | undefined;
  private wake: (() => void) | undefined;

  /** @internal */
  constructor(
    readonly id: number,
    readonly pattern: string,
    private readonly options: SubscribeOptions,
    private readonly port: Port,
  ) {
    this.credit = Math.max(options.creditBytes ?? CREDIT_BYTES, 1 << 15);
    if (!options.onBatch) this.queue = [];
  }

  /** The logs by the numbers of their channels on the current connection. */
  get logs(): ReadonlyMap<number, Log> {
    return new Map([...this.channels].map(([number, channel]) => [number, channel.log]));
  }

  /** The position of the last received record in each log. */
  positions(): { topic: string; partition: number; position: Position }[] {
    const now = [...this.channels.values()].filter((channel) => !channel.gone);
    const standing = now.map(({ log }) => ({ topic: log.topic, partition: log.partition, position: { ...log.position } }));
    return [...standing, ...this.before.values()];
  }

  /** Stops granting credit. Records for which the node has credit still arrive; others arrive only after `resume`. */
  pause(): void {
    this.paused = true;
  }

  resume(): void {
    if (!this.paused) return;
    this.paused = false;
    this.renew();
  }

  unsubscribe(): void {
    if (this.ended) return;
    this.port.out?.message(ToNode.UNSUBSCRIBE, (out) => out.u32(this.id));
    this.port.wrote();
    this.end(new DunlinError(Code.Asked, "unsubscribed"));
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Event> {
    if (!this.queue) throw new Error("a subscription with onBatch is not iterated");
    try {
      for (;;) {
        const first = this.queue.shift();
        if (first) {
          this.consume(first.cost);
          yield first.event;
          if (first.event.type === "ended") return;
        } else if (this.ended) {
          return;
        } else {
          await new Promise<void>((resolve) => (this.wake = resolve));
        }
      }
    } finally {
      this.unsubscribe();
    }
  }

  /** @internal Sends the messages that begin the subscription on a new connection. */
  begin(out: Writer): void {
    const { follow, conflate, onGap, registered, name } = this.options;
    this.channels.clear();
    this.consumed.clear();
    this.granted = this.credit;
    // Unread events of the previous connection stay in the queue, so their bytes count as received on this connection.
    this.received = this.queue?.reduce((sum, { cost }) => sum + cost, 0) ?? 0;
    this.returned = 0;
    const stood = [...this.before.values()];
    for (let at = 0; this.subscribedOnce && at < stood.length; at += RESUME_LOGS) {
      const some = stood.slice(at, at + RESUME_LOGS);
      out.message(ToNode.RESUME, (out) => {
        out.u32(this.id).u32(some.length);
        for (const { topic, partition, position } of some) out.text(topic).u16(partition).position(position);
      });
    }
    if (follow) {
      out.message(ToNode.FOLLOW, (out) => out.u32(this.id).bool(true).bool(true).bool(conflate ?? false).u32(0));
    }
    out.message(ToNode.SUBSCRIBE, (out) => {
      out.u32(this.id).u64(this.granted);
      this.writeStart(out);
      out.u8(ON_GAP[onGap ?? "oldest"]).bool(registered ?? false).text(this.pattern).text(name ?? "");
    });
  }

  private writeStart(out: Writer): void {
    const { from = "latest" } = this.options;
    const nowhere = { epoch: 0, seq: 0 };
    if (this.subscribedOnce) out.u8(4).position(nowhere).u64(0);
    else if (from === "earliest") out.u8(0).position(nowhere).u64(0);
    else if (from === "latest") out.u8(1).position(nowhere).u64(0);
    else if ("after" in from) out.u8(2).position(from.after).u64(0);
    else out.u8(3).position(nowhere).u64(BigInt(Math.round(from.timeMs * 1e3)) * 1000n);
  }

  /** @internal Stores the positions when the connection is lost. */
  lost(): void {
    for (const { log, owed, gone } of this.channels.values()) {
      const position = owed ?? log.position;
      if (!gone && position.epoch > 0) {
        const { topic, partition } = log;
        this.before.set(key(topic, partition), { topic, partition, position: { ...position } });
      }
    }
    this.channels.clear();
    this.replaced.clear();
  }

  /** @internal Assigns a channel to a log. */
  log(fields: Fields): number {
    const channel = fields.u32();
    const partition = fields.u16();
    const position = fields.position();
    const topic = fields.text();
    const subjectPrefix = fields.text();
    const stood = this.subscribedOnce ? this.before.get(key(topic, partition))?.position : undefined;
    // After the node has announced a new channel of a log, it sends no more messages on the log's old channel.
    this.channels.delete(this.replaced.get(key(topic, partition)) ?? channel);
    this.replaced.delete(key(topic, partition));
    const found = { log: { topic, partition, channel, subjectPrefix, position: stood ?? position }, gone: false };
    this.channels.set(channel, found);
    this.skipTo(found, position);
    this.before.delete(key(topic, partition));
    if (this.stateRequests.delete(key(topic, partition))) this.resync(topic, partition);
    return channel;
  }

  /** @internal */
  subscribed(logs: number): void {
    const again = this.subscribedOnce;
    this.subscribedOnce = true;
    this.tell(again ? { type: "reconnected" } : { type: "subscribed", logs }, 0);
  }

  /** @internal Ends the subscription with this error. */
  end(error: DunlinError): void {
    if (this.ended) return;
    this.ended = error;
    this.port.forget(this);
    this.tell({ type: "ended", error }, 0);
    this.channels.clear();
  }

  /** @internal Receives a batch of records. The message begins at `at`. */
  run(view: DataView, at: number, end: number): void {
    const cost = end - at;
    this.received += cost;
    const head = runHead(view, at);
    const channel = this.channels.get(head.channel);
    if (!channel || channel.gone) return this.consume(cost);
    const { owed } = channel;
    const stands = owed && head.epoch === owed.epoch && head.prevSeq === owed.seq ? owed : channel.log.position;
    const last = head.firstSeq + head.count - 1;
    if (head.epoch < stands.epoch || (head.epoch === stands.epoch && last <= stands.seq)) return this.consume(cost);
    if (head.epoch > stands.epoch) throw new RangeError("records of an epoch that nobody has told of");
    const bytes = new Uint8Array(view.buffer, view.byteOffset + at + 40, head.bytes);
    if (at + 40 + head.bytes > end) throw new RangeError("a run that is not whole");
    const { batch } = this;
    batch.reset(channel.log, head.epoch, head.prevSeq, head.firstSeq, head.count, bytes);
    if (head.prevSeq > stands.seq) this.tellGap(channel.log, head.epoch, stands.seq + 1, head.prevSeq, 0);
    else if (head.firstSeq <= stands.seq) batch.skip(stands.seq - head.firstSeq + 1);
    delete channel.owed;
    this.port.stats.records += batch.count;
    this.give(batch, cost);
    channel.log.position = { epoch: head.epoch, seq: last };
    if (this.options.conflate || this.options.registered) this.consumed.set(head.channel, channel.log.position);
  }

  private give(batch: Batch, cost: number): void {
    const { onBatch } = this.options;
    if (onBatch) {
      if (called(() => onBatch(batch)) === false) this.pause();
      this.consume(cost);
      return;
    }
    while (batch.next()) {
      this.queue!.push({ event: recordEvent(batch), cost: 0 });
    }
    this.queue![this.queue!.length - 1]!.cost += cost;
    this.wakeUp();
  }

  /** @internal */
  gap(channel: number, fields: Fields, cost: number): void {
    const found = this.find(channel, cost);
    const [epoch, first, last] = [fields.u32(), fields.u64(), fields.u64()];
    if (!found) return;
    const { log } = found;
    if (epoch > log.position.epoch) {
      this.tellEpoch(log, { epoch, seq: first });
      log.position = { epoch, seq: Math.max(first - 1, 0) };
    }
    const { position } = log;
    // The node may report the gap from another position than that of this subscription.
    if (epoch < position.epoch || last <= position.seq) return this.consume(cost);
    if (this.options.follow) found.owed ??= position;
    log.position = { epoch, seq: last };
    this.tellGap(log, epoch, position.seq + 1, last, cost);
  }

  /** Continues after a position that the node reported. Reports records before it that have not arrived as a gap. */
  private skipTo({ log }: Channel, to: Position): void {
    const at = log.position;
    if (to.epoch < at.epoch || (to.epoch === at.epoch && to.seq <= at.seq)) return;
    log.position = to;
    if (to.epoch === at.epoch) this.tellGap(log, to.epoch, at.seq + 1, to.seq, 0);
    else this.tellEpoch({ ...log, position: at }, { epoch: to.epoch, seq: to.seq + 1 });
  }

  /** Reports a new epoch that the node has not announced. The last record of the old epoch is unknown. */
  private tellEpoch({ topic, partition, position }: Channel["log"], newFirst: Position): void {
    this.tell({ type: "epoch", topic, partition, old: position.epoch, lastSeen: position.seq, newFirst }, 0);
  }

  private tellGap(log: Log, epoch: number, first: number, last: number, cost: number): void {
    this.port.stats.gaps++;
    const { topic, partition } = log;
    this.tell({ type: "gap", topic, partition, epoch, first, last, records: last - first + 1 }, cost);
  }

  /** @internal */
  lagging(channel: number, fields: Fields, cost: number): void {
    const found = this.find(channel, cost);
    if (!found) return;
    const { topic, partition } = found.log;
    this.tell({ type: "lagging", topic, partition, behind: fields.u64(), retained: fields.u64() }, cost);
  }

  /** @internal */
  epochChanged(channel: number, fields: Fields, cost: number): void {
    const found = this.find(channel, cost);
    const old = fields.u32();
    fields.u64();
    const [isKnown, through] = [fields.bool(), fields.u64()];
    const newFirst = fields.position();
    if (!found) return;
    const { topic, partition, position } = found.log;
    if (newFirst.epoch <= position.epoch) return this.consume(cost);
    found.log.position = { epoch: newFirst.epoch, seq: Math.max(newFirst.seq - 1, 0) };
    // The node may report the end of another epoch than that of this subscription's position.
    const known = isKnown && old === position.epoch ? { knownThrough: through } : {};
    const [lastEpoch, lastSeen] = [position.epoch, position.seq];
    this.tell({ type: "epoch", topic, partition, old: lastEpoch, lastSeen, ...known, newFirst }, cost);
  }

  /** @internal Moves the position: the node reports that no record up to `through` is for this subscription. */
  advance(channel: number, fields: Fields, cost: number): void {
    const found = this.find(channel, cost);
    if (!found) return;
    const [at, through] = [found.log.position, fields.position()];
    if (through.epoch > at.epoch) this.tellEpoch(found.log, { epoch: through.epoch, seq: 1 });
    if (through.epoch > at.epoch || (through.epoch === at.epoch && through.seq > at.seq)) found.log.position = through;
    this.consume(cost);
  }

  /** @internal */
  deleted(channel: number, fields: Fields): void {
    const found = this.channels.get(channel);
    if (!found) return;
    const { topic, partition } = found.log;
    this.channels.delete(channel);
    this.tell({ type: "deleted", topic, partition, last: fields.position() }, 0);
  }

  /** @internal Receives the node's position in the log. Records up to it that have not arrived were lost. */
  heartbeat(channel: number, position: Position): void {
    const found = this.channels.get(channel);
    if (found && !found.gone && !found.owed) this.skipTo(found, position);
  }

  /** @internal Receives a part of a state. */
  snapshot(channel: number, fields: Fields, cost: number): void {
    const found = this.find(channel, cost);
    const position = fields.position();
    const checksum = fields.big();
    const [total, offset, length] = [fields.u64(), fields.u64(), fields.u64()];
    const some = fields.bytes(length);
    if (!found) return;
    if (total > STATE_BYTES_MAX) throw new DunlinError(Code.Limit, `a state of ${total} bytes`);
    if (offset === 0) {
      // The buffer grows as bytes arrive. Allocating the announced length at once would waste memory if it is wrong.
      found.parts = { position, checksum, total, bytes: new Uint8Array(Math.min(total, 1 << 20)), length: 0 };
    }
    const parts = found.parts;
    if (!parts || parts.length !== offset || parts.total !== total) throw new RangeError("a part that does not follow");
    if (offset + length > parts.bytes.length) {
      const grown = new Uint8Array(Math.min(total, Math.max(offset + length, 2 * parts.bytes.length)));
      grown.set(parts.bytes);
      parts.bytes = grown;
    }
    parts.bytes.set(some, offset);
    parts.length += length;
    if (parts.length < total) return this.consume(cost);
    delete found.parts;
    delete found.owed;
    found.log.position = position;
    if (this.options.conflate || this.options.registered) this.consumed.set(channel, position);
    const { topic, partition } = found.log;
    this.tell({ type: "state", topic, partition, position, checksum, bytes: parts.bytes }, cost);
  }

  /** @internal */
  checksum(channel: number, fields: Fields, cost: number): void {
    const found = this.find(channel, cost);
    if (!found) return;
    const { topic, partition } = found.log;
    this.tell({ type: "checksum", topic, partition, position: fields.position(), checksum: fields.big() }, cost);
  }

  /** @internal */
  publishers(channel: number, fields: Fields, cost: number): void {
    const found = this.find(channel, cost);
    const [connected, sinceMs] = [fields.bool(), fields.u64() / 1e6];
    const [hasRecord, lastMs] = [fields.bool(), fields.u64() / 1e6];
    if (!found) return;
    const { topic, partition } = found.log;
    const lastAppend = hasRecord ? { lastAppendMs: lastMs } : {};
    this.tell({ type: "publishers", topic, partition, connected, sinceMs, ...lastAppend }, cost);
  }

  /** Requests a new state of a log, for example after the subscriber has detected an error in its copy. */
  resync(topic: string, partition: number): void {
    // After a lost connection, a log has no channel until the node announces one.
    if (this.before.has(key(topic, partition))) this.stateRequests.add(key(topic, partition));
    for (const [number, channel] of this.channels) {
      if (channel.log.topic !== topic || channel.log.partition !== partition || channel.gone) continue;
      channel.gone = true;
      this.replaced.set(key(topic, partition), number);
      this.port.out?.message(ToNode.RESYNC, (out) => out.u32(number).bool(true).position({ epoch: 0, seq: 0 }));
      this.port.wrote();
    }
  }

  private find(channel: number, cost: number): Channel | undefined {
    this.received += cost;
    const found = this.channels.get(channel);
    if (found && !found.gone) return found;
    this.consume(cost);
    return undefined;
  }

  private tell(event: NoticeEvent, cost: number): void {
    if (this.queue && !this.options.onEvent) {
      this.queue.push({ event, cost });
      this.wakeUp();
      return;
    }
    const { onEvent } = this.options;
    if (onEvent) called(() => onEvent(event));
    this.consume(cost);
  }

  private wakeUp(): void {
    this.wake?.();
    this.wake = undefined;
  }

  /** Counts consumed bytes, for which the node receives new credit. */
  private consume(cost: number): void {
    this.returned += cost;
    this.renew();
  }

  private renew(): void {
    if (this.paused || this.granted - this.returned > this.credit / 2) return;
    this.sendCredit();
  }

  /** @internal Reports consumed positions to the node if it needs them, for conflation or a waiting publisher. */
  settled(): void {
    if (this.consumed.size > 0 && !this.paused) this.sendCredit();
  }

  private sendCredit(): void {
    const { out } = this.port;
    if (!out || this.ended) return;
    this.granted = this.returned + this.credit;
    const consumed = [...this.consumed];
    this.consumed.clear();
    out.message(ToNode.CREDIT, (out) => {
      out.u32(this.id).u64(this.granted).u32(consumed.length);
      for (const [channel, position] of consumed) out.u32(channel).position(position);
    });
    this.port.wrote();
  }
}

/**
 * Calls a function of the program. Its exception is reported as an uncaught exception, and does not affect other
 * subscriptions of the connection.
 */
function called<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
    return undefined;
  }
}

const key = (topic: string, partition: number): string => `${partition} ${topic}`;
