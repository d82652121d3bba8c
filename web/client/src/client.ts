/**
 * The client of a node or a cluster. The client connects in the background. After a lost connection it reconnects, and
 * subscriptions continue at their positions.
 */

import { Fields, type Position, textBytes, type Writer } from "./bytes.js";
import { Connection, refusal, type Welcome } from "./connection.js";
import { Code, DunlinError } from "./errors.js";
import { Http, type TopicsPage } from "./http.js";
import { FromNode } from "./kinds.js";
import { Kv } from "./kv.js";
import { type Published, type PublishOptions, Publisher } from "./publisher.js";
import { type SubscribeOptions, Subscription } from "./subscription.js";

export interface ConnectOptions {
  token?: string;
  user?: string;
  password?: string;
  /** The client's name, which operators see. */
  name?: string;
  /** Whether the client reconnects after a loss; true by default. */
  reconnect?: boolean;
  WebSocket?: typeof WebSocket;
  fetch?: typeof fetch;
}

export type State = "connecting" | "open" | "waiting" | "closed";

export interface NodeInfo {
  id: string;
  name: string;
  session: bigint;
  url: string;
  heartbeatMs: number;
}

/** The cluster id that a node without a cluster reports. */
const NO_CLUSTER = "-";
/** The maximum of the random delay before a reconnection: at first BACKOFF_MS, then doubled up to BACKOFF_MS_MAX. */
const BACKOFF_MS = 50;
const BACKOFF_MS_MAX = 2_000;

/** A client of a node or a cluster. */
export class Client {
  readonly stats = { messages: 0, bytes: 0, records: 0, gaps: 0, reconnects: 0 };
  readonly kv: Kv;
  state: State = "connecting";
  node: NodeInfo | undefined;
  /** The reason why the client is not connected. */
  why: DunlinError | undefined;
  private readonly bases: string[];
  private turn = 0;
  private attempts = 0;
  private connection: Connection | undefined;
  private welcome: Welcome | undefined;
  /** The id of the cluster to which the client was connected. */
  private cluster = "";
  private retry: ReturnType<typeof setTimeout> | undefined;
  private readonly watchers = new Set<(state: State, why?: DunlinError) => void>();
  private readonly subscriptions = new Map<number, Subscription>();
  private readonly channels = new Map<number, Subscription>();
  private readonly publishers = new Map<number, Publisher>();
  private readonly publishersOf = new Map<string, Publisher>();
  private numbers = 0;
  private readonly web: Http;

  /** @internal */
  constructor(
    urls: string | readonly string[],
    private readonly options: ConnectOptions,
  ) {
    this.bases = (typeof urls === "string" ? [urls] : urls).map(baseOf);
    if (this.bases.length === 0) throw new TypeError("no address to connect to");
    this.web = new Http((signal) => this.httpBase(signal), options);
    this.kv = new Kv(this.web);
    this.open();
  }

  /** Calls `watcher` at each change of `state`. The returned function ends this. */
  onState(watcher: (state: State, why?: DunlinError) => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  /** The HTTP address of the node to which the client is connected, or to which it connects next. */
  get url(): string {
    return this.bases[this.turn]!;
  }

  subscribe(pattern: string, options: SubscribeOptions = {}): Subscription {
    const client = this;
    const port = {
      get out(): Writer | undefined {
        return client.out;
      },
      wrote: () => this.connection?.wrote(),
      forget: (subscription: Subscription) => this.forgetSubscription(subscription),
      stats: this.stats,
    };
    const named = { ...(this.options.name !== undefined && { name: this.options.name }), ...options };
    const subscription = new Subscription(++this.numbers, pattern, named, port);
    if (this.state === "closed") {
      subscription.end(new DunlinError(Code.Asked, "the client was closed"));
      return subscription;
    }
    this.subscriptions.set(subscription.id, subscription);
    if (this.out) {
      subscription.begin(this.out);
      this.connection?.wrote();
    }
    return subscription;
  }

  publisher(subject: string): Publisher {
    const client = this;
    const port = {
      get out(): Writer | undefined {
        return client.out;
      },
      get inFlightBytesMax(): number {
        return client.welcome?.inFlightBytesMax ?? 0;
      },
      wrote: () => this.connection?.wrote(),
      forget: (publisher: Publisher) => {
        this.publishers.delete(publisher.id);
        if (this.publishersOf.get(subject) === publisher) this.publishersOf.delete(subject);
      },
    };
    const publisher = new Publisher(++this.numbers, subject, port);
    if (this.state === "closed") {
      publisher.end(new DunlinError(Code.Asked, "the client was closed"));
      return publisher;
    }
    this.publishers.set(publisher.id, publisher);
    if (this.out) {
      publisher.begin(this.out);
      this.connection?.wrote();
    }
    return publisher;
  }

  /** Publishes one record, and waits for its acknowledgement. */
  publish(subject: string, payload: string | Uint8Array, options: PublishOptions = {}): Promise<Published> {
    let publisher = this.publishersOf.get(subject);
    if (!publisher) {
      publisher = this.publisher(subject);
      if (!publisher.ended) this.publishersOf.set(subject, publisher);
    }
    return publisher.publish(payload, options);
  }

  topics(query: { pattern?: string; after?: string; limit?: number } = {}): Promise<TopicsPage> {
    return this.web.topics(query);
  }

  /**
   * Sends a request with the client's credentials to the node's listener `http`. Throws a `DunlinError` if it is
   * refused. With several addresses, the request waits until the client is connected.
   */
  http<T = unknown>(path: string, init: RequestInit = {}): Promise<T> {
    return this.web.json<T>(path, init);
  }

  httpText(path: string, init: RequestInit = {}): Promise<string> {
    return this.web.text(path, init);
  }

  close(): void {
    if (this.state === "closed") return;
    clearTimeout(this.retry);
    const why = new DunlinError(Code.Asked, "the client was closed");
    for (const subscription of [...this.subscriptions.values()]) subscription.end(why);
    for (const publisher of [...this.publishers.values()]) publisher.end(why);
    const connection = this.connection;
    this.connection = undefined;
    connection?.close();
    this.become("closed", why);
  }

  private get out(): Writer | undefined {
    return this.connection?.isOpen ? this.connection.out : undefined;
  }

  private become(state: State, why?: DunlinError): void {
    this.state = state;
    this.why = why;
    for (const watcher of [...this.watchers]) watcher(state, why);
  }

  /** Returns the address for a request over HTTP. With several addresses, waits until one of them has answered. */
  private async httpBase(signal?: AbortSignal | null): Promise<string> {
    if (this.bases.length > 1 && this.state !== "open" && this.state !== "closed") {
      await new Promise<void>((resolve, reject) => {
        const aborted = (): void => {
          stop();
          reject(signal!.reason as Error);
        };
        const stop = this.onState((state) => {
          if (state !== "open" && state !== "closed") return;
          stop();
          signal?.removeEventListener("abort", aborted);
          resolve();
        });
        if (signal?.aborted) aborted();
        else signal?.addEventListener("abort", aborted, { once: true });
      });
    }
    return this.url;
  }

  private open(): void {
    const base = this.bases[this.turn]!;
    const url = `${base.replace(/^http/, "ws")}/v1/ws`;
    const connection = new Connection(
      {
        url,
        credentials: credentialsOf(this.options),
        name: this.options.name ?? "",
        WebSocket: this.options.WebSocket ?? globalThis.WebSocket,
      },
      {
        welcomed: (welcome) => this.welcomed(welcome, base),
        message: (kind, view, at, end) => this.message(kind, view, at, end),
        settled: () => this.settled(connection),
        ended: (why, after) => {
          if (this.connection === connection) this.lost(why, after);
        },
      },
    );
    this.connection = connection;
  }

  private welcomed(welcome: Welcome, base: string): void {
    if (this.cluster && this.cluster !== NO_CLUSTER && welcome.cluster && welcome.cluster !== this.cluster) {
      throw new DunlinError(Code.OtherCluster, `this client was connected to cluster ${this.cluster}, and ${base} is of ${welcome.cluster}`);
    }
    this.cluster = welcome.cluster || this.cluster;
    this.welcome = welcome;
    const { node: id, name, session, heartbeatMs } = welcome;
    this.node = { id, name, session, url: base, heartbeatMs };
    this.attempts = 0;
    const out = this.out!;
    for (const subscription of this.subscriptions.values()) subscription.begin(out);
    for (const publisher of this.publishers.values()) publisher.begin(out);
    this.connection?.wrote();
    this.become("open");
  }

  private settled(connection: Connection): void {
    this.stats.messages += connection.messages;
    this.stats.bytes += connection.bytes;
    connection.messages = 0;
    connection.bytes = 0;
    for (const subscription of this.subscriptions.values()) subscription.settled();
  }

  private lost(why: DunlinError, after?: number): void {
    this.connection = undefined;
    this.channels.clear();
    for (const subscription of this.subscriptions.values()) subscription.lost();
    // This address belongs to another cluster, but another address may belong to the right cluster.
    const mayMove = why.code === Code.OtherCluster && this.bases.length > 1;
    const isOver = this.options.reconnect === false || (why.retry === "no" && !mayMove);
    if (isOver) {
      for (const subscription of [...this.subscriptions.values()]) subscription.end(why);
      for (const publisher of [...this.publishers.values()]) publisher.end(why);
      return this.become("closed", why);
    }
    const span = Math.min(BACKOFF_MS_MAX, BACKOFF_MS * 2 ** this.attempts++);
    // The node's requested pause applies only to this node. A client with several addresses tries the next address
    // without this pause.
    const asked = why.code === Code.RateLimit && this.bases.length === 1 ? Number(why.numbers[0] ?? 0n) : 0;
    this.stats.reconnects++;
    this.turn = (this.turn + 1) % this.bases.length;
    this.become("waiting", why);
    if ((this.state as State) === "closed") return;
    this.retry = setTimeout(
      () => {
        this.become("connecting", why);
        if ((this.state as State) !== "closed") this.open();
      },
      (after ?? asked) + Math.random() * span,
    );
  }

  private forgetSubscription(subscription: Subscription): void {
    this.subscriptions.delete(subscription.id);
    for (const [channel, of] of this.channels) if (of === subscription) this.channels.delete(channel);
  }

  private message(kind: number, view: DataView, at: number, end: number): void {
    // Batches of records are handled first, because most messages are batches.
    if (kind === FromNode.RUN) {
      this.channels.get(view.getUint32(at + 8, true))?.run(view, at, end);
      return;
    }
    const fields = new Fields(view, at + 8, end);
    if (kind >= FromNode.PUBLISHER_OPENED && kind <= FromNode.PUBLISH_REFUSED) return this.ofPublisher(kind, fields);
    if (kind === FromNode.PUBLISHER_TOPIC) return this.publishers.get(fields.u32())?.topicIs(fields);
    switch (kind) {
      case FromNode.LOG:
        return this.ofLog(fields);
      case FromNode.SUBSCRIBED:
        return this.subscriptions.get(fields.u32())?.subscribed(fields.u32());
      case FromNode.SUBSCRIPTION_ENDED: {
        const subscription = this.subscriptions.get(fields.u32());
        return subscription?.end(refusal(fields));
      }
      case FromNode.HEARTBEAT:
        for (let left = fields.u32(); left > 0; left--) {
          const channel = fields.u32();
          const position: Position = fields.position();
          this.channels.get(channel)?.heartbeat(channel, position);
        }
        return;
      default:
        return this.ofChannel(kind, fields, end - at);
    }
  }

  private ofLog(fields: Fields): void {
    const subscription = this.subscriptions.get(fields.u32());
    if (subscription) this.channels.set(subscription.log(fields), subscription);
  }

  private ofPublisher(kind: number, fields: Fields): void {
    const publisher = this.publishers.get(fields.u32());
    if (!publisher) return;
    if (kind === FromNode.PUBLISHER_OPENED) publisher.open(fields);
    else if (kind === FromNode.PUBLISHER_REFUSED) publisher.end(refusal(fields));
    else if (kind === FromNode.PUBLISHED) publisher.published(fields);
    else publisher.refusedRecords(fields, refusal);
  }

  private ofChannel(kind: number, fields: Fields, cost: number): void {
    const channel = fields.u32();
    const subscription = this.channels.get(channel);
    if (!subscription) return;
    switch (kind) {
      case FromNode.GAP:
        return subscription.gap(channel, fields, cost);
      case FromNode.LAGGING:
        return subscription.lagging(channel, fields, cost);
      case FromNode.EPOCH_CHANGED:
        return subscription.epochChanged(channel, fields, cost);
      case FromNode.ADVANCE:
        return subscription.advance(channel, fields, cost);
      case FromNode.DELETED:
        return subscription.deleted(channel, fields);
      case FromNode.SNAPSHOT:
        return subscription.snapshot(channel, fields, cost);
      case FromNode.CHECKSUM:
        return subscription.checksum(channel, fields, cost);
      case FromNode.PUBLISHERS:
        return subscription.publishers(channel, fields, cost);
    }
  }
}

/**
 * Returns a client, which connects in the background. If an address fails, the client tries the next address. An empty
 * address means the node that served the page.
 */
export function connect(urls: string | readonly string[] = "", options: ConnectOptions = {}): Client {
  return new Client(urls, options);
}

/** Returns the address with the scheme for HTTP, and without a slash at the end. */
function baseOf(url: string): string {
  const own = typeof location === "undefined" ? undefined : location.origin;
  const base = url === "" || url === "/" ? own : url.replace(/^ws/, "http").replace(/\/+$/, "");
  if (!base || !/^https?:\/\//.test(base) || !URL.canParse(base)) throw new TypeError(`${JSON.stringify(url)} is no address of a node`);
  if (/^https?:\/\/[^/]*@/.test(base)) throw new TypeError("credentials do not belong into an address");
  return base;
}

function credentialsOf({ token, user, password }: ConnectOptions): Uint8Array {
  if (token !== undefined) return textBytes(token);
  return user === undefined ? new Uint8Array() : textBytes(`${user}\0${password ?? ""}`);
}
