// A live view of an order book: its best price levels, depth, age, and the number of repaired gaps.

import { useState } from "preact/hooks";
import { Card } from "../../parts/Card.tsx";
import { Empty, Waiting } from "../../parts/Empty.tsx";
import { Ladder, type Scale } from "../../parts/Ladder.tsx";
import { Stat, Stats } from "../../parts/Stat.tsx";
import { useClock } from "../../node/hooks.ts";
import { count, exact, rate, span } from "../../quantity.ts";
import { link } from "../../route.ts";
import type { Reducer } from "../Feeds.tsx";
import { Depth } from "./Depth.tsx";
import { useBook, type Seen } from "./book.ts";

const SHOWN = 15;
const STALE_S = 5;

/** The order book of one partition of a topic. The user selects the partition. */
export function BookView({ topic, pattern, reducer, partitions }: { topic: string; pattern: string; reducer: Reducer; partitions: number }) {
  const [partition, choose] = useState(0);
  return (
    <>
      {partitions > 1 && (
        <div class="row">
          <label class="field">Book of partition<select class="input" value={String(partition)} onChange={(event) => choose(Number(event.currentTarget.value))}>
            {[...Array(partitions).keys()].map((number) => <option key={number} value={String(number)}>{number}</option>)}
          </select></label>
        </div>
      )}
      <PartitionBook key={partition} topic={topic} pattern={pattern} reducer={reducer} partition={partition} />
    </>
  );
}

function PartitionBook({ topic, pattern, reducer, partition }: { topic: string; pattern: string; reducer: Reducer; partition: number }) {
  const seen = useBook(pattern, partition);
  useClock(500);
  if (seen.ended) return <section class="card"><Empty title="This page no longer receives the feed">{seen.ended}</Empty></section>;
  if (!seen.book) return <Waiting what="the book's snapshot" />;
  const scale = { price: Number(reducer.options.price_decimals ?? 0), size: Number(reducer.options.size_decimals ?? 0) };
  const { bids, asks } = seen.book.depth(200);
  return (
    <>
      <Figures seen={seen} scale={scale} bid={bids[0]?.price} ask={asks[0]?.price} />
      <div class="grid narrow">
        <Card title="Ladder" right={<a class="small" href={link("topics", topic)}>Show the topic</a>}>
          <Ladder bids={bids.slice(0, SHOWN)} asks={asks.slice(0, SHOWN)} scale={scale} />
        </Card>
        <Card title="Depth"><Depth bids={bids} asks={asks} scale={scale} /></Card>
      </div>
    </>
  );
}

function Figures({ seen, scale, bid, ask }: { seen: Seen; scale: Scale; bid: number | undefined; ask: number | undefined }) {
  const book = seen.book;
  if (!book) return null;
  const unit = 10 ** -scale.price;
  const spread = bid !== undefined && ask !== undefined ? (ask - bid) * unit : undefined;
  const age = (Date.now() - book.lastChangeMs) / 1000;
  return (
    <Stats label="This book">
      <Stat label="Bid" value={<span class="good">{bid === undefined ? "–" : (bid * unit).toFixed(scale.price)}</span>} figure="book.bid" raw={bid} />
      <Stat label="Ask" value={<span class="bad">{ask === undefined ? "–" : (ask * unit).toFixed(scale.price)}</span>} figure="book.ask" raw={ask} />
      <Stat label="Spread" value={spread === undefined ? "–" : spread.toFixed(scale.price)} tone={spread !== undefined && spread < 0 ? "warn" : undefined} note={spread === undefined || spread > 0 ? undefined : spread < 0 ? "crossed" : "locked"} />
      <Stat label="Records" value={rate(seen.perSecond)} note={`${count(book.updates)} entries applied`} figure="book.updates" raw={book.updates} />
      <Stat label="Last change" value={book.lastChangeMs ? `${span(Math.max(0, age))} ago` : "–"} tone={age > STALE_S || !book.publisherConnected ? "warn" : undefined} note={book.publisherConnected ? `at ${book.position.epoch}-${exact(book.position.seq)}` : "no publisher is connected"} />
      <Stat label="Gaps repaired" value={exact(book.gapsHealed)} note={seen.gaps > 0 ? `${exact(seen.gaps)} reported` : "none reported"} figure="book.healed" raw={book.gapsHealed} />
      <Stat label="This copy" value={book.right ? "correct" : "repairing"} tone={book.right ? "good" : "warn"} note={book.verified > 0 ? `checked ${count(book.verified)} times` : "no record is missing"} figure="book.right" raw={book.right ? 1 : 0} />
    </Stats>
  );
}
