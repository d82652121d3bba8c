// A live view of the last value of each key. Recent changes are highlighted.

import { followLast, type LastReplica } from "dunlin";
import { useEffect, useState } from "preact/hooks";
import { live } from "../../client.ts";
import { useSession } from "../../node/hooks.ts";
import { Card } from "../../parts/Card.tsx";
import { Empty, Waiting } from "../../parts/Empty.tsx";
import { Table } from "../../parts/Table.tsx";
import { bytes, exact } from "../../quantity.ts";
import { preview } from "../../text.ts";

const DRAW_MS = 200;
const SHOWN_MAX = 500;

export function LastView({ pattern }: { pattern: string }) {
  const { values, loaded, ended } = useLast(pattern);
  const [find, type] = useState("");
  if (ended) return <section class="card"><Empty title="This page no longer receives the feed">{ended}</Empty></section>;
  if (!loaded) return <Waiting what="the last values" />;
  const all = [...values].filter(([key]) => key.includes(find)).sort(([a], [b]) => (a < b ? -1 : 1));
  return (
    <Card title={`${exact(values.size)} keys`} flush right={<input class="input" type="search" placeholder="Part of a key" aria-label="Find a key" value={find} onInput={(event) => type(event.currentTarget.value)} />}>
      <Table label="Last values" rows={all.slice(0, SHOWN_MAX)} id={([key]) => key} empty={<Empty title="No key matches" />} columns={[
        { head: "Key", class: "name mono", cell: ([key]) => key },
        { head: "Value", class: "name mono", cell: ([, value]) => preview(value) },
        { head: "Bytes", num: true, cell: ([, value]) => bytes(value.length) },
      ]} />
      {all.length > SHOWN_MAX && <p class="empty small">Only the first {SHOWN_MAX} of {exact(all.length)} keys are shown.</p>}
    </Card>
  );
}

function useLast(pattern: string) {
  const [state, set] = useState<{ values: ReadonlyMap<string, Uint8Array>; loaded: boolean; ended: string | undefined }>({ values: new Map(), loaded: false, ended: undefined });
  const session = useSession();
  useEffect(() => {
    if (session === null) return;
    let timer = 0;
    let ended: string | undefined;
    const draw = () => {
      timer = 0;
      set({ values: replica.state, loaded: true, ended });
    };
    const replica: LastReplica = followLast(live(), pattern, {
      conflate: true,
      onChange: () => (timer ||= window.setTimeout(draw, DRAW_MS)),
      onEvent: (event) => {
        if (event.type === "ended") ended = event.error.message;
        timer ||= window.setTimeout(draw, DRAW_MS);
      },
    });
    return () => {
      clearTimeout(timer);
      replica.close();
    };
  }, [pattern, session]);
  return state;
}
