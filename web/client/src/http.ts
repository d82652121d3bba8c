/** Requests over HTTP with the client's credentials. */

import { textBytes } from "./bytes.js";
import { Code, DunlinError } from "./errors.js";

export interface TopicLine {
  name: string;
  pattern: string;
  partitions: number;
  durable: boolean;
  reliable: boolean;
  retained_records: number;
  retained_bytes: number;
  records: number;
  state?: string | null;
  owner: { node: number; epoch: number; here: boolean; alive: boolean; address?: string } | null;
  /** The reason why the node could not open the topic. */
  refused?: string;
}

export interface TopicsPage {
  topics: TopicLine[];
  more: boolean;
}

interface Credentials {
  token?: string;
  user?: string;
  password?: string;
  fetch?: typeof fetch;
}

/** Requests to the node's listener `http`. */
export class Http {
  constructor(
    private readonly base: (signal?: AbortSignal | null) => string | Promise<string>,
    private readonly options: Credentials,
  ) {}

  async request(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    const authorization = authorizationOf(this.options);
    if (authorization && !headers.has("authorization")) headers.set("authorization", authorization);
    const call = this.options.fetch ?? globalThis.fetch;
    const base = await this.base(init.signal);
    let response: Response;
    try {
      response = await call(base + path, { ...init, headers, cache: "no-store", credentials: "omit" });
    } catch (error) {
      if ((error as Error).name === "AbortError") throw error;
      throw new DunlinError(Code.ShuttingDown, `${base} does not answer: ${(error as Error).message}`);
    }
    if (!response.ok) throw await refused(response);
    return response;
  }

  async json<T>(path: string, init: RequestInit = {}): Promise<T> {
    const text = await this.text(path, init);
    return (text === "" ? undefined : JSON.parse(text)) as T;
  }

  async text(path: string, init: RequestInit = {}): Promise<string> {
    return (await this.request(path, init)).text();
  }

  topics(query: { pattern?: string; after?: string; limit?: number; contains?: string; state?: string }): Promise<TopicsPage> {
    const given = Object.entries(query).filter(([, value]) => value !== undefined);
    const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
    return this.json(`/v1/topics?${search}`);
  }
}

function authorizationOf({ token, user, password }: Credentials): string | undefined {
  if (token !== undefined) return `Bearer ${token}`;
  if (user === undefined) return undefined;
  const bytes = textBytes(`${user}:${password ?? ""}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

/** Reads the error from the response to a refused request. */
async function refused(response: Response): Promise<DunlinError> {
  const text = await response.text().catch(() => "");
  try {
    const problem = JSON.parse(text) as { code?: number; detail?: string; numbers?: Record<string, number> };
    const numbers = Object.values(problem.numbers ?? {}).map((number) => BigInt(Math.trunc(Number(number))));
    return new DunlinError(problem.code ?? Code.Internal, problem.detail ?? "", numbers, response.status);
  } catch {
    return new DunlinError(Code.Internal, `${response.status} ${text.slice(0, 200)}`, [], response.status);
  }
}
