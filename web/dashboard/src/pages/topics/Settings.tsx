// A topic's logs, settings and owner, with buttons to move and delete the topic.

import { useState } from "preact/hooks";
import { ask } from "../../node/ask.ts";
import { useNode } from "../../node/live.ts";
import type { Cluster } from "../../node/told.ts";
import { path, type TopicInfo } from "../../node/topics.ts";
import { Card } from "../../parts/Card.tsx";
import { CopyAsCli } from "../../parts/Copy.tsx";
import { Failed } from "../../parts/Empty.tsx";
import { Table } from "../../parts/Table.tsx";
import { bytes, count, exact, moment } from "../../quantity.ts";
import { link } from "../../route.ts";
import { command } from "../../shell.ts";

export function Settings({ topic, again }: { topic: TopicInfo; again: () => void }) {
  return (
    <>
      <Card title="Logs" flush>
        <Table label="Logs" rows={topic.logs ?? []} id={(log) => String(log.partition)} columns={[
          { head: "Partition", num: true, cell: (log) => log.partition },
          { head: "Oldest retained", class: "mono", num: true, cell: (log) => log.first ?? "–" },
          { head: "Newest", class: "mono", num: true, cell: (log) => log.last ?? "–" },
          { head: "Retained", num: true, cell: (log) => count(log.retained_records) },
          { head: "Memory", num: true, cell: (log) => bytes(log.memory_bytes) },
          { head: "Disk", num: true, cell: (log) => bytes(log.disk_bytes) },
          { head: "Synced", class: "mono", num: true, cell: (log) => log.synced ?? "–" },
          { head: "Last record", cell: (log) => moment(log.last_append) },
        ]} />
      </Card>
      <div class="grid">
        <Card title="Configuration"><pre class="payload" tabIndex={0} aria-label="Settings">{JSON.stringify(topic.config, null, 2)}</pre></Card>
        <Move topic={topic} again={again} />
        <Delete topic={topic} />
      </div>
    </>
  );
}

function Move({ topic, again }: { topic: TopicInfo; again: () => void }) {
  const { data: cluster } = useNode<Cluster>("cluster");
  // If a topic has no owner, the node is not in a cluster, and the topic cannot be moved.
  const others = topic.owner ? (cluster?.nodes ?? []).filter((node) => node.node !== topic.owner?.node && !node.removed) : [];
  const [to, choose] = useState("");
  const [error, fail] = useState<Error>();
  const move = async (event: Event) => {
    event.preventDefault();
    try {
      await ask(path(topic.name, "/owner"), { method: "PUT", body: JSON.stringify({ node: Number(to) }) });
      fail(undefined);
      again();
    } catch (refused) {
      fail(refused as Error);
    }
  };
  const note = topic.owner ? `Node ${topic.owner.node} is the owner, in epoch ${exact(topic.owner.epoch)}. A move loses no records; subscribers receive a notice of the new epoch.` : "This node does not belong to a cluster, so the topic cannot be moved.";
  return (
    <Card title="Owner" right={to && <CopyAsCli line={command("dunlin", "topics", "move", topic.name, to)} />}>
      <p class="soft">{note}</p>
      {others.length > 0 && (
        <form class="row" onSubmit={move} style={{ marginTop: "var(--s3)" }}>
          <label class="field">Move to<select class="input" value={to} onChange={(event) => choose(event.currentTarget.value)}>
            <option value="">choose a node</option>
            {others.map((node) => <option key={node.node} value={String(node.node)} disabled={!node.alive}>node {node.node}{node.alive ? "" : " (down)"}</option>)}
          </select></label>
          <button type="submit" class="button" disabled={to === ""}>Move</button>
        </form>
      )}
      <Failed error={error} />
    </Card>
  );
}

function Delete({ topic }: { topic: TopicInfo }) {
  const [typed, type] = useState("");
  const [error, fail] = useState<Error>();
  const remove = async (event: Event) => {
    event.preventDefault();
    try {
      await ask(path(topic.name), { method: "DELETE" });
      location.hash = link("topics");
    } catch (refused) {
      fail(refused as Error);
    }
  };
  return (
    <Card title="Delete" right={<CopyAsCli line={command("dunlin", "topics", "delete", topic.name)} />}>
      <p class="soft">Subscribers can read the remaining records for a while, and receive a notice of the deletion. The deletion cannot be undone.</p>
      <form class="row" onSubmit={remove} style={{ marginTop: "var(--s3)" }}>
        <label class="field">Type the topic's name to confirm<input class="input mono" value={typed} onInput={(event) => type(event.currentTarget.value)} /></label>
        <button type="submit" class="button" disabled={typed !== topic.name}>Delete</button>
      </form>
      <Failed error={error} />
    </Card>
  );
}
