/** Reads and writes the fields of messages, which are little-endian and not aligned (docs/protocol.md). */

/** A position in a log: the epoch, and the record's number in the epoch. */
export interface Position {
  epoch: number;
  /** The sequence number, exact below 2^53. */
  seq: number;
}

const utf8 = new TextEncoder();
const fromUtf8 = new TextDecoder();

export const textBytes = (text: string): Uint8Array => utf8.encode(text);
export const bytesText = (bytes: Uint8Array): string => fromUtf8.decode(bytes);

/** Reads an unsigned number of 64 bits, exact below 2^53. */
export function u64(view: DataView, at: number): number {
  return view.getUint32(at, true) + view.getUint32(at + 4, true) * 4294967296;
}

/** Reads a signed number of 64 bits, exact below 2^53. */
export function i64(view: DataView, at: number): number {
  return view.getUint32(at, true) + view.getInt32(at + 4, true) * 4294967296;
}

/** The length rounded up to a multiple of 8, to which messages and frames are padded. */
export const padded = (length: number): number => (length + 7) & ~7;

/** A buffer that grows. */
export class Writer {
  private bytes = new Uint8Array(1 << 12);
  private view = new DataView(this.bytes.buffer);
  length = 0;

  /** Reserves `more` bytes and returns their offset. The call may replace `bytes` and `view`. */
  private room(more: number): number {
    const at = this.length;
    if (at + more > this.bytes.length) {
      const grown = new Uint8Array(Math.max(2 * this.bytes.length, at + more));
      grown.set(this.bytes.subarray(0, at));
      this.bytes = grown;
      this.view = new DataView(grown.buffer);
    }
    this.length = at + more;
    return at;
  }

  u8(value: number): this {
    const at = this.room(1);
    this.view.setUint8(at, value);
    return this;
  }

  bool(value: boolean): this {
    return this.u8(value ? 1 : 0);
  }

  u16(value: number): this {
    const at = this.room(2);
    this.view.setUint16(at, value, true);
    return this;
  }

  u32(value: number): this {
    const at = this.room(4);
    this.view.setUint32(at, value, true);
    return this;
  }

  u64(value: number | bigint): this {
    const at = this.room(8);
    this.view.setBigUint64(at, BigInt(value), true);
    return this;
  }

  position(position: Position): this {
    return this.u32(position.epoch).u64(position.seq);
  }

  raw(bytes: Uint8Array): this {
    const at = this.room(bytes.length);
    this.bytes.set(bytes, at);
    return this;
  }

  /** Appends the length of the bytes in 16 bits, and then the bytes. */
  bytes16(bytes: Uint8Array): this {
    if (bytes.length > 0xffff) throw new RangeError(`${bytes.length} bytes where 65535 are the most`);
    return this.u16(bytes.length).raw(bytes);
  }

  text(text: string): this {
    return this.bytes16(utf8.encode(text));
  }

  /** Appends zeros up to the next multiple of 8. */
  pad(): this {
    const at = this.length;
    const start = this.room(padded(at) - at);
    this.bytes.fill(0, start, this.length);
    return this;
  }

  /** Appends a complete message: its header, the fields that `write` appends, and padding. */
  message(kind: number, write: (out: Writer) => void, flags = 0): this {
    const start = this.length;
    this.u32(0).u8(kind).u8(flags).u16(0);
    write(this);
    const used = this.length - start;
    this.raw(PADDING.subarray(0, padded(used) - used));
    this.view.setUint32(start, this.length - start, true);
    return this;
  }

  setU32(at: number, value: number): void {
    this.view.setUint32(at, value, true);
  }

  /** Returns a copy of all bytes, and empties the buffer. */
  take(): Uint8Array<ArrayBuffer> {
    const taken = this.bytes.slice(0, this.length);
    this.length = 0;
    if (this.bytes.length > 1 << 16) {
      this.bytes = new Uint8Array(1 << 12);
      this.view = new DataView(this.bytes.buffer);
    }
    return taken;
  }
}

const PADDING = new Uint8Array(8);

/** The fields of one message. A field beyond the end throws a RangeError, which ends the connection. */
export class Fields {
  constructor(
    readonly view: DataView,
    private at: number,
    private readonly end: number,
  ) {}

  private take(bytes: number): number {
    const at = this.at;
    if (at + bytes > this.end) throw new RangeError("a message that is too short");
    this.at = at + bytes;
    return at;
  }

  /** The bytes that have not been read. */
  left(): number {
    return this.end - this.at;
  }

  u8(): number {
    return this.view.getUint8(this.take(1));
  }

  bool(): boolean {
    return this.u8() !== 0;
  }

  u16(): number {
    return this.view.getUint16(this.take(2), true);
  }

  u32(): number {
    return this.view.getUint32(this.take(4), true);
  }

  u64(): number {
    return u64(this.view, this.take(8));
  }

  big(): bigint {
    return this.view.getBigUint64(this.take(8), true);
  }

  position(): Position {
    return { epoch: this.u32(), seq: this.u64() };
  }

  bytes(length: number): Uint8Array {
    const at = this.take(length);
    return new Uint8Array(this.view.buffer, this.view.byteOffset + at, length);
  }

  text(): string {
    return bytesText(this.bytes(this.u16()));
  }
}
