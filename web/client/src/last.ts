/** The last value of each key: replicas of topics with the reducer `last`. docs/feeds.md describes the bytes. */

import type { Batch } from "./batch.js";
import { bytesText } from "./bytes.js";
import type { Client } from "./client.js";
import type { NoticeEvent } from "./events.js";

export interface LastReplica {
  readonly state: ReadonlyMap<string, Uint8Array>;
  /**
   * Whether the values equal the node's state, except for records in transit. False until the first state arrives, and
   * from a gap until the values are repaired.
   */
  readonly right: boolean;
  text(key: string): string | undefined;
  json<T = unknown>(key: string): T | undefined;
  close(): void;
}

export interface FollowLastOptions {
  /** Whether the node merges all changes since the last read into one record; true by default. */
  conflate?: boolean;
  onChange?: (keys: ReadonlySet<string>, replica: LastReplica) => void;
  onEvent?: (event: NoticeEvent) => void;
}

const KIND = 3;
const SET = 1;
const REMOVE = 2;
const CLEAR = 3;

/** Follows a topic, or all topics that a pattern matches. Keys of different topics must differ. */
export function followLast(client: Client, pattern: string, options: FollowLastOptions = {}): LastReplica {
  const state = new Map<string, Uint8Array>();
  const logs = new Map<string, LogValues>();
  const wrong = new Set<string>();
  let isRight = false;
  let changed = new Set<string>();
  const replica: LastReplica = {
    state,
    get right() {
      return isRight && wrong.size === 0;
    },
    text: (key) => {
      const value = state.get(key);
      return value && bytesText(value);
    },
    json: <T>(key: string) => {
      const value = state.get(key);
      return value && (JSON.parse(bytesText(value)) as T);
    },
    close: () => subscription.unsubscribe(),
  };
  const tell = (): void => {
    if (changed.size === 0) return;
    const keys = changed;
    changed = new Set();
    options.onChange?.(keys, replica);
  };
  const valuesOf = (log: string): LogValues => {
    const values = logs.get(log) ?? new LogValues(state, (key) => void changed.add(key));
    logs.set(log, values);
    return values;
  };
  const subscription = client.subscribe(pattern, {
    follow: true,
    conflate: options.conflate ?? true,
    onBatch: (batch) => {
      const log = nameOf(batch.log);
      const values = valuesOf(log);
      while (batch.next()) values.apply(batch);
      wrong.delete(log);
      tell();
    },
    onEvent: (event) => {
      if (event.type === "state") {
        const log = nameOf(event);
        valuesOf(log).restore(event.bytes);
        wrong.delete(log);
        isRight = true;
        tell();
      } else if (event.type === "gap" || event.type === "epoch") {
        wrong.add(nameOf(event));
      } else if (event.type === "deleted") {
        const log = nameOf(event);
        logs.get(log)?.clear();
        logs.delete(log);
        wrong.delete(log);
        tell();
      } else if (event.type === "ended") {
        isRight = false;
      }
      options.onEvent?.(event);
    },
  });
  return replica;
}

function nameOf({ topic, partition }: { topic: string; partition: number }): string {
  return `${partition} ${topic}`;
}

/**
 * The values of one log. The map `state` also has the values of other logs, because each partition has its own state.
 */
class LogValues {
  private readonly keys = new Set<string>();

  constructor(
    private readonly state: Map<string, Uint8Array>,
    private readonly onChange: (key: string) => void,
  ) {}

  /** Applies the current record of the batch. */
  apply(batch: Batch): void {
    const key = batch.key();
    if (key) {
      const name = bytesText(key);
      if (batch.payloadLength === 0) this.delete(name);
      else this.set(name, batch.payload.slice());
      return;
    }
    const payload = batch.payload;
    const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
    for (let at = 0; at < payload.length; ) {
      const [op, keyLength, valueLength] = [view.getUint8(at), view.getUint32(at + 4, true), view.getUint32(at + 8, true)];
      const value = at + 12 + keyLength;
      const name = bytesText(payload.subarray(at + 12, value));
      if (op === CLEAR) this.clear();
      else if (op === SET) this.set(name, payload.slice(value, value + valueLength));
      else if (op === REMOVE) this.delete(name);
      else throw new RangeError(`operation ${op} of a state of last values`);
      at = value + valueLength;
    }
  }

  /** Replaces the values with the state that the bytes encode. */
  restore(bytes: Uint8Array): void {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (bytes.length < 16 || view.getUint8(0) !== KIND) throw new RangeError("no state of last values");
    this.clear();
    let at = 16;
    for (let left = view.getUint32(4, true); left > 0; left--) {
      const value = at + 8 + view.getUint32(at, true);
      const end = value + view.getUint32(at + 4, true);
      this.set(bytesText(bytes.subarray(at + 8, value)), bytes.slice(value, end));
      at = end;
    }
  }

  clear(): void {
    for (const key of this.keys) this.delete(key);
  }

  private set(key: string, value: Uint8Array): void {
    this.keys.add(key);
    this.state.set(key, value);
    this.onChange(key);
  }

  private delete(key: string): void {
    this.keys.delete(key);
    this.state.delete(key);
    this.onChange(key);
  }
}
