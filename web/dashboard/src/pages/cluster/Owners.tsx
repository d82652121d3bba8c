// The number of topics that each node owns. The page Topics shows the owner of each topic.

import type { Cluster } from "../../node/told.ts";
import { Card } from "../../parts/Card.tsx";
import { Table } from "../../parts/Table.tsx";
import { exact, percent } from "../../quantity.ts";
import { link } from "../../route.ts";

export function Owners({ told }: { told: Cluster }) {
  const all = told.nodes.reduce((sum, node) => sum + (node.topics_owned ?? 0), 0);
  return (
    <Card title="Topics by owner" flush right={<a href={link("topics")}>All topics</a>}>
      <Table label="Topics by owner" rows={told.nodes} id={(node) => String(node.node)} columns={[
        { head: "Node", cell: (node) => <>node {node.node} {!node.alive && <span class="bad small">down</span>}</> },
        { head: "Topics", num: true, by: (node) => node.topics_owned ?? 0, cell: (node) => exact(node.topics_owned) },
        { head: "Share", num: true, cell: (node) => percent(all > 0 ? (node.topics_owned ?? 0) / all : null) },
        { head: "Proportion", cell: (node) => <div class="bar" aria-hidden="true"><i style={{ width: `${all > 0 ? (100 * (node.topics_owned ?? 0)) / all : 0}%` }} /></div> },
      ]} />
    </Card>
  );
}
