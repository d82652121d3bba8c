// Selects the node for requests: the node that served the page, or another node of its cluster while that node is
// unreachable.

import { connection, goThrough } from "./connection.ts";
import type { ClusterNode } from "./told.ts";

const TRY_MS = 1_500;
const HOME_MS = 2_000;

/** The URL of the node that served the page, without a slash at the end. It may contain the path of a proxy. */
export const HOME = new URL(".", location.href).href.replace(/\/$/, "");

let others: string[] = [];
let returning = 0;

/**
 * Stores the addresses of the cluster's other nodes, which the node reports. The dashboard trusts these nodes: it may
 * send them the user's credentials.
 */
export function know(nodes: ClusterNode[]): void {
  const own = location.host;
  const places = nodes.filter((node) => !node.removed).map((node) => node.listeners?.http).filter((at): at is string => Boolean(at) && at !== own);
  if (places.length > 0) others = places.map((at) => `${location.protocol}//${at}`);
}

/** The URL of a path on the node at `place`. If `place` is "", that is the node that served the page. */
export function at(place: string, path: string): string {
  return (place || HOME) + path;
}

/** Sends the request to all nodes except `not`, one after another, until one responds with success. */
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

/** Checks at intervals whether the node that served the page is ready again, and then selects it. */
function goHomeLater(): void {
  clearTimeout(returning);
  returning = window.setTimeout(async () => {
    const home = await fetch(at("", "/readyz"), { signal: AbortSignal.timeout(TRY_MS), cache: "no-store" }).catch(() => null);
    if (home?.ok) goThrough("");
    else if (connection().through !== "") goHomeLater();
  }, HOME_MS);
}
