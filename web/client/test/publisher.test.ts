/** Checks which numbers a publisher gives to its records after refusals. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Fields, Writer } from "../src/bytes.js";
import { Code, DunlinError } from "../src/errors.js";
import { ToNode } from "../src/kinds.js";
import { encodeFrame, Publisher } from "../src/publisher.js";

const OWNER_AWAY = 54;

/** A mock of `Fields`: each call of any method returns the next of these values. */
function fields(...values: unknown[]): Fields {
  return new Proxy({}, { get: () => () => values.shift() }) as Fields;
}

interface Unopened {
  publisher: Publisher;
  open: () => void;
  /** The numbers of the records that the publisher has written since the last call. */
  numbers: () => number[];
  /** The number of messages that the publisher has written, but not passed to the connection. */
  unsent: () => number;
}

/** Creates a publisher that the node has not opened yet. */
function unopened(inFlightBytesMax = 1 << 20): Unopened {
  const sent: number[] = [];
  let unsent = 0;
  const message = (kind: number, write: (out: Writer) => void): void => {
    unsent++;
    const longs: number[] = [];
    const out: unknown = new Proxy(
      {},
      {
        get: (_, name) => (value: number) => {
          if (name === "u64") longs.push(Number(value));
          return out;
        },
      },
    );
    write(out as Writer);
    if (kind === ToNode.PUBLISH) sent.push(longs[1]!);
  };
  const out = { message } as unknown as Writer;
  const wrote = (): void => void (unsent = 0);
  const publisher = new Publisher(1, "a", { out, wrote, forget: () => {}, inFlightBytesMax });
  const open = (): void => publisher.open(fields(1, 1 << 20, "a", "a"));
  return { publisher, open, numbers: () => sent.splice(0), unsent: () => unsent };
}

/** Creates an open publisher, and a function that returns the numbers of the records that it has sent. */
function opened(): { publisher: Publisher; numbers: () => number[] } {
  const { publisher, open, numbers } = unopened();
  open();
  return { publisher, numbers };
}

function refuse(publisher: Publisher, first: number, code: number): void {
  publisher.refusedRecords(fields(0, first, 1), () => new DunlinError(code, "", []));
}

function acknowledge(publisher: Publisher, through: number): void {
  publisher.published(fields(0, through, { epoch: 1, seq: BigInt(through) }, 2, false));
}

test("number of a record of unknown outcome is kept while its owner is away", async () => {
  const { publisher, numbers } = opened();
  const first = publisher.publish("a");
  refuse(publisher, 1, Code.OutcomeUnknown);
  await assert.rejects(first, DunlinError);
  assert.deepEqual(numbers(), [1]);
  const second = publisher.publish("b");
  assert.deepEqual(numbers(), [1, 2], "the owner may have appended the first record");
  refuse(publisher, 1, OWNER_AWAY);
  refuse(publisher, 2, OWNER_AWAY);
  await assert.rejects(second, DunlinError);
  const third = publisher.publish("c");
  assert.deepEqual(numbers(), [1, 2]);
  acknowledge(publisher, 2);
  assert.equal((await third).position?.seq, 2n);
  const fourth = publisher.publish("d");
  assert.deepEqual(numbers(), [3]);
  refuse(publisher, 3, Code.SeqMoved);
  await assert.rejects(fourth, DunlinError);
  publisher.send("e");
  assert.deepEqual(numbers(), [3], "the log has refused the fourth record");
});

test("flush sends a record of unknown outcome again", async () => {
  const { publisher, numbers } = opened();
  const first = publisher.publish("a");
  refuse(publisher, 1, Code.OutcomeUnknown);
  await assert.rejects(first, DunlinError);
  assert.deepEqual(numbers(), [1]);
  const flushed = publisher.flush();
  assert.deepEqual(numbers(), [1]);
  acknowledge(publisher, 1);
  await flushed;
});

test("fields that a frame cannot contain are refused", () => {
  const large = new Uint8Array(70_000);
  const frame = (options: Parameters<typeof encodeFrame>[3]) => encodeFrame("", undefined, new Uint8Array(1), options);
  assert.throws(() => frame({ headers: [["a", large]] }), RangeError);
  assert.throws(() => frame({ headers: [["a".repeat(70_000), "b"]] }), RangeError);
  assert.throws(() => frame({ headers: [["a", large.subarray(0, 40_000)], ["b", large.subarray(0, 40_000)]] }), RangeError);
  assert.equal(frame({ headers: [["a", large.subarray(0, 40_000)]] }).length % 8, 0);
});

test("invalid record does not affect other records of an unopened publisher", async () => {
  const { publisher, open, numbers } = unopened();
  const invalid = publisher.publish("a", { key: "k".repeat(70_000) });
  const valid = publisher.publish("b");
  open();
  await assert.rejects(invalid, (error: DunlinError) => error.name === "BAD_FRAME");
  assert.deepEqual(numbers(), [1]);
  acknowledge(publisher, 1);
  assert.equal((await valid).position?.seq, 1n);
});

test("records written before the in-flight limit are sent", () => {
  const { publisher, open, numbers, unsent } = unopened(1);
  for (const payload of ["a", "b", "c"]) publisher.send(payload);
  open();
  assert.deepEqual([numbers(), unsent()], [[1], 0]);
  acknowledge(publisher, 1);
  assert.deepEqual([numbers(), unsent()], [[2], 0]);
});
