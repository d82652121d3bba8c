// The clients that the node recently refused or cut off, with the reasons.

import type { Departure } from "../../node/told.ts";
import { Card } from "../../parts/Card.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Table } from "../../parts/Table.tsx";
import { exact, moment } from "../../quantity.ts";

export function Departures({ list }: { list: Departure[] }) {
  return (
    <Card title="Refused or cut off" flush>
      <Table label="Refused or cut off" rows={list} id={(one) => `${one.protocol}${one.name}${one.peer}${one.last}${one.why}`}
        empty={<Empty title="Nobody was">Clients that are turned away or cut off stand here, with the reason.</Empty>}
        columns={[
          { head: "When", cell: (one) => <span title={one.last}>{moment(one.last)}</span> },
          { head: "Who", class: "name", cell: (one) => <>{one.name || one.peer || "unknown"} <span class="soft small">{one.protocol}</span></> },
          { head: "Outcome", cell: (one) => one.outcome },
          { head: "Why", class: "name", cell: (one) => one.why },
          { head: "Times", num: true, by: (one) => one.times, cell: (one) => exact(one.times) },
        ]} />
    </Card>
  );
}
