import { figure, shown } from "../browser.mjs";
import { equal, holds, metric, until } from "../checks.mjs";
import { snapshot } from "./feeds.mjs";

export const promise = "a slow tab delays no other client; it then shows missed records as a gap, or the newest state, and its memory does not grow";

const RECORDS = 200_000;
const BYTES = 1000;
const RETAINED = 1 << 20;
const GROWN_MAX = 48 << 20;

export async function run({ browser, nodes }) {
  const node = await nodes.serve();
  await tail(browser, nodes, node);
  await book(browser, nodes, node);
  await nodes.kill(node);
}

/**
 * Publishes 200 MB while the page is stopped; the topic retains only 1 MiB. When the page continues, it must report the
 * missed records and show the newest records.
 */
async function tail(browser, nodes, node) {
  const url = `${node.url}/v1/topics/slow.lines`;
  equal((await fetch(url, { method: "PUT", body: JSON.stringify({ retention: { bytes: RETAINED } }) })).ok, true, "the topic is made");
  const page = await browser.open(`${node.url}/#/topics/slow.lines`);
  await page.getByText("No records yet").waitFor();
  const tab = await standstill(page);
  const before = await tab.heap();
  const stands = tab.stand();
  await fetch(url, { method: "POST", body: "the first" });
  await stands;
  const [records, missed] = [await metric(node, "dunlin_records_total"), await metric(node, "dunlin_gap_records_total")];
  // The command ends when the node has acknowledged all records. The stopped subscriber must not delay that.
  await nodes.dunlin("pub", "slow.lines", "x".repeat(BYTES), "--repeat", String(RECORDS), "--quiet", "--url", `dunlin://${node.tcp}`);
  await until("the node has counted all of it while the tab stands", async () => (await metric(node, "dunlin_records_total")) - records >= RECORDS);
  await tab.go();
  await fetch(url, { method: "POST", body: "the last" });
  await page.locator(".rec", { hasText: "the last" }).waitFor();
  const told = await gaps(page);
  holds(told > 0, "it says that it missed something");
  await until("the node counts as many missed as the tab tells", async () => (await metric(node, "dunlin_gap_records_total")) - missed === told);
  const grown = (await tab.heap()) - before;
  holds(grown < GROWN_MAX, `the tab grew by ${grown} bytes of the ${RECORDS * BYTES} that went by`);
  equal(page.complaints.join("\n"), "", "complaints");
}

/**
 * Returns the total number of missed records that the lines of the live view report. Only visible lines are drawn, so
 * the function scrolls through the view.
 */
function gaps(page) {
  return page.locator(".tail").evaluate(async (tail) => {
    const said = new Map();
    for (let top = 0; top < tail.scrollHeight; top += tail.clientHeight / 2) {
      tail.scrollTop = top;
      await new Promise((go) => setTimeout(go, 50));
      for (const row of tail.querySelectorAll(".rec.said")) {
        const found = /^GAP .*: ([\d,.\s]+) records left the log/.exec(row.textContent.trim());
        if (found) said.set(row.textContent, Number(found[1].replaceAll(/\D/g, "")));
      }
    }
    return [...said.values()].reduce((all, one) => all + one, 0);
  });
}

/** Checks that the displayed order book is equal to the topic's state again after the page was stopped. */
async function book(browser, nodes, node) {
  const feed = nodes.start("feed", "serve", "--config", "baseline_1x1_10k", "--url", `dunlin://${node.tcp}`);
  await until("the feed publishes", async () => (await fetch(`${node.url}/v1/topics/md.BTC-USD`)).ok);
  const page = await browser.open(`${node.url}/#/feeds/md.BTC-USD`);
  await shown(page, ".ladder td");
  const tab = await standstill(page);
  await tab.stand();
  const records = await metric(node, "dunlin_records_total");
  await until("much goes by", async () => (await metric(node, "dunlin_records_total")) - records > 20_000);
  await tab.go();
  await tab.slow(10);
  const over = new Promise((done) => feed.once("close", done));
  feed.kill("SIGTERM");
  await over;
  const state = await snapshot(node);
  await until("the page has the last of it", async () => (await figure(page, "book.bid")) === state.bids[0].price && (await figure(page, "book.ask")) === state.asks[0].price);
  equal(await figure(page, "book.right"), 1, "whether the copy is right");
  equal(page.complaints.join("\n"), "", "complaints");
}

/** Returns functions that stop a tab with the debugger, continue it, slow it down, and measure its memory. */
async function standstill(page) {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Debugger.enable");
  return {
    async stand() {
      const stands = new Promise((done) => devtools.once("Debugger.paused", done));
      await devtools.send("Debugger.pause");
      await stands;
    },
    go: () => devtools.send("Debugger.resume"),
    slow: (times) => devtools.send("Emulation.setCPUThrottlingRate", { rate: times }),
    async heap() {
      await devtools.send("HeapProfiler.collectGarbage");
      const { usedSize, backingStorageSize = 0 } = await devtools.send("Runtime.getHeapUsage");
      return usedSize + backingStorageSize;
    },
  };
}
