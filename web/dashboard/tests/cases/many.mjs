import { connect } from "node:net";
import { equal, holds, until } from "../checks.mjs";

export const promise = "100,000 topics can be listed, scrolled to the end and searched, while the page draws only a few of them";

const TOPICS = 100_000;
const CHUNK = 2_000;
const CREATED = "HTTP/1.1 201";
/** The time limit to load a hundred pages of topics. It is also enough for a debug build. */
const LOADED_MS = 120_000;

export async function run({ browser, nodes }) {
  const node = await nodes.serve();
  await create(node);
  const page = await browser.open(`${node.url}/#/topics`);
  await page.getByRole("button", { name: "Load all" }).click();
  await until("all are loaded", async () => (await page.getByRole("region", { name: /^Topics, 100000 rows$/ }).count()) === 1, LOADED_MS);
  holds((await page.locator(".line").count()) < 100, "only what is seen is drawn");
  const list = page.getByRole("region", { name: /^Topics, / });
  await list.focus();
  await page.keyboard.press("End");
  await page.getByText("many.099999", { exact: true }).waitFor();
  await page.getByRole("searchbox").first().fill("77777");
  await page.getByText("many.077777", { exact: true }).waitFor();
  equal(await page.locator("a.line").count(), 1, "topics found");
  equal(page.complaints.join("\n"), "", "complaints");
  await nodes.kill(node);
}

/** Creates topics with pipelined requests on one connection, because sequential requests would take minutes. */
async function create(node) {
  const [host, port] = node.http.split(":");
  const socket = connect(Number(port), host);
  let answers = 0;
  socket.setEncoding("latin1");
  // A chunk of data may end within CREATED, so the last characters are kept for the next chunk.
  let rest = "";
  socket.on("data", (text) => {
    const all = rest + text;
    answers += all.split(CREATED).length - 1;
    rest = all.slice(-(CREATED.length - 1)).replaceAll(CREATED, "");
  });
  for (let first = 0; first < TOPICS; first += CHUNK) {
    const requests = Array.from({ length: CHUNK }, (_, n) => {
      const name = `many.${String(first + n).padStart(6, "0")}`;
      return `PUT /v1/topics/${name} HTTP/1.1\r\nhost: ${node.http}\r\ncontent-length: 2\r\n\r\n{}`;
    });
    socket.write(requests.join(""));
    await until(`${first + CHUNK} topics are made`, () => answers >= first + CHUNK);
  }
  socket.destroy();
  const metrics = await (await fetch(`${node.url}/metrics`)).text();
  holds(/^dunlin_topics 100000$/m.test(metrics), "the node has all of them");
}
