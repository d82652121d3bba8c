// Selects the node for requests: the node that served this page or, while that node is unreachable, another of its
// cluster.

import { connection, goThrough } from "./connection.ts";
import type { ClusterNode } from "./told.ts";

const TRY_MS = 1_500;
const HOME_MS = 2_000;

/** The address of the page's own node, possibly below a path of a proxy; without a slash at its end. */
export const HOME = new URL(".", location.href).href.replace(/\/$/, "");

let others: string[] = [];
let returning = 0;

/**
 * Stores the addresses that the node reports for its cluster. The page trusts these nodes and sends them the
 * credentials.
 */
export function know(nodes: ClusterNode[]): void {
  const own = location.host;
  const places = nodes.filter((node) => !node.removed).map((node) => node.listeners?.http).filter((at): at is string => Boolean(at) && at !== own);
  if (places.length > 0) others = places.map((at) => `${location.protocol}//${at}`);
}

/** The URL of a path on a node; on the page's own if `place` is "". */
export function at(place: string, path: string): string {
  return (place || HOME) + path;
}

/** Sends the request to the other nodes in turn. */
export async function elsewhere(not: string, path: string, init: RequestInit): Promise<{ place: string; response: Response } | null> {
  for (const place of ["", ...others]) {
    if (place === not) continue;
    const response = await fetch(at(place, path), { ...init, signal: AbortSignal.timeout(TRY_MS) }).catch(() => null);
    if (!response?.ok) continue;
    if (place !== "") goHomeLater();
    return { place, response };
  }
  return null;
}

/** Checks whether the page's own node responds again. */
function goHomeLater(): void {
  clearTimeout(returning);
  returning = window.setTimeout(async () => {
    const home = await fetch(at("", "/readyz"), { signal: AbortSignal.timeout(TRY_MS), cache: "no-store" }).catch(() => null);
    if (home?.ok) goThrough("");
    else if (connection().through !== "") goHomeLater();
  }, HOME_MS);
}
