import { join } from "node:path";
import { shown, violations } from "../browser.mjs";
import { equal } from "../checks.mjs";

export const promise = "every page, light and wide, dark and on a phone: axe finds no violation, nothing overflows, no error is logged";

const PAGES = ["overview", "topics", "topics/browse.eu?from=earliest", "topics/browse.eu?tab=subscribers", "topics/browse.eu?tab=publish",
  "topics/browse.eu?tab=settings", "feeds", "cluster", "work", "work?tab=workers", "work?tab=tasks", "space", "benchmarks", "no-such-page"];
/**
 * The routes that are tested with the size of a phone: one for each page. The other routes consist of the same
 * components.
 */
const ON_A_PHONE = PAGES.filter((page) => !page.includes("?") && !page.includes("no-such"));
const LOOKS = [
  { scheme: "light", width: 1280, height: 900, pages: PAGES },
  { scheme: "dark", width: 390, height: 844, pages: ON_A_PHONE },
];

export async function run({ browser, node, pictures }) {
  for (const look of LOOKS) {
    const page = await browser.open(`${node.url}/#/overview`, look);
    await shown(page, '[data-figure="records"]');
    for (const name of look.pages) {
      await page.evaluate((hash) => (location.hash = hash), `#/${name}`);
      await shown(page, "main h1, main .empty");
      await page.waitForTimeout(200);
      equal((await violations(page)).join("\n"), "", `axe on ${name}, ${look.scheme}`);
      equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `${name} fits into ${look.width} pixels`);
      equal((await cut(page)).join("; "), "", `figures of ${name} that are cut off`);
      if (pictures) await page.screenshot({ path: join(pictures, `${name.replaceAll(/[/?=.&]/g, "-")}-${look.scheme}.png`) });
    }
    await dialogs(page, look.scheme);
    equal(page.complaints.join("\n"), "", "complaints");
  }
}

function cut(page) {
  return page.evaluate(() => [...document.querySelectorAll(".stat dt, .stat dd, .stat small")].filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent));
}

async function dialogs(page, scheme) {
  await page.locator("main").focus();
  for (const key of ["/", "?"]) {
    await page.keyboard.press(key);
    await shown(page, "dialog[open]");
    equal((await violations(page)).join("\n"), "", `axe on the dialog of ${key}, ${scheme}`);
    // With text in a search field, browsers clear the text at the first Escape. The dialog must close nevertheless.
    if (key === "/") await page.keyboard.type("orders");
    await page.keyboard.press("Escape");
    await page.locator("dialog[open]").waitFor({ state: "detached" });
  }
}
