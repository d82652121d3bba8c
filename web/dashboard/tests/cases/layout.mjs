import { shown } from "../browser.mjs";
import { equal, holds, until } from "../checks.mjs";

export const promise = "the slowest subscribers and their lags fit into 1180 pixels; the whole map is visible at 1280 x 800";

const TOPIC = "layout.a-topic-with-a-name-that-is-rather-long.europe-central";

export async function run({ browser, nodes, node }) {
  await subscribers(browser, nodes, node);
  await map(browser, nodes, node);
}

/** Checks the table of subscribers with one that has a long name and a gap, so that each column of its row has text. */
async function subscribers(browser, nodes, node) {
  const url = `${node.url}/v1/topics/${TOPIC}`;
  equal((await fetch(url, { method: "PUT", body: JSON.stringify({ retention: { bytes: 1 << 20 } }) })).ok, true, "the topic is made");
  const subscriber = nodes.start("sub", TOPIC, "--name", "settlement-of-the-european-desk-2", "--sleep", "1ms", "--url", `dunlin://${node.tcp}`);
  subscriber.stdout.resume();
  await until("it reads", async () => (await (await fetch(`${node.url}/v1/subscriptions`)).text()).includes("settlement-of-the-european-desk-2"));
  const lines = `${"x".repeat(200)}\n`.repeat(5_000);
  for (let batch = 0; batch < 10; batch += 1) {
    equal((await fetch(`${url}/batch`, { method: "POST", headers: { "content-type": "text/plain" }, body: lines })).ok, true, "the batch is taken");
  }
  const page = await browser.open(`${node.url}/#/overview`, { width: 1180, height: 800 });
  const table = page.getByRole("group", { name: "Slowest subscribers" });
  await table.locator("tr", { hasText: "settlement" }).locator("td.num .bad").waitFor();
  const box = await table.boundingBox();
  for (const cell of await table.locator("th, td").all()) {
    const { x, width } = await cell.boundingBox();
    holds(x >= box.x && x + width <= box.x + box.width + 1, `"${await cell.innerText()}" reaches from ${x} to ${x + width}, the table's box from ${box.x} to ${box.x + box.width}`);
  }
  holds(box.x + box.width <= 1180, `the table's box ends at ${box.x + box.width}`);
  equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, "the page does not move sideways");
  equal(page.complaints.join("\n"), "", "complaints");
  subscriber.kill("SIGTERM");
}

async function map(browser, nodes, node) {
  const world = nodes.start("space", "run", "fits", "--processes", "1", "--flock", "200", "--url", `dunlin://${node.tcp}`);
  const page = await browser.open(`${node.url}/#/space/fits`, { width: 1280, height: 800 });
  await shown(page, ".map canvas");
  const { y, height } = await page.locator(".map").boundingBox();
  holds(y >= 0 && y + height <= 800, `the map reaches from ${y} to ${y + height}`);
  holds(height >= 300, `the map is ${height} high`);
  equal(page.complaints.join("\n"), "", "complaints");
  world.kill("SIGTERM");
}
