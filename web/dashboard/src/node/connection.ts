// The state of the connection to the node: whether the node answers, its current start, and the user's login.
// All code that sends requests to the node reports here; the banner and the login form read from here.

export type Reach = "asking" | "up" | "away" | "login";

export interface Connection {
  reach: Reach;
  /** Since when it is so, ms. */
  since: number;
  /** The number of the run that answered last. */
  run: string | null;
  /** When another run of a node was found at the same address, ms. */
  restarted: number | null;
  /** The node that answers: "" is the one the page came from, else the address of another of its cluster. */
  through: string;
  /** Why the login form is shown, if it was not the first time. */
  why: string | null;
}

/** How somebody proves who they are. */
export type Credentials = { token: string } | { user: string; password: string };

const KEPT = "dunlin.credentials";

let current: Connection = { reach: "asking", since: Date.now(), run: null, restarted: null, through: "", why: null };
let known = kept();
const heard = new Set<() => void>();
/** The number of the run that answered last, by the place that was asked. */
const runs = new Map<string, string>();

export function connection(): Connection {
  return current;
}

export function listen(changed: () => void): () => void {
  heard.add(changed);
  return () => void heard.delete(changed);
}

/** The node at a place answered; `run` is the number of its run, another one after a restart. */
export function answered(run: string | null, place: string): void {
  const before = runs.get(place);
  if (run) runs.set(place, run);
  const restarted = run && before && run !== before ? Date.now() : current.restarted;
  to({ reach: "up", run: run ?? current.run, restarted, why: null });
}

/** Another node of the cluster answers in place of the page's own, or that one answers again. */
export function goThrough(place: string): void {
  to({ through: place, reach: "up" });
}

/** It tells something by itself, without being asked. */
export function speaks(): void {
  if (current.reach === "away") to({ reach: "up" });
}

export function silent(): void {
  if (current.reach !== "login") to({ reach: "away" });
}

/** The node wants to know who asks. What was given is not good, or not any more; questions that were under way say it again. */
export function refused(why: string): void {
  const had = known !== null;
  forget();
  to({ reach: "login", why: had ? why : current.why });
}

export function credentials(): Credentials | null {
  return known;
}

/** The same as a header of requests. */
export function authorization(): string | undefined {
  if (!known) return undefined;
  if ("token" in known) return `Bearer ${known.token}`;
  const bytes = new TextEncoder().encode(`${known.user}:${known.password}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

/** For this tab only, and gone with it. */
export function logIn(given: Credentials): void {
  known = given;
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(given));
  } catch {
    // Kept only in memory.
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
    // The value did not exist.
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
