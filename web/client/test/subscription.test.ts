/** Checks the positions with which a subscription continues after a lost connection. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { type Fields, Writer } from "../src/bytes.js";
import type { NoticeEvent } from "../src/events.js";
import { ToNode } from "../src/kinds.js";
import { Subscription } from "../src/subscription.js";

/** A mock of `Fields`: each call of any method returns the next of these values. */
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

test("messages about a position are compared with the subscription's own position", () => {
  const told: string[] = [];
  const onEvent = (event: NoticeEvent) => {
    if (event.type === "gap") told.push(`gap ${event.epoch} ${event.first}-${event.last}`);
    if (event.type === "epoch") told.push(`epoch ${event.old}-${event.lastSeen} ${event.newFirst.epoch}-${event.newFirst.seq}`);
  };
  const port = { out: undefined, wrote: () => {}, forget: () => {}, stats: { records: 0, gaps: 0 } };
  const subscription = new Subscription(1, "t", { onBatch: () => {}, onEvent }, port);
  const announce = (epoch: number, seq: number) => subscription.log(fields(1, 0, { epoch, seq }, "t", "t"));
  const check = (epoch: number, seq: number, ...events: string[]) => {
    assert.deepEqual(subscription.positions(), [{ topic: "t", partition: 0, position: { epoch, seq } }]);
    assert.deepEqual(told.splice(0), events);
  };
  announce(1, 5);
  subscription.subscribed(1);
  check(1, 5);
  subscription.gap(1, fields(1, 8, 9), 0);
  check(1, 9, "gap 1 6-9");
  subscription.gap(1, fields(1, 3, 7), 0);
  subscription.advance(1, fields({ epoch: 1, seq: 2 }), 0);
  subscription.epochChanged(1, fields(1, 4, true, 4, { epoch: 1, seq: 5 }), 0);
  check(1, 9);
  subscription.epochChanged(1, fields(1, 8, true, 8, { epoch: 2, seq: 1 }), 0);
  check(2, 0, "epoch 1-9 2-1");
  subscription.heartbeat(1, { epoch: 3, seq: 4 });
  check(3, 4, "epoch 2-0 3-5");
  subscription.gap(1, fields(4, 2, 3), 0);
  check(4, 3, "epoch 3-4 4-2", "gap 4 2-3");
  subscription.lost();
  subscription.begin(new Writer());
  announce(5, 2);
  check(5, 2, "epoch 4-3 5-3");
});

test("state requested without a connection is requested when the log is announced", () => {
  const sent: number[] = [];
  const port = { out: undefined as Writer | undefined, wrote: () => {}, forget: () => {}, stats: { records: 0, gaps: 0 } };
  const subscription = new Subscription(1, "t", { follow: true, onBatch: () => {}, onEvent: () => {} }, port);
  const announce = (channel: number) => subscription.log(fields(channel, 0, { epoch: 1, seq: 5 }, "t", "t"));
  announce(1);
  subscription.subscribed(1);
  subscription.lost();
  subscription.resync("t", 0);
  subscription.begin(new Writer());
  port.out = { message: (kind: number) => sent.push(kind) } as unknown as Writer;
  announce(2);
  assert.deepEqual(sent, [ToNode.RESYNC]);
  assert.deepEqual(subscription.positions(), []);
  announce(3);
  assert.deepEqual(sent, [ToNode.RESYNC]);
  assert.deepEqual([...subscription.logs.keys()], [3]);
});
