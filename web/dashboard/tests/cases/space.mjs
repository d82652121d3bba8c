import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { figure } from "../browser.mjs";
import { equal, holds, until } from "../checks.mjs";

export const promise = "the map shows every entity of a world and its movement, to scale from above, with marks for aircraft";

const FLOCK = 5000;
const AIRCRAFT = 2;

export async function run({ browser, nodes, node }) {
  await flock(browser, nodes, node);
  await aircraft(browser, nodes, node);
}

async function flock(browser, nodes, node) {
  nodes.start("space", "run", "page", "--processes", "1", "--flock", String(FLOCK), "--url", `dunlin://${node.tcp}`);
  const page = await browser.open(`${node.url}/#/space/page`);
  await until("all are on the map", async () => (await figure(page, "space.entities")) === FLOCK);
  await until("it is drawn", async () => (await figure(page, "space.frames")) > 0);
  const dots = () => page.locator(".map canvas").evaluate((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const words = new Uint32Array(data.buffer);
    const ground = words[0];
    return words.reduce((all, word, at) => (word === ground ? all : (all * 31 + at) | 0), 7);
  });
  const before = await dots();
  await until("they fly", async () => (await dots()) !== before);
  equal(page.complaints.join("\n"), "", "complaints");
}

/**
 * Checks the map of a world with two aircraft. They are far apart, so that the world is much wider than high or deep.
 */
async function aircraft(browser, nodes, node) {
  const fix = (icao24, timestamp, latitude, longitude) => ({ icao24, timestamp, latitude, longitude, altitude: 20_000 });
  const fixes = [fix("a", 0, 46, 6), fix("a", 600_000, 46.1, 6.1), fix("b", 0, 47, 10), fix("b", 600_000, 46.9, 9.9)];
  const file = join(nodes.dir, "aircraft.json");
  writeFileSync(file, JSON.stringify(fixes));
  nodes.start("space", "run", "sky", "--processes", "1", "--flock", "300", "--aircraft", file, "--url", `dunlin://${node.tcp}`);
  const page = await browser.open(`${node.url}/#/space/sky`);
  await until("birds and aircraft are told apart", async () => (await figure(page, "space.kind.0")) === 300 && (await figure(page, "space.kind.1")) === AIRCRAFT);
  holds((await page.locator(".legend").innerText()).includes("aircraft"), "the legend names aircraft");
  equal(await page.locator("select.input").inputValue(), "z", "it is seen from above");
  const canvas = page.locator(".map canvas");
  const scale = await until("the scale", () => canvas.getAttribute("data-scale"));
  const [across, up] = scale.split(" ").map(Number);
  holds(Math.abs(across / up - 1) < 1e-6, `a unit has ${across} pixels along x and ${up} along y`);
  holds(Number(await canvas.getAttribute("data-bar")) > 0, "the scale bar has a length");
  const { worlds } = await (await fetch(`${node.url}/v1/node/spaces`)).json();
  const { low, high } = worlds.find((one) => one.world === "sky");
  holds((high[0] - low[0]) / (high[1] - low[1]) > 2, `the box is the recording's: ${low} to ${high}`);
  const box = await canvas.evaluate((element) => [element.width, element.height]);
  holds((high[0] - low[0]) * across <= box[0] && (high[1] - low[1]) * up <= box[1], "all of the box is on the map");
  equal(page.complaints.join("\n"), "", "complaints");
}
