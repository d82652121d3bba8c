/** Order books: replicas of topics with the reducer `book` or `orders`. docs/feeds.md describes the bytes. */

import { type Batch } from "./batch.js";
import { i64, type Position } from "./bytes.js";
import { level as hashOfLevel } from "./checksum.js";
import type { Client } from "./client.js";
import type { NoticeEvent } from "./events.js";
import type { Subscription } from "./subscription.js";

export interface Level {
  /** The price in the instrument's smallest unit. */
  price: number;
  size: number;
  /** The number of orders at this price, if the topic's reducer is `orders`. */
  orders?: number;
}

export interface Book {
  readonly topic: string;
  readonly partition: number;
  readonly kind: "book" | "orders";
  /** Whether the book equals the node's state, except for records in transit. */
  readonly right: boolean;
  readonly position: Position;
  readonly updates: number;
  readonly gapsHealed: number;
  /** The number of times that the book's checksum was equal to the node's checksum. */
  readonly verified: number;
  /** The time at which the last record was appended, ms since 1970; 0 before the first. */
  readonly lastChangeMs: number;
  /** Whether a publisher is connected; true until the node reports that no publisher is connected. */
  readonly publisherConnected: boolean;
  /** The best levels of each side, the best first. */
  depth(levels?: number): { bids: Level[]; asks: Level[] };
}

export interface BookReplica {
  /**
   * The books by log. Each partition of a topic has a book of its own. The key is the topic's name for partition 0, and
   * `TOPIC PARTITION`, with a space, for other partitions.
   */
  readonly books: ReadonlyMap<string, Book>;
  /** The book of a partition, by default of partition 0; undefined before the client has received events of it. */
  book(topic: string, partition?: number): Book | undefined;
  close(): void;
}

export interface FollowBookOptions {
  conflate?: boolean;
  onChange?: (book: Book) => void;
  onEvent?: (event: NoticeEvent) => void;
}

/**
 * The largest number of levels of a book whose checksums are checked. In a larger book, a check would take too long.
 */
const CHECKED_LEVELS_MAX = 20_000;

interface Order {
  side: 1 | 2;
  price: number;
  size: number;
}

/** The part of a topic's description that has the options of the topic's reducer. */
interface Described {
  config?: { reducer?: { options?: Record<string, string> } | null };
}

/** The state of a book. */
export class BookState implements Book {
  /** The largest number of levels of a side. After each record, the worst levels beyond this number are removed. */
  maxDepth = Infinity;
  kind: "book" | "orders" = "book";
  right = false;
  position: Position = { epoch: 0, seq: 0 };
  updates = 0;
  gapsHealed = 0;
  verified = 0;
  lastChangeMs = 0;
  publisherConnected = true;
  private readonly sides: [Map<number, Level>, Map<number, Level>] = [new Map(), new Map()];
  /** Orders by id. Ids use all 64 bits, which a `number` cannot hold. */
  private readonly orders = new Map<bigint, Order>();
  private sorted: { bids: Level[]; asks: Level[] } | undefined;

  constructor(
    readonly topic: string,
    readonly partition = 0,
  ) {}

  depth(levels = Infinity): { bids: Level[]; asks: Level[] } {
    this.sorted ??= {
      bids: [...this.sides[0].values()].sort((a, b) => b.price - a.price),
      asks: [...this.sides[1].values()].sort((a, b) => a.price - b.price),
    };
    const { bids, asks } = this.sorted;
    return { bids: bids.slice(0, levels), asks: asks.slice(0, levels) };
  }

  /** Applies the current record of the batch. */
  apply(batch: Batch): void {
    const { view, payloadOffset: start, payloadLength: length } = batch;
    const step = this.kind === "book" ? 24 : 32;
    if (length % step !== 0) throw new RangeError(`${length} bytes of a book`);
    for (let at = start; at < start + length; at += step) {
      if (this.kind === "book") this.applyLevel(view, at);
      else this.applyOrder(view, at);
    }
    if (this.kind === "book") this.dropBeyondDepth();
    this.updates += length / step;
    this.lastChangeMs = batch.appendTimeMs();
    this.sorted = undefined;
  }

  private applyLevel(view: DataView, at: number): void {
    const op = view.getUint8(at);
    const side = this.sides[view.getUint8(at + 1) - 1];
    if (!side || op < 1 || op > 3) throw new RangeError(`operation ${op} of a book`);
    const price = i64(view, at + 8);
    if (op === 1) side.set(price, { price, size: i64(view, at + 16) });
    else if (op === 2) side.delete(price);
    else side.clear();
  }

  private dropBeyondDepth(): void {
    this.sides.forEach((side, n) => {
      while (side.size > this.maxDepth) {
        const prices = [...side.keys()];
        side.delete(prices.reduce((worst, price) => ((n === 0 ? price < worst : price > worst) ? price : worst)));
      }
    });
  }

  private applyOrder(view: DataView, at: number): void {
    const op = view.getUint8(at);
    const side = view.getUint8(at + 1) as 1 | 2;
    const id = view.getBigUint64(at + 8, true);
    const [price, size] = [i64(view, at + 16), i64(view, at + 24)];
    if (op === 4) {
      for (const [id, order] of this.orders) if (order.side === side) this.orders.delete(id);
      this.sides[side - 1]?.clear();
      return;
    }
    const before = this.orders.get(id);
    if (before) this.add(before, -1);
    if (op === 1 || op === 2) {
      const order = { side: op === 1 ? side : (before?.side ?? side), price, size };
      this.orders.set(id, order);
      this.add(order, 1);
    } else if (op === 3) {
      this.orders.delete(id);
    } else {
      throw new RangeError(`operation ${op} of a book`);
    }
  }

  private add({ side, price, size }: Order, sign: 1 | -1): void {
    const levels = this.sides[side - 1];
    if (!levels) throw new RangeError(`side ${side} of a book`);
    const level = levels.get(price) ?? { price, size: 0, orders: 0 };
    level.size += sign * size;
    level.orders = (level.orders ?? 0) + sign;
    if (level.orders > 0) levels.set(price, level);
    else levels.delete(price);
  }

  /** Replaces the state with the state that the bytes encode. */
  restore(bytes: Uint8Array, position: Position): void {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const kind = bytes.length < 16 ? 0 : view.getUint8(0);
    if (kind !== 1 && kind !== 2) throw new RangeError("no state of a book");
    this.kind = kind === 1 ? "book" : "orders";
    this.sides.forEach((side) => side.clear());
    this.orders.clear();
    const [bids, asks] = [view.getUint32(4, true), view.getUint32(8, true)];
    let at = 16;
    for (let n = 0; n < bids + asks; n++) {
      const side = n < bids ? 1 : 2;
      if (kind === 1) {
        const price = i64(view, at);
        this.sides[side - 1]!.set(price, { price, size: i64(view, at + 8) });
        at += 16;
      } else {
        const order = { side, price: i64(view, at + 8), size: i64(view, at + 16) } as const;
        this.orders.set(view.getBigUint64(at, true), order);
        this.add(order, 1);
        at += 24;
      }
    }
    this.position = position;
    this.right = true;
    this.sorted = undefined;
  }

  /** Whether the checksum is that of this book; undefined if the book is too large to be checked. */
  addsUpTo(checksum: bigint): boolean | undefined {
    const levels = this.sides[0].size + this.sides[1].size;
    if (this.kind !== "book" || levels > CHECKED_LEVELS_MAX) return undefined;
    let sum = 0n;
    this.sides.forEach((side, n) => {
      for (const { price, size } of side.values()) sum += hashOfLevel(n === 0, price, size);
    });
    return BigInt.asUintN(64, sum) === checksum;
  }
}

/** Follows the books of a topic, or of all topics that a pattern matches: one book for each partition. */
export function followBook(client: Client, pattern: string, options: FollowBookOptions = {}): BookReplica {
  const books = new Map<string, BookState>();
  const of = ({ topic, partition }: { topic: string; partition: number }): BookState => {
    const key = keyOf(topic, partition);
    const known = books.get(key);
    if (known) return known;
    const book = new BookState(topic, partition);
    books.set(key, book);
    void limitDepth(book);
    return book;
  };
  /** Books that requested a new state because their depth changed, and not because records are missing. */
  const beginningAgain = new Set<BookState>();
  /** The maximum depth of each topic's books, by topic. All partitions of a topic share one request. */
  const depths = new Map<string, Promise<number>>();
  /**
   * Reads the maximum depth of a topic's books; 0 if it is unlimited or cannot be read. If it cannot be read, the book
   * may keep levels that the node has removed, until a checksum reveals the difference.
   */
  const depthOf = (topic: string): Promise<number> => {
    const requested = depths.get(topic);
    if (requested) return requested;
    const depth: Promise<number> = client.http<Described | undefined>(`/v1/topics/${encodeURIComponent(topic)}`).then(
      (described) => Number(described?.config?.reducer?.options?.max_depth ?? 0),
      () => {
        if (depths.get(topic) === depth) depths.delete(topic);
        return 0;
      },
    );
    depths.set(topic, depth);
    return depth;
  };
  const limitDepth = async (book: BookState): Promise<void> => {
    const depth = await depthOf(book.topic);
    if (!(depth > 0) || books.get(keyOf(book.topic, book.partition)) !== book) return;
    book.maxDepth = depth;
    if (book.position.epoch === 0) return;
    // Records before this response may have added levels beyond `maxDepth`. The node has removed these levels, but this
    // book still has them.
    book.right = false;
    beginningAgain.add(book);
    subscription.resync(book.topic, book.partition);
  };
  const subscription: Subscription = client.subscribe(pattern, {
    follow: true,
    conflate: options.conflate ?? false,
    onBatch: (batch) => {
      const book = of(batch.log);
      while (batch.next()) book.apply(batch);
      book.position = { epoch: batch.epoch, seq: batch.firstSeq + batch.count - 1 };
      if (!book.right) book.gapsHealed++;
      book.right = true;
      options.onChange?.(book);
    },
    onEvent: (event) => {
      take(event);
      options.onEvent?.(event);
    },
  });
  const take = (event: NoticeEvent): void => {
    if (event.type === "state") {
      const book = of(event);
      const isRepaired = !beginningAgain.delete(book) && book.position.epoch > 0 && !book.right;
      if (isRepaired) book.gapsHealed++;
      book.restore(event.bytes, event.position);
      options.onChange?.(book);
    } else if (event.type === "gap" || event.type === "epoch") {
      of(event).right = false;
    } else if (event.type === "checksum") {
      const book = of(event);
      const isRight = book.right ? book.addsUpTo(event.checksum) : undefined;
      if (isRight) book.verified++;
      if (isRight === false) {
        book.right = false;
        subscription.resync(event.topic, event.partition);
      }
    } else if (event.type === "publishers") {
      const book = of(event);
      book.publisherConnected = event.connected;
      book.lastChangeMs = Math.max(book.lastChangeMs, event.lastAppendMs ?? 0);
      options.onChange?.(book);
    } else if (event.type === "deleted") {
      books.delete(keyOf(event.topic, event.partition));
      depths.delete(event.topic);
    }
  };
  const book = (topic: string, partition = 0): Book | undefined => books.get(keyOf(topic, partition));
  return { books, book, close: () => subscription.unsubscribe() };
}

/** The key of a log's book in `books`. It is unique, because the names of topics have no spaces. */
function keyOf(topic: string, partition: number): string {
  return partition === 0 ? topic : `${topic} ${partition}`;
}
