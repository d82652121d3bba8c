// The page Work: the tenants' tasks and shares, the workers, and the autoscaler's decisions.

import { useNode } from "../node/live.ts";
import type { Work as Told } from "../node/told_work.ts";
import { Empty, Failed, Waiting } from "../parts/Empty.tsx";
import { Stat, Stats } from "../parts/Stat.tsx";
import { Tabs } from "../parts/Tabs.tsx";
import { count, exact, rate, span } from "../quantity.ts";
import { keep, type Route } from "../route.ts";
import { Queues } from "./work/Queues.tsx";
import { Scaling } from "./work/Scaling.tsx";
import { Tasks } from "./work/Tasks.tsx";
import { Tenants } from "./work/Tenants.tsx";
import { Workers } from "./work/Workers.tsx";
import { rememberWork } from "./work/past.ts";

const TABS = [
  { name: "shares", title: "Tenants and queues" },
  { name: "workers", title: "Workers and scaling" },
  { name: "tasks", title: "Tasks, and why they wait" },
];

export function Work({ route }: { route: Route }) {
  const { data, error } = useNode<Told>("work");
  if (data) rememberWork(data);
  const one = route.rest[0];
  const asked = one ? "tasks" : (route.query.get("tab") ?? "shares");
  const tab = TABS.some((known) => known.name === asked) ? asked : "shares";
  const head = <div class="title"><h1>Work</h1></div>;
  if (!data) return <>{head}{error ? <Failed error={error} /> : <Waiting what="the tasks" />}</>;
  const choose = (to: string) => (one ? (location.hash = `#/work?tab=${to}`) : keep({ tab: to }));
  return (
    <>
      {head}
      <Failed error={error} />
      {data.known === 0 && (data.tenants ?? []).length === 0 && <section class="card"><Nothing /></section>}
      <Figures told={data} />
      <Tabs label="Work" tabs={TABS} chosen={tab} choose={choose}>
        {tab === "shares" && <><Tenants told={data} /><Queues queues={data.queues ?? []} /></>}
        {tab === "workers" && <><Scaling told={data} /><Workers workers={data.workers ?? []} /></>}
        {tab === "tasks" && <Tasks told={data} route={route} />}
      </Tabs>
    </>
  );
}

function Figures({ told }: { told: Told }) {
  const late = told.oldest_ms > 10_000 && told.startable > 0;
  return (
    <Stats label="Work">
      <Stat label="Submitted" value={rate(told.rates?.submitted_per_s)} note={`${count(told.known)} stored`} figure="work.known" raw={told.known} />
      <Stat label="Done" value={rate(told.rates?.completed_per_s)} note={`${rate(told.rates?.failed_per_s)} failed`} />
      <Stat label="Startable" value={count(told.startable)} tone={late ? "warn" : undefined} note="by one more worker" figure="work.startable" raw={told.startable} />
      <Stat label="Running" value={count(told.held)} note="at workers" figure="work.held" raw={told.held} />
      <Stat label="Longest wait" value={told.startable > 0 ? span(told.oldest_ms / 1000) : "–"} tone={late ? "warn" : undefined} />
      <Stat label="Workers" value={exact(told.workers_up)} note={`${count(told.credit)} free slots`} figure="work.workers" raw={told.workers_up} />
      <Stat label="Jain's index" value={told.jain == null ? "–" : told.jain.toFixed(3)} tone={told.jain != null && told.jain < 0.9 ? "warn" : undefined} note="1 = fair shares" figure="work.jain" raw={told.jain ?? undefined} />
      <Stat label="Dead letters" value={exact((told.tenants ?? []).reduce((all, tenant) => all + tenant.dead, 0))} note="no attempts left" />
    </Stats>
  );
}

function Nothing() {
  return (
    <Empty title="No tasks yet" run={["dunlin task worker --kind count --slots 4 -- wc -c", "dunlin task submit count hello --wait", "cargo xtask demo --only tasks"]}>
      To start a worker, submit a task, or run a demo with four tenants:
    </Empty>
  );
}

