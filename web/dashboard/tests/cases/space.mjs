import { figure } from "../browser.mjs";
import { equal, until } from "../checks.mjs";

export const promise = "everybody of a world is on the map, and it moves";

const FLOCK = 5000;

export async function run({ browser, nodes, node }) {
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
