//! Parses the JSON of submitted tasks.
//!
//! Limits: of a request's tasks, only the first [`TASKS_MAX`] are kept, because a decoded task takes much more memory
//! than its shortest JSON. For the same reason, a task has at most [`DEPENDENCIES_MAX`] dependencies and [`LABELS_MAX`]
//! labels, and all tasks of a request together have at most [`ELEMENTS_MAX`] dependencies and labels.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dunlin::Refused;
use dunlin::scheduler::{Backoff, Label, NewTask, RetryPolicy, TaskDependency};
use dunlin::wire::ErrorCode;
use serde::de::{Error, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::http::limited;
use crate::http::problem::Problem;

/// Maximum number of tasks that a request may submit.
pub(super) const TASKS_MAX: u64 = 10_000;
/// Maximum number of dependencies of a task. The scheduler's own limit is lower by default.
const DEPENDENCIES_MAX: usize = 10_000;
/// Maximum number of a task's own labels, and of the labels that the task requires of a worker. The scheduler's own
/// limit is lower by default.
const LABELS_MAX: usize = 1_000;
/// Maximum number of dependencies and labels of all tasks of a request together.
const ELEMENTS_MAX: usize = 1 << 18;

/// The tasks in the body of a request.
#[derive(Debug)]
pub(super) struct JsonTasks<'a> {
    /// The tasks in the order of the body, at most the first [`TASKS_MAX`].
    pub(super) tasks: Vec<JsonTask<'a>>,
    /// Number of all tasks in the body.
    pub(super) count: u64,
}

impl<'de> Deserialize<'de> for JsonTasks<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<JsonTasks<'de>, D::Error> {
        from.deserialize_seq(TaskListVisitor)
    }
}

struct TaskListVisitor;

impl<'de> Visitor<'de> for TaskListVisitor {
    type Value = JsonTasks<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a task or a list of tasks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<JsonTasks<'de>, A::Error> {
        let (mut tasks, mut count, mut elements) = (Vec::new(), 0, 0);
        while count < TASKS_MAX {
            let Some(task) = list.next_element::<JsonTask<'_>>()? else {
                return Ok(JsonTasks { tasks, count });
            };
            elements += task.after.len() + task.labels.len() + task.needs.len();
            if elements > ELEMENTS_MAX {
                let text = format!("the tasks have more than {ELEMENTS_MAX} dependencies and labels");
                return Err(A::Error::custom(text));
            }
            tasks.push(task);
            count += 1;
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(JsonTasks { tasks, count })
    }
}

/// A task in the body of a request. Times are milliseconds since 1970.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonTask<'a> {
    kind: String,
    /// The payload: the text of a JSON string, or the source text of any other JSON value.
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    payload_base64: Option<String>,
    queue: Option<String>,
    priority: Option<i64>,
    #[serde(default)]
    not_before_ms: u64,
    #[serde(default)]
    deadline_ms: u64,
    #[serde(default)]
    timeout_ms: u32,
    retry: Option<RawRetry>,
    #[serde(default)]
    idempotency_key: String,
    #[serde(default, deserialize_with = "limited::list::<DEPENDENCIES_MAX, _, _>")]
    after: Vec<RawAfter>,
    #[serde(default, deserialize_with = "limited::map::<LABELS_MAX, _>")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "limited::map::<LABELS_MAX, _>")]
    needs: BTreeMap<String, String>,
    #[serde(default)]
    cpu_milli: u32,
    #[serde(default)]
    memory_bytes: u64,
    #[serde(default)]
    subject: String,
}

/// A task's retry policy; a request may state at most one of the three kinds of delay.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRetry {
    retries: u16,
    fixed_ms: Option<u32>,
    exponential: Option<BackoffBounds>,
    decorrelated: Option<BackoffBounds>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackoffBounds {
    base_ms: u32,
    cap_ms: u32,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum RawAfter {
    /// The index of another task of the same request, from 0.
    Index(u32),
    /// The id of an existing task, in hexadecimal digits.
    Task(String),
}

impl JsonTask<'_> {
    pub(super) fn payload(&self) -> Result<Cow<'_, [u8]>, Problem> {
        match (self.payload.map(RawValue::get), &self.payload_base64) {
            (None, None) => Ok(Cow::default()),
            (Some(text), None) if text.starts_with('"') => serde_json::from_str::<String>(text)
                .map(|text| text.into_bytes().into())
                .map_err(|error| Problem::bad_request(format!("payload: {error}"))),
            (Some(text), None) => Ok(text.as_bytes().into()),
            (None, Some(text)) => STANDARD
                .decode(text)
                .map(Cow::from)
                .map_err(|error| Problem::bad_request(format!("payload_base64: {error}"))),
            (Some(_), Some(_)) => Err(Problem::bad_request("set payload or payload_base64, not both")),
        }
    }

    fn priority(&self) -> Result<u8, Problem> {
        let priority = self.priority.unwrap_or(5);
        u8::try_from(priority).map_err(|_| {
            let why = format!("priority {priority} is not one of 0 to 9");
            Problem::from(Refused::new(ErrorCode::BadTask, why))
        })
    }

    /// Converts this to a task of the scheduler, with the decoded payload.
    pub(super) fn task<'d>(&'d self, payload: &'d [u8]) -> Result<NewTask<'d>, Problem> {
        Ok(NewTask {
            queue: self.queue.as_deref().unwrap_or("default").as_bytes(),
            payload,
            priority: self.priority()?,
            not_before_ms: self.not_before_ms,
            deadline_ms: self.deadline_ms,
            timeout_ms: self.timeout_ms,
            retry: self.retry.map(RawRetry::read).transpose()?,
            idempotency_key: self.idempotency_key.as_bytes(),
            after: self.after.iter().map(RawAfter::read).collect::<Result<_, _>>()?,
            labels: labels(&self.labels),
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            subject: self.subject.as_bytes(),
            needs: labels(&self.needs),
            ..NewTask::new(self.kind.as_bytes(), b"")
        })
    }
}

impl RawRetry {
    fn read(self) -> Result<RetryPolicy, Problem> {
        let backoff = match (self.fixed_ms, self.exponential, self.decorrelated) {
            (None, None, None) => RetryPolicy::default().backoff,
            (Some(delay_ms), None, None) => Backoff::Fixed { delay_ms },
            (None, Some(BackoffBounds { base_ms, cap_ms }), None) => Backoff::Exponential { base_ms, cap_ms },
            (None, None, Some(BackoffBounds { base_ms, cap_ms })) => {
                Backoff::Decorrelated { base_ms, cap_ms }
            }
            _ => {
                return Err(Problem::bad_request(
                    "retry: set only one of fixed_ms, exponential and decorrelated",
                ));
            }
        };
        Ok(RetryPolicy { retries: self.retries, backoff })
    }
}

impl RawAfter {
    fn read(&self) -> Result<TaskDependency, Problem> {
        match self {
            RawAfter::Index(index) => Ok(TaskDependency::Batch { index: *index }),
            RawAfter::Task(text) => super::parse_id(text).map(|task| TaskDependency::Task { task }),
        }
    }
}

fn labels(map: &BTreeMap<String, String>) -> Vec<Label<'_>> {
    map.iter().map(|(key, value)| Label { key: key.as_bytes(), value: value.as_bytes() }).collect()
}

#[cfg(test)]
mod tests {
    use dunlin::scheduler::SchedulerLimits;

    use super::*;

    #[test]
    fn json_task_list_may_be_as_long_as_the_scheduler_allows() {
        assert_eq!(TASKS_MAX, u64::from(SchedulerLimits::default().batch_max));
    }

    #[test]
    fn batch_with_too_many_dependencies_in_total_is_refused() {
        let task = |after: usize| format!(r#"{{"kind":"k","after":[{}]}}"#, vec!["0"; after].join(","));
        let read = |tasks: usize, after: usize| {
            let text = format!("[{}]", vec![task(after); tasks].join(","));
            let read: Result<JsonTasks<'_>, _> = serde_json::from_str(&text);
            read.map(|read| read.count).map_err(|error| error.to_string())
        };
        assert_eq!(read(26, DEPENDENCIES_MAX), Ok(26));
        let error = read(27, DEPENDENCIES_MAX).unwrap_err();
        assert!(error.contains("more than 262144 dependencies and labels"), "{error}");
        let error = read(1, DEPENDENCIES_MAX + 1).unwrap_err();
        assert!(error.contains("more than 10000 elements"), "{error}");
    }
}
