// Opens every page of the dashboard while the demo runs with all its parts on three nodes, which are killed and
// restarted. Takes the pictures for the README.
//
//   node tests/readme.mjs --dunlin PATH --out DIR [--chromium PATH] -- ARGUMENTS OF `dunlin demo`
//
// `cargo xtask page --readme DIR` runs this program. The pictures are WebP files, because five of them are smaller than
// one PNG file.

import { spawn } from "node:child_process";
import { mkdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Browser, figure, shown } from "./browser.mjs";
import { are_those_of_metrics } from "./cases/overview.mjs";
import { holds, until } from "./checks.mjs";

const BYTES_MAX = 400 * 1024;
const LOOK = { width: 1180, height: 760 };
const QUALITY = 62;
/** The time limit for each wait, for example until nodes are up or a killed node has returned. */
const WARM_MS = 180_000;

const { values: given, positionals } = parseArgs({
  allowPositionals: true,
  options: { dunlin: { type: "string" }, chromium: { type: "string", default: "/usr/bin/chromium" }, out: { type: "string" } },
});
if (!given.dunlin || !given.out) throw new Error("--dunlin PATH --out DIR");
mkdirSync(given.out, { recursive: true });

const demo = spawn(given.dunlin, ["demo", "--together", "--kill-every", "45s", ...positionals], { stdio: ["ignore", "pipe", "inherit"] });
let said = "";
demo.stdout.on("data", (data) => (said += data));
const browser = await Browser.start(given.chromium);
try {
  const url = await until("the dashboard's address", () => /http:\/\/[0-9.:]+\//.exec(said)?.[0], WARM_MS);
  const page = await browser.open(`${url}#/overview`, LOOK);
  const session = await page.context().newCDPSession(page);
  const go = (hash) => page.evaluate((to) => (location.hash = to), hash);
  let bytes = 0;
  const take = async (name) => {
    const { data } = await session.send("Page.captureScreenshot", { format: "webp", quality: QUALITY });
    const file = join(given.out, `dashboard-${name}.webp`);
    writeFileSync(file, Buffer.from(data, "base64"));
    bytes += statSync(file).size;
  };
  await go("#/work");
  await until("a tenant submits much at once", () => / submits .* at once/.test(said), WARM_MS);
  await page.getByRole("cell", { name: "dan", exact: true }).first().waitFor();
  await page.waitForTimeout(5_000);
  await take("work");
  // The demo kills a node, and the page reports that. If this node served the page, the page continues with another
  // node.
  await go("#/cluster");
  await until("all are there", async () => (await page.locator('[data-state="up"]').count()) === 3, WARM_MS);
  await until("a node is said to be down", async () => (await page.locator('[data-state="down"]').count()) > 0, WARM_MS);
  await until("and to be back", async () => (await page.locator('[data-state="up"]').count()) === 3, WARM_MS);
  const victim = await until("a node was killed and is back", () => / node (\d) is back: /.exec(said)?.[1], WARM_MS);
  // Continues at a node that was not killed, because it has observed all events.
  const witness = `.node[data-state="up"]:not([data-node="${victim}"]) dl a`;
  await shown(page, witness);
  await page.goto(await page.locator(witness).first().getAttribute("href"));
  for (const event of ["gone", "back"]) await shown(page, `[data-event="${event}"]`);
  await take("cluster");
  await page.goto(`${url}#/cluster`);
  // If the killed node served the page, waits until the banner about it has disappeared.
  await until("the page is at home", async () => (await page.locator("[data-said=through], [data-said=away]").count()) === 0, WARM_MS);
  await go("#/topics");
  await page.locator("a.line", { hasText: "market.bitstamp.btcusd" }).click();
  await shown(page, ".rec");
  await go("#/feeds/md.bitstamp.btcusd");
  await shown(page, ".ladder td");
  await page.waitForTimeout(3_000);
  await take("feeds");
  await go("#/space");
  await shown(page, ".map canvas");
  await until("everybody is on the map", async () => (await figure(page, "space.entities")) > 0);
  await page.waitForTimeout(3_000);
  await take("space");
  await go("#/benchmarks");
  await shown(page, "main h1");
  await go("#/overview");
  await shown(page, '[data-figure="records"]');
  await are_those_of_metrics(page, { url: url.replace(/\/$/, "") });
  await page.waitForTimeout(10_000);
  await take("overview");
  holds(page.complaints.length === 0, page.complaints.join("\n"));
  holds(bytes <= BYTES_MAX, `the pictures have ${bytes} bytes, and are to have ${BYTES_MAX} at most`);
  console.log(`5 pictures of ${Math.round(bytes / 1024)} KB in ${given.out}`);
} finally {
  await browser.close();
  const gone = new Promise((done) => demo.once("close", done));
  demo.kill("SIGINT");
  if (demo.exitCode === null && demo.signalCode === null) await gone;
}
