/** Checks the positions with which a subscription continues after a lost connection. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { type Fields, Writer } from "../src/bytes.js";
import { Subscription } from "../src/subscription.js";

/** Fields that return these values, one after another. */
function fields(...values: unknown[]): Fields {
  return new Proxy({}, { get: () => () => values.shift() }) as Fields;
}

test("connection lost while the node announces the logs keeps all positions", () => {
  const port = { out: undefined, wrote: () => {}, forget: () => {}, stats: { records: 0, gaps: 0 } };
  const subscription = new Subscription(1, "t.>", { onBatch: () => {}, onEvent: () => {} }, port);
  const announce = (topic: string, channel: number, seq: number) =>
    subscription.log(fields(channel, 0, { epoch: 1, seq }, topic, topic));
  const positions = () => subscription.positions().map(({ topic, position }) => `${topic} ${position.seq}`).sort();
  announce("t.a", 1, 5);
  announce("t.b", 2, 7);
  subscription.subscribed(2);
  subscription.lost();
  assert.deepEqual(positions(), ["t.a 5", "t.b 7"]);
  subscription.begin(new Writer());
  announce("t.a", 1, 6);
  assert.deepEqual(positions(), ["t.a 6", "t.b 7"]);
  subscription.lost();
  assert.deepEqual(positions(), ["t.a 6", "t.b 7"]);
});
