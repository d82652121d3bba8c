/** Starts a real node for a test: `dunlin serve` with the program at the path `DUNLIN_BINARY`. */

import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";

export interface TestNode {
  /** The address of the listener `http`. */
  url: string;
  port: number;
  /** Kills the node. It sends no message to its clients. */
  kill(): Promise<void>;
}

const PROGRAM = process.env.DUNLIN_BINARY ?? new URL("../../../../target/debug/dunlin", import.meta.url).pathname;

export async function startNode(options: { port?: number; arguments?: string[] } = {}): Promise<TestNode> {
  const address = `127.0.0.1:${options.port ?? 0}`;
  const given = ["serve", "--listen", "127.0.0.1:0", "--http-listen", address, ...(options.arguments ?? [])];
  const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("DUNLIN_")));
  const child = spawn(PROGRAM, given, { stdio: ["ignore", "pipe", "inherit"], env: environment });
  const url = await ready(child);
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const kill = async (): Promise<void> => {
    child.kill("SIGKILL");
    await gone;
  };
  return { url, port: Number(new URL(url).port), kill };
}

function ready(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`the node ended with ${code}`)));
    createInterface({ input: child.stdout! }).on("line", (line) => {
      const found = line.startsWith("READY") ? /http=(\S+)/.exec(line) : undefined;
      if (found) resolve(found[1]!.startsWith("http") ? found[1]! : `http://${found[1]}`);
    });
  });
}

/** Waits until a condition holds. */
export async function until(what: () => boolean, patienceMs = 30_000): Promise<void> {
  const deadline = Date.now() + patienceMs;
  while (!what()) {
    if (Date.now() > deadline) throw new Error(`not so within ${patienceMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
