/** Checks that the client's tables equal those in docs/protocol.md. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { errorTable } from "../src/index.js";
import { level } from "../src/checksum.js";
import { FromNode, ToNode, VERSION_MAX, VERSION_MIN } from "../src/kinds.js";
import { fnv1a } from "../src/publisher.js";

const page = readFileSync(new URL("../../../../docs/protocol.md", import.meta.url), "utf8");

test("error table equals the one in docs/protocol.md", () => {
  const row = /^\| (\d+) \| `([A-Z_]+)` \| (no|later|reconnect) \| \d+ \| `[A-Z_]+` \| .*? \| (.*?) \|$/gm;
  const rows = [...page.matchAll(row)].map(([, code, name, retry, advice]) => ({ code: Number(code), name, retry, advice }));
  assert.ok(rows.length > 50);
  assert.deepEqual(errorTable(), rows);
});

test("message numbers and versions equal those in docs/protocol.md", () => {
  const numbers = new Map([...page.matchAll(/^\| (\d+) \| `([A-Z_]+)` \| [A-Z]/gm)].map(([, number, name]) => [name, Number(number)]));
  for (const [name, number] of [...Object.entries(ToNode), ...Object.entries(FromNode)]) assert.equal(numbers.get(name), number, name);
  assert.match(page, new RegExp(`speaks versions ${VERSION_MIN} to ${VERSION_MAX}\\.`));
});

test("hashes equal those of other implementations", () => {
  assert.equal(level(true, 10125, 7), 0x39a7f87976f0e3cen);
  assert.equal(level(false, -1, 1), 0x03cbe8455a1e22c6n);
  assert.equal(fnv1a(new TextEncoder().encode("foobar")), 0x85944171f73967e8n);
});
