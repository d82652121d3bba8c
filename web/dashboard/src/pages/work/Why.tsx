// The details of one task: the stage, the reason for the stage, and a button to cancel the task.

import { useState } from "preact/hooks";
import { ask, Problem } from "../../node/ask.ts";
import { useAsked } from "../../node/hooks.ts";
import type { Task } from "../../node/told_work.ts";
import { Card } from "../../parts/Card.tsx";
import { CopyAsCli } from "../../parts/Copy.tsx";
import { Empty, Failed, Waiting } from "../../parts/Empty.tsx";
import { ago, bytes, exact, moment, percent, span } from "../../quantity.ts";
import { link } from "../../route.ts";
import { command } from "../../shell.ts";
import { shown } from "../../text.ts";
import { Stage } from "./Tasks.tsx";

const OVER = ["completed", "cancelled"];
const TONE: Record<string, string> = { completed: "good", dead: "bad", cancelled: "plain", running: "plain" };

export function Why({ id }: { id: string }) {
  const path = `/v1/tasks/${encodeURIComponent(id)}`;
  const asked = useAsked(path, (signal) => ask<Task>(path, { signal }), 1000);
  const [error, fail] = useState<Error>();
  const task = asked.data;
  const cancel = () => ask(path, { method: "DELETE" }).then(asked.again, fail);
  if (!task) {
    const none = asked.error instanceof Problem && asked.error.status === 404;
    return <section class="card">{none ? <Empty title={`Task ${id} does not exist`}>It never existed, or it ended too long ago.</Empty> : asked.error ? <Failed error={asked.error} /> : <Waiting what="the task" />}</section>;
  }
  return (
    <Card title={`Task ${task.task}`} right={<><Stage stage={task.stage} /><CopyAsCli line={command("dunlin", "task", "why", task.task)} />{!OVER.includes(task.stage) && <button type="button" class="button" onClick={cancel}>Cancel task</button>}<a href={link("work")}>Close</a></>}>
      {task.why && <p class={`notice ${TONE[task.stage] ?? ""}`} role="status" data-figure="why">{task.why}</p>}
      <Failed error={error} />
      <dl class="facts" style={{ marginTop: "var(--s3)" }}>
        <dt>Tenant</dt><dd>{task.tenant}, queue {task.queue}, kind {task.kind}, priority {task.priority}</dd>
        <dt>Submitted</dt><dd>{moment(task.submitted_ms)} ({ago(task.submitted_ms)})</dd>
        {task.started_ms != null && <><dt>Started</dt><dd>{moment(task.started_ms)}{task.worker && <> by worker <span class="mono">{task.worker}</span></>}</dd></>}
        <dt>Attempts</dt><dd>{exact(task.attempts)}{task.lost > 0 ? `, ${exact(task.lost)} more lost with their workers` : ""}</dd>
        {task.deadline_ms != null && <><dt>Deadline</dt><dd>{moment(task.deadline_ms)}</dd></>}
        {task.progress && <><dt>Progress</dt><dd>{percent(task.progress.permille / 1000)} {task.progress.note}</dd></>}
        {task.after?.length > 0 && <><dt>After</dt><dd>{task.after.map((other) => <a key={other} class="mono" href={link("work", other)}>{other} </a>)}</dd></>}
        {Object.entries(task.labels ?? {}).map(([name, value]) => [<dt key={name} class="mono">{name}</dt>, <dd key={`${name} value`}>{value}</dd>])}
        {task.outcome && <><dt>Ran for</dt><dd>{span(task.outcome.run_us / 1e6)}, CPU time {span(task.outcome.cpu_us / 1e6)}</dd></>}
        {task.outcome?.failure && <><dt>Failed</dt><dd class="bad">{task.outcome.failure}</dd></>}
      </dl>
      <Payload label="Payload" text={task.payload} bytes={task.payload_bytes} />
      <Payload label={task.outcome?.failure ? "Error of the last attempt" : "Result"} text={task.outcome?.bytes} />
    </Card>
  );
}

/** Shows the task's payload or result; nothing if the node does not report it. */
function Payload({ label, text, bytes: all }: { label: string; text: string | undefined; bytes?: number | undefined }) {
  if (text === undefined) return null;
  const size = new TextEncoder().encode(text);
  return (
    <>
      <h3 class="small soft" style={{ marginTop: "var(--s3)" }}>{label}{all !== undefined && all > size.length ? ` (only the beginning of ${bytes(all)})` : ""}</h3>
      <pre class="payload" tabIndex={0} aria-label={label}>{shown(size).text || "empty"}</pre>
    </>
  );
}
