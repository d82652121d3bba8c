//   node tests/measure.mjs --dunlin PATH [--chromium PATH] [--json]
//
// Measures the performance of the dashboard and of the TypeScript client in a browser. `cargo xtask page --measure`
// runs this program with a release build. Each line of the output has a description, the measured value, and the goal.

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { build } from "vite";
import { Browser, figure } from "./browser.mjs";
import { metric, until } from "./checks.mjs";
import { Nodes } from "./nodes.mjs";

const RECORDS = 2_000_000;
const BYTES = 64;
const ROUNDS = 5;
const ENTITIES = 50_000;
const WATCHED_S = 60;
const SUBSCRIBERS = 10;
const LOAD = 1_000_000;
const LOADED_S = 10;
const TICKS_A_SECOND = 100;

const { values: given } = parseArgs({
  options: {
    dunlin: { type: "string" },
    chromium: { type: "string", default: "/usr/bin/chromium" },
    json: { type: "boolean", default: false },
  },
});
if (!given.dunlin) throw new Error("--dunlin PATH: the binary to measure");

const nodes = new Nodes(given.dunlin);
const browser = await Browser.start(given.chromium);
const client = await bundled("../client/src/index.ts");
try {
  await rate();
  await map();
  await subscribers();
} finally {
  await browser.close();
  await nodes.close();
}

function say(what, value, unit, wanted, met) {
  const figure = typeof value === "number" && value >= 1000 ? Math.round(value).toLocaleString("en") : value;
  console.log(given.json ? JSON.stringify({ what, value, unit, wanted, met }) : `${met ? "met    " : "NOT MET"}  ${what}: ${figure} ${unit} (${wanted})`);
}

/** Measures how many records per second a page reads over a WebSocket, from the beginning of a topic. */
async function rate() {
  const node = await nodes.serve();
  const url = `${node.url}/v1/topics/rate`;
  await fetch(url, { method: "PUT", body: JSON.stringify({ retention: { bytes: 512 << 20 } }) });
  const lines = `${"x".repeat(BYTES)}\n`.repeat(100_000);
  for (let sent = 0; sent < RECORDS; sent += 100_000) {
    await fetch(`${url}/batch`, { method: "POST", headers: { "content-type": "text/plain" }, body: lines });
  }
  const page = await bare(node);
  const rounds = [];
  for (let round = 0; round < ROUNDS; round++) rounds.push(await page.evaluate(readAll, [RECORDS, BYTES]));
  const fast = median(rounds.map((one) => one.rate));
  say(`WebSocket to Chromium, ${BYTES} B, binary`, Math.round(fast), "records/s", "at least 500,000", fast >= 500_000);
  const frame = median(rounds.map((one) => one.frame));
  say("its longest frame", Number(frame.toFixed(1)), "ms", "at most 50", frame <= 50);
  await nodes.kill(node);
}

/** Reads all records and measures the longest frame. The function runs in the page. */
async function readAll([records, bytes]) {
  const { connect } = globalThis.dunlinClient;
  const client = connect("", {});
  let [read, sum, frame, last, on] = [0, 0, 0, performance.now(), true];
  const look = () => {
    const now = performance.now();
    frame = Math.max(frame, now - last);
    last = now;
    if (on) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
  while (client.state !== "open") await new Promise((go) => setTimeout(go, 10));
  const began = performance.now();
  await new Promise((done) => {
    const subscription = client.subscribe("rate", {
      from: "earliest",
      creditBytes: 8 << 20,
      onBatch: (batch) => {
        while (batch.next()) {
          read += 1;
          sum += batch.payloadLength + batch.view.getUint8(batch.payloadOffset);
        }
        if (read >= records) {
          subscription.unsubscribe();
          done();
        }
      },
    });
  });
  const seconds = (performance.now() - began) / 1000;
  on = false;
  client.close();
  if (read !== records || sum !== records * (bytes + 120)) throw new Error(`${read} records, sum ${sum}`);
  return { rate: records / seconds, frame };
}

/** Measures the frames per second and the memory growth of a page that shows a map with ENTITIES entities. */
async function map() {
  const node = await nodes.serve();
  const world = nodes.start("space", "run", "measured", "--processes", "1", "--flock", String(ENTITIES), "--url", `dunlin://${node.tcp}`);
  const page = await browser.open(`${node.url}/#/space/measured`);
  await until("all are on the map", async () => (await figure(page, "space.entities")) === ENTITIES);
  const devtools = await page.context().newCDPSession(page);
  const heap = async () => {
    await devtools.send("HeapProfiler.collectGarbage");
    return (await devtools.send("Runtime.getHeapUsage")).usedSize / (1 << 20);
  };
  await wait(5);
  const before = await heap();
  const frames = await page.evaluate(async (seconds) => {
    let [count, on] = [0, true];
    const look = () => (count++, on && requestAnimationFrame(look));
    requestAnimationFrame(look);
    await new Promise((go) => setTimeout(go, seconds * 1000));
    on = false;
    return count / seconds;
  }, WATCHED_S);
  const drawn = await figure(page, "space.frames");
  const grown = (await heap()) - before;
  say(`map of ${ENTITIES.toLocaleString("en")} entities, drawn`, drawn, "frames/s", "at least 30", drawn >= 30);
  say("frames of its page", Math.round(frames), "frames/s", "at least 30", frames >= 30);
  say(`its memory after ${WATCHED_S} s, over ${before.toFixed(1)} MiB`, Number(grown.toFixed(1)), "MiB", "no growth: within 2", grown <= 2);
  world.kill("SIGTERM");
  await nodes.kill(node);
}

/** Measures the processor time that SUBSCRIBERS subscribers of topic `$node` cause while the node has other load. */
async function subscribers() {
  const node = await nodes.serve();
  const load = nodes.start("pub", "load", "x".repeat(BYTES), "--repeat", String(LOAD * 600), "--rate", String(LOAD), "--quiet", "--url", `dunlin://${node.tcp}`);
  const loaded = async () => {
    const [cpu, records] = [processor(node.pid), await metric(node, "dunlin_records_total")];
    await wait(LOADED_S);
    const published = (await metric(node, "dunlin_records_total")) - records;
    return { cpu: (processor(node.pid) - cpu) / LOADED_S, rate: published / LOADED_S };
  };
  await wait(3);
  const page = await bare(node);
  const rounds = [];
  for (let round = 0; round < 3; round++) {
    const without = await loaded();
    await page.evaluate((count) => {
      const { connect } = globalThis.dunlinClient;
      globalThis.reading = Array.from({ length: count }, () => {
        const client = connect("", {});
        client.subscribe("$node.>", { follow: true, conflate: true, onBatch: () => undefined });
        return client;
      });
    }, SUBSCRIBERS);
    await wait(2);
    const along = await loaded();
    rounds.push({ share: ((along.cpu - without.cpu) / along.cpu) * 100, rate: along.rate });
    await page.evaluate(() => globalThis.reading.forEach((client) => client.close()));
    await wait(1);
  }
  const share = median(rounds.map((one) => one.share));
  const records = median(rounds.map((one) => one.rate));
  say(`${SUBSCRIBERS} WebSocket subscribers of $node.> at ${Math.round(records).toLocaleString("en")} records/s: their share of the node's processor`, Number(share.toFixed(1)), "%", "at most 5", share <= 5);
  load.kill("SIGKILL");
  await nodes.kill(node);
}

/** Opens a page from the node's address that contains only the client. */
async function bare(node) {
  const context = await browser.browser.newContext({ bypassCSP: true });
  const page = await context.newPage();
  await page.goto(`${node.url}/healthz`);
  await page.addScriptTag({ content: client });
  return page;
}

/** Bundles the client as a script for a page. The script defines the global variable `dunlinClient`. */
async function bundled(entry) {
  const lib = { entry: new URL(`../${entry}`, import.meta.url).pathname, name: "dunlinClient", formats: ["iife"] };
  const made = await build({ configFile: false, logLevel: "error", build: { lib, write: false, target: "es2022" } });
  return [made].flat()[0].output[0].code;
}

/** The processor time of a process in seconds. */
function processor(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS_A_SECOND;
}

function wait(seconds) {
  return new Promise((go) => setTimeout(go, seconds * 1000));
}

function median(values) {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
}
