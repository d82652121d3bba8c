// Follows an order book. With conflation, the node merges the changes that a slow tab has not read yet, so that the tab
// shows the newest state. The tab draws the book at most every DRAW_MS.

import { followBook, type Book } from "dunlin";
import { useEffect, useState } from "preact/hooks";
import { live } from "../../client.ts";
import { useSession } from "../../node/hooks.ts";

const DRAW_MS = 100;
const RATE_MS = 1000;

export interface Seen {
  book: Book | undefined;
  /** Records published to the partition per second. The page itself receives fewer records, which are merged. */
  perSecond: number | undefined;
  gaps: number;
  ended: string | undefined;
}

export function useBook(pattern: string, partition: number): Seen {
  const [seen, see] = useState<Seen>({ book: undefined, perSecond: undefined, gaps: 0, ended: undefined });
  const session = useSession();
  useEffect(() => {
    if (session === null) return;
    let timer = 0;
    let [since, before] = [performance.now(), 0];
    const now: Seen = { book: undefined, perSecond: undefined, gaps: 0, ended: undefined };
    const draw = () => {
      timer = 0;
      see({ ...now });
    };
    let counted = false;
    const replica = followBook(live(), pattern, {
      conflate: true,
      onChange: (book) => {
        if (book.partition !== partition) return;
        now.book = book;
        const passed = performance.now() - since;
        if (passed >= RATE_MS) {
          if (counted) now.perSecond = ((book.position.seq - before) * 1000) / passed;
          [since, before] = [performance.now(), book.position.seq];
          counted = true;
        }
        timer ||= window.setTimeout(draw, DRAW_MS);
      },
      onEvent: (event) => {
        if ("partition" in event && event.partition !== partition) return;
        if (event.type === "gap") now.gaps += 1;
        if (event.type === "ended") now.ended = event.error.message;
        if (event.type === "deleted") now.ended = "The topic was deleted.";
        timer ||= window.setTimeout(draw, DRAW_MS);
      },
    });
    return () => {
      clearTimeout(timer);
      replica.close();
    };
  }, [pattern, partition, session]);
  return seen;
}
