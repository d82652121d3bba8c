import { equal, holds } from "../checks.mjs";

export const promise = "the page reports a killed node as unreachable, and continues when the node is back";

export async function run({ browser, nodes }) {
  const first = await nodes.serve();
  await publish(first, "before");
  const page = await browser.open(`${first.url}/#/topics/held`);
  // The live view starts with the next record, so it does not show records that were published before.
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
  // The topic begins a new epoch, which the page reports. The page shows records of the new epoch.
  await page.locator(".rec:not(.said)", { hasText: "after" }).waitFor();
  equal(page.complaints.join("\n"), "", "complaints");
  await nodes.kill(second);
}

async function publish(node, payload) {
  const answer = await fetch(`${node.url}/v1/topics/held`, { method: "POST", body: payload });
  equal(answer.status, 200, "publishing");
}
