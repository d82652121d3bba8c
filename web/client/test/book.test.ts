/** Checks books against their bytes. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Batch } from "../src/batch.js";
import { BookState } from "../src/book.js";
import { encodeFrame } from "../src/publisher.js";

const KIND_ORDERS = 2;
const REMOVE = 3;

test("orders are told apart by all 64 bits of their ids", () => {
  const ids = [2n ** 60n, 2n ** 60n + 1n];
  const state = new DataView(new ArrayBuffer(16 + 24 * ids.length));
  state.setUint8(0, KIND_ORDERS);
  state.setUint32(4, ids.length, true);
  ids.forEach((id, n) => {
    state.setBigUint64(16 + 24 * n, id, true);
    state.setBigInt64(24 + 24 * n, 100n, true);
    state.setBigInt64(32 + 24 * n, BigInt(n + 1), true);
  });
  const book = new BookState("t");
  book.restore(new Uint8Array(state.buffer), { epoch: 1, seq: 2 });
  assert.deepEqual(book.depth().bids, [{ price: 100, size: 3, orders: 2 }]);

  const entry = new DataView(new ArrayBuffer(32));
  entry.setUint8(0, REMOVE);
  entry.setUint8(1, 1);
  entry.setBigUint64(8, ids[0]!, true);
  const frame = encodeFrame("", undefined, new Uint8Array(entry.buffer), {});
  const log = { topic: "t", partition: 0, channel: 1, subjectPrefix: "t", position: { epoch: 1, seq: 2 } };
  const batch = new Batch();
  batch.reset(log, 1, 2, 3, 1, frame);
  assert.ok(batch.next());
  book.apply(batch);
  assert.deepEqual(book.depth().bids, [{ price: 100, size: 2, orders: 1 }]);
});
