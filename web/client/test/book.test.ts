/** Tests of order books, with records and states given as bytes. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Batch } from "../src/batch.js";
import { BookState, followBook } from "../src/book.js";
import type { Client } from "../src/client.js";
import type { NoticeEvent } from "../src/events.js";
import { encodeFrame } from "../src/publisher.js";

const KIND_ORDERS = 2;
const REMOVE = 3;

/** A batch whose current record has this payload. */
function record(payload: DataView): Batch {
  const log = { topic: "t", partition: 0, channel: 1, subjectPrefix: "t", position: { epoch: 1, seq: 2 } };
  const batch = new Batch();
  batch.reset(log, 1, 2, 3, 1, encodeFrame("", undefined, new Uint8Array(payload.buffer), {}));
  assert.ok(batch.next());
  return batch;
}

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
  book.apply(record(entry));
  assert.deepEqual(book.depth().bids, [{ price: 100, size: 2, orders: 1 }]);
});

test("partitions of a topic share one request for its depth", async () => {
  const requests: string[] = [];
  let onEvent = (_: NoticeEvent): void => assert.fail("there is no subscription");
  const client = {
    http: (path: string) => {
      requests.push(path);
      return Promise.resolve({ config: { reducer: { options: { max_depth: "5" } } } });
    },
    subscribe: (_: string, options: { onEvent: typeof onEvent }) => {
      onEvent = options.onEvent;
      return {};
    },
  };
  const replica = followBook(client as unknown as Client, "md");
  const begin = (partition: number): void =>
    onEvent({ type: "publishers", topic: "md", partition, connected: true, sinceMs: 0 });
  [0, 1, 2].forEach(begin);
  assert.deepEqual(requests, ["/v1/topics/md"]);
  await new Promise<void>((resolve) => setImmediate(resolve));
  assert.deepEqual(
    [0, 1, 2].map((partition) => (replica.book("md", partition) as BookState).maxDepth),
    [5, 5, 5],
  );
  onEvent({ type: "deleted", topic: "md", partition: 0, last: { epoch: 1, seq: 1 } });
  begin(0);
  assert.equal(requests.length, 2, "the new topic may keep another number of levels");
});

test("level beyond the depth does not return", () => {
  const book = new BookState("t");
  book.maxDepth = 1;
  const change = (op: number, side: number, price: number, size: number): void => {
    const entry = new DataView(new ArrayBuffer(24));
    entry.setUint8(0, op);
    entry.setUint8(1, side);
    entry.setBigInt64(8, BigInt(price), true);
    entry.setBigInt64(16, BigInt(size), true);
    book.apply(record(entry));
  };
  for (const price of [99, 100]) change(1, 1, price, 5);
  for (const price of [102, 101]) change(1, 2, price, 5);
  assert.deepEqual(book.depth(), { bids: [{ price: 100, size: 5 }], asks: [{ price: 101, size: 5 }] });
  change(2, 1, 100, 0);
  change(2, 2, 101, 0);
  assert.deepEqual(book.depth(), { bids: [], asks: [] });
});
