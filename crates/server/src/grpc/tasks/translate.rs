//! Converts between messages of `dunlin.v1.Tasks` and the scheduler's types.

use bytes::Bytes;
use dunlin::scheduler::{
    AttemptFailure, AttemptOutcome, Backoff, Label, ListFilter, NewTask, RetryPolicy, StoredLabel,
    TaskDependency, TaskStage, TaskView,
};
use dunlin::wire::ErrorCode;
use dunlin::{Refused, now_ns};
use v1::retry_policy::Delay;
use v1::task_after::TaskReference;

use super::super::proto::dunlin as v1;

const STAGES: [(v1::TaskStage, TaskStage); 9] = [
    (v1::TaskStage::Blocked, TaskStage::Blocked),
    (v1::TaskStage::Delayed, TaskStage::Delayed),
    (v1::TaskStage::Limited, TaskStage::Limited),
    (v1::TaskStage::Ready, TaskStage::Ready),
    (v1::TaskStage::Running, TaskStage::Running),
    (v1::TaskStage::Stopping, TaskStage::Stopping),
    (v1::TaskStage::Completed, TaskStage::Completed),
    (v1::TaskStage::Cancelled, TaskStage::Cancelled),
    (v1::TaskStage::Dead, TaskStage::Dead),
];

fn invalid(why: impl Into<String>) -> Refused {
    Refused::new(ErrorCode::BadTask, why)
}

pub(super) fn draft(draft: &v1::TaskDraft) -> Result<NewTask<'_>, Refused> {
    let queue = if draft.queue.is_empty() { "default" } else { &draft.queue };
    let priority = draft.priority.unwrap_or(5);
    let priority =
        u8::try_from(priority).map_err(|_| invalid(format!("priority {priority} is not one of 0 to 9")))?;
    Ok(NewTask {
        queue: queue.as_bytes(),
        kind: draft.kind.as_bytes(),
        payload: &draft.payload,
        priority,
        not_before_ms: draft.not_before_ms,
        deadline_ms: draft.deadline_ms,
        timeout_ms: draft.timeout_ms,
        retry: draft.retry.as_ref().map(retry).transpose()?,
        idempotency_key: &draft.idempotency_key,
        after: draft.after.iter().map(after).collect::<Result<_, _>>()?,
        labels: draft.labels.iter().map(label).collect(),
        cpu_milli: draft.cpu_milli,
        memory_bytes: draft.memory_bytes,
        subject: draft.subject.as_bytes(),
        needs: draft.needs.iter().map(label).collect(),
    })
}

fn retry(policy: &v1::RetryPolicy) -> Result<RetryPolicy, Refused> {
    let retries = u16::try_from(policy.retries)
        .map_err(|_| invalid(format!("retries: {} is over the limit of 65,535", policy.retries)))?;
    let backoff = match policy.delay {
        None => RetryPolicy::default().backoff,
        Some(Delay::FixedMs(delay_ms)) => Backoff::Fixed { delay_ms },
        Some(Delay::Exponential(bounds)) => {
            Backoff::Exponential { base_ms: bounds.base_ms, cap_ms: bounds.cap_ms }
        }
        Some(Delay::Decorrelated(bounds)) => {
            Backoff::Decorrelated { base_ms: bounds.base_ms, cap_ms: bounds.cap_ms }
        }
    };
    Ok(RetryPolicy { retries, backoff })
}

fn after(after: &v1::TaskAfter) -> Result<TaskDependency, Refused> {
    match after.task_reference {
        Some(TaskReference::Task(task)) => Ok(TaskDependency::Task { task }),
        Some(TaskReference::Index(index)) => Ok(TaskDependency::Batch { index }),
        None => Err(invalid("after: name a task or an index")),
    }
}

fn label(label: &v1::TaskLabel) -> Label<'_> {
    Label { key: label.key.as_bytes(), value: label.value.as_bytes() }
}

pub(super) fn filter(request: &v1::ListTasksRequest) -> Result<ListFilter<'_>, Refused> {
    let stage = match request.stage() {
        v1::TaskStage::Unspecified if request.stage != 0 => return Err(invalid("unknown stage")),
        requested => STAGES.iter().find(|(message, _)| *message == requested).map(|(_, stage)| *stage),
    };
    let label = request
        .label
        .as_ref()
        .map_or((&b""[..], &b""[..]), |label| (label.key.as_bytes(), label.value.as_bytes()));
    Ok(ListFilter {
        tenant: request.tenant.as_bytes(),
        queue: request.queue.as_bytes(),
        kind: request.kind.as_bytes(),
        stage,
        label,
    })
}

/// Converts a task. Its times are converted from the cluster's clock to Unix times, because the cluster's clock has no
/// meaning for clients.
pub(super) fn info(task: &TaskView, now_ms: u64) -> v1::TaskInfo {
    let now_unix_ms = now_ns() / 1_000_000;
    let unix_ms = |ms: u64| (now_unix_ms + ms).saturating_sub(now_ms);
    let stage =
        STAGES.iter().find(|(_, stage)| *stage == task.stage).map_or(0, |(message, _)| (*message).into());
    let [cpu_milli, memory_bytes] = task.amounts;
    v1::TaskInfo {
        task: task.task,
        tenant: text(&task.tenant),
        queue: text(&task.queue),
        kind: text(&task.kind),
        payload: Bytes::copy_from_slice(&task.payload),
        stage,
        priority: task.priority.into(),
        attempts: task.attempts,
        lost: task.lost,
        submitted_ms: unix_ms(task.submitted_ms),
        started_ms: task.started_ms.map(unix_ms),
        deadline_ms: task.deadline_ms.map(unix_ms),
        worker: task.worker,
        permille: task.progress.0.into(),
        note: task.progress.1.as_deref().map(text).unwrap_or_default(),
        after: task.after.clone(),
        labels: task.labels.iter().map(label_message).collect(),
        needs: task.needs.iter().map(label_message).collect(),
        cpu_milli,
        memory_bytes,
        outcome: task.outcome.as_ref().map(outcome),
        timeout_ms: task.timeout_ms,
        not_before_ms: task.not_before_ms.map(unix_ms),
        retry: task.retry.as_ref().map(policy),
        idempotency_key: Bytes::copy_from_slice(&task.idempotency_key),
        subject: text(&task.subject),
    }
}

fn policy(retry: &RetryPolicy) -> v1::RetryPolicy {
    let bounds = |base_ms, cap_ms| v1::retry_policy::BackoffBounds { base_ms, cap_ms };
    let delay = match retry.backoff {
        Backoff::Fixed { delay_ms } => Delay::FixedMs(delay_ms),
        Backoff::Exponential { base_ms, cap_ms } => Delay::Exponential(bounds(base_ms, cap_ms)),
        Backoff::Decorrelated { base_ms, cap_ms } => Delay::Decorrelated(bounds(base_ms, cap_ms)),
    };
    v1::RetryPolicy { retries: retry.retries.into(), delay: Some(delay) }
}

fn outcome(outcome: &AttemptOutcome) -> v1::TaskOutcome {
    let failure = match outcome.failure {
        None => v1::TaskFailure::None,
        Some(AttemptFailure::Failed) => v1::TaskFailure::Failed,
        Some(AttemptFailure::TimedOut) => v1::TaskFailure::TimedOut,
        Some(AttemptFailure::Deadline) => v1::TaskFailure::Deadline,
        Some(AttemptFailure::Poisoned) => v1::TaskFailure::Poisoned,
    };
    v1::TaskOutcome {
        bytes: Bytes::copy_from_slice(&outcome.bytes),
        failure: failure.into(),
        run_us: outcome.run_us,
        cpu_us: outcome.cpu_us,
        memory_bytes: outcome.memory_bytes,
    }
}

fn label_message(label: &StoredLabel) -> v1::TaskLabel {
    v1::TaskLabel { key: text(&label.key), value: text(&label.value) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
