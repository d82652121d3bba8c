// The node's reports about itself, once a second. The dashboard subscribes to the last values in topic `$node`. With
// conflation, a slow tab receives the current values instead of all earlier ones. If the subscription delivers nothing,
// the dashboard requests the same reports over HTTP.

import { followLast, type LastReplica } from "dunlin";
import { useEffect, useState } from "preact/hooks";
import { live } from "../client.ts";
import { ask } from "./ask.ts";
import { speaks } from "./connection.ts";
import { useAsked, useSession, type Asked } from "./hooks.ts";

/** The age of a pushed report after which the dashboard requests the report over HTTP. */
const STALE_MS = 3_000;

type Key = "stats" | "topics" | "cluster" | "work" | "spaces";

const latest = new Map<string, { value: unknown; at: number }>();
const asking = new Map<Key, Promise<unknown>>();
const heard = new Set<() => void>();
let replica: LastReplica | null = null;
let unhook = () => {};
let watchers = 0;
let through: string | null = null;

/** Returns the newest report of this kind, pushed or requested. */
export function useNode<T>(key: Key): Asked<T> {
  const [, turn] = useState(0);
  const session = useSession();
  useEffect(() => {
    const news = () => turn((n) => n + 1);
    heard.add(news);
    watchers += 1;
    if (session !== null) open(session);
    return () => {
      heard.delete(news);
      watchers -= 1;
      if (watchers === 0) setTimeout(() => watchers === 0 && close(), 1000);
    };
  }, [session]);
  const asked = useAsked(key, () => once<T>(key), 1000);
  const pushed = latest.get(key);
  if (pushed && pushed.at >= asked.at) return { ...asked, data: pushed.value as T, at: pushed.at };
  return asked;
}

/** Requests a report, unless a pushed report is new enough or another request for the report is pending. */
function once<T>(key: Key): Promise<T> {
  const pushed = latest.get(key);
  if (pushed && Date.now() - pushed.at < STALE_MS) return Promise.resolve(pushed.value as T);
  const asked = asking.get(key) ?? ask(`/v1/node/${key}`).finally(() => asking.delete(key));
  asking.set(key, asked);
  return asked as Promise<T>;
}

function open(session: string): void {
  if (replica && through === session) return;
  close();
  through = session;
  const client = live();
  // When the connection is lost, removes the pushed reports, so that the dashboard requests reports over HTTP.
  unhook = client.onState((state) => state !== "open" && latest.clear());
  replica = followLast(client, "$node.>", {
    conflate: true,
    onChange: (keys) => {
      speaks();
      for (const key of keys) {
        const value = replica?.json<unknown>(key);
        if (value !== undefined) latest.set(key, { value, at: Date.now() });
      }
      heard.forEach((tell) => tell());
    },
    onEvent: (event) => event.type === "ended" && close(),
  });
}

function close(): void {
  unhook();
  replica?.close();
  replica = null;
  latest.clear();
}
