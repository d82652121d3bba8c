// Starts real nodes for the dashboard: processes of the binary `dunlin`, on free ports. If this program ends for any
// reason, the nodes end, too, because the pipe to their standard input is closed.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "./checks.mjs";

const READY_MS = 60_000;

export class Nodes {
  #dunlin;
  #running = new Set();
  dir = mkdtempSync(join(tmpdir(), "dunlin-page-"));

  constructor(dunlin) {
    this.#dunlin = dunlin;
  }

  /** The path of the binary. */
  get program() {
    return this.#dunlin;
  }

  /** Starts a single node; `options` are for `dunlin serve`. */
  async serve(options = [], ports = {}) {
    const at = (protocol) => `127.0.0.1:${ports[protocol] ?? 0}`;
    const words = ["serve", "--end-with-stdin", "--listen", at("tcp"), "--http-listen", at("http"), ...options];
    const child = this.#spawn(words);
    const ready = await line(child, "READY ");
    const fields = Object.fromEntries(ready.split(/\s+/).filter((word) => word.includes("=")).map((word) => word.split(/=(.*)/s).slice(0, 2)));
    const node = { child, fields, http: fields.http, tcp: fields.tcp, url: `http://${fields.http}`, pid: child.pid };
    await until("the node is ready", async () => (await fetch(`${node.url}/startupz`)).ok, READY_MS);
    return node;
  }

  /** Starts a cluster of three nodes and waits until it is ready. */
  async cluster() {
    const nodes = [];
    for (const number of [1, 2, 3]) {
      const dir = join(this.dir, `node-${number}`);
      const joining = nodes.length === 0 ? [] : ["--join", nodes[0].fields.cluster, "--cluster-token-file", await this.#token(number)];
      if (nodes.length === 0) await this.dunlin("cluster", "init", "--data-dir", dir);
      const options = ["--data-dir", dir, "--cluster-listen", "127.0.0.1:0", ...joining];
      const node = await this.serve(options);
      nodes.push({ ...node, dir });
    }
    for (const node of nodes) await until(`node ${node.fields.node} takes part`, async () => (await fetch(`${node.url}/readyz`)).ok, READY_MS);
    return nodes;
  }

  /** Restarts a killed node at the same addresses. */
  async again(node) {
    const [tcp, http] = [node.tcp, node.http].map((address) => address.split(":").at(-1));
    const cluster = node.fields.cluster ? ["--cluster-listen", node.fields.cluster] : [];
    return { ...(await this.serve([...(node.dir ? ["--data-dir", node.dir] : []), ...cluster], { tcp, http })), dir: node.dir };
  }

  /** Runs `dunlin` to its end. Returns its output. */
  async dunlin(...words) {
    const child = this.#spawn(words);
    let out = "";
    child.stdout.on("data", (data) => (out += data));
    child.stdin.end();
    const code = await new Promise((done) => child.once("close", done));
    if (code !== 0) throw new Error(`dunlin ${words.join(" ")} ended with ${code}`);
    return out;
  }

  /** Starts `dunlin`. If the caller does not end the process, `close` ends it. */
  start(...words) {
    return this.#spawn(words);
  }

  async kill(node) {
    const gone = new Promise((done) => node.child.once("close", done));
    node.child.kill("SIGKILL");
    await gone;
  }

  async close() {
    const all = [...this.#running];
    for (const child of all) child.stdin.destroy();
    await Promise.all(all.map((child) => ended(child)));
    rmSync(this.dir, { recursive: true, force: true });
  }

  async #token(number) {
    const file = join(this.dir, `token-${number}`);
    const token = await this.dunlin("cluster", "token", "--data-dir", join(this.dir, "node-1"));
    const { writeFileSync } = await import("node:fs");
    writeFileSync(file, token.trim());
    return file;
  }

  #spawn(words) {
    const child = spawn(this.#dunlin, words, { stdio: ["pipe", "pipe", "inherit"] });
    child.stdin.on("error", () => undefined);
    this.#running.add(child);
    child.once("close", () => this.#running.delete(child));
    return child;
  }
}

function line(child, start) {
  return new Promise((done, fail) => {
    let text = "";
    child.once("close", (code) => fail(new Error(`it ended with ${code} before it was ready`)));
    child.stdout.on("data", (data) => {
      text += data;
      const found = text.split("\n").slice(0, -1).find((one) => one.startsWith(start));
      if (found) done(found);
    });
  });
}

async function ended(child) {
  const gone = new Promise((done) => child.once("close", done));
  const timer = setTimeout(() => child.kill("SIGKILL"), 5000);
  child.kill("SIGTERM");
  if (child.exitCode === null && child.signalCode === null) await gone;
  clearTimeout(timer);
}
