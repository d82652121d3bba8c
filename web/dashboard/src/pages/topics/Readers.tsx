// The readers of a topic, and its share groups.

import type { TopicInfo } from "../../node/topics.ts";
import { Card } from "../../parts/Card.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Table } from "../../parts/Table.tsx";
import { ago, count, exact } from "../../quantity.ts";
import { command } from "../../shell.ts";

export function Readers({ topic }: { topic: TopicInfo }) {
  const pattern = topic.config.pattern ?? topic.name;
  const nobody = <Empty title="Nobody reads it" run={[command("dunlin", "sub", pattern)]} />;
  const noGroups = <Empty title="No groups" run={[`${command("dunlin", "sub", pattern, "--group", "crew", "--work")} -- ./work.sh`]}>Members of a group share the records: each goes to one of them.</Empty>;
  return (
    <div class="grid">
      <Card title="Readers" flush right={<span class="soft small">the slowest first</span>}>
        <Table label="Readers" rows={topic.readers ?? []} id={(reader) => `${reader.door}/${reader.name}/${reader.partition}/${reader.position}`} empty={nobody} columns={[
          { head: "Name", class: "name", cell: (reader) => <>{reader.name || "unnamed"} <span class="soft small">{reader.door}{reader.registered ? ", registered" : ""}</span></> },
          { head: "At", class: "mono", num: true, cell: (reader) => reader.position },
          { head: "Behind", num: true, by: (reader) => reader.lag, cell: (reader) => <span class={reader.lag > 0 ? "warn" : ""}>{count(reader.lag)}</span> },
          { head: "Missed", num: true, by: (reader) => reader.lost, cell: (reader) => reader.lost > 0 ? <span class="bad">{exact(reader.lost)} <span class="small">{ago(reader.lost_at)}</span></span> : "0" },
          { head: "Warned", cell: (reader) => reader.lagging_at ? ago(reader.lagging_at) : "–" },
        ]} />
      </Card>
      <Card title="Groups" flush>
        <Table label="Groups" rows={topic.groups ?? []} id={(group) => group.name} empty={noGroups} columns={[
          { head: "Group", class: "name", cell: (group) => group.name },
          { head: "Kind", cell: (group) => group.kind },
          { head: "Members", num: true, cell: (group) => exact(group.members) },
          { head: "Waiting", num: true, cell: (group) => count(group.waiting) },
          { head: "Claimed", num: true, cell: (group) => count(group.claimed) },
        ]} />
      </Card>
    </div>
  );
}
