// The table of attached workers.

import type { Worker } from "../../node/told_work.ts";
import { Card } from "../../parts/Card.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Table } from "../../parts/Table.tsx";
import { count, exact, span } from "../../quantity.ts";

export function Workers({ workers }: { workers: Worker[] }) {
  const nobody = <Empty title="No workers" run={["dunlin task worker --kind count --slots 4 -- wc -c", "dunlin dev --workers 'dunlin task worker --kind count -- wc -c' --scale 1..8"]} />;
  return (
    <Card title="Workers" flush>
      <Table label="Workers" rows={workers} id={(worker) => worker.worker} empty={nobody} columns={[
        { head: "Worker", class: "name", cell: (worker) => <>{worker.name || "unnamed"} <span class="soft small mono">{worker.worker}</span></> },
        { head: "Kinds", class: "name", cell: (worker) => worker.kinds.join(", ") || "–" },
        { head: "Running", num: true, by: (worker) => worker.held, cell: (worker) => exact(worker.held) },
        { head: "Free slots", num: true, by: (worker) => worker.credit, cell: (worker) => exact(worker.credit) },
        { head: "Done", num: true, by: (worker) => worker.done, cell: (worker) => count(worker.done) },
        { head: "Lease ends in", num: true, by: (worker) => worker.left_ms, cell: (worker) => span(worker.left_ms / 1000) },
        { head: "State", cell: (worker) => worker.draining && <span class="pill warn">draining</span> },
      ]} />
    </Card>
  );
}
