// The subscribers with the largest lags, and the reasons for the lags.

import type { Subscriber } from "../../node/told.ts";
import { Card } from "../../parts/Card.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Table } from "../../parts/Table.tsx";
import { ago, count, exact } from "../../quantity.ts";
import { link } from "../../route.ts";

export function Slowest({ subscribers, total }: { subscribers: Subscriber[]; total: number }) {
  const empty = <Empty title="No subscribers" run={["dunlin sub ticks --name me --sleep 1ms"]}>Subscribers appear here with their lag and the number of records that they missed.</Empty>;
  const shown = subscribers.slice(0, 10);
  return (
    <Card title="Slowest subscribers" flush right={total > shown.length && <span class="soft small">{shown.length} of {count(total)}</span>}>
      <Table label="Slowest subscribers" rows={shown} id={(subscriber) => `${subscriber.protocol}/${subscriber.name}/${subscriber.topic}/${subscriber.partition}`} empty={empty} columns={[
        { head: "Subscriber", class: "breaks", cell: (subscriber) => <Who subscriber={subscriber} /> },
        { head: "Topic", class: "breaks", cell: (subscriber) => <a class="mono" href={link("topics", subscriber.topic ?? "")}>{subscriber.topic}</a> },
        { head: "Lag", num: true, by: (subscriber) => subscriber.lag, cell: (subscriber) => <span class={subscriber.lag > 0 ? "warn" : ""}>{count(subscriber.lag)}</span> },
        { head: "Missed", num: true, by: (subscriber) => subscriber.missed, cell: (subscriber) => <Missed subscriber={subscriber} /> },
      ]} />
    </Card>
  );
}

function Who({ subscriber }: { subscriber: Subscriber }) {
  return (
    <span title={subscriber.why}>
      {subscriber.name || "unnamed"} <span class="soft small">{subscriber.protocol}</span>
      {subscriber.why && <span class="soft small" style={{ display: "block" }}>{subscriber.why}</span>}
    </span>
  );
}

function Missed({ subscriber }: { subscriber: Subscriber }) {
  if (subscriber.missed === 0) return <span class="soft">0</span>;
  return <span class="bad" title={`${exact(subscriber.missed)} records, all reported as gaps`}>{count(subscriber.missed)} <span class="small">{ago(subscriber.missed_at)}</span></span>;
}
