import { equal, holds } from "../checks.mjs";

export const promise = "a node that is killed under an open page is said to be away, and when it is back the page goes on";

export async function run({ browser, nodes }) {
  const first = await nodes.serve();
  await publish(first, "before");
  const page = await browser.open(`${first.url}/#/topics/held`);
  // What is published before the tail reads is not seen: it reads from now on.
  await page.locator("[data-figure=tail]:not(:empty)").waitFor();
  await page.getByText("It reads from now on").waitFor();
  await publish(first, "seen live");
  await page.locator(".rec", { hasText: "seen live" }).waitFor();
  await nodes.kill(first);
  await page.locator("[data-said=away]").waitFor();
  holds(await page.locator(".rec", { hasText: "seen live" }).isVisible(), "what was seen stays");
  const second = await nodes.again(first);
  await page.locator("[data-said=restarted]").waitFor();
  equal(await page.locator("[data-said=away]").count(), 0, "notices that it is away");
  await publish(second, "after");
  // Its topic began anew: the page says so, and reads on.
  await page.locator(".rec:not(.said)", { hasText: "after" }).waitFor();
  equal(page.complaints.join("\n"), "", "complaints");
  await nodes.kill(second);
}

async function publish(node, payload) {
  const answer = await fetch(`${node.url}/v1/topics/held`, { method: "POST", body: payload });
  equal(answer.status, 200, "publishing");
}
