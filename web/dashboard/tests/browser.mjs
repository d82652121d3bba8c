// Runs an installed Chromium in headless mode. Errors on a page and violations of the content security policy are
// collected as complaints, which fail a case.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { SLOW_MS } from "./checks.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/**
 * The browser's messages about a node that is unreachable or refuses a request. They are no faults: the page shows
 * them.
 */
const EXPECTED = /Failed to load resource|net::ERR_|WebSocket connection to/;

export class Browser {
  static async start(executablePath) {
    // Tests run as root in CI, where Chromium's own sandbox cannot work.
    const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
    return new Browser(browser);
  }

  constructor(browser) {
    this.browser = browser;
  }

  /** Opens a page at an address. The browser's error messages are added to `complaints`. */
  async open(url, { width = 1360, height = 900, scheme = "light" } = {}) {
    const context = await this.browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: "reduce" });
    const page = await context.newPage();
    page.setDefaultTimeout(SLOW_MS);
    page.complaints = [];
    page.on("pageerror", (error) => page.complaints.push(`error: ${error.message}`));
    page.on("dialog", (dialog) => (page.complaints.push(`a dialog: ${dialog.message()}`), dialog.dismiss()));
    page.on("console", (message) => {
      if (message.type() === "error" && !EXPECTED.test(message.text())) page.complaints.push(`console: ${message.text()}`);
    });
    await page.goto(url);
    return page;
  }

  close() {
    return this.browser.close();
  }
}

/**
 * Returns the accessibility errors that axe finds in a page. The debugger runs axe, because the page's policy forbids
 * other scripts.
 */
export async function violations(page) {
  await page.evaluate(AXE);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.map((one) => `${one.id}: ${one.help} (${one.nodes.slice(0, 3).map((node) => node.target.join(" ")).join("; ")})`);
}

/** The value of a figure on the page. */
export async function figure(page, name) {
  const raw = await page.locator(`[data-figure="${name}"]`).first().getAttribute("data-raw");
  return raw === null ? undefined : Number(raw);
}

export async function shown(page, selector) {
  await page.locator(selector).first().waitFor({ state: "visible" });
}
