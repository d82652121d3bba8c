// Preact hooks with which components read the node's state.

import { useEffect, useRef, useState } from "preact/hooks";
import { Away } from "./ask.ts";
import { connection, listen, type Connection } from "./connection.ts";

export interface Asked<T> {
  data: T | undefined;
  error: Error | undefined;
  /** The time at which `data` arrived, ms. */
  at: number;
  again: () => void;
}

export function useConnection(): Connection {
  const [seen, see] = useState(connection());
  useEffect(() => listen(() => see(connection())), []);
  return seen;
}

/**
 * A value that changes when components must open their subscriptions again at another node; null while a login is
 * needed.
 */
export function useSession(): string | null {
  const { reach, through } = useConnection();
  return reach === "login" ? null : through;
}

/**
 * Sends a request now and then every `everyMs` while the tab is visible, until the component is removed or `key`
 * changes. While the node is unreachable, the last data stay, and requests are repeated at least every second.
 */
export function useAsked<T>(key: string, question: (signal: AbortSignal) => Promise<T>, everyMs: number): Asked<T> {
  const [state, set] = useState<{ key: string; data?: T; error?: Error; at: number }>({ key, at: 0 });
  const now = useRef<() => void>(() => {});
  const session = useSession();
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const once = async () => {
      clearTimeout(timer);
      let wait = everyMs;
      try {
        const data = await question(stop.signal);
        if (!stop.signal.aborted) set({ key, data, at: Date.now() });
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof Away) wait = Math.min(everyMs, 1000);
        set((before) => ({ ...(before.key === key ? before : { key, at: 0 }), error: error as Error }));
      }
      if (!stop.signal.aborted && everyMs > 0) timer = window.setTimeout(turn, wait);
    };
    const turn = () => (document.hidden ? void (timer = window.setTimeout(turn, 500)) : void once());
    now.current = () => void once();
    if (session !== null) void once();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key, everyMs, session]);
  const mine = state.key === key;
  return { data: mine ? state.data : undefined, error: mine ? state.error : undefined, at: mine ? state.at : 0, again: () => now.current() };
}

/** Returns the current time, and renders the component again at an interval, so that displayed ages grow. */
export function useClock(everyMs = 1000): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
