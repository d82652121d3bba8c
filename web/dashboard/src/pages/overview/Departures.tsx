// The clients that the node recently refused or disconnected, with the reasons.

import type { Departure } from "../../node/told.ts";
import { Card } from "../../parts/Card.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Table } from "../../parts/Table.tsx";
import { exact, moment } from "../../quantity.ts";

export function Departures({ list }: { list: Departure[] }) {
  return (
    <Card title="Refused or disconnected clients" flush>
      <Table label="Refused or disconnected clients" rows={list} id={(one) => `${one.protocol}${one.name}${one.peer}${one.last}${one.why}`}
        empty={<Empty title="No client was refused or disconnected">Such clients appear here, with the reason.</Empty>}
        columns={[
          { head: "When", cell: (one) => <span title={one.last}>{moment(one.last)}</span> },
          { head: "Client", class: "name", cell: (one) => <>{one.name || one.peer || "unknown"} <span class="soft small">{one.protocol}</span></> },
          { head: "Outcome", cell: (one) => one.outcome },
          { head: "Reason", class: "name", cell: (one) => one.why },
          { head: "Count", num: true, by: (one) => one.times, cell: (one) => exact(one.times) },
        ]} />
    </Card>
  );
}
