// A live view of a topic's records. The user selects its start position, filters or pauses it, and opens single
// records.

import { useEffect, useRef, useState } from "preact/hooks";
import type { SubscribeOptions } from "dunlin";
import { useSession } from "../../node/hooks.ts";
import { Card } from "../../parts/Card.tsx";
import { CopyAsCli } from "../../parts/Copy.tsx";
import { Empty, Waiting } from "../../parts/Empty.tsx";
import { count } from "../../quantity.ts";
import { keep, type Route } from "../../route.ts";
import { command } from "../../shell.ts";
import { Record } from "./Record.tsx";
import { Rows } from "./Rows.tsx";
import { Tail, type Rec, type Row } from "./tail.ts";

export function TailPanel({ pattern, route }: { pattern: string; route: Route }) {
  const from = route.query.get("from") ?? "latest";
  const filter = route.query.get("only") ?? "";
  const [held, hold] = useState(false);
  const [, draw] = useState(0);
  const [chosen, choose] = useState<Rec | null>(null);
  const tail = useRef<Tail | null>(null);
  const session = useSession();
  useEffect(() => {
    if (session === null) return;
    const made = new Tail(pattern, options(from), filter.toLowerCase(), () => draw((n) => n + 1));
    tail.current = made;
    return () => made.close();
  }, [pattern, from, session]);
  useEffect(() => tail.current?.only(filter), [filter]);
  // During a pause, the view shows the rows from the beginning of the pause. Records that arrive are shown afterwards.
  const frozen = useRef<Row[] | null>(null);
  useEffect(() => tail.current?.hold(held), [held, from, pattern, session]);
  const turn = () => {
    frozen.current = held ? null : (tail.current?.rows.slice() ?? null);
    hold(!held);
  };
  const now = tail.current;
  const right = (
    <>
      <span class="soft small" role="status" data-figure="tail">{now ? `${count(now.kept)} of ${count(now.received)} records shown` : ""}</span>
      <button type="button" class="button" aria-pressed={held} onClick={turn}>{held ? "Continue" : "Pause"}</button>
      <button type="button" class="button bare" onClick={() => now?.clear()}>Clear</button>
      <CopyAsCli line={cli(pattern, from)} />
    </>
  );
  return (
    <Card title="Tail" right={right} flush>
      <div class="row" style={{ padding: "var(--s2) var(--s3)" }}>
        <From from={from} />
        <label class="field" style={{ flex: "1 1 200px" }}>
          Filter
          <input class="input mono" type="search" value={filter} onInput={(event) => keep({ only: event.currentTarget.value })} />
        </label>
      </div>
      {now && now.rows.length > 0
        ? <Rows rows={frozen.current ?? now.rows} held={held} toggle={turn} chosen={chosen} choose={choose} />
        : !now?.open ? <Waiting what="a subscription" />
        : <Empty title="No records yet" run={[command("dunlin", "pub", example(pattern), "hello")]}>{from === "latest" ? "New records appear here" : "Retained records appear here, then new ones"}.</Empty>}
      {chosen && <Record record={chosen} close={() => choose(null)} />}
    </Card>
  );
}

function From({ from }: { from: string }) {
  const known = ["latest", "earliest", "1m", "10m", "1h"];
  const [place, type] = useState(known.includes(from) ? "" : from);
  const seek = (event: Event) => {
    event.preventDefault();
    if (position(place) || duration(place)) keep({ from: place });
  };
  return (
    <form class="row" onSubmit={seek}>
      <label class="field">
        From
        <select class="input" value={known.includes(from) ? from : "place"} onChange={(event) => event.currentTarget.value !== "place" && keep({ from: event.currentTarget.value })}>
          <option value="latest">now</option>
          <option value="earliest">the oldest retained record</option>
          <option value="1m">a minute ago</option>
          <option value="10m">ten minutes ago</option>
          <option value="1h">an hour ago</option>
          <option value="place" disabled>a position or time</option>
        </select>
      </label>
      <label class="field">
        Position or age
        <input class="input mono" placeholder="7-1042, 5m" size={12} value={place} pattern="\d+-\d+|\d+(ms|s|m|h|d)" onInput={(event) => type(event.currentTarget.value)} />
      </label>
      <button type="submit" class="button">Go</button>
    </form>
  );
}

function options(from: string): SubscribeOptions {
  const place = position(from);
  const ms = duration(from);
  if (place) return { from: { after: place } };
  if (ms) return { from: { timeMs: Date.now() - ms } };
  return { from: from === "earliest" ? "earliest" : "latest" };
}

function position(text: string): { epoch: number; seq: number } | null {
  const found = /^(\d+)-(\d+)$/.exec(text);
  return found ? { epoch: Number(found[1]), seq: Number(found[2]) } : null;
}

function duration(text: string): number | null {
  const found = /^(\d+)(ms|s|m|h|d)$/.exec(text);
  const unit = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[found?.[2] ?? "ms"] ?? 1;
  return found ? Number(found[1]) * unit : null;
}

function cli(pattern: string, from: string): string {
  return from === "latest" ? command("dunlin", "sub", pattern) : command("dunlin", "sub", pattern, "--from", from);
}

/** An example of a subject that the pattern matches. */
function example(pattern: string): string {
  return pattern.replaceAll("*", "x").replace(/>$/, "x");
}
