import { equal, holds } from "../checks.mjs";

export const promise = "the page reports a killed node as unreachable, and continues when the node is back";

export async function run({ browser, nodes }) {
  const first = await nodes.serve();
  await publish(first, "before");
  const page = await browser.open(`${first.url}/#/topics/held`);
  // The tail reads from now on, so it does not show records that were published before.
  await page.locator("[data-figure=tail]:not(:empty)").waitFor();
  await page.getByText("New records appear here").waitFor();
  await publish(first, "seen live");
  await page.locator(".rec", { hasText: "seen live" }).waitFor();
  await nodes.kill(first);
  await page.locator("[data-said=away]").waitFor();
  holds(await page.locator(".rec", { hasText: "seen live" }).isVisible(), "what was seen stays");
  const second = await nodes.again(first);
  await page.locator("[data-said=restarted]").waitFor();
  equal(await page.locator("[data-said=away]").count(), 0, "notices that it is away");
  await publish(second, "after");
  // The topic began a new epoch. The page reports that, and continues to read.
  await page.locator(".rec:not(.said)", { hasText: "after" }).waitFor();
  equal(page.complaints.join("\n"), "", "complaints");
  await nodes.kill(second);
}

async function publish(node, payload) {
  const answer = await fetch(`${node.url}/v1/topics/held`, { method: "POST", body: payload });
  equal(answer.status, 200, "publishing");
}
