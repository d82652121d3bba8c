/** Tests of the client with a real node. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { type Book, type Client, connect, DunlinError, type Event, followBook, followLast, type NoticeEvent, type RecordEvent } from "../src/index.js";
import { startNode, type TestNode, until } from "./node.js";
import { Proxy } from "./proxy.js";

let node: TestNode;
let client: Client;
let topics = 0;

before(async () => {
  node = await startNode();
  client = connect(node.url, { name: "test" });
});

after(async () => {
  client.close();
  await node.kill();
});

/** Creates a topic that no other test uses. Returns its name. */
async function create(config: Record<string, unknown> = {}): Promise<string> {
  const name = `test${++topics}`;
  await client.http(`/v1/topics/${name}`, { method: "PUT", body: JSON.stringify(config) });
  return name;
}

/** Returns the next `count` events for which `wanted` returns true. */
async function take(events: AsyncIterable<Event>, wanted: (event: Event) => boolean, count: number): Promise<Event[]> {
  const found: Event[] = [];
  for await (const event of events) {
    if (event.type === "ended") throw event.error;
    if (wanted(event) && found.push(event) === count) break;
  }
  return found;
}

const isRecord = (event: Event): event is RecordEvent => event.type === "record";

test("record arrives with every field as published", async () => {
  const topic = await create({ pattern: `test${topics + 1}.>` });
  const subscription = client.subscribe(`${topic}.>`);
  await until(() => subscription.logs.size === 1);
  const headers = [["kind", "greeting"], ["empty", ""]] as const;
  const published = await client.publish(`${topic}.a.b`, "ä record", { key: "k", headers, eventTimeMs: 1_700_000_000_123 });
  assert.deepEqual([published.topic, published.position?.seq, published.acknowledged, published.duplicate], [topic, 1, "memory", false]);
  const [record] = (await take(subscription, isRecord, 1)) as RecordEvent[];
  assert.equal(record!.text(), "ä record");
  assert.deepEqual([record!.subject, record!.topic, record!.partition], [`${topic}.a.b`, topic, 0]);
  assert.deepEqual(record!.position, published.position);
  assert.equal(new TextDecoder().decode(record!.key), "k");
  assert.deepEqual(record!.headers.map(([name, value]) => [name, new TextDecoder().decode(value)]), headers);
  assert.equal(record!.eventTimeMs, 1_700_000_000_123);
  assert.ok(Math.abs(record!.appendTimeMs - Date.now()) < 60_000);
});

test("batch view reads many records in order", async () => {
  const topic = await create();
  const count = 20_000;
  let next = 1;
  const subscription = client.subscribe(topic, {
    onBatch: (batch) => {
      while (batch.next()) {
        assert.equal(batch.seq, next);
        assert.equal(batch.view.getUint32(batch.payloadOffset, true), next++);
      }
    },
  });
  await until(() => subscription.logs.size === 1);
  const publisher = client.publisher(topic);
  const payload = new Uint8Array(64);
  for (let n = 1; n <= count; n++) {
    new DataView(payload.buffer).setUint32(0, n, true);
    publisher.send(payload);
  }
  await publisher.flush();
  await until(() => next === count + 1);
  subscription.unsubscribe();
});

test("4 MB record arrives whole and a record over the limit is refused", async () => {
  const topic = await create({ record_bytes_max: 8 << 20 });
  const subscription = client.subscribe(topic, { creditBytes: 1 << 16 });
  await until(() => subscription.logs.size === 1);
  const large = new Uint8Array(4 << 20).map((_, n) => n * 7);
  await client.publish(topic, large);
  await assert.rejects(client.publish(topic, new Uint8Array(9 << 20)), (error: DunlinError) => error.name === "RECORD_TOO_LARGE");
  await client.publish(topic, "next");
  const [first, second] = (await take(subscription, isRecord, 2)) as RecordEvent[];
  assert.ok(Buffer.from(first!.payload).equals(Buffer.from(large)));
  assert.equal(second!.text(), "next");
});

test("paused subscriber receives exact gaps and continues", async () => {
  const topic = await create({ retention: { bytes: 65_536 } });
  const seen: [number, number][] = [];
  let gaps = 0;
  let held = false;
  const subscription = client.subscribe(topic, {
    creditBytes: 1 << 15,
    onBatch: (batch) => {
      seen.push([batch.firstSeq, batch.firstSeq + batch.count - 1]);
      return held;
    },
    onEvent: (event) => {
      if (event.type === "gap") {
        gaps += event.records;
        seen.push([event.first, event.last]);
      }
    },
  });
  await until(() => subscription.logs.size === 1);
  const publisher = client.publisher(topic);
  for (let n = 0; n < 20_000; n++) publisher.send(new Uint8Array(100));
  await publisher.flush();
  held = true;
  subscription.resume();
  await until(() => seen.at(-1)?.[1] === 20_000);
  assert.ok(gaps > 0);
  let next = 1;
  for (const [first, last] of seen) {
    assert.equal(first, next);
    next = last + 1;
  }
  subscription.unsubscribe();
});

test("reconnected client misses and repeats no record", async () => {
  const topic = await create();
  const proxy = await Proxy.start(node.port);
  const cut = connect(proxy.url, { name: "to be cut" });
  const seqs: number[] = [];
  const notices: NoticeEvent["type"][] = [];
  const subscription = cut.subscribe(topic, {
    onBatch: (batch) => {
      while (batch.next()) seqs.push(batch.seq);
    },
    onEvent: (event) => void notices.push(event.type),
  });
  await until(() => subscription.logs.size === 1);
  const publisher = cut.publisher(topic);
  for (let round = 0; round < 3; round++) {
    for (let n = 0; n < 500; n++) publisher.send(`record ${n}`);
    const flushed = publisher.flush();
    if (round === 1) {
      proxy.cut();
      await until(() => cut.state !== "open");
      proxy.open();
    }
    await flushed;
  }
  await until(() => seqs.length >= 1_500);
  assert.deepEqual(seqs, Array.from({ length: 1_500 }, (_, n) => n + 1));
  assert.deepEqual(notices, ["subscribed", "reconnected"]);
  assert.ok(cut.stats.reconnects > 0);
  cut.close();
  proxy.close();
});

test("dead first address is skipped by requests and subscriptions", async () => {
  const topic = await create();
  const dead = await Proxy.start(node.port);
  dead.cut();
  const listed = connect([dead.url, node.url], { name: "list" });
  await listed.kv.put("web/list", "1");
  assert.equal(listed.url, node.url);
  const events = listed.subscribe(topic, { from: "earliest" });
  await listed.publish(topic, "one");
  const [record] = await take(events, isRecord, 1);
  assert.ok(record);
  assert.equal((await listed.topics({ pattern: topic })).topics.length, 1);
  listed.close();
  dead.close();
});

test("aborted request ends although no address answers", async () => {
  const dead = await Proxy.start(node.port);
  dead.cut();
  const listed = connect([dead.url, dead.url], { name: "dead" });
  const aborting = new AbortController();
  const request = listed.http("/v1/topics", { signal: aborting.signal });
  aborting.abort();
  await assert.rejects(request, (error: Error) => error.name === "AbortError");
  listed.close();
  dead.close();
});

test("restarted node without its records reports a new epoch", async () => {
  let other = await startNode();
  const subscriber = connect(other.url, {});
  const events: Event[] = [];
  void (async () => {
    for await (const event of subscriber.subscribe("ticks", {})) events.push(event);
  })();
  await until(() => events.some((event) => event.type === "subscribed"));
  await subscriber.publish("ticks", "before");
  await until(() => events.some(isRecord));
  await other.kill();
  other = await startNode({ port: other.port });
  await until(() => subscriber.state === "open");
  await subscriber.publish("ticks", "after");
  await until(() => events.filter(isRecord).length === 2);
  const told = events.find((event) => event.type === "epoch");
  assert.ok(told?.type === "epoch" && told.lastSeen === 1);
  subscriber.close();
  await other.kill();
});

test("refusals carry their error name and are not retried", async () => {
  const subscription = client.subscribe("not a subject");
  await until(() => subscription.ended !== undefined);
  assert.equal(subscription.ended!.name, "SUBJECT");
  await assert.rejects(client.publish("a..b", "x"), (error: DunlinError) => error.name === "SUBJECT" && error.retry === "no");
  await assert.rejects(client.http("/v1/topics/never.there"), (error: DunlinError) => error.name === "NO_TOPIC" && error.status === 404);
  assert.throws(() => connect("http://user:secret@127.0.0.1:1"), TypeError);
  assert.throws(() => connect([node.url, "http://127.0.0.1:port"]), TypeError);
});

test("last values equal the node's despite conflation", async () => {
  const topic = await create({ reducer: { kind: "last" } });
  await client.publish(topic, "one", { key: "a" });
  await client.publish(topic, "two", { key: "b" });
  let changes = 0;
  const replica = followLast(client, topic, { onChange: () => void changes++ });
  await until(() => replica.right && replica.state.size === 2);
  assert.equal(replica.text("a"), "one");
  const publisher = client.publisher(topic);
  for (let n = 0; n < 2_000; n++) publisher.send(JSON.stringify({ n }), { key: `key ${n % 10}` });
  publisher.send("", { key: "a" });
  await publisher.flush();
  await until(() => replica.json<{ n: number }>("key 9")?.n === 1_999 && !replica.state.has("a"));
  assert.deepEqual([...Array(10).keys()].map((n) => replica.json<{ n: number }>(`key ${n}`)?.n), [...Array(10).keys()].map((n) => 1_990 + n));
  assert.ok(changes < 2_000, `${changes} changes of 2000 were told one by one`);
  replica.close();
});

test("last values of all partitions are followed together", async () => {
  const topic = await create({ reducer: { kind: "last" }, partitions: 4 });
  const keys = [...Array(20).keys()].map((n) => `key ${n}`);
  const publisher = client.publisher(topic);
  for (const key of keys) publisher.send(key, { key });
  await publisher.flush();
  const replica = followLast(client, topic);
  await until(() => replica.right && keys.every((key) => replica.text(key) === key));
  await client.http(`/v1/topics/${topic}`, { method: "DELETE" });
  await until(() => replica.state.size === 0);
  replica.close();
});

/** Encodes entries of a book, as in a record's payload. */
function entries(...levels: [op: number, side: number, price: number, size: number][]): Uint8Array {
  const view = new DataView(new ArrayBuffer(24 * levels.length));
  levels.forEach(([op, side, price, size], n) => {
    view.setUint8(24 * n, op);
    view.setUint8(24 * n + 1, side);
    view.setBigInt64(24 * n + 8, BigInt(price), true);
    view.setBigInt64(24 * n + 16, BigInt(size), true);
  });
  return new Uint8Array(view.buffer);
}

test("book equals the node's book and its checksum", async () => {
  const topic = await create({ reducer: { kind: "book" } });
  await client.publish(topic, entries([1, 1, -100, 5], [1, 1, 99, 7], [1, 2, 101, 3]));
  const replica = followBook(client, topic);
  await until(() => replica.books.get(topic)?.right === true);
  const book = replica.books.get(topic)!;
  assert.deepEqual(book.depth(), { bids: [{ price: 99, size: 7 }, { price: -100, size: 5 }], asks: [{ price: 101, size: 3 }] });
  await client.publish(topic, entries([2, 1, 99, 0], [1, 2, 100, 1]));
  await until(() => book.depth().asks.length === 2);
  assert.deepEqual(book.depth(1), { bids: [{ price: -100, size: 5 }], asks: [{ price: 100, size: 1 }] });
  await until(() => book.verified > 0);
  await assert.rejects(client.publish(topic, entries([1, 1, 1, 0])), (error: DunlinError) => error.name === "REDUCER");
  replica.close();
});

test("partitions of a topic have books of their own", async () => {
  const topic = await create({ reducer: { kind: "book" }, partitions: 4 });
  const prices = [...Array(20).keys()].map((n) => n + 1);
  for (const price of prices) await client.publish(topic, entries([1, 1, price, 5]), { key: `key ${price}` });
  const replica = followBook(client, topic);
  const books = (): Book[] => [...replica.books.values()];
  const followed = (): number[] => books().flatMap((book) => book.depth().bids.map(({ price }) => price));
  await until(() => followed().length === prices.length);
  assert.deepEqual(followed().sort((a, b) => a - b), prices);
  // A change of one partition does not affect the books of the others.
  for (const price of prices) await client.publish(topic, entries([1, 1, price + 100, 5]), { key: `key ${price}` });
  await until(() => followed().length === 2 * prices.length);
  assert.ok(books().length > 1);
  assert.ok(books().every((book) => replica.book(topic, book.partition) === book));
  assert.equal(replica.books.get(topic), replica.book(topic));
  await client.http(`/v1/topics/${topic}`, { method: "DELETE" });
  await until(() => replica.books.size === 0);
  replica.close();
});

test("book reports whether a publisher is connected", async () => {
  const topic = await create({ reducer: { kind: "book" } });
  const events: NoticeEvent[] = [];
  const replica = followBook(client, topic, { onEvent: (event) => events.push(event) });
  await until(() => replica.books.get(topic)?.publisherConnected === false);
  const publishing = connect(node.url, { name: "publisher" });
  await publishing.publish(topic, entries([1, 1, 100, 5]));
  await until(() => replica.books.get(topic)?.publisherConnected === true);
  publishing.close();
  await until(() => replica.books.get(topic)?.publisherConnected === false);
  const told = events.filter((event) => event.type === "publishers");
  assert.deepEqual(told.map((event) => event.connected), [false, true, false]);
  assert.equal(told[0]!.lastAppendMs, undefined);
  assert.ok(told[2]!.sinceMs >= told[2]!.lastAppendMs!);
  replica.close();
});

test("keys are read, written, swapped and watched", async () => {
  const aborting = new AbortController();
  const watched = client.kv.watch("web/", { from: "oldest", signal: aborting.signal });
  const { revision } = await client.kv.put("web/a b", "1");
  assert.equal((await client.kv.get("web/a b"))!.revision, revision);
  assert.equal(await client.kv.get("web/none"), undefined);
  await assert.rejects(client.kv.put("web/a b", "2", { ifRevision: 0 }), (error: DunlinError) => error.name === "KEY_MOVED");
  await client.kv.put("web/a b", "2", { ifRevision: revision });
  const { entries } = await client.kv.range("web/");
  assert.equal(entries.length, 1);
  for await (const change of watched) {
    assert.match(JSON.stringify(change.data), /web\/a b/);
    break;
  }
  aborting.abort();
});
