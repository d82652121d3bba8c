/**
 * A WebSocket connection that carries Dunlin's own protocol. It splits the received bytes into messages, and copies
 * only messages that arrive in several parts.
 */

import { Fields, u64, Writer } from "./bytes.js";
import { Code, DunlinError } from "./errors.js";
import { FromNode, SUBPROTOCOL, ToNode, VERSION_MAX, VERSION_MIN } from "./kinds.js";

/** The message with which the node accepts the client. */
export interface Welcome {
  node: string;
  session: bigint;
  name: string;
  inboxPrefix: string;
  heartbeatMs: number;
  runBytesMax: number;
  controlBytesMax: number;
  inFlightBytesMax: number;
  /** The id of the node's cluster; "-" for a node without a cluster, and empty for nodes of older versions. */
  cluster: string;
}

/** Functions that a connection calls when messages arrive and when the connection ends. */
export interface Handler {
  welcomed(welcome: Welcome): void;
  /** Receives a message, whose body is between `at + 8` and `end`. The bytes are valid only during the call. */
  message(kind: number, view: DataView, at: number, end: number): void;
  /** Called after all messages that arrived together have been handled. */
  settled(): void;
  /** The connection has ended. Called once, as the last call. */
  ended(why: DunlinError, reconnectAfterMs?: number): void;
}

export interface ConnectionOptions {
  url: string;
  credentials: Uint8Array;
  name: string;
  WebSocket: typeof WebSocket;
}

/** The time limit within which a node must accept the client. */
const HELLO_MS = 10_000;
/** The number of missing heartbeats after which the connection counts as lost. */
const HEARTBEATS_MISSED = 3;
/** The length of the largest allowed message. A message with a larger length is an error. */
const MESSAGE_BYTES_MAX = (1 << 28) + 64;
const MAGIC = [0x44, 0x55, 0x4e, 0x4c, 0x49, 0x4e];

/** A connection to a node over a WebSocket. */
export class Connection {
  readonly out = new Writer();
  messages = 0;
  bytes = 0;
  private readonly socket: WebSocket;
  private phase: "preamble" | "hello" | "open" | "over" = "preamble";
  /** The start of an incomplete message. */
  private rest: Uint8Array | undefined;
  private restLength = 0;
  private heardAt = Date.now();
  private watch: ReturnType<typeof setInterval> | undefined;
  private welcome: Welcome | undefined;
  private flushing = false;

  constructor(
    options: ConnectionOptions,
    private readonly handler: Handler,
  ) {
    this.socket = new options.WebSocket(options.url, SUBPROTOCOL);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => {
      this.out.raw(Uint8Array.from([...MAGIC, VERSION_MIN, VERSION_MAX]));
      this.out.message(ToNode.HELLO, (out) => out.text("").bytes16(options.credentials).text(options.name));
      this.flush();
    };
    this.socket.onmessage = (event: MessageEvent) => this.received(event.data as ArrayBuffer);
    this.socket.onclose = () => this.end(new DunlinError(Code.ShuttingDown, "the connection was lost"));
    // Errors are ignored here, because a close event follows, which ends the connection.
    this.socket.onerror = () => {};
    this.watch = setInterval(() => this.lookForLife(), 1_000);
  }

  get isOpen(): boolean {
    return this.phase === "open";
  }

  /** Sends the bytes in `out` after the current task of the event loop. */
  wrote(): void {
    if (this.flushing) return;
    this.flushing = true;
    queueMicrotask(() => {
      this.flushing = false;
      this.flush();
    });
  }

  private flush(): void {
    if (this.out.length > 0 && this.phase !== "over" && this.socket.readyState === 1) this.socket.send(this.out.take());
  }

  /** The number of bytes that the browser has accepted but not sent yet. */
  get unsent(): number {
    return this.socket.bufferedAmount;
  }

  /** Closes the connection, and notifies the node. */
  close(): void {
    if (this.phase === "open") {
      this.out.message(ToNode.LEAVE, () => {});
      this.flush();
    }
    this.end(new DunlinError(Code.Asked, "closed"));
  }

  private end(why: DunlinError, reconnectAfterMs?: number): void {
    if (this.phase === "over") return;
    this.phase = "over";
    clearInterval(this.watch);
    this.rest = undefined;
    this.socket.close();
    this.handler.ended(why, reconnectAfterMs);
  }

  private lookForLife(): void {
    const patience = this.welcome ? HEARTBEATS_MISSED * this.welcome.heartbeatMs : HELLO_MS;
    if (Date.now() - this.heardAt > patience) {
      this.end(new DunlinError(Code.ShuttingDown, `nothing was heard of the node for ${patience} ms`));
    }
  }

  private received(buffer: ArrayBuffer): void {
    if (this.phase === "over") return;
    this.heardAt = Date.now();
    this.messages++;
    this.bytes += buffer.byteLength;
    try {
      this.take(new Uint8Array(buffer));
      if ((this.phase as string) !== "over") this.handler.settled();
    } catch (error) {
      // The client cannot decode the node's message, so it cannot find the start of the next message either.
      this.end(error instanceof DunlinError ? error : new DunlinError(Code.Protocol, String(error)));
      if (!(error instanceof RangeError || error instanceof DunlinError)) throw error;
    }
  }

  private take(bytes: Uint8Array): void {
    let at = 0;
    while (this.rest) {
      at += this.complete(bytes.subarray(at));
      if (this.rest && at === bytes.length) return;
    }
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (;;) {
      const length = this.lengthOf(view, at);
      if (length === 0 || at + length > bytes.length) break;
      this.whole(view, at, at + length);
      if (this.phase === "over") return;
      at += length;
    }
    if (at < bytes.length) {
      this.rest = bytes.slice(at);
      this.restLength = this.rest.length;
    }
  }

  /** Adds bytes to the incomplete message. Returns how many of these bytes belong to the message. */
  private complete(bytes: Uint8Array): number {
    const before = this.restLength;
    const rest = this.rest!;
    const length = this.lengthOf(new DataView(rest.buffer, rest.byteOffset, before), 0);
    const more = Math.min((length || 8) - before, bytes.length);
    // The buffer grows as bytes arrive. Allocating the announced length at once would waste memory if it is wrong.
    if (before + more > rest.length) {
      const grown = new Uint8Array(Math.max(before + more, Math.min(2 * rest.length, length || 8)));
      grown.set(rest.subarray(0, before));
      this.rest = grown;
    }
    this.rest!.set(bytes.subarray(0, more), before);
    this.restLength = before + more;
    if (length > 0 && this.restLength === length) {
      const message = this.rest!;
      this.rest = undefined;
      this.whole(new DataView(message.buffer, message.byteOffset, length), 0, length);
    }
    return more;
  }

  /** The length of the message that begins at this offset; 0 while its header is incomplete. */
  private lengthOf(view: DataView, at: number): number {
    if (view.byteLength - at < 8) return 0;
    if (this.phase === "preamble") return 8;
    const length = view.getUint32(at, true);
    if (length < 8 || length % 8 !== 0 || length > MESSAGE_BYTES_MAX) {
      throw new DunlinError(Code.Protocol, `a message of ${length} bytes`);
    }
    return length;
  }

  private whole(view: DataView, at: number, end: number): void {
    if (this.phase === "preamble") return this.preamble(view, at);
    const kind = view.getUint8(at + 4);
    switch (kind) {
      case FromNode.WELCOME:
        return this.letIn(new Fields(view, at + 8, end));
      case FromNode.REFUSED:
      case FromNode.ERROR:
        return this.end(refusal(new Fields(view, at + 8, end)));
      case FromNode.GOODBYE: {
        const fields = new Fields(view, at + 8, end);
        const after = fields.u32();
        return this.end(refusal(fields), after);
      }
      default:
        return this.handler.message(kind, view, at, end);
    }
  }

  private preamble(view: DataView, at: number): void {
    if (MAGIC.some((byte, n) => view.getUint8(at + n) !== byte)) {
      throw new DunlinError(Code.Protocol, "the other side is no Dunlin");
    }
    // If the node does not support the client's versions, it sends REFUSED next, with the reason.
    this.phase = "hello";
  }

  private letIn(fields: Fields): void {
    const node = fields.big().toString(16).padStart(16, "0");
    const session = fields.big();
    const name = fields.text();
    const inboxPrefix = fields.text();
    const heartbeatMs = fields.u32();
    const [runBytesMax, controlBytesMax] = [fields.u32(), fields.u32()];
    fields.u32();
    fields.u32();
    const inFlightBytesMax = fields.u32();
    const cluster = fields.left() < 2 ? "" : fields.text();
    this.phase = "open";
    this.welcome = { node, session, name, inboxPrefix, heartbeatMs, runBytesMax, controlBytesMax, inFlightBytesMax, cluster };
    this.handler.welcomed(this.welcome);
  }
}

/** Reads a refusal: its code, three numbers, a text. */
export function refusal(fields: Fields): DunlinError {
  const code = fields.u16();
  const numbers = [fields.big(), fields.big(), fields.big()];
  return new DunlinError(code, fields.text(), numbers);
}

/** Reads the fields before the frames of a RUN message. */
export function runHead(view: DataView, at: number) {
  return {
    channel: view.getUint32(at + 8, true),
    epoch: view.getUint32(at + 12, true),
    prevSeq: u64(view, at + 16),
    firstSeq: u64(view, at + 24),
    count: view.getUint32(at + 32, true),
    bytes: view.getUint32(at + 36, true),
  };
}
