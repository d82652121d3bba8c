import { figure, shown } from "../browser.mjs";
import { equal, holds, until } from "../checks.mjs";

export const promise = "the page shows the same book as the topic, level by level";

export async function run({ browser, nodes, node }) {
  const feed = nodes.start("feed", "serve", "--config", "baseline_1x1_10k", "--url", `dunlin://${node.tcp}`);
  await until("the feed publishes", async () => (await fetch(`${node.url}/v1/topics/md.BTC-USD`)).ok);
  const page = await browser.open(`${node.url}/#/feeds`);
  await page.getByRole("link", { name: /md\.BTC-USD/ }).click();
  await shown(page, ".ladder td");
  await until("it is updated", async () => (await figure(page, "book.updates")) > 1000);
  const over = new Promise((done) => feed.once("close", done));
  feed.kill("SIGTERM");
  await over;
  const state = await snapshot(node);
  await until("the page has the last of it", async () => (await figure(page, "book.bid")) === state.bids[0].price && (await figure(page, "book.ask")) === state.asks[0].price);
  equal(await figure(page, "book.right"), 1, "whether the copy is right");
  for (const [side, levels] of [["bid", state.bids], ["ask", state.asks]]) {
    const rows = await page.locator(`.ladder .${side} tbody tr b`).allInnerTexts();
    holds(rows.length >= 10, `${rows.length} levels are shown`);
    equal(rows.join(), levels.slice(0, rows.length).map((level) => String(level.price)).join(), `the ${side}s`);
  }
  equal(page.complaints.join("\n"), "", "complaints");
}

/** Reads the topic's state from the node, and decodes its levels. docs/feeds.md describes the bytes. */
export async function snapshot(node) {
  const stop = new AbortController();
  const answer = await fetch(`${node.url}/v1/topics/md.BTC-USD/events?from=snapshot`, { signal: stop.signal });
  let text = "";
  for await (const part of answer.body) {
    text += Buffer.from(part).toString("latin1");
    if (/event: snapshot\ndata: .*\n\n/.test(text)) break;
  }
  stop.abort();
  const data = JSON.parse(/event: snapshot\ndata: (.*)\n/.exec(text)[1]);
  const bytes = Buffer.from(data.state_base64, "base64");
  const levels = (first, count) => Array.from({ length: count }, (_, n) => ({ price: Number(bytes.readBigInt64LE(first + 16 * n)), size: Number(bytes.readBigInt64LE(first + 16 * n + 8)) }));
  const [bids, asks] = [bytes.readUInt32LE(4), bytes.readUInt32LE(8)];
  return { bids: levels(16, bids), asks: levels(16 + 16 * bids, asks) };
}
