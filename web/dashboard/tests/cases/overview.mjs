import { figure, shown } from "../browser.mjs";
import { equal, holds, metric, until } from "../checks.mjs";

export const promise = "the overview shows the same values as /metrics, and the page is small";

const PAGE_BYTES_MAX = 300_000;

export async function run({ browser, node }) {
  const lines = Array.from({ length: 5000 }, (_, n) => `line ${n}`).join("\n");
  const answer = await fetch(`${node.url}/v1/topics/overview.lines/batch`, { method: "POST", body: lines, headers: { "content-type": "text/plain" } });
  equal(answer.status, 200, "the batch's status");
  const page = await browser.open("about:blank");
  let bytes = 0;
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Network.enable");
  cdp.on("Network.loadingFinished", (loaded) => (bytes += loaded.encodedDataLength));
  const began = Date.now();
  await page.goto(`${node.url}/#/overview`);
  await shown(page, '[data-figure="records"]');
  console.log(`        the first picture came after ${Date.now() - began} ms, ${bytes} bytes`);
  holds(bytes > 10_000 && bytes < PAGE_BYTES_MAX, `the page is ${bytes} bytes on the wire`);
  await are_those_of_metrics(page, node);
  equal(page.complaints.join("\n"), "", "complaints");
}

const FIGURES = [
  ["records", "dunlin_records_total"],
  ["bytes", "dunlin_bytes_total"],
  ["gaps", "dunlin_gaps_total"],
  ["topics", "dunlin_topics"],
  ["connections", "dunlin_connections"],
];

/** Checks that the figures of the page Overview are equal to the node's metrics. */
export async function are_those_of_metrics(page, node) {
  for (const [name, of, labels] of FIGURES) await lies_between(page, node, name, of, labels);
}

/**
 * Checks that a figure is between the metric's values before and after it was read. The figure may differ from both
 * values, because it is up to a second old.
 */
async function lies_between(page, node, name, of, labels) {
  await until(`${name} is between two scrapes`, async () => {
    const before = await metric(node, of, labels);
    await page.waitForTimeout(1500);
    const seen = await figure(page, name);
    const after = await metric(node, of, labels);
    // The value may have risen or fallen in the meantime.
    return seen !== undefined && Math.min(before, after) <= seen && seen <= Math.max(before, after);
  });
}
