/** Keys and values of the cluster (docs/control.md), over HTTP. */

import { Code, DunlinError } from "./errors.js";
import type { Http } from "./http.js";

/**
 * An entry or a change as the listener `http` encodes it in JSON. It has the fields `key` and `value` for text, and
 * `key_base64` and `value_base64` for other bytes.
 */
type Said = Record<string, unknown>;

export interface KvChange {
  type: string;
  /**
   * The epoch and revision of this change, `EPOCH-REVISION`. A watch with this value as `from` begins with this change.
   */
  id: string;
  data: Said;
}

/** Keys and values of the cluster. */
export class Kv {
  constructor(private readonly web: Http) {}

  async get(key: string): Promise<{ value: Uint8Array; revision: number } | undefined> {
    try {
      const response = await this.web.request(pathOf(key));
      const revision = Number((response.headers.get("etag") ?? "").replaceAll('"', ""));
      return { value: new Uint8Array(await response.arrayBuffer()), revision };
    } catch (error) {
      if (error instanceof DunlinError && error.status === 404) return undefined;
      throw error;
    }
  }

  async put(key: string, value: string | Uint8Array, options: { ifRevision?: number; lease?: number } = {}): Promise<{ revision: number }> {
    const lease = options.lease === undefined ? "" : `?lease=${options.lease}`;
    const body = typeof value === "string" ? value : new Uint8Array(value);
    return this.web.json(pathOf(key) + lease, { method: "PUT", body, headers: conditions(options.ifRevision) });
  }

  async delete(key: string, options: { ifRevision?: number } = {}): Promise<{ revision: number }> {
    return this.web.json(pathOf(key), { method: "DELETE", headers: conditions(options.ifRevision) });
  }

  async range(
    prefix: string,
    options: { limit?: number; after?: string; stale?: boolean } = {},
  ): Promise<{ epoch: number; revision: number; entries: Said[]; more: boolean }> {
    const query = new URLSearchParams({ prefix });
    if (options.limit !== undefined) query.set("limit", String(options.limit));
    if (options.after !== undefined) query.set("after", options.after);
    return this.web.json(`/v1/kv?${query}${options.stale ? "&stale" : ""}`);
  }

  /**
   * Iterates the changes of keys with a prefix. `from` is the first revision (`REVISION` or `EPOCH-REVISION`), or
   * `oldest`. Without `from`, the iteration begins with the next change. The iteration ends when the connection is
   * lost. To continue, call `watch` with the last change's `id` as `from`. The node then sends this change again.
   */
  async *watch(prefix: string, options: { from?: string; signal?: AbortSignal } = {}): AsyncGenerator<KvChange> {
    const query = new URLSearchParams({ prefix });
    if (options.from !== undefined) query.set("from", options.from);
    const init = options.signal ? { signal: options.signal } : {};
    const response = await this.web.request(`/v1/watch?${query}`, init);
    if (!response.body) throw new DunlinError(Code.Internal, "a response without a body");
    for await (const { event, id, data } of eventsOf(response.body)) {
      yield { type: event, id, data: JSON.parse(data) as Said };
    }
  }
}

function pathOf(key: string): string {
  const segments = key.split("/");
  // URL parsers remove the segments `.` and `..`, even if they are percent-encoded. The URL would then name another
  // key.
  if (segments.some((segment) => segment === "." || segment === "..")) {
    throw new DunlinError(Code.BadKey, `the key ${JSON.stringify(key)} has a segment "." or "..", which HTTP cannot express`);
  }
  return `/v1/kv/${segments.map(encodeURIComponent).join("/")}`;
}

function conditions(revision: number | undefined): Record<string, string> {
  if (revision === undefined) return {};
  return revision === 0 ? { "if-none-match": "*" } : { "if-match": `"${revision}"` };
}

/** Parses server-sent events. */
async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<{ event: string; id: string; data: string }> {
  const reader = body.getReader();
  let [rest, event, id] = ["", "message", ""];
  let data: string[] = [];
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const lines = rest.split("\n");
      rest = lines.pop()!;
      for (const line of lines) {
        if (line === "") {
          if (data.length > 0) yield { event, id, data: data.join("\n") };
          [event, data] = ["message", []];
          continue;
        }
        const [, name, text] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
        if (name === "data") data.push(text ?? "");
        else if (name === "event") event = text ?? "message";
        else if (name === "id") id = text ?? "";
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
