// The page Overview: the node's rates, bytes, listeners, memory, and slow subscribers.

import { remembered } from "../node/history.ts";
import { useNode } from "../node/live.ts";
import type { Busiest, Stats } from "../node/told.ts";
import { Card } from "../parts/Card.tsx";
import { Chart } from "../parts/Chart.tsx";
import { Empty, Failed, Waiting } from "../parts/Empty.tsx";
import { Stat, Stats as Figures } from "../parts/Stat.tsx";
import { Table } from "../parts/Table.tsx";
import { byteRate, bytes, count, exact, percent, rate } from "../quantity.ts";
import { link } from "../route.ts";
import { Departures } from "./overview/Departures.tsx";
import { Slowest } from "./overview/Slowest.tsx";

export function Overview() {
  const { data: stats, error } = useNode<Stats>("stats");
  const { data: busy } = useNode<Busiest>("topics");
  if (!stats) return error ? <><h1>Overview</h1><Failed error={error} /></> : <><h1>Overview</h1><Waiting what="the node's metrics" /></>;
  return (
    <>
      <div class="title"><h1>Overview</h1><span class="soft">{stats.name} · node {stats.id}</span></div>
      <Failed error={error} />
      <Now stats={stats} />
      <div class="grid">
        <Rates />
        <Memory />
      </div>
      <div class="grid">
        <Slowest subscribers={stats.slowest ?? []} total={stats.subscriptions} />
        <Busy busy={busy} />
      </div>
      <div class="grid">
        <Listeners stats={stats} />
        <Departures list={stats.recent ?? []} />
      </div>
    </>
  );
}

function Now({ stats }: { stats: Stats }) {
  const { rates, totals, memory, process, connections } = stats;
  const used = memory.used_bytes / memory.limit_bytes;
  return (
    <Figures label="Now">
      <Stat label="Records" value={rate(rates?.records_per_s)} note={`${count(totals.records)} total`} figure="records" raw={totals.records} />
      <Stat label="Bytes" value={byteRate(rates?.bytes_per_s)} note={`${bytes(totals.bytes)} total`} figure="bytes" raw={totals.bytes} />
      <Stat label="Topics" value={exact(stats.topics)} figure="topics" raw={stats.topics} />
      <Stat label="Subscribers" value={exact(stats.subscriptions)} figure="subscriptions" raw={stats.subscriptions} />
      <Stat label="Gaps" value={exact(totals.gaps)} note={`${count(totals.gap_records)} records missed`} tone={(rates?.gaps_per_s ?? 0) > 0 ? "warn" : undefined} figure="gaps" raw={totals.gaps} title="How often subscribers missed records, each reported with its exact range" />
      <Stat label="Connections" value={exact(connections.open)} note={`of ${count(connections.limit)}`} figure="connections" raw={connections.open} />
      <Stat label="Memory of topics" value={bytes(memory.used_bytes)} note={`${percent(used)} of ${bytes(memory.limit_bytes)}`} tone={used > 0.9 ? "bad" : used > 0.75 ? "warn" : undefined} figure="memory" raw={memory.used_bytes} />
      <Stat label="Process memory" value={bytes(process.rss_bytes)} note={`CPU: ${percent((process.cpu_percent ?? 0) / 100)} of a core`} figure="rss" raw={process.rss_bytes ?? undefined} />
    </Figures>
  );
}

function Rates() {
  const past = remembered();
  return (
    <Card title="Records and bytes per second">
      <Chart label="Records" x={past.at} show={rate} lines={[{ label: "records", colour: "c1", values: past.records, area: true }]} height={120} />
      <Chart label="Bytes" x={past.at} show={byteRate} ticks="bytes" lines={[{ label: "bytes", colour: "c2", values: past.bytes, area: true }]} height={110} />
    </Card>
  );
}

function Memory() {
  const past = remembered();
  const lines = [
    { label: "resident", colour: "c6", values: past.rss },
    { label: "topics", colour: "c4", values: past.memory, area: true },
  ];
  return (
    <Card title="Memory and processor">
      <Chart label="Memory" x={past.at} show={bytes} ticks="bytes" lines={lines} height={120} />
      <Chart label="Processor" x={past.at} show={(value) => `${value.toFixed(0)} %`} ticks="whole" lines={[{ label: "of one core", colour: "c3", values: past.cpu, area: true }]} height={110} />
    </Card>
  );
}

function Busy({ busy }: { busy: Busiest | undefined }) {
  const empty = <Empty title="No topics yet" run={["yes tick | dunlin pub ticks"]}>Topics with published records appear here.</Empty>;
  return (
    <Card title="Busiest topics" flush right={<a href={link("topics")}>All topics</a>}>
      <Table label="Busiest topics" rows={(busy?.topics ?? []).slice(0, 10)} id={(topic) => topic.name} empty={empty} columns={[
        { head: "Topic", class: "name", cell: (topic) => <a class="mono" href={link("topics", topic.name)}>{topic.name}</a> },
        { head: "Records", num: true, by: (topic) => topic.records_per_s ?? 0, cell: (topic) => rate(topic.records_per_s) },
        { head: "Bytes", num: true, by: (topic) => topic.bytes_per_s ?? 0, cell: (topic) => byteRate(topic.bytes_per_s) },
        { head: "Subscribers", num: true, by: (topic) => topic.subscribers ?? 0, cell: (topic) => exact(topic.subscribers) },
        { head: "Gaps", num: true, by: (topic) => topic.gaps ?? 0, cell: (topic) => exact(topic.gaps) },
      ]} />
    </Card>
  );
}

function Listeners({ stats }: { stats: Stats }) {
  return (
    <Card title="Listeners" flush>
      <Table label="Listeners" rows={stats.listeners ?? []} id={(listener) => listener.protocol + listener.address} columns={[
        { head: "Protocol", cell: (listener) => listener.protocol },
        { head: "Address", class: "mono", cell: (listener) => listener.address || "–" },
        { head: "Open", num: true, by: (listener) => listener.open, cell: (listener) => <span data-figure={`listener.${listener.protocol}`} data-raw={listener.open}>{exact(listener.open)}</span> },
        { head: "Accepted", num: true, by: (listener) => listener.accepted, cell: (listener) => exact(listener.accepted) },
      ]} />
    </Card>
  );
}
