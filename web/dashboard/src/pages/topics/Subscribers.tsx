// The subscribers and groups of a topic.

import type { TopicInfo } from "../../node/topics.ts";
import { Card } from "../../parts/Card.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Table } from "../../parts/Table.tsx";
import { ago, count, exact } from "../../quantity.ts";
import { command } from "../../shell.ts";

export function Subscribers({ topic }: { topic: TopicInfo }) {
  const pattern = topic.config.pattern ?? topic.name;
  const nobody = <Empty title="No subscribers" run={[command("dunlin", "sub", pattern)]} />;
  const noGroups = <Empty title="No groups" run={[`${command("dunlin", "sub", pattern, "--group", "crew", "--work")} -- ./work.sh`]}>The members of a group share the records: each record goes to one member.</Empty>;
  return (
    <div class="grid">
      <Card title="Subscribers" flush right={<span class="soft small">slowest first</span>}>
        <Table label="Subscribers" rows={topic.subscribers ?? []} id={(subscriber) => `${subscriber.protocol}/${subscriber.name}/${subscriber.partition}/${subscriber.position}`} empty={nobody} columns={[
          { head: "Name", class: "name", cell: (subscriber) => <>{subscriber.name || "unnamed"} <span class="soft small">{subscriber.protocol}{subscriber.registered ? ", registered" : ""}</span></> },
          { head: "Position", class: "mono", num: true, cell: (subscriber) => subscriber.position },
          { head: "Lag", num: true, by: (subscriber) => subscriber.lag, cell: (subscriber) => <span class={subscriber.lag > 0 ? "warn" : ""}>{count(subscriber.lag)}</span> },
          { head: "Missed", num: true, by: (subscriber) => subscriber.missed, cell: (subscriber) => subscriber.missed > 0 ? <span class="bad">{exact(subscriber.missed)} <span class="small">{ago(subscriber.missed_at)}</span></span> : "0" },
          { head: "Lag warning", cell: (subscriber) => subscriber.lagging_at ? ago(subscriber.lagging_at) : "–" },
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
