import { equal, holds, until } from "../checks.mjs";

export const promise = "malicious names and payloads are shown as text and never run";

/** Malicious or unusual names of topics. The node refuses some of them. */
const NAMES = [
  "<script>alert(1)</script",
  "<img/src=x/onerror=alert(1)//",
  '"onmouseover="alert(1)',
  "javascript:alert(1)",
  "a/../../b?c#d&e%41%zz",
  "{{7+7}}${7+7}",
  "𝔡𝔲𝔫𝔩𝔦𝔫🐦",
  `${"long".repeat(60)}`,
  "$(rm)`x`'quoted'",
];
/** A name that changes the direction of text, so that it looks like another name. A node must refuse it. */
const TURNED = "\u202egnp.exe\u202d";
const PAYLOAD = "<img src=x onerror=alert(2)><script>alert(3)</script>\u0000\u001b[31m";

export async function run({ browser, node }) {
  const taken = [];
  for (const name of NAMES) {
    const answer = await fetch(`${node.url}/v1/topics/${encodeURIComponent(name)}`, { method: "POST", body: PAYLOAD, headers: { "dunlin-header-x-evil": "<b>bold</b>" } });
    if (answer.ok) taken.push(name);
  }
  equal((await fetch(`${node.url}/v1/topics/${encodeURIComponent(TURNED)}`, { method: "POST", body: PAYLOAD })).status, 400, "what is said to a name that turns the direction of text");
  holds(taken.length >= 6, `the node takes ${taken.length} of these names`);
  const page = await browser.open(`${node.url}/#/topics`);
  for (const name of taken) await until(`${name} is listed`, async () => (await page.locator("a.line").allInnerTexts()).some((text) => text.includes(name)));
  for (const name of taken) {
    await page.goto(`${node.url}/#/topics/${encodeURIComponent(name)}?from=earliest`);
    await page.locator("h1").getByText(name, { exact: true }).waitFor();
    await page.locator(".rec").first().click();
    await page.getByLabel("Payload", { exact: true }).waitFor();
  }
  equal(await page.locator("main img, main script, main b:has-text('bold')").count(), 0, "elements made of names or payloads");
  equal(page.complaints.join("\n"), "", "complaints");
}
