// Runs every case with nats.js. For TLS, the second argument names the certificate authority's file. Cases that stop or
// restart the node do not run over TLS.

import assert from "node:assert/strict";
import { createInterface } from "node:readline";
import { connect, headers as makeHeaders } from "@nats-io/transport-node";

const url = process.argv[2];
const ca = process.argv[3];
const tls = ca ? { tls: { caFile: ca } } : {};
const PATIENCE = 60_000;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const ok = (name) => console.log("ok", name);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Requests an action of the test, and waits until the action is done. */
async function ask(line) {
  console.log(line);
  await lines.next();
}

async function take(sub, count) {
  const got = [];
  for await (const m of sub) {
    got.push(m);
    if (got.length === count) break;
  }
  return got;
}

const cases = {
  async pub_sub(nc) {
    const sub = nc.subscribe("js.ticks");
    for (let n = 0; n < 1000; n++) nc.publish("js.ticks", `${n}`);
    const got = await take(sub, 1000);
    got.forEach((m, n) => assert.equal(m.string(), `${n}`));
  },

  async headers(nc) {
    const sub = nc.subscribe("js.headers");
    const sent = makeHeaders();
    sent.append("Trace", "a b");
    sent.append("Trace", "c");
    sent.set("Nats-Msg-Id", "7");
    nc.publish("js.headers", "x", { headers: sent, reply: "js.reply" });
    const [m] = await take(sub, 1);
    assert.deepEqual(m.headers.values("Trace"), ["a b", "c"]);
    assert.equal(m.headers.get("Nats-Msg-Id"), "7");
    assert.equal(m.reply, "js.reply");
  },

  async wildcard(nc) {
    const [star, rest] = [nc.subscribe("js.w.*"), nc.subscribe("js.w.>")];
    await nc.flush();
    for (const subject of ["js.w.a", "js.w.b.c", "js.v.a"]) nc.publish(subject, subject);
    assert.deepEqual((await take(star, 1)).map((m) => m.subject), ["js.w.a"]);
    assert.deepEqual((await take(rest, 2)).map((m) => m.subject).sort(), ["js.w.a", "js.w.b.c"]);
  },

  async queue_group(nc) {
    const got = [];
    let finish;
    const done = new Promise((resolve) => (finish = resolve));
    const callback = (_, m) => {
      if (got.push(Number(m.string())) === 100) finish();
    };
    const members = [1, 2, 3].map(() => nc.subscribe("js.jobs", { queue: "crew", callback }));
    await nc.flush();
    for (let n = 0; n < 100; n++) nc.publish("js.jobs", `${n}`);
    await done;
    await nc.flush();
    assert.deepEqual(got.sort((a, b) => a - b), [...Array(100).keys()]);
    members.forEach((member) => member.unsubscribe());
  },

  async request_reply(nc) {
    const callback = (_, m) => m.respond(m.string().repeat(2));
    const service = nc.subscribe("js.twice", { callback });
    await nc.flush();
    const asked = [...Array(50).keys()].map((n) => nc.request("js.twice", `${n}`, { timeout: PATIENCE }));
    (await Promise.all(asked)).forEach((m, n) => assert.equal(m.string(), `${n}${n}`));
    service.unsubscribe();
  },

  async no_responders(nc) {
    for (const subject of ["js.nobody", "$JS.API.INFO"]) {
      const asked = nc.request(subject, "", { timeout: PATIENCE });
      await assert.rejects(asked, (error) => error.isNoResponders?.() ?? error.cause?.name === "NoRespondersError");
    }
  },

  async unsub_max(nc) {
    const sub = nc.subscribe("js.max", { max: 3 });
    for (let n = 0; n < 5; n++) nc.publish("js.max", `${n}`);
    const got = [];
    for await (const m of sub) got.push(m.string());
    assert.deepEqual(got, ["0", "1", "2"]);
  },

  async large_payload(nc) {
    const sub = nc.subscribe("js.large");
    const payload = Uint8Array.from({ length: 1_000_000 }, (_, n) => n % 251);
    nc.publish("js.large", payload);
    const [m] = await take(sub, 1);
    assert.ok(Buffer.from(m.data).equals(Buffer.from(payload)));
  },

  async drain() {
    const nc = await connect({ servers: url, ...tls });
    let got = 0;
    nc.subscribe("js.drain", { callback: () => got++ });
    for (let n = 0; n < 100; n++) nc.publish("js.drain", "x");
    await nc.flush();
    await nc.drain();
    assert.equal(got, 100);
    assert.ok(nc.isClosed());
  },

  async gaps() {
    const nc = await connect({ servers: url });
    const sub = nc.subscribe("$DUNLIN.seq.gaps");
    await nc.flush();
    const count = 40_000;
    let [following, lost] = [1, 0];
    await ask(`stall ${count}`);
    for await (const m of sub) {
      const number = (name) => Number(m.headers.get(name));
      const status = m.headers.code ? `${m.headers.code} ${m.headers.description}` : "";
      if (status === "410 Gap") {
        assert.equal(number("Dunlin-First"), following);
        following = number("Dunlin-Last") + 1;
        lost++;
      } else if (status === "") {
        assert.equal(number("Dunlin-Seq"), following);
        assert.ok(number("Dunlin-Epoch") > 0);
        following++;
      } else {
        assert.equal(status, "429 Lagging");
      }
      if (following > count) break;
    }
    assert.ok(lost > 0);
    await nc.close();
  },

  async reconnect() {
    const nc = await connect({ servers: url, maxReconnectAttempts: -1, reconnectTimeWait: 50 });
    let back = false;
    nc.subscribe("js.again", { callback: () => (back = true) });
    await nc.flush();
    await ask("restart");
    for (let tries = 0; !back && tries < PATIENCE / 50; tries++) {
      nc.publish("js.again", "back");
      await pause(50);
    }
    assert.ok(back);
    await nc.close();
  },
};

const nc = await connect({ servers: url, name: "js", ...tls });
for (const [name, run] of Object.entries(cases)) {
  if (ca && ["gaps", "reconnect"].includes(name)) continue;
  if (name === "reconnect") await nc.close();
  await run(nc);
  ok(name);
}
process.exit(0);
