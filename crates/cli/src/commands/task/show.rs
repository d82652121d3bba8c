//! Formats tasks, tenants, queues and workers as text and JSON.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use dunlin_client::scheduler::{
    AttemptFailure, AttemptOutcome, Backoff, QueueView, Quota, RetryPolicy, StoredKeyLimit, StoredLabel,
    TaskStage, TaskView, TenantView, WorkerView,
};
use serde_json::{Value, json};

use crate::commands::kv::{line, to_json};
use crate::console::{Console, format_bytes, grouped};
use crate::table::TextTable;

/// Formats the id of a task or worker in hexadecimal.
pub fn hex(id: u64) -> String {
    format!("{id:x}")
}

pub fn id(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|_| "expected a task's id, as `dunlin task list` prints it".into())
}

const STAGES: [(&str, TaskStage); 9] = [
    ("blocked", TaskStage::Blocked),
    ("delayed", TaskStage::Delayed),
    ("limited", TaskStage::Limited),
    ("ready", TaskStage::Ready),
    ("running", TaskStage::Running),
    ("stopping", TaskStage::Stopping),
    ("completed", TaskStage::Completed),
    ("cancelled", TaskStage::Cancelled),
    ("dead", TaskStage::Dead),
];

pub fn stage(text: &str) -> Result<TaskStage, String> {
    let found = STAGES.iter().find(|(name, _)| *name == text);
    let names = || STAGES.map(|(name, _)| name).join(", ");
    found.map(|(_, stage)| *stage).ok_or_else(|| format!("expected one of {}", names()))
}

fn stage_name(stage: TaskStage) -> &'static str {
    STAGES.iter().find(|(_, other)| *other == stage).map_or("", |(name, _)| name)
}

fn failure_name(failure: AttemptFailure) -> &'static str {
    match failure {
        AttemptFailure::Failed => "failed",
        AttemptFailure::TimedOut => "timed_out",
        AttemptFailure::Deadline => "deadline",
        AttemptFailure::Poisoned => "poisoned",
    }
}

/// Prints all values of a task, or with `result` only the task's result.
pub fn task(task: &TaskView, now_ms: u64, result: bool, console: &Console) -> Result<()> {
    let mut out = console.out();
    if result {
        out.write_all(task.outcome.as_ref().map_or(&b""[..], |outcome| &outcome.bytes))?;
    } else if console.json {
        writeln!(out, "{}", task_object(task, now_ms))?;
    } else {
        let time = |ms: Option<u64>| ms.map_or_else(String::new, |ms| time(ms, now_ms));
        let rows = [
            ("task", hex(task.task)),
            ("tenant", line(&task.tenant)),
            ("queue", line(&task.queue)),
            ("kind", line(&task.kind)),
            ("stage", stage_name(task.stage).to_owned()),
            ("priority", task.priority.to_string()),
            ("attempts", task.attempts.to_string()),
            ("workers lost", task.lost.to_string()),
            ("submitted", time(Some(task.submitted_ms))),
            ("not before", time(task.not_before_ms)),
            ("started", time(task.started_ms)),
            ("deadline", time(task.deadline_ms)),
            ("timeout", duration_text(u64::from(task.timeout_ms))),
            ("retries", task.retry.as_ref().map_or_else(String::new, retries)),
            ("key", line(&task.idempotency_key)),
            ("subject", line(&task.subject)),
            ("worker", task.worker.map_or_else(|| "–".to_owned(), hex)),
            ("waits for", task.after.iter().map(|id| hex(*id)).collect::<Vec<_>>().join(" ")),
            ("labels", labels(&task.labels)),
            ("needs", needs(task)),
            ("payload", line(&task.payload)),
        ];
        for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
            writeln!(out, "{name:<13} {value}")?;
        }
        if let Some(note) = &task.progress.1 {
            writeln!(out, "{:<13} {} ‰ {}", "progress", task.progress.0, line(note))?;
        }
        if let Some(AttemptOutcome { bytes, failure, run_us, cpu_us, memory_bytes, at_ms }) = &task.outcome {
            if let Some(failure) = failure {
                writeln!(out, "{:<13} {}", "failure", failure_name(*failure))?;
            }
            let what = if failure.is_some() { "error" } else { "result" };
            writeln!(out, "{what:<13} {}", line(bytes))?;
            writeln!(
                out,
                "{:<13} {}",
                if failure.is_some() { "failed" } else { "done" },
                time(Some(*at_ms))
            )?;
            let memory =
                if *memory_bytes > 0 { format!(", {}", format_bytes(*memory_bytes)) } else { String::new() };
            writeln!(
                out,
                "{:<13} {} µs, processor {} µs{memory}",
                "ran",
                grouped(*run_us),
                grouped(*cpu_us)
            )?;
        }
    }
    Ok(out.flush()?)
}

/// Formats `ms`, a time of the cluster, as wall clock time, followed by how long before or after `now_ms` it is.
fn time(ms: u64, now_ms: u64) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(unix_ms(ms, now_ms));
    let at = humantime::format_rfc3339_millis(at);
    match ms.checked_sub(now_ms) {
        Some(left) if left > 0 => format!("{at} (in {})", duration_text(left)),
        _ => format!("{at} ({} ago)", duration_text(now_ms - ms.min(now_ms))),
    }
}

fn unix_ms(ms: u64, now_ms: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_millis() as u64 + ms).saturating_sub(now_ms)
}

fn duration_text(ms: u64) -> String {
    let exact = Duration::from_millis(ms);
    let rounded = if ms < 10_000 { exact } else { Duration::from_secs(exact.as_secs()) };
    humantime::format_duration(rounded).to_string()
}

fn retries(retry: &RetryPolicy) -> String {
    let ms = |ms: u32| duration_text(u64::from(ms));
    let delay = match retry.backoff {
        Backoff::Fixed { delay_ms } => format!("{} apart", ms(delay_ms)),
        Backoff::Exponential { base_ms, cap_ms } => {
            format!("first delay up to {}, doubled for each retry, {} at most", ms(base_ms), ms(cap_ms))
        }
        Backoff::Decorrelated { base_ms, cap_ms } => {
            format!("from {} to three times the previous delay, {} at most", ms(base_ms), ms(cap_ms))
        }
    };
    match retry.retries {
        0 => "0".to_owned(),
        count => format!("{count}, {delay}"),
    }
}

/// Returns the retry policy as the JSON object that the HTTP interface uses.
fn retry_object(retry: &RetryPolicy) -> Value {
    let retries = retry.retries;
    match retry.backoff {
        Backoff::Fixed { delay_ms } => json!({"retries": retries, "fixed_ms": delay_ms}),
        Backoff::Exponential { base_ms, cap_ms } => {
            json!({"retries": retries, "exponential": {"base_ms": base_ms, "cap_ms": cap_ms}})
        }
        Backoff::Decorrelated { base_ms, cap_ms } => {
            json!({"retries": retries, "decorrelated": {"base_ms": base_ms, "cap_ms": cap_ms}})
        }
    }
}

fn labels(labels: &[StoredLabel]) -> String {
    let one = |label: &StoredLabel| format!("{}={}", line(&label.key), line(&label.value));
    labels.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn needs(task: &TaskView) -> String {
    let [cpu_milli, memory_bytes] = task.amounts;
    let cpu = (cpu_milli > 0).then(|| format!("{} processors", cpu_milli as f64 / 1e3));
    let memory = (memory_bytes > 0).then(|| format_bytes(memory_bytes));
    let all = [Some(labels(&task.needs)), cpu, memory].into_iter().flatten();
    all.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Returns the labels as a JSON array and not as an object, because a key may appear more than once.
fn pairs(labels: &[StoredLabel]) -> Value {
    labels.iter().map(|label| json!([to_json(&label.key), to_json(&label.value)])).collect()
}

pub fn task_object(task: &TaskView, now_ms: u64) -> Value {
    let when = |ms: u64| unix_ms(ms, now_ms);
    let outcome = task.outcome.as_ref().map(|outcome| {
        json!({
            "bytes": to_json(&outcome.bytes), "failure": outcome.failure.map(failure_name),
            "at_ms": when(outcome.at_ms), "run_us": outcome.run_us, "cpu_us": outcome.cpu_us, "memory_bytes": outcome.memory_bytes,
        })
    });
    let labels: serde_json::Map<String, Value> = task
        .labels
        .iter()
        .map(|label| (String::from_utf8_lossy(&label.key).into_owned(), to_json(&label.value)))
        .collect();
    json!({
        "task": hex(task.task), "tenant": to_json(&task.tenant), "queue": to_json(&task.queue),
        "kind": to_json(&task.kind),
        "stage": stage_name(task.stage), "priority": task.priority, "attempts": task.attempts, "lost": task.lost,
        "submitted_ms": when(task.submitted_ms), "not_before_ms": task.not_before_ms.map(when),
        "started_ms": task.started_ms.map(when), "deadline_ms": task.deadline_ms.map(when),
        "timeout_ms": task.timeout_ms, "retry": task.retry.as_ref().map(retry_object),
        "idempotency_key": to_json(&task.idempotency_key), "subject": to_json(&task.subject),
        "worker": task.worker.map(hex), "payload": to_json(&task.payload), "labels": labels,
        "needs": pairs(&task.needs), "cpu_milli": task.amounts[0], "memory_bytes": task.amounts[1],
        "after": task.after.iter().map(|id| hex(*id)).collect::<Vec<_>>(),
        "permille": task.progress.0, "note": task.progress.1.as_ref().map(|note| to_json(note)),
        "outcome": outcome,
    })
}

/// Returns a task as JSON for a list of tasks. The node lists tasks without payload and result, so these two fields are
/// left out.
fn line_object(task: &TaskView, now_ms: u64) -> Value {
    let mut object = task_object(task, now_ms);
    if let Some(fields) = object.as_object_mut() {
        fields.remove("payload");
        if let Some(outcome) = fields.get_mut("outcome").and_then(Value::as_object_mut) {
            outcome.remove("bytes");
        }
    }
    object
}

pub fn tasks(tasks: &[TaskView], now_ms: u64, console: &Console) -> Result<()> {
    let mut out = console.out();
    if console.json {
        tasks.iter().try_for_each(|task| writeln!(out, "{}", line_object(task, now_ms)))?;
        return Ok(out.flush()?);
    }
    let mut table =
        TextTable::new(&["TASK", "TENANT", "QUEUE", "KIND", "STAGE", "PRIORITY", "ATTEMPTS", "WORKER"]);
    for task in tasks {
        table.row([
            hex(task.task),
            line(&task.tenant),
            line(&task.queue),
            line(&task.kind),
            stage_name(task.stage).to_owned(),
            task.priority.to_string(),
            task.attempts.to_string(),
            task.worker.map_or_else(|| "–".to_owned(), hex),
        ]);
    }
    table.write(&mut out, console.paint)?;
    Ok(out.flush()?)
}

pub fn queues(queues: &[QueueView], console: &Console) -> Result<()> {
    let mut out = console.out();
    if console.json {
        for queue in queues {
            let object = json!({
                "tenant": to_json(&queue.tenant), "queue": to_json(&queue.queue),
                "kind": to_json(&queue.kind),
                "needs": pairs(&queue.needs), "ready": queue.ready, "oldest_ms": queue.oldest_ms,
                "cost_us": queue.cost_us,
            });
            writeln!(out, "{object}")?;
        }
        return Ok(out.flush()?);
    }
    let mut table = TextTable::new(&["TENANT", "QUEUE", "KIND", "NEEDS", "READY", "OLDEST ms", "COST µs"]);
    for queue in queues {
        table.row([
            line(&queue.tenant),
            line(&queue.queue),
            line(&queue.kind),
            labels(&queue.needs),
            grouped(queue.ready),
            grouped(queue.oldest_ms),
            grouped(queue.cost_us),
        ]);
    }
    table.write(&mut out, console.paint)?;
    Ok(out.flush()?)
}

pub fn tenants(tenants: &[TenantView], console: &Console) -> Result<()> {
    let mut out = console.out();
    if console.json {
        for tenant in tenants {
            let [concurrency, cpu_milli, memory_bytes] = tenant.quotas.map(quota_object);
            let account = tenant.account;
            let limits = tenant.limits.iter();
            let object = json!({
                "tenant": to_json(&tenant.name), "weight": tenant.weight, "queued": tenant.queued,
                "ready": tenant.ready,
                "dead": tenant.dead, "used": tenant.used, "queued_max": tenant.queued_max,
                "retry_percent": tenant.retry_percent, "concurrency": concurrency, "cpu_milli": cpu_milli,
                "memory_bytes": memory_bytes,
                "limits": limits.map(limit).collect::<Vec<_>>(),
                "submitted": account.submitted, "started": account.started, "completed": account.completed,
                "failed": account.failed, "lost": account.lost, "dead_total": account.dead,
                "cancelled": account.cancelled, "cpu_us": account.cpu_us, "run_us": account.run_us,
                "memory_mb_ms": account.memory_mb_ms,
            });
            writeln!(out, "{object}")?;
        }
        return Ok(out.flush()?);
    }
    let mut table = TextTable::new(&[
        "TENANT",
        "WEIGHT",
        "RUNNING",
        "LIMIT",
        "QUEUED",
        "READY",
        "DEAD",
        "SUBMITTED",
        "COMPLETED",
        "CPU s",
    ]);
    for tenant in tenants {
        let hard = tenant.quotas[0].hard;
        table.row([
            line(&tenant.name),
            tenant.weight.to_string(),
            grouped(tenant.used[0]),
            if hard == 0 { "–".to_owned() } else { grouped(hard) },
            grouped(tenant.queued),
            grouped(tenant.ready),
            grouped(tenant.dead),
            grouped(tenant.account.submitted),
            grouped(tenant.account.completed),
            format!("{:.3}", tenant.account.cpu_us as f64 / 1e6),
        ]);
    }
    table.write(&mut out, console.paint)?;
    Ok(out.flush()?)
}

fn limit(of: &StoredKeyLimit) -> Value {
    let rate = of.rate.map(|rate| json!({"count": rate.count, "per_ms": rate.per_ms, "burst": rate.burst}));
    let running_max = (of.running_max < u32::MAX).then_some(of.running_max);
    json!({"key": to_json(&of.key), "running_max": running_max, "rate": rate})
}

fn quota_object(quota: Quota) -> Value {
    json!({"reserved": quota.reserved, "soft": quota.soft, "hard": quota.hard, "burst": quota.burst})
}

pub fn workers(workers: &[WorkerView], console: &Console) -> Result<()> {
    let mut out = console.out();
    if console.json {
        for worker in workers {
            let object = json!({
                "worker": hex(worker.worker), "name": to_json(&worker.name),
                "kinds": worker.kinds.iter().map(|kind| to_json(kind)).collect::<Vec<_>>(),
                "queues": worker.queues.iter().map(|queue| to_json(queue)).collect::<Vec<_>>(),
                "labels": pairs(&worker.labels),
                "tenants": worker.tenants.iter().map(|tenant| to_json(tenant)).collect::<Vec<_>>(),
                "cpu_milli": worker.capacity[0], "memory_bytes": worker.capacity[1],
                "held": worker.held, "credit": worker.credit, "done": worker.done,
                "draining": worker.is_draining, "left_ms": worker.left_ms,
            });
            writeln!(out, "{object}")?;
        }
        return Ok(out.flush()?);
    }
    let mut table = TextTable::new(&[
        "WORKER",
        "NAME",
        "KINDS",
        "LABELS",
        "RUNNING",
        "SLOTS",
        "DONE",
        "LEASE ENDS IN ms",
        "STATE",
    ]);
    for worker in workers {
        table.row([
            hex(worker.worker),
            line(&worker.name),
            worker.kinds.iter().map(|kind| line(kind)).collect::<Vec<_>>().join(" "),
            labels(&worker.labels),
            grouped(worker.held),
            grouped(worker.credit),
            grouped(worker.done),
            grouped(worker.left_ms),
            if worker.is_draining { "draining".to_owned() } else { "working".to_owned() },
        ]);
    }
    table.write(&mut out, console.paint)?;
    Ok(out.flush()?)
}
