// The list of tasks, by tenant and stage. For a selected task, the node explains in a sentence why the task has its
// stage.

import { useState } from "preact/hooks";
import { ask } from "../../node/ask.ts";
import { useAsked } from "../../node/hooks.ts";
import type { Task, Work } from "../../node/told_work.ts";
import { Card } from "../../parts/Card.tsx";
import { CopyAsCli } from "../../parts/Copy.tsx";
import { Empty, Failed, Waiting } from "../../parts/Empty.tsx";
import { Table } from "../../parts/Table.tsx";
import { ago, exact } from "../../quantity.ts";
import { keep, link, type Route } from "../../route.ts";
import { command } from "../../shell.ts";
import { Why } from "./Why.tsx";

const STAGES = ["ready", "running", "blocked", "delayed", "limited", "stopping", "dead", "completed", "cancelled"];
const LISTED = 100;

export function Tasks({ told, route }: { told: Work; route: Route }) {
  const tenant = route.query.get("tenant") ?? "";
  const stage = route.query.get("stage") ?? "";
  const query = new URLSearchParams({ limit: String(LISTED), ...(tenant && { tenant }), ...(stage && { stage }) });
  const asked = useAsked(`tasks ${query}`, (signal) => ask<{ tasks: Task[]; next: string | null }>(`/v1/tasks?${query}`, { signal }), 2000);
  const chosen = route.rest[0];
  return (
    <>
      {chosen && <Why key={chosen} id={chosen} />}
      <Find />
      <Card title="Tasks" flush right={<Filter told={told} tenant={tenant} stage={stage} />}>
        <Failed error={asked.error} />
        {!asked.data && !asked.error && <Waiting what="tasks" />}
        {asked.data && (
          <Table label="Tasks" rows={asked.data.tasks} id={(task) => task.task} empty={<Empty title="No task matches" />} columns={[
            { head: "Task", class: "mono", cell: (task) => <a href={link("work", task.task)}>{task.task}</a> },
            { head: "Tenant", class: "name", cell: (task) => task.tenant },
            { head: "Kind", class: "name", cell: (task) => task.kind },
            { head: "Stage", cell: (task) => <Stage stage={task.stage} /> },
            { head: "Priority", num: true, by: (task) => task.priority, cell: (task) => exact(task.priority) },
            { head: "Attempts", num: true, by: (task) => task.attempts, cell: (task) => exact(task.attempts) },
            { head: "Submitted", num: true, by: (task) => task.submitted_ms, cell: (task) => ago(task.submitted_ms) },
            { head: "Worker", class: "mono", cell: (task) => task.worker ?? "–" },
          ]} />
        )}
      </Card>
    </>
  );
}

function Filter({ told, tenant, stage }: { told: Work; tenant: string; stage: string }) {
  return (
    <>
      <select class="input" aria-label="Tenant" value={tenant} onChange={(event) => keep({ tenant: event.currentTarget.value })}>
        <option value="">all tenants</option>
        {(told.tenants ?? []).map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}
      </select>
      <select class="input" aria-label="Stage" value={stage} onChange={(event) => keep({ stage: event.currentTarget.value })}>
        <option value="">all stages</option>
        {STAGES.map((one) => <option key={one} value={one}>{one}</option>)}
      </select>
    </>
  );
}

function Find() {
  const [id, type] = useState("");
  const go = (event: Event) => {
    event.preventDefault();
    if (id.trim()) location.hash = link("work", id.trim());
  };
  return (
    <form class="row" onSubmit={go}>
      <label class="field">Id of a task<input class="input mono" value={id} onInput={(event) => type(event.currentTarget.value)} /></label>
      <button type="submit" class="button">Why?</button>
      {id.trim() && <CopyAsCli line={command("dunlin", "task", "why", id.trim())} />}
    </form>
  );
}

export function Stage({ stage }: { stage: string }) {
  const tone = { running: "accent", completed: "good", dead: "bad", blocked: "warn", delayed: "warn", limited: "warn" }[stage] ?? "";
  return <span class={`pill ${tone}`}>{stage}</span>;
}
