// The readers that are furthest behind, with their distances and the reasons.

import type { Reader } from "../../node/told.ts";
import { Card } from "../../parts/Card.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Table } from "../../parts/Table.tsx";
import { ago, count, exact } from "../../quantity.ts";
import { link } from "../../route.ts";

export function Slowest({ readers, total }: { readers: Reader[]; total: number }) {
  const empty = <Empty title="Nobody reads with a name" run={["dunlin sub ticks --name me --sleep 1ms"]}>Readers are shown with their lag, and with what they missed.</Empty>;
  const shown = readers.slice(0, 10);
  return (
    <Card title="Slowest readers" flush right={total > shown.length && <span class="soft small">{shown.length} of {count(total)}</span>}>
      <Table label="Slowest readers" rows={shown} id={(reader) => `${reader.door}/${reader.name}/${reader.topic}/${reader.partition}`} empty={empty} columns={[
        { head: "Reader", class: "breaks", cell: (reader) => <Who reader={reader} /> },
        { head: "Topic", class: "breaks", cell: (reader) => <a class="mono" href={link("topics", reader.topic ?? "")}>{reader.topic}</a> },
        { head: "Behind", num: true, by: (reader) => reader.lag, cell: (reader) => <span class={reader.lag > 0 ? "warn" : ""}>{count(reader.lag)}</span> },
        { head: "Missed", num: true, by: (reader) => reader.lost, cell: (reader) => <Missed reader={reader} /> },
      ]} />
    </Card>
  );
}

function Who({ reader }: { reader: Reader }) {
  return (
    <span title={reader.why}>
      {reader.name || "unnamed"} <span class="soft small">{reader.door}</span>
      {reader.why && <span class="soft small" style={{ display: "block" }}>{reader.why}</span>}
    </span>
  );
}

function Missed({ reader }: { reader: Reader }) {
  if (reader.lost === 0) return <span class="soft">0</span>;
  return <span class="bad" title={`${exact(reader.lost)} records, each told`}>{count(reader.lost)} <span class="small">{ago(reader.lost_at)}</span></span>;
}
