// The list of topics, in the order of their names. More lines are requested as the user scrolls, in pages of PAGE
// lines. Visible lines are requested again every REFRESH_MS.

import { useEffect, useRef, useState } from "preact/hooks";
import { useSession } from "../../node/hooks.ts";
import { list, type TopicLine, type TopicPage, type Which } from "../../node/topics.ts";

const PAGE = 1000;
const REFRESH_MS = 2000;

export interface Shown extends TopicLine {
  /** Records per second; undefined until the second response for this topic. */
  rate?: number | undefined;
  at?: number;
}

export interface TopicList {
  rows: Shown[];
  more: boolean;
  loading: boolean;
  error: Error | undefined;
  seen: (first: number, end: number) => void;
  all: () => void;
}

interface State {
  rows: Shown[];
  more: boolean;
  error?: Error | undefined;
}

export function useTopicList(which: Which): TopicList {
  const key = JSON.stringify(which);
  const [state, set] = useState<State>({ rows: [], more: true });
  const [loading, load] = useState(true);
  const view = useRef({ first: 0, end: 0, busy: false, wanted: 0, next: "" });
  // The current list, which may be newer than the displayed list. Responses change this list.
  const now = useRef(state);
  const session = useSession();

  const next = async (signal: AbortSignal): Promise<void> => {
    if (signal.aborted || view.current.busy) return;
    view.current.busy = true;
    load(true);
    try {
      while (!signal.aborted && now.current.more && now.current.rows.length < view.current.wanted) {
        // A refresh may have added topics after the last page. The next page begins after them.
        const last = lastName(now.current.rows);
        const after = last > view.current.next ? last : view.current.next;
        const page = await list({ ...which, after, limit: PAGE }, signal);
        if (signal.aborted) return;
        const rows = now.current.rows.filter(isOpen).concat(page.topics.map(stamped));
        view.current.next = page.next ?? "";
        now.current = { rows, more: page.more };
        set(now.current);
      }
    } catch (error) {
      if (!signal.aborted) set({ ...now.current, error: error as Error });
    } finally {
      if (!signal.aborted) {
        view.current.busy = false;
        load(false);
      }
    }
  };

  // Effects of child components run before the effect below, and already report visible lines. Until that effect has
  // run, this aborted signal prevents requests.
  const begun = useRef(AbortSignal.abort());
  useEffect(() => {
    const mine = new AbortController();
    begun.current = mine.signal;
    view.current = { first: 0, end: 0, busy: false, wanted: PAGE, next: "" };
    now.current = { rows: [], more: true };
    set(now.current);
    if (session === null) return;
    void next(mine.signal);
    const timer = setInterval(() => !document.hidden && void refresh(mine.signal), REFRESH_MS);
    return () => {
      mine.abort();
      clearInterval(timer);
    };
  }, [key, session]);

  const refresh = async (signal: AbortSignal) => {
    const { first, end, busy } = view.current;
    if (busy) return;
    const { rows, more } = now.current;
    // The request for the first page failed, so it is repeated.
    if (rows.length === 0 && more) return next(signal);
    const open = rows.filter(isOpen);
    const start = Math.min(first, open.length);
    const limit = Math.max(50, end - first);
    const page = await list({ ...which, after: lastName(open.slice(0, start)), limit }, signal).catch(() => null);
    if (!page || signal.aborted || now.current.rows !== rows) return;
    now.current = merged(now.current, start, page);
    set(now.current);
    if (now.current.more && !more) await next(signal);
  };

  return {
    ...state,
    error: state.error,
    loading,
    seen: (first, end) => {
      Object.assign(view.current, { first, end, wanted: Math.max(view.current.wanted, end + PAGE / 2) });
      if (now.current.more) void next(begun.current);
    },
    all: () => {
      view.current.wanted = Number.POSITIVE_INFINITY;
      void next(begun.current);
    },
  };
}

/**
 * Merges a response into the list, for the rows from `start` on, and computes the rates since the last response. Rows
 * move if topics were created or deleted. Topics that the node could not open are at the end of the list.
 */
function merged({ rows, more }: State, start: number, page: TopicPage): State {
  const open = rows.filter(isOpen);
  // Topics after the last loaded topic are skipped here, because the next page contains them.
  const lines = page.topics.filter((line) => isOpen(line) && (!more || line.name <= lastName(open)));
  const before = new Map(open.slice(start, start + lines.length + 50).map((row) => [row.name, row]));
  const fresh = lines.map((line) => rated(line, before.get(line.name)));
  const through = page.next ?? lastName(page.topics);
  const rest = page.more ? open.slice(start).filter((row) => row.name > through) : [];
  const refused = more ? [] : page.more ? rows.filter((row) => !isOpen(row)) : page.topics.filter((line) => !isOpen(line));
  return { rows: [...open.slice(0, start), ...fresh, ...rest, ...refused], more: more || (page.more && rest.length === 0) };
}

function isOpen(line: TopicLine): boolean {
  return line.refused === undefined;
}

function lastName(rows: TopicLine[]): string {
  return rows.findLast(isOpen)?.name ?? "";
}

function rated(line: TopicLine, before: Shown | undefined): Shown {
  const now = stamped(line);
  const seconds = before?.at ? ((now.at ?? 0) - before.at) / 1000 : 0;
  // A count is missing while the topic's owner does not respond.
  if (line.records == null || before?.records == null) return now;
  const grown = line.records - before.records;
  return seconds > 0.2 && grown >= 0 ? { ...now, rate: grown / seconds } : { ...now, rate: before.rate };
}

function stamped(line: TopicLine): Shown {
  return { ...line, at: Date.now() };
}
