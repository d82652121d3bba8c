import { createServer, request } from "node:http";
import { connect } from "node:net";
import { equal } from "../checks.mjs";

export const promise = "below a proxy's path, the page finds its files, its node's responses and its live connection";

const PATH = "/dunlin";

export async function run({ browser, node }) {
  const asked = [];
  const proxy = await listen(node.http, asked);
  const page = await browser.open(`${proxy.url}${PATH}/#/overview`);
  await page.locator("[data-figure]").first().waitFor();
  await fetch(`${node.url}/v1/topics/below`, { method: "POST", body: "before" });
  await page.goto(`${proxy.url}${PATH}/#/topics/below`);
  await page.locator("[data-figure=tail]:not(:empty)").waitFor();
  await page.getByText("New records appear here").waitFor();
  await fetch(`${node.url}/v1/topics/below`, { method: "POST", body: "seen below a path" });
  await page.locator(".rec", { hasText: "seen below a path" }).waitFor();
  equal(await page.locator(".brand img").evaluate((image) => image.naturalWidth > 0), true, "the icon is there");
  equal(asked.filter((path) => !path.startsWith(`${PATH}/`)).join("\n"), "", "requests beside the path");
  equal(page.complaints.join("\n"), "", "complaints");
  await page.close();
  proxy.close();
}

/** Starts a proxy. It forwards requests below PATH, with PATH removed, and refuses other requests. */
async function listen(address, asked) {
  const [host, port] = address.split(":");
  const server = createServer((from, answer) => {
    asked.push(from.url);
    if (!from.url.startsWith(`${PATH}/`)) return void answer.writeHead(404).end();
    const to = request({ host, port, method: from.method, path: from.url.slice(PATH.length), headers: from.headers }, (said) => {
      answer.writeHead(said.statusCode, said.headers);
      said.pipe(answer);
    });
    to.on("error", () => answer.destroy());
    from.pipe(to);
  });
  const sockets = new Set();
  server.on("upgrade", (from, socket, head) => {
    asked.push(from.url);
    const lines = [`GET ${from.url.slice(PATH.length)} HTTP/1.1`];
    for (let at = 0; at < from.rawHeaders.length; at += 2) lines.push(`${from.rawHeaders[at]}: ${from.rawHeaders[at + 1]}`);
    const to = connect(Number(port), host, () => {
      to.write(`${lines.join("\r\n")}\r\n\r\n`);
      to.write(head);
      socket.pipe(to).pipe(socket);
    });
    for (const end of [to, socket]) {
      sockets.add(end);
      end.on("error", () => (to.destroy(), socket.destroy()));
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const close = () => (server.closeAllConnections(), server.close(), sockets.forEach((socket) => socket.destroy()));
  return { url: `http://127.0.0.1:${server.address().port}`, close };
}
