// The cluster's events that this node observed, the newest first.

import type { Cluster, ClusterEvent } from "../../node/told.ts";
import { Card } from "../../parts/Card.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { moment } from "../../quantity.ts";
import { link } from "../../route.ts";

export function Happened({ told }: { told: Cluster }) {
  const all = told.events ?? [];
  const events = all.map((event, at) => ({ event, first: isFirst(all.slice(0, at), event) })).reverse();
  return (
    <Card title="Events" flush right={<span class="soft small">as seen by node {told.id}</span>}>
      {events.length === 0
        ? <Empty title="No events yet">New leaders, nodes that fail or return, and topics that change their owner appear here. The list starts empty when the node restarts.</Empty>
        : (
          <ol class="events" aria-label="Events" aria-live="polite" tabIndex={0}>
            {events.map(({ event, first }) => {
              const [tone, text] = words(event);
              return (
                <li key={`${event.at_ms}${event.event}${event.node}${event.topic}`} data-event={event.event}>
                  <time class="soft num small" dateTime={new Date(event.at_ms).toISOString()}>{moment(event.at_ms)}</time>
                  <span class={`pill ${tone}`}>{first ? "up" : event.event}</span>
                  <span>{event.topic ? <><a class="mono" href={link("topics", event.topic)}>{event.topic}</a> {text}</> : text}</span>
                </li>
              );
            })}
          </ol>
        )}
    </Card>
  );
}

/** Whether the event reports a node that was not down before: no earlier event reports this node as gone. */
function isFirst(before: ClusterEvent[], event: ClusterEvent): boolean {
  return event.event === "back" && !before.some((other) => other.event === "gone" && other.node === event.node);
}

function words(event: ClusterEvent): ["good" | "bad" | "warn" | "accent" | "", string] {
  switch (event.event) {
    case "began":
      return ["", `node ${event.node} started: ${event.there} of ${event.of} nodes are up, ${event.leader == null ? "there is no leader yet" : `node ${event.leader} is the leader, term ${event.term}`}`];
    case "leader":
      return ["accent", event.node == null ? "there is no leader" : `node ${event.node} is the leader, term ${event.term ?? "?"}`];
    case "no_leader":
      return ["bad", "there is no leader"];
    case "joined":
      return ["good", `node ${event.node} joined`];
    case "removed":
      return ["warn", `node ${event.node} was removed`];
    case "gone":
      return ["bad", `node ${event.node} is down`];
    case "back":
      return ["good", `node ${event.node} is up`];
    case "owner":
      return ["warn", event.to == null ? "has no owner" : event.from == null ? `is owned by node ${event.to}` : `moved from node ${event.from} to node ${event.to}`];
    default:
      return ["", [event.node != null && `node ${event.node}`, event.term != null && `term ${event.term}`].filter(Boolean).join(", ")];
  }
}
