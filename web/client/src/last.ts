/** The last value of each key: replicas of topics whose state is `last` (docs/feeds.md has the bytes). */

import type { Batch } from "./batch.js";
import { bytesText } from "./bytes.js";
import type { Client } from "./client.js";
import type { NoticeEvent } from "./events.js";

export interface LastReplica {
  readonly state: ReadonlyMap<string, Uint8Array>;
  /**
   * Whether the values equal the node's, apart from records in transit. False until the first state, and after a loss
   * until the repair.
   */
  readonly right: boolean;
  text(key: string): string | undefined;
  json<T = unknown>(key: string): T | undefined;
  close(): void;
}

export interface FollowLastOptions {
  /** Whether all changes since the last read come as one; true by default. */
  conflate?: boolean;
  onChange?: (keys: ReadonlySet<string>, replica: LastReplica) => void;
  onEvent?: (event: NoticeEvent) => void;
}

const KIND = 3;
const SET = 1;
const REMOVE = 2;
const CLEAR = 3;

/** Follows one topic, or several topics with different keys. */
export function followLast(client: Client, pattern: string, options: FollowLastOptions = {}): LastReplica {
  const state = new Map<string, Uint8Array>();
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
  const subscription = client.subscribe(pattern, {
    follow: true,
    conflate: options.conflate ?? true,
    onBatch: (batch) => {
      while (batch.next()) applyLast(state, batch, changed);
      wrong.delete(batch.log.topic);
      tell();
    },
    onEvent: (event) => {
      if (event.type === "state") {
        for (const key of state.keys()) changed.add(key);
        restoreLast(state, event.bytes);
        for (const key of state.keys()) changed.add(key);
        wrong.delete(event.topic);
        isRight = true;
        tell();
      } else if (event.type === "gap" || event.type === "epoch") {
        wrong.add(event.topic);
      } else if (event.type === "ended") {
        isRight = false;
      }
      options.onEvent?.(event);
    },
  });
  return replica;
}

/** Applies the current record of the batch. */
export function applyLast(state: Map<string, Uint8Array>, batch: Batch, changed: Set<string>): void {
  const key = batch.key();
  if (key) {
    const name = bytesText(key);
    changed.add(name);
    if (batch.payloadLength === 0) state.delete(name);
    else state.set(name, batch.payload.slice());
    return;
  }
  const payload = batch.payload;
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  for (let at = 0; at < payload.length; ) {
    const [op, keyLength, valueLength] = [view.getUint8(at), view.getUint32(at + 4, true), view.getUint32(at + 8, true)];
    const value = at + 12 + keyLength;
    const name = bytesText(payload.subarray(at + 12, value));
    if (op === CLEAR) {
      for (const key of state.keys()) changed.add(key);
      state.clear();
    } else if (op === SET) {
      state.set(name, payload.slice(value, value + valueLength));
      changed.add(name);
    } else if (op === REMOVE) {
      state.delete(name);
      changed.add(name);
    } else {
      throw new RangeError(`operation ${op} of a state of last values`);
    }
    at = value + valueLength;
  }
}

/** Replaces the values by the state in these bytes. */
export function restoreLast(state: Map<string, Uint8Array>, bytes: Uint8Array): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 16 || view.getUint8(0) !== KIND) throw new RangeError("no state of last values");
  state.clear();
  let at = 16;
  for (let left = view.getUint32(4, true); left > 0; left--) {
    const value = at + 8 + view.getUint32(at, true);
    const end = value + view.getUint32(at + 4, true);
    state.set(bytesText(bytes.subarray(at + 8, value)), bytes.slice(value, end));
    at = end;
  }
}
