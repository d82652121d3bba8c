// Routes in the URL's fragment. `#/topics/orders.eu?tab=tail` is the page `topics` with the rest ["orders.eu"] and the
// query tab=tail. A segment that cannot be decoded is used unchanged.

import { useEffect, useState } from "preact/hooks";

export interface Route {
  page: string;
  rest: string[];
  query: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path = "", query = ""] = split(hash.replace(/^#?\/?/, ""), "?");
  const parts = path.split("/").filter((part) => part !== "").map(decoded);
  return { page: parts[0] ?? "overview", rest: parts.slice(1), query: new URLSearchParams(query) };
}

/** The address of a page: link("topics", "a/b") → "#/topics/a%2Fb". */
export function link(page: string, ...rest: string[]): string {
  return `#/${[page, ...rest].map(encodeURIComponent).join("/")}`;
}

export function useRoute(): Route {
  const [route, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => set(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** Changes the route's query, without a new entry in the browser's history. */
export function keep(changes: Record<string, string | null>): void {
  const [path = "", query = ""] = split(location.hash || "#/overview", "?");
  const all = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    if (value) all.set(name, value);
    else all.delete(name);
  }
  const rest = all.toString();
  history.replaceState(null, "", rest ? `${path}?${rest}` : path);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

function split(text: string, at: string): string[] {
  const found = text.indexOf(at);
  return found < 0 ? [text] : [text.slice(0, found), text.slice(found + 1)];
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
