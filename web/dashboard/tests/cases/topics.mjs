import { shown } from "../browser.mjs";
import { equal, holds, until } from "../checks.mjs";

export const promise = "a topic can be found, read from its beginning, paused and published to, and its subscribers are shown";

export async function run({ browser, node }) {
  for (let n = 1; n <= 30; n += 1) await publish(node, "browse.eu", JSON.stringify({ order: n }));
  await publish(node, "other.topic", "x");
  const page = await browser.open(`${node.url}/#/topics`);
  await page.getByRole("searchbox").first().fill("browse");
  const line = page.locator("a.line", { hasText: "browse.eu" });
  await line.waitFor();
  equal(await page.locator("a.line", { hasText: "other.topic" }).count(), 0, "topics that do not match");
  await line.click();
  await page.waitForURL(/#\/topics\/browse\.eu/);

  await page.getByRole("combobox", { name: /^From/ }).selectOption("earliest");
  await page.locator(".rec", { hasText: '{"order":30}' }).waitFor();
  await page.locator(".tail").evaluate((tail) => (tail.scrollTop = 0));
  await page.locator(".rec", { hasText: '{"order":1}' }).first().click();
  holds((await page.getByLabel("Payload", { exact: true }).innerText()).includes('"order": 1'), "the record's payload is shown indented");
  await page.getByRole("button", { name: "Close", exact: true }).click();

  await page.locator(".tail").evaluate((tail) => (tail.scrollTop = tail.scrollHeight));
  await publish(node, "browse.eu", "live one");
  await page.locator(".rec", { hasText: "live one" }).waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  await publish(node, "browse.eu", "while held");
  await page.waitForTimeout(500);
  await page.getByRole("button", { name: "Continue" }).click();
  await page.locator(".rec", { hasText: "while held" }).waitFor();

  await page.getByRole("tab", { name: "Subscribers" }).click();
  await page.getByRole("tab", { name: "Publish" }).click();
  await page.getByRole("textbox", { name: "Payload" }).fill("from the page");
  await page.getByRole("button", { name: "Publish", exact: true }).click();
  await page.getByText("Acknowledged “memory”").waitFor();
  const held = await (await fetch(`${node.url}/v1/topics/browse.eu`)).json();
  equal(held.logs[0].retained_records, 33, "records of the topic");

  await page.goto(`${node.url}/#/topics/browse.eu?from=1m&only=order%22%3A7`);
  await page.locator(".rec", { hasText: '{"order":7}' }).waitFor();
  equal(await page.locator(".rec", { hasText: '{"order":8}' }).count(), 0, "records that the filter leaves out");

  await search(page, node);
  await create(page, node);
  equal(page.complaints.join("\n"), "", "complaints");
}

async function search(page, node) {
  await page.goto(`${node.url}/#/overview`);
  await shown(page, "[data-figure=records]");
  await page.keyboard.press("/");
  await page.getByRole("combobox").fill("browse");
  await page.getByRole("option", { name: /browse\.eu/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.waitForURL(/#\/topics\/browse\.eu/);
  await page.locator("main").focus();
  await page.keyboard.press("g");
  await page.keyboard.press("t");
  await page.waitForURL(/#\/topics$/);
}

async function create(page, node) {
  await page.getByRole("button", { name: "Create a topic" }).click();
  await page.getByLabel("Name", { exact: true }).fill("made.here");
  await page.getByLabel("Subjects of the topic").fill("made.>");
  await page.getByLabel("Partitions").fill("2");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await until("the topic is there", async () => {
    const made = await (await fetch(`${node.url}/v1/topics/made.here`)).json();
    return made.config?.partitions === 2 && made.config?.pattern === "made.>";
  });
  await page.waitForURL(/#\/topics\/made\.here/);
  await page.getByRole("tab", { name: "Publish" }).click();
  equal(await page.getByRole("textbox", { name: /^Subject/ }).inputValue(), "made.", "the subject that is begun");
  await page.getByRole("tab", { name: "Log and settings" }).click();
  equal(await page.getByLabel("Move to").count(), 0, "places to move to, of a node by itself");
  await page.getByLabel("Type the topic's name to confirm").fill("made.here");
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await until("the topic is gone", async () => (await fetch(`${node.url}/v1/topics/made.here`)).status === 404);
}

async function publish(node, subject, payload) {
  const answer = await fetch(`${node.url}/v1/topics/${encodeURIComponent(subject)}`, { method: "POST", body: payload });
  if (!answer.ok) throw new Error(`publishing to ${subject}: ${answer.status}`);
}
