// The state of the connection to the node: whether the node responds, the number of its process, and the user's
// credentials. All code that sends requests to the node reports results here. The banner and the login form show the
// state.

export type Reach = "asking" | "up" | "away" | "login";

export interface Connection {
  reach: Reach;
  /** The time at which `reach` last changed, ms. */
  since: number;
  /** The number of the node process that responded last. */
  run: string | null;
  /** The time at which the process number at an address last changed, ms; null if it never changed. */
  restarted: number | null;
  /** The address of the node that receives requests; "" for the node that served the page. */
  through: string;
  /** The reason why the node refused the user's earlier credentials; null without a refusal. */
  why: string | null;
}

/** Credentials of a user. */
export type Credentials = { token: string } | { user: string; password: string };

const KEPT = "dunlin.credentials";

let current: Connection = { reach: "asking", since: Date.now(), run: null, restarted: null, through: "", why: null };
let known = kept();
const heard = new Set<() => void>();
/** The number of the process that responded last, by the node's address. */
const runs = new Map<string, string>();

export function connection(): Connection {
  return current;
}

export function listen(changed: () => void): () => void {
  heard.add(changed);
  return () => void heard.delete(changed);
}

/** Stores that the node at this address responded. `run` is the number of its process, which changes with a restart. */
export function answered(run: string | null, place: string): void {
  const before = runs.get(place);
  if (run) runs.set(place, run);
  const restarted = run && before && run !== before ? Date.now() : current.restarted;
  to({ reach: "up", run: run ?? current.run, restarted, why: null });
}

/** Selects the node for later requests: another node of the cluster, or, with "", the node that served the page. */
export function goThrough(place: string): void {
  to({ through: place, reach: "up" });
}

/** Stores that the node sent a message over the live connection. */
export function speaks(): void {
  if (current.reach === "away") to({ reach: "up" });
}

export function silent(): void {
  if (current.reach !== "login") to({ reach: "away" });
}

/**
 * Removes the credentials and requests a login, because the credentials are missing, wrong or no longer valid. Several
 * pending requests may call this function.
 */
export function refused(why: string): void {
  const had = known !== null;
  forget();
  to({ reach: "login", why: had ? why : current.why });
}

export function credentials(): Credentials | null {
  return known;
}

/** The credentials as the value of the header `authorization`; undefined without credentials. */
export function authorization(): string | undefined {
  if (!known) return undefined;
  if ("token" in known) return `Bearer ${known.token}`;
  const bytes = new TextEncoder().encode(`${known.user}:${known.password}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

/** Stores the credentials for this tab, until the tab is closed. */
export function logIn(given: Credentials): void {
  known = given;
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(given));
  } catch {
    // Without session storage, the credentials are kept only in memory.
  }
  to({ reach: "asking", why: null });
}

export function logOut(): void {
  forget();
  to({ reach: "login", why: null });
}

function kept(): Credentials | null {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? "null") as Credentials | null;
  } catch {
    return null;
  }
}

function forget(): void {
  known = null;
  try {
    sessionStorage.removeItem(KEPT);
  } catch {
    // Without session storage, there is nothing to remove.
  }
}

function to(change: Partial<Connection>): void {
  const next = { ...current, ...change };
  if (next.reach !== current.reach) next.since = Date.now();
  const same = (Object.keys(next) as (keyof Connection)[]).every((key) => next[key] === current[key]);
  if (same) return;
  current = next;
  heard.forEach((tell) => tell());
}
