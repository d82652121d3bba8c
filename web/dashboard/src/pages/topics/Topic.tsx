// The page of one topic: figures, subscribers, settings, a form to publish a record, and a live view of records.

import { useRef } from "preact/hooks";
import { ask, Problem } from "../../node/ask.ts";
import { useAsked } from "../../node/hooks.ts";
import { ownerText, path, seqOf, type TopicInfo, type TopicLog } from "../../node/topics.ts";
import { Empty, Failed, Waiting } from "../../parts/Empty.tsx";
import { Stat, Stats } from "../../parts/Stat.tsx";
import { Tabs } from "../../parts/Tabs.tsx";
import { ago, bytes, count, exact, rate } from "../../quantity.ts";
import { keep, link, type Route } from "../../route.ts";
import { command } from "../../shell.ts";
import { Publish } from "./Publish.tsx";
import { Subscribers } from "./Subscribers.tsx";
import { Settings } from "./Settings.tsx";
import { TailPanel } from "./TailPanel.tsx";

const TABS = ["tail", "subscribers", "publish", "settings"];

export function Topic({ name, route }: { name: string; route: Route }) {
  const asked = useAsked(name, (signal) => ask<TopicInfo>(path(name), { signal }), 1000);
  const tab = TABS.includes(route.query.get("tab") ?? "") ? (route.query.get("tab") ?? "tail") : "tail";
  const topic = asked.data;
  const head = (
    <div class="title">
      <a href={link("topics")}>Topics</a><span class="soft" aria-hidden="true">/</span>
      <h1 class="mono">{name}</h1>
      {topic && <Pills topic={topic} />}
    </div>
  );
  if (!topic) {
    if (asked.error instanceof Problem && asked.error.status === 404) {
      return <>{head}<Empty title="This topic does not exist" run={[command("dunlin", "pub", name, "hello")]}>The first published record creates it.</Empty></>;
    }
    return <>{head}{asked.error ? <Failed error={asked.error} /> : <Waiting what="the topic" />}</>;
  }
  const subscribers = topic.subscribers?.length ?? 0;
  return (
    <>
      {head}
      <Failed error={asked.error} />
      <Figures topic={topic} at={asked.at} />
      <Tabs label="This topic" chosen={tab} choose={(to) => keep({ tab: to === "tail" ? null : to })}
        tabs={[{ name: "tail", title: "Tail" }, { name: "subscribers", title: `Subscribers ${subscribers > 0 ? subscribers : ""}` }, { name: "publish", title: "Publish" }, { name: "settings", title: "Log and settings" }]}>
        {tab === "tail" && <TailPanel pattern={topic.config.pattern ?? name} route={route} />}
        {tab === "subscribers" && <Subscribers topic={topic} />}
        {tab === "publish" && <Publish topic={topic} />}
        {tab === "settings" && <Settings topic={topic} again={asked.again} />}
      </Tabs>
    </>
  );
}

function Pills({ topic }: { topic: TopicInfo }) {
  const { durable, reliable, reducer } = topic.config as { durable?: unknown; reliable?: unknown; reducer?: { kind: string } | null };
  const pattern = topic.config.pattern;
  return (
    <>
      {pattern && pattern !== topic.name && <span class="pill mono">{pattern}</span>}
      {Boolean(durable) && <span class="pill">durable</span>}
      {Boolean(reliable) && <span class="pill">reliable</span>}
      {reducer && <a class="pill accent" href={reducer.kind === "region" ? link("space") : link("feeds", topic.name)}>{reducer.kind}</a>}
    </>
  );
}

function Figures({ topic, at }: { topic: TopicInfo; at: number }) {
  const sum = (of: (log: TopicLog) => number) => topic.logs?.reduce((all, log) => all + of(log), 0);
  const total = sum((log) => seqOf(log.last));
  const held = sum((log) => log.retained_records);
  const memory = sum((log) => log.memory_bytes);
  const disk = sum((log) => log.disk_bytes ?? 0) ?? 0;
  const last = topic.logs?.map((log) => log.last_append).filter((when) => when !== null).sort().at(-1);
  const perSecond = useRate(total, at);
  const where = memory === undefined ? "owner does not respond" : bytes(memory) + (disk > 0 ? `, ${bytes(disk)} on disk` : " in memory");
  const since = ago(last);
  return (
    <Stats label="This topic">
      <Stat label="Appended" value={count(total)} note={perSecond === undefined ? " " : rate(perSecond)} figure="topic.records" raw={total} />
      <Stat label="Retained" value={count(held)} note={where} figure="topic.held" raw={held} />
      <Stat label="Subscribers" value={exact(topic.subscribers?.length)} note={`${exact(topic.groups?.length)} groups`} />
      <Stat label="Publishers" value={exact(topic.publishers)} />
      <Stat label="Last record" value={since.replace(/ ago$/, "")} note={since.endsWith(" ago") ? "ago" : " "} />
      <Stat label="Owner" value={topic.owner ? ownerText(topic.owner) : "this node"} note={topic.owner ? `epoch ${topic.owner.epoch}${topic.owner.alive ? "" : ", down"}` : "no cluster"} tone={topic.owner && !topic.owner.alive ? "bad" : undefined} />
    </Stats>
  );
}

/** The growth of a number per second since its previous value; undefined while the topic's owner does not respond. */
function useRate(total: number | undefined, at: number): number | undefined {
  const seen = useRef<{ total: number | undefined; at: number; rate: number | undefined }>({ total, at, rate: undefined });
  const before = seen.current;
  const seconds = (at - before.at) / 1000;
  if (seconds > 0.5) {
    const grown = total === undefined || before.total === undefined ? undefined : total - before.total;
    seen.current = { total, at, rate: grown !== undefined && grown >= 0 ? grown / seconds : undefined };
  }
  return seen.current.rate;
}
