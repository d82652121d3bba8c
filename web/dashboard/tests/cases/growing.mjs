import { equal } from "../checks.mjs";

export const promise = "topics that are created while the list is open appear in it once";

const BEFORE = 20;
const AFTER = 80;

export async function run({ browser, nodes }) {
  const node = await nodes.serve();
  await create(node, 0, BEFORE);
  const page = await browser.open(`${node.url}/#/topics`);
  const found = (count) => page.getByText(`${count} found`, { exact: true });
  await found(BEFORE).waitFor();
  await create(node, BEFORE, AFTER);
  await found(AFTER).waitFor();
  // Waits for two more responses, after which the list must not have changed.
  for (let n = 0; n < 2; n += 1) await page.waitForResponse((response) => response.url().includes("/v1/topics?"));
  equal(await found(AFTER).count(), 1, "lists of all topics");
  equal(page.complaints.join("\n"), "", "complaints");
  await nodes.kill(node);
}

async function create(node, first, end) {
  for (let n = first; n < end; n += 1) {
    const answer = await fetch(`${node.url}/v1/topics/growing.${String(n).padStart(3, "0")}`, { method: "PUT", body: "{}" });
    if (!answer.ok) throw new Error(`topic ${n}: ${answer.status}`);
  }
}
