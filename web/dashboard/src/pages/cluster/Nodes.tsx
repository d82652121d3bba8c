// The cluster's nodes, with their votes, addresses and states.

import type { Cluster, ClusterNode } from "../../node/told.ts";
import { exact } from "../../quantity.ts";

export function Nodes({ told }: { told: Cluster }) {
  const topics = Math.max(1, told.nodes.reduce((all, node) => all + (node.topics_owned ?? 0), 0));
  return (
    <ul class="nodes" aria-label="Nodes">
      {told.nodes.map((node) => <Node key={node.node} node={node} told={told} topics={topics} />)}
    </ul>
  );
}

function Node({ node, told, topics }: { node: ClusterNode; told: Cluster; topics: number }) {
  const part = told.cluster === null ? "single node" : told.leader === node.node ? "leader" : told.voters.includes(node.node) ? "follower" : told.learners.includes(node.node) ? "learner" : "no vote";
  const share = (node.topics_owned ?? 0) / topics;
  const state = node.removed ? "removed" : node.alive ? "up" : "down";
  return (
    <li class={`card node ${state}`} data-node={node.node} data-state={state}>
      <div class="title">
        <h2>Node {node.node}</h2>
        {node.node === told.id && <span class="pill">this node</span>}
        <span class={`pill ${part === "leader" ? "accent" : ""}`}>{part}</span>
        <span class={`pill ${state === "up" ? "good" : "bad"}`}>{state}</span>
      </div>
      <dl class="facts small">
        {node.address && <><dt>Cluster</dt><dd class="mono">{node.address}</dd></>}
        {node.listeners?.http && <><dt>HTTP</dt><dd class="mono">{node.node === told.id ? node.listeners.http : <a href={`${location.protocol}//${node.listeners.http}/#/cluster`}>{node.listeners.http}</a>}</dd></>}
        {node.listeners?.tcp && <><dt>TCP</dt><dd class="mono">{node.listeners.tcp}</dd></>}
        <dt>Release</dt><dd>{node.release}</dd>
        {node.removed && <><dt>Removed</dt><dd>{node.removed}</dd></>}
        <dt>Owns</dt><dd>{exact(node.topics_owned)} topics</dd>
      </dl>
      <div class="bar" aria-hidden="true"><i style={{ width: `${share * 100}%` }} /></div>
    </li>
  );
}
