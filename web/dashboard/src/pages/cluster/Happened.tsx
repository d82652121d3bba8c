// The events of the cluster that this node noticed, the newest first.

import type { Cluster, ClusterEvent } from "../../node/told.ts";
import { Card } from "../../parts/Card.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { moment } from "../../quantity.ts";
import { link } from "../../route.ts";

export function Happened({ told }: { told: Cluster }) {
  const all = told.events ?? [];
  const events = all.map((event, at) => ({ event, first: isFirst(all.slice(0, at), event) })).reverse();
  return (
    <Card title="What happened" flush right={<span class="soft small">as node {told.id} noticed</span>}>
      {events.length === 0
        ? <Empty title="Nothing yet">A new leader, a node that goes or comes back, and topics that change hands stand here. A node that was started again begins anew.</Empty>
        : (
          <ol class="events" aria-label="What happened" aria-live="polite" tabIndex={0}>
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

/** Whether this node first saw the other node after its own start: no event shows that the other had gone. */
function isFirst(before: ClusterEvent[], event: ClusterEvent): boolean {
  return event.event === "back" && !before.some((other) => other.event === "gone" && other.node === event.node);
}

function words(event: ClusterEvent): ["good" | "bad" | "warn" | "accent" | "", string] {
  switch (event.event) {
    case "began":
      return ["", `node ${event.node} began to look: ${event.there} of ${event.of} nodes there, ${event.leader == null ? "nobody leads yet" : `node ${event.leader} leads, term ${event.term}`}`];
    case "leader":
      return ["accent", event.node == null ? "nobody leads" : `node ${event.node} leads, term ${event.term ?? "?"}`];
    case "no_leader":
      return ["bad", "nobody leads"];
    case "joined":
      return ["good", `node ${event.node} joined`];
    case "removed":
      return ["warn", `node ${event.node} was removed`];
    case "gone":
      return ["bad", `node ${event.node} is down`];
    case "back":
      return ["good", `node ${event.node} answers`];
    case "owner":
      return ["warn", `${event.from == null ? "is owned" : `went from node ${event.from}`} ${event.to == null ? "to nobody" : event.from == null ? `by node ${event.to}` : `to node ${event.to}`}`];
    default:
      return ["", [event.node != null && `node ${event.node}`, event.term != null && `term ${event.term}`].filter(Boolean).join(", ")];
  }
}
