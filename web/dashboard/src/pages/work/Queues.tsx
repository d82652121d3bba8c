// The ready tasks by tenant, queue and kind. Those that have waited longest are first.

import type { Queue } from "../../node/told_work.ts";
import { Card } from "../../parts/Card.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Table } from "../../parts/Table.tsx";
import { count, span } from "../../quantity.ts";

export function Queues({ queues }: { queues: Queue[] }) {
  const sorted = [...queues].sort((a, b) => b.oldest_ms - a.oldest_ms);
  return (
    <Card title="Queues" flush>
      <Table label="Queues" rows={sorted} id={(queue) => `${queue.tenant}/${queue.queue}/${queue.kind}`} empty={<Empty title="No task waits for a worker" />} columns={[
        { head: "Tenant", class: "name", cell: (queue) => queue.tenant },
        { head: "Queue", class: "name", cell: (queue) => queue.queue },
        { head: "Kind", class: "name", cell: (queue) => queue.kind },
        { head: "Ready", num: true, by: (queue) => queue.ready, cell: (queue) => count(queue.ready) },
        { head: "Longest wait", num: true, by: (queue) => queue.oldest_ms, cell: (queue) => (queue.ready > 0 ? span(queue.oldest_ms / 1000) : "–") },
        { head: "Time per task", num: true, by: (queue) => queue.cost_us, cell: (queue) => (queue.cost_us > 0 ? span(queue.cost_us / 1e6) : "–") },
      ]} />
    </Card>
  );
}
