// The banner about the node: it does not respond, was restarted, responds again, or is not ready.

import { useEffect, useState } from "preact/hooks";
import { useClock, useConnection } from "../node/hooks.ts";
import { useNode } from "../node/live.ts";
import type { Stats } from "../node/told.ts";
import { moment, span } from "../quantity.ts";

const SAID_MS = 15_000;

export function Banner() {
  const { reach, since, restarted, through } = useConnection();
  const now = useClock();
  const back = useBack(reach, since);
  const { data } = useNode<Stats>("stats");
  if (reach === "away") {
    return (
      <p class="notice bad" role="alert" data-said="away">
        The node has not responded for {span(Math.max(0, Math.round((now - since) / 1000)))}. The page shows the last known data, and tries again every second.
      </p>
    );
  }
  return (
    <>
      {through !== "" && (
        <p class="notice" role="status" data-said="through">The node that served this page does not respond. Until it is back, the data comes from another node of its cluster, at <code>{through}</code>.</p>
      )}
      {restarted !== null && now - restarted < SAID_MS && (
        <p class="notice" role="status" data-said="restarted">The node was restarted, or a proxy now forwards to another node (detected {moment(restarted)}). Counters start at 0, and topics in memory may be lost.</p>
      )}
      {back !== null && now - back.at < SAID_MS && (
        <p class="notice good" role="status" data-said="back">The node responds again, after {span(back.away / 1000)}.</p>
      )}
      {data?.missing && data.missing.length > 0 && <p class="notice" role="status">The node is not ready: {data.missing.join("; ")}</p>}
    </>
  );
}

/**
 * The time at which the node responded again, and the duration without responses, both in ms; null if it never stopped.
 */
function useBack(reach: string, since: number): { at: number; away: number } | null {
  const [left, leave] = useState<number | null>(null);
  const [back, come] = useState<{ at: number; away: number } | null>(null);
  useEffect(() => {
    if (reach === "away") leave(since);
    if (reach === "up" && left !== null) {
      come({ at: since, away: since - left });
      leave(null);
    }
  }, [reach, since]);
  return back;
}
