/** Checks the addresses of keys. */

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
