//! Requests at `/v1/tasks`: listing, describing, submitting and cancelling tasks.
//!
//! Limits: a list has at most one page of the scheduler (`PAGE_MAX` tasks). Lists omit payloads and results. The
//! description of a single task shows [`PAYLOAD_SHOWN_BYTES`] bytes of its payload.

mod draft;

use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use axum::{Extension, Json};
use dunlin::scheduler::{
    Backoff, ListFilter, NewTask, RetryPolicy, SubmittedTask, TaskCommand, TaskQuery, TaskQueryResult,
    TaskStage, TaskView,
};
use dunlin::wire::ErrorCode;
use dunlin::{Refused, TasksError};
use serde_json::{Map, Value, json};

use super::body;
use super::context::Context;
use super::problem::Problem;
use super::query::QueryParameters;
use super::routes::PathName;
use crate::submitting::{self, Submitted};
use draft::{JsonTask, JsonTasks, TASKS_MAX};

const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1_000;
const PAYLOAD_SHOWN_BYTES: usize = 64 << 10;
const STAGES: [TaskStage; 9] = [
    TaskStage::Blocked,
    TaskStage::Delayed,
    TaskStage::Limited,
    TaskStage::Ready,
    TaskStage::Running,
    TaskStage::Stopping,
    TaskStage::Completed,
    TaskStage::Cancelled,
    TaskStage::Dead,
];

pub(super) async fn list(
    Extension(context): Extension<Context>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let known = ["tenant", "queue", "kind", "stage", "state", "limit", "from"];
    let query = QueryParameters::parse(query.as_deref(), &known)?;
    let named = |name: &str| query.get(name).unwrap_or("").as_bytes();
    let rule = context.node().task_rule();
    let mut filter = ListFilter {
        tenant: named("tenant"),
        queue: named("queue"),
        kind: named("kind"),
        stage: stage_of(&query)?,
        ..ListFilter::default()
    };
    if !rule.manage && filter.tenant.is_empty() {
        filter.tenant = rule.tenant.as_bytes();
    }
    let limit = query.count("limit", LIMIT_DEFAULT, LIMIT_MAX)? as u32;
    let from = query.get("from").map_or(Ok(0), str::parse);
    let from = from.map_err(|_| Problem::bad_request("from: expected the `next` of the previous page"))?;
    let found = run_query(&context, &TaskQuery::List { filter, from, limit, whole: false }).await?;
    let page = match found {
        Some(TaskQueryResult::Tasks { tasks, next, now_ms }) => {
            let tasks: Vec<_> = tasks.iter().map(|task| task_json(task, now_ms)).collect();
            json!({"tasks": tasks, "next": next})
        }
        _ => json!({"tasks": [], "next": null}),
    };
    body::charged_json(&context, &page, Refused::from)
}

pub(super) async fn describe(
    Extension(context): Extension<Context>,
    PathName(name): PathName,
) -> Result<Response, Problem> {
    let task = parse_id(&name)?;
    let Some(TaskQueryResult::Task { task: view, now_ms }) =
        run_query(&context, &TaskQuery::Get { task }).await?
    else {
        return Err(task_not_found(&name));
    };
    let mut object = task_json(&view, now_ms);
    object["payload"] = text(&view.payload[..view.payload.len().min(PAYLOAD_SHOWN_BYTES)]).into();
    object["payload_bytes"] = view.payload.len().into();
    if let Some(TaskQueryResult::Why { why }) = run_query(&context, &TaskQuery::Why { task }).await? {
        object["why"] = why.into();
    }
    body::charged_json(&context, &object, Refused::from)
}

/// Submits one task (a JSON object) or several (a JSON list).
pub(super) async fn submit(
    Extension(context): Extension<Context>,
    RawQuery(query): RawQuery,
    request: Request<Body>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let query = QueryParameters::parse(query.as_deref(), &["tenant"])?;
    let content = body::read_for_tasks(&context, request.into_body()).await?;
    let is_single = content.bytes.trim_ascii_start().first() == Some(&b'{');
    let read = match is_single {
        true => serde_json::from_slice(&content.bytes).map(|task| JsonTasks { tasks: vec![task], count: 1 }),
        false => serde_json::from_slice(&content.bytes),
    };
    let JsonTasks { tasks: drafts, count } =
        read.map_err(|error| Problem::bad_request(format!("the tasks: {error}")))?;
    if count > TASKS_MAX {
        let numbers = [TASKS_MAX, count, 0];
        return Err(Problem::from(Refused { numbers, ..Refused::limit("batch_max", TASKS_MAX) }));
    }
    let payloads: Vec<_> = drafts.iter().map(JsonTask::payload).collect::<Result<_, _>>()?;
    let tasks = drafts.iter().zip(&payloads).map(|(draft, payload)| draft.task(payload));
    let tasks: Vec<NewTask<'_>> = tasks.collect::<Result<_, _>>()?;
    context.admit_command(&tasks, content.bytes.len()).await?;
    let (node, tenant) = (context.node(), query.get("tenant").unwrap_or(""));
    let Submitted { tasks, slow_down_ms } =
        submitting::submit(node, &node.task_rule(), tenant, tasks).await?;
    let submitted_json =
        |task: &SubmittedTask| json!({"task": format!("{:x}", task.task), "known": task.known});
    let body = match tasks.first().filter(|_| is_single) {
        Some(task) => {
            let mut body = submitted_json(task);
            body["slow_down_ms"] = slow_down_ms.into();
            body
        }
        None => {
            json!({"tasks": tasks.iter().map(submitted_json).collect::<Vec<_>>(), "slow_down_ms": slow_down_ms})
        }
    };
    Ok((StatusCode::CREATED, Json(body)))
}

pub(super) async fn cancel(
    Extension(context): Extension<Context>,
    PathName(name): PathName,
) -> Result<StatusCode, Problem> {
    let command = TaskCommand::Cancel { task: parse_id(&name)? };
    if context.node().tasks_if_begun().await.map_err(|error| refused(&error))?.is_none() {
        return Err(task_not_found(&name));
    }
    context.admit_command(&command, 0).await?;
    context.node().execute_task_command(&command).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Runs a query on the tasks; `None` if no task was ever submitted.
async fn run_query(context: &Context, query: &TaskQuery<'_>) -> Result<Option<TaskQueryResult>, Problem> {
    let tasks = context.node().tasks_if_begun().await.map_err(|error| refused(&error))?;
    // Permissions are checked after the node has applied the latest tasks, because the permissions depend on the tasks'
    // tenants.
    context.node().may_query_tasks(query)?;
    let Some(tasks) = tasks else { return Ok(None) };
    tasks.answer(query).map(Some).map_err(|error| refused(&error))
}

fn refused(error: &TasksError) -> Problem {
    Problem::from(Refused::from(error))
}

fn task_not_found(name: &str) -> Problem {
    Problem::of(StatusCode::NOT_FOUND, ErrorCode::NoTask, format!("task {name} does not exist"))
}

fn parse_id(text: &str) -> Result<u64, Problem> {
    u64::from_str_radix(text, 16)
        .map_err(|_| Problem::bad_request(format!("{text:?}: expected a task's id, in hexadecimal")))
}

fn stage_name(stage: TaskStage) -> String {
    format!("{stage:?}").to_lowercase()
}

/// The stage in the query parameter `stage`, for which `state` is another name. `None` if neither is set.
fn stage_of(query: &QueryParameters) -> Result<Option<TaskStage>, Problem> {
    let (name, text) = match (query.get("stage"), query.get("state")) {
        (Some(_), Some(_)) => {
            return Err(Problem::bad_request("stage and state are the same parameter: set one of them"));
        }
        (Some(text), None) => ("stage", text),
        (None, Some(text)) => ("state", text),
        (None, None) => return Ok(None),
    };
    let found = STAGES.into_iter().find(|stage| stage_name(*stage) == text);
    found.map(Some).ok_or_else(|| {
        let names = STAGES.map(stage_name).join(", ");
        Problem::bad_request(format!("{name}={text}: expected one of {names}"))
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Converts a task to JSON. Its times are converted from the cluster's clock to Unix times, because the cluster's clock
/// has no meaning for clients.
fn task_json(task: &TaskView, now_ms: u64) -> Value {
    let now_unix_ms = dunlin::now_ns() / 1_000_000;
    let unix_ms = |ms: u64| (now_unix_ms + ms).saturating_sub(now_ms);
    let labels: Map<String, Value> =
        task.labels.iter().map(|label| (text(&label.key), text(&label.value).into())).collect();
    let (permille, note) = &task.progress;
    let progress = (*permille > 0 || note.is_some())
        .then(|| json!({"permille": permille, "note": note.as_ref().map(|note| text(note))}));
    json!({
        "task": format!("{:x}", task.task),
        "tenant": text(&task.tenant),
        "queue": text(&task.queue),
        "kind": text(&task.kind),
        "stage": stage_name(task.stage),
        "priority": task.priority,
        "attempts": task.attempts,
        "lost": task.lost,
        "submitted_ms": unix_ms(task.submitted_ms),
        "started_ms": task.started_ms.map(unix_ms),
        "deadline_ms": task.deadline_ms.map(unix_ms),
        "worker": task.worker.map(|worker| format!("{worker:x}")),
        "progress": progress,
        "labels": labels,
        "needs": task.needs.iter().map(|need| format!("{}={}", text(&need.key), text(&need.value))).collect::<Vec<_>>(),
        "cpu_milli": task.amounts[0],
        "memory_bytes": task.amounts[1],
        "timeout_ms": task.timeout_ms,
        "not_before_ms": task.not_before_ms.map(unix_ms),
        "retry": task.retry.as_ref().map(retry_json),
        "idempotency_key": text(&task.idempotency_key),
        "subject": text(&task.subject),
        "after": task.after.iter().map(|task| format!("{task:x}")).collect::<Vec<_>>(),
        "outcome": task.outcome.as_ref().map(|outcome| json!({
            "bytes": text(&outcome.bytes),
            "failure": outcome.failure.map(|failure| format!("{failure:?}").to_lowercase()),
            "run_us": outcome.run_us,
            "cpu_us": outcome.cpu_us,
            "memory_bytes": outcome.memory_bytes,
        })),
    })
}

/// Converts a retry policy to JSON, in the format in which clients submit it.
fn retry_json(retry: &RetryPolicy) -> Value {
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
