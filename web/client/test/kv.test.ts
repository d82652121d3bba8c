/** Checks the addresses of keys and the changes of a watch. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { DunlinError } from "../src/errors.js";
import { Http } from "../src/http.js";
import { Kv } from "../src/kv.js";

test("a key that an address cannot express is refused and no other key is changed", async () => {
  const paths: string[] = [];
  const answer = (url: unknown): Promise<Response> => {
    paths.push(new URL(String(url)).pathname);
    return Promise.resolve(new Response(JSON.stringify({ revision: 1 })));
  };
  const kv = new Kv(new Http(() => "http://node", { fetch: answer as typeof fetch }));
  for (const key of ["a/../b", "a/./b", "..", "a/."]) {
    for (const call of [() => kv.put(key, "1"), () => kv.delete(key), () => kv.get(key)]) {
      await assert.rejects(call(), (error: DunlinError) => error.name === "BAD_KEY", key);
    }
  }
  assert.deepEqual(paths, []);
  await kv.put("a/b..c/...", "1");
  assert.deepEqual(paths, ["/v1/kv/a/b..c/..."]);
});

test("watch returns changes with each kind of line separator", async () => {
  const change = { key: "a\u2028", value: "1\u2028\u2029\u0085" };
  const answer = (): Promise<Response> => Promise.resolve(new Response(`event: put\nid: 1-1\ndata: ${JSON.stringify(change)}\n\n`));
  const kv = new Kv(new Http(() => "http://node", { fetch: answer as typeof fetch }));
  const changes: unknown[] = [];
  for await (const next of kv.watch("")) changes.push(next);
  assert.deepEqual(changes, [{ type: "put", id: "1-1", data: change }]);
});
