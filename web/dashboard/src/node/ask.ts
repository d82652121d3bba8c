// HTTP requests to the node. If the node refuses a request, the error is a Problem with the node's text. If the node
// does not respond within ASK_MS, the request goes to another node, or the error is Away.

import { answered, authorization, connection, goThrough, refused, silent } from "./connection.ts";
import { at, elsewhere } from "./places.ts";

const ASK_MS = 10_000;

/** The error of a refused request, with the node's texts (application/problem+json). */
export class Problem extends Error {
  constructor(readonly status: number, readonly title: string, readonly detail: string, readonly advice: string) {
    super(detail || title);
  }
}

/** The node could not be reached, or the connection broke before the response was complete. */
export class Away extends Error {}

export interface Request {
  method?: "GET" | "PUT" | "POST" | "DELETE";
  body?: string | Uint8Array<ArrayBuffer>;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export async function ask<T>(path: string, request: Request = {}): Promise<T> {
  const response = await send(path, request);
  if (response.status === 204) return undefined as T;
  const text = await body(response, request.signal);
  return (response.headers.get("content-type") ?? "").includes("json") ? (JSON.parse(text) as T) : (text as T);
}

export async function send(path: string, request: Request = {}): Promise<Response> {
  const headers: Record<string, string> = { ...request.headers };
  const who = authorization();
  if (who) headers.authorization = who;
  const late = AbortSignal.timeout(ASK_MS);
  const signal = request.signal ? AbortSignal.any([request.signal, late]) : late;
  const from = connection().through;
  const init: RequestInit = { method: request.method ?? "GET", headers, signal, cache: "no-store", ...(request.body !== undefined && { body: request.body }) };
  const response = await fetch(at(from, path), init).catch((error: unknown) => {
    if (request.signal?.aborted) throw error;
    return null;
  });
  if (!response) {
    // A GET request may be sent to another node of the cluster. Requests with effects are never sent twice.
    const isQuestion = init.method === "GET";
    // Meanwhile, another request may have selected a different node. This request then uses that node, which does not
    // count as unreachable.
    const moved = () => connection().through !== from;
    if (moved() && isQuestion) return send(path, request);
    const other = isQuestion ? await elsewhere(from, path, init) : null;
    if (other) goThrough(other.place);
    else if (!moved()) silent();
    if (!other) throw new Away("the node does not respond");
    return other.response;
  }
  if (!response.ok) throw await problem(response, from);
  answered(response.headers.get("dunlin-node"), from);
  return response;
}

async function body(response: Response, stop: AbortSignal | undefined): Promise<string> {
  try {
    return await response.text();
  } catch (error) {
    if (stop?.aborted) throw error;
    silent();
    throw new Away("the connection was lost during the response");
  }
}

async function problem(response: Response, from: string): Promise<Problem> {
  const said = await response.json().catch(() => ({})) as Partial<Record<"title" | "detail" | "advice", string>>;
  const found = new Problem(response.status, said.title ?? `HTTP ${response.status}`, said.detail ?? "", said.advice ?? "");
  if (response.status === 401) refused(found.message);
  else if (response.status !== 503) answered(response.headers.get("dunlin-node"), from);
  return found;
}
