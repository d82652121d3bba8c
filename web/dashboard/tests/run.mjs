// Opens every page of the dashboard in a real browser, against real nodes.
//
//   node tests/run.mjs --dunlin PATH [--chromium PATH] [--only CASE] [--pictures DIR]
//
// `cargo xtask page` runs this program. A case is a file in cases/ that exports `promise` and `run(world, begun)`. The
// optional function `begin(world)` starts slow work before the first case runs. `run` receives its result as `begun`.

import { parseArgs } from "node:util";
import { Browser } from "./browser.mjs";
import { Nodes } from "./nodes.mjs";

const CASES = ["overview", "below_path", "topics", "names", "many", "growing", "access", "away", "feeds", "cluster", "work", "space", "layout", "slow", "every_page", "forecast"];

const { values: given } = parseArgs({
  options: {
    dunlin: { type: "string" },
    chromium: { type: "string", default: "/usr/bin/chromium" },
    only: { type: "string" },
    pictures: { type: "string" },
  },
});
if (!given.dunlin) throw new Error("--dunlin PATH: the binary to try");

const nodes = new Nodes(given.dunlin);
const browser = await Browser.start(given.chromium);
let failed = 0;
try {
  // Most cases use one node; cases that kill a node start their own.
  const node = await nodes.serve();
  const world = { nodes, browser, node, pictures: given.pictures };
  const cases = [];
  for (const name of CASES.filter((one) => !given.only || one === given.only)) {
    const { promise, run, begin } = await import(`./cases/${name}.mjs`);
    cases.push({ name, promise, run, begun: await begin?.(world) });
  }
  for (const { name, promise, run, begun } of cases) {
    const began = Date.now();
    try {
      await run(world, begun);
      console.log(`ok      ${name}: ${promise} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}: ${promise}\n${error.stack}`);
    }
    for (const context of browser.browser.contexts()) await context.close();
  }
} finally {
  await browser.close();
  await nodes.close();
}
console.log(failed === 0 ? "the page holds" : `${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
