// The cluster: its nodes, its leader, the owners of topics, and events while the page is open.

import { useConnection } from "../node/hooks.ts";
import { useNode } from "../node/live.ts";
import type { Cluster as Told, TasksShard } from "../node/told.ts";
import { Cli, CopyAsCli } from "../parts/Copy.tsx";
import { Failed, Waiting } from "../parts/Empty.tsx";
import { Stat, Stats } from "../parts/Stat.tsx";
import { exact } from "../quantity.ts";
import { Happened } from "./cluster/Happened.tsx";
import { Nodes } from "./cluster/Nodes.tsx";
import { Owners } from "./cluster/Owners.tsx";

export function Cluster() {
  const { data, error } = useNode<Told>("cluster");
  const head = <div class="title"><h1>Cluster</h1>{data?.cluster && <span class="soft small mono">{data.cluster}</span>}<span class="right"><CopyAsCli line="dunlin cluster status" /></span></div>;
  if (!data) return <>{head}{error ? <Failed error={error} /> : <Waiting what="the cluster" />}</>;
  return (
    <>
      {head}
      <Failed error={error} />
      {data.missing && <p class="notice" role="status">This node is not a complete member yet: {data.missing}</p>}
      {data.cluster !== null && <Figures told={data} />}
      <Nodes told={data} />
      {data.nodes.length < 2 && (
        <section class="card"><div class="empty"><b>{data.cluster === null ? "This node does not belong to a cluster" : "This node is the only one of its cluster"}</b><p>{data.cluster === null && "Its topics, keys, leases and tasks are not replicated, and cannot be reached while it is down. "}To start a cluster of three nodes on this machine:</p><Cli line="dunlin dev --nodes 3" /></div></section>
      )}
      {data.cluster !== null && (
        <div class="grid">
          <Happened told={data} />
          <Owners told={data} />
        </div>
      )}
    </>
  );
}

function Figures({ told }: { told: Told }) {
  const { reach } = useConnection();
  const members = told.nodes.filter((node) => !node.removed);
  const alive = members.filter((node) => node.alive).length;
  const down = members.length - alive;
  const majority = Math.floor(told.voters.length / 2) + 1;
  const spare = alive - majority;
  const alone = members.length < 2;
  const behind = (told.last ?? 0) - (told.applied ?? 0);
  return (
    <Stats label="Cluster">
      <Stat label="Nodes" value={`${alive} of ${members.length}`} tone={down > 0 ? "bad" : "good"} note={down > 0 ? `${down} down` : "all up"} figure="cluster.alive" raw={reach === "up" ? alive : undefined} />
      <Stat label="Leader" value={told.leader === null ? (alone ? "–" : "none") : `node ${told.leader}`} tone={told.leader === null && !alone ? "bad" : undefined} note="of keys and leases" figure="cluster.leader" raw={told.leader ?? 0} />
      <Stat label="Term" value={exact(told.term)} figure="cluster.term" raw={told.term ?? undefined} />
      <Shards shards={told.tasks_shards ?? []} />
      <Stat label="Nodes that may fail" value={members.length < 2 ? "–" : exact(Math.max(0, spare))} tone={members.length >= 2 && spare <= 0 ? "warn" : undefined} note={`${majority} of ${told.voters.length} votes needed`} />
      <Stat label="Applied entries" value={exact(told.applied)} note={behind > 0 ? `${exact(behind)} pending` : "none pending"} figure="cluster.applied" raw={told.applied ?? undefined} />
      <Stat label="Revision of keys" value={exact(told.revision)} figure="cluster.revision" raw={told.revision ?? undefined} />
    </Stats>
  );
}

/** The leader of each shard of the tasks. */
function Shards({ shards }: { shards: TasksShard[] }) {
  if (shards.length === 0) return <Stat label="Leader of tasks" value="–" />;
  return shards.map(({ shard, leader, term }) => (
    <Stat key={shard} label={shards.length === 1 ? "Leader of tasks" : `Leader of tasks, shard ${shard}`} value={leader === null ? "none" : `node ${leader}`} tone={leader === null ? "bad" : undefined} note={`term ${exact(term)}`} figure={`cluster.tasks.${shard}`} raw={leader ?? 0} />
  ));
}
