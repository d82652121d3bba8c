//! The calls that submit, list and change tasks, which `python/dunlin/tasks.py` wraps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin_client::scheduler::{
    Backoff, KeyLimit, Label, ListFilter, NewTask, Quota, Rate, RetryPolicy, StoredLabel, TaskDependency,
    TaskStage, TaskView, TenantSettings,
};
use dunlin_client::{Tasks, TasksError, WorkerOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::attachment::RawAttachment;
use crate::connection::Connection;
use crate::failure::Failure;

/// A row about a tenant: name, waiting, running and completed tasks, failed attempts, dead letters, CPU seconds.
type TenantRow = (String, u64, u64, u64, u64, u64, f64);
/// A row about a worker: id, name, current tasks, free slots, completed tasks, whether it is draining.
type WorkerRow = (u64, String, u64, u64, u64, bool);

/// Calls that submit, list and change a cluster's tasks.
#[pyclass(frozen, module = "dunlin._dunlin")]
pub struct TaskCalls {
    connection: Py<Connection>,
}

/// The arguments of a task to submit: the fields of Python's `tasks.NewTask`.
#[derive(FromPyObject)]
struct Draft {
    kind: String,
    payload: PyBackedBytes,
    queue: String,
    priority: u8,
    not_before_ms: u64,
    deadline_ms: u64,
    timeout_ms: u32,
    /// The number of retries, the delay before the first retry in ms, and the largest delay in ms; `None` for the
    /// default.
    retry: Option<(u16, u32, u32)>,
    idempotency_key: PyBackedBytes,
    after: Vec<u64>,
    labels: Vec<(String, String)>,
    cpu_milli: u32,
    memory_bytes: u64,
    subject: String,
    needs: Vec<(String, String)>,
}

fn labels(pairs: &[(String, String)]) -> Vec<Label<'_>> {
    pairs.iter().map(|(key, value)| Label { key: key.as_bytes(), value: value.as_bytes() }).collect()
}

impl Draft {
    fn task(&self) -> NewTask<'_> {
        let retry = self.retry.map(|(retries, base_ms, cap_ms)| RetryPolicy {
            retries,
            backoff: Backoff::Exponential { base_ms, cap_ms },
        });
        NewTask {
            queue: self.queue.as_bytes(),
            kind: self.kind.as_bytes(),
            payload: &self.payload,
            priority: self.priority,
            not_before_ms: self.not_before_ms,
            deadline_ms: self.deadline_ms,
            timeout_ms: self.timeout_ms,
            retry,
            idempotency_key: &self.idempotency_key,
            after: self.after.iter().map(|task| TaskDependency::Task { task: *task }).collect(),
            labels: labels(&self.labels),
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            subject: self.subject.as_bytes(),
            needs: labels(&self.needs),
        }
    }
}

/// A limit of a tenant: the fields of Python's `tasks.Limit`.
#[derive(FromPyObject)]
struct DraftLimit {
    key: String,
    running: Option<u32>,
    rate: Option<(u32, u32, u32)>,
}

/// The settings of a tenant: the fields of Python's `tasks.Tenant`.
#[derive(FromPyObject)]
struct DraftTenant {
    name: String,
    weight: u32,
    queued_max: u64,
    reserved: u64,
    running_max: u64,
    burst: u64,
    limits: Vec<DraftLimit>,
}

impl DraftTenant {
    fn tenant(&self) -> TenantSettings<'_> {
        let limits = self.limits.iter().map(|limit| KeyLimit {
            key: limit.key.as_bytes(),
            running_max: limit.running.unwrap_or(u32::MAX),
            rate: limit.rate.map(|(count, per_ms, burst)| Rate { count, per_ms, burst }),
        });
        TenantSettings {
            weight: self.weight,
            queued_max: self.queued_max,
            concurrency: Quota {
                reserved: self.reserved,
                soft: 0,
                hard: self.running_max,
                burst: self.burst,
            },
            limits: limits.collect(),
            ..TenantSettings::new(self.name.as_bytes())
        }
    }
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

fn parse_stage(name: &str) -> PyResult<TaskStage> {
    let found = STAGES.iter().find(|(known, _)| *known == name).map(|(_, stage)| *stage);
    found.ok_or_else(|| {
        let names = STAGES.map(|(name, _)| name).join(", ");
        PyValueError::new_err(format!("stage {name:?}: expected one of {names}"))
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the fields of a task as a dictionary, with the field names of `tasks.TaskInfo`.
fn info<'py>(py: Python<'py>, view: &TaskView, now_ms: u64) -> PyResult<Bound<'py, PyDict>> {
    // `unix_time` converts a time `ms` of the cluster's clock, which does not count from 1970. The present time of this
    // clock is `now_ms`.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let unix_time = |ms: u64| since_epoch + (ms as f64 - now_ms as f64) / 1e3;
    let dict = PyDict::new(py);
    let stage = STAGES.iter().find(|(_, stage)| *stage == view.stage).map_or("", |(name, _)| name);
    let pairs = |labels: &[StoredLabel]| -> Vec<_> {
        labels.iter().map(|label| (text(&label.key), text(&label.value))).collect()
    };
    dict.set_item("id", view.task)?;
    dict.set_item("tenant", text(&view.tenant))?;
    dict.set_item("queue", text(&view.queue))?;
    dict.set_item("kind", text(&view.kind))?;
    dict.set_item("payload", PyBytes::new(py, &view.payload))?;
    dict.set_item("stage", stage)?;
    dict.set_item("priority", view.priority)?;
    dict.set_item("attempts", view.attempts)?;
    dict.set_item("lost", view.lost)?;
    dict.set_item("worker", view.worker)?;
    let waited_ms = view.started_ms.map(|started_ms| started_ms.saturating_sub(view.submitted_ms));
    dict.set_item("waited", waited_ms.map(|waited_ms| waited_ms as f64 / 1e3))?;
    dict.set_item("progress", f64::from(view.progress.0) / 1_000.0)?;
    dict.set_item("note", view.progress.1.as_deref().map(text).unwrap_or_default())?;
    dict.set_item("labels", pairs(&view.labels))?;
    dict.set_item("needs", pairs(&view.needs))?;
    dict.set_item("after", view.after.clone())?;
    let outcome = view.outcome.as_ref();
    let failure = outcome.and_then(|outcome| outcome.failure);
    let bytes = outcome.map(|outcome| &*outcome.bytes).unwrap_or_default();
    dict.set_item("result", if failure.is_none() { PyBytes::new(py, bytes) } else { PyBytes::new(py, b"") })?;
    dict.set_item("error", failure.map(|_| text(bytes)))?;
    dict.set_item("failure", failure.map(|failure| format!("{failure:?}").to_lowercase()))?;
    dict.set_item("run", outcome.map_or(0.0, |outcome| outcome.run_us as f64 / 1e6))?;
    dict.set_item("cpu", outcome.map_or(0.0, |outcome| outcome.cpu_us as f64 / 1e6))?;
    dict.set_item("memory_bytes", outcome.map_or(0, |outcome| outcome.memory_bytes))?;
    dict.set_item("timeout", f64::from(view.timeout_ms) / 1e3)?;
    dict.set_item("submitted", unix_time(view.submitted_ms))?;
    dict.set_item("started", view.started_ms.map(unix_time))?;
    dict.set_item("not_before", view.not_before_ms.map(unix_time))?;
    dict.set_item("deadline", view.deadline_ms.map(unix_time))?;
    dict.set_item("retries", view.retry.map(|retry| retry.retries))?;
    dict.set_item("idempotency_key", PyBytes::new(py, &view.idempotency_key))?;
    dict.set_item("subject", text(&view.subject))?;
    dict.set_item("cpu_milli", view.amounts[0])?;
    dict.set_item("needs_memory_bytes", view.amounts[1])?;
    Ok(dict)
}

impl TaskCalls {
    fn call<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Tasks) -> Result<R, TasksError> + Send,
    ) -> PyResult<R> {
        self.connection.get().call(py, move |client| Ok::<_, Failure>(call(&client.tasks())?))
    }
}

#[pymethods]
impl TaskCalls {
    #[new]
    fn new(connection: Py<Connection>) -> TaskCalls {
        TaskCalls { connection }
    }

    /// Submits tasks. Returns a list with each task's id and whether the task existed already. Also returns the number
    /// of seconds for which the cluster asks the submitter to pause.
    fn submit(&self, py: Python<'_>, tenant: &str, drafts: Vec<Draft>) -> PyResult<(Vec<(u64, bool)>, f64)> {
        let submitted =
            self.call(py, |tasks| tasks.submit_all(tenant, drafts.iter().map(Draft::task).collect()))?;
        let ids = submitted.tasks.iter().map(|task| (task.task, task.known)).collect();
        Ok((ids, submitted.slow_down.as_secs_f64()))
    }

    fn get<'py>(&self, py: Python<'py>, task: u64) -> PyResult<Bound<'py, PyDict>> {
        let (view, now_ms) = self.call(py, |tasks| tasks.get_at(task))?;
        info(py, &view, now_ms)
    }

    /// Returns one page of the tasks that match the filter, and the number with which to request the next page. For the
    /// last page, this number is `None`.
    #[pyo3(signature = (tenant, queue, kind, stage, label, start, limit, whole))]
    #[expect(clippy::too_many_arguments, reason = "as many as a filter has parts; Python gives them names")]
    fn page<'py>(
        &self,
        py: Python<'py>,
        tenant: &str,
        queue: &str,
        kind: &str,
        stage: Option<&str>,
        label: (String, String),
        start: u32,
        limit: u32,
        whole: bool,
    ) -> PyResult<(Bound<'py, PyList>, Option<u32>)> {
        let filter = ListFilter {
            tenant: tenant.as_bytes(),
            queue: queue.as_bytes(),
            kind: kind.as_bytes(),
            stage: stage.map(parse_stage).transpose()?,
            label: (label.0.as_bytes(), label.1.as_bytes()),
        };
        let page = self.call(py, |tasks| tasks.list(&filter, start, limit, whole))?;
        let rows = page.tasks.iter().map(|view| info(py, view, page.now_ms)).collect::<PyResult<Vec<_>>>()?;
        Ok((PyList::new(py, rows)?, page.next))
    }

    fn why(&self, py: Python<'_>, task: u64) -> PyResult<String> {
        self.call(py, |tasks| tasks.why(task))
    }

    fn cancel(&self, py: Python<'_>, task: u64) -> PyResult<u64> {
        self.call(py, |tasks| tasks.cancel(task))
    }

    fn retry(&self, py: Python<'_>, task: u64) -> PyResult<u64> {
        self.call(py, |tasks| tasks.retry(task))
    }

    /// Queues at most `count` dead letters of a tenant again, and returns how many. Skips poisoned tasks unless
    /// `poisoned` is set.
    fn redrive(&self, py: Python<'_>, tenant: &str, count: u64, poisoned: bool) -> PyResult<u64> {
        self.call(py, |tasks| tasks.redrive_many(tenant, count, poisoned))
    }

    /// Removes at most `count` dead letters of a tenant. Returns how many were removed, and whether there are more.
    fn discard(&self, py: Python<'_>, tenant: &str, count: u32) -> PyResult<(u64, bool)> {
        self.call(py, |tasks| tasks.discard(tenant, count))
    }

    fn set_tenant(&self, py: Python<'_>, draft: DraftTenant) -> PyResult<()> {
        self.call(py, |tasks| tasks.set_tenant(draft.tenant()))
    }

    /// All tenants.
    fn tenants(&self, py: Python<'_>) -> PyResult<Vec<TenantRow>> {
        let tenants = self.call(py, |tasks| tasks.tenants(""))?;
        let row = |view: &dunlin_client::scheduler::TenantView| {
            let account = &view.account;
            let (done, failed, cpu) = (account.completed, account.failed, account.cpu_us as f64 / 1e6);
            (text(&view.name), view.queued, view.used[0], done, failed, view.dead, cpu)
        };
        Ok(tenants.iter().map(row).collect())
    }

    /// All workers.
    fn workers(&self, py: Python<'_>) -> PyResult<Vec<WorkerRow>> {
        let workers = self.call(py, Tasks::workers)?;
        let rows = workers
            .iter()
            .map(|view| (view.worker, text(&view.name), view.held, view.credit, view.done, view.is_draining));
        Ok(rows.collect())
    }

    #[expect(clippy::too_many_arguments, reason = "as many as a worker has traits; Python gives them names")]
    fn attach(
        &self,
        py: Python<'_>,
        name: String,
        kinds: Vec<String>,
        queues: Vec<String>,
        slots: u32,
        cpu_milli: u32,
        memory_bytes: u64,
        ttl: f64,
        labels: Vec<(String, String)>,
        tenants: Vec<String>,
    ) -> PyResult<RawAttachment> {
        let ttl = Duration::try_from_secs_f64(ttl)
            .map_err(|_| PyValueError::new_err(format!("ttl={ttl} is not a valid number of seconds")))?;
        let options =
            WorkerOptions { name, kinds, queues, slots, cpu_milli, memory_bytes, ttl, labels, tenants };
        let tasks = self.connection.get().client(py)?.tasks();
        let attachment = tasks.attach(options);
        let attachment =
            attachment.map_err(|error| Failure::Value(format!("cannot start a thread: {error}")))?;
        Ok(RawAttachment::new(attachment))
    }
}
