//! Describes the work of submitters and workers, and their report. The description is the same for Dunlin and for
//! peers. For Dunlin, this program does the work in its role `tasks-clients`; for peers, the program `peers/tasks` does
//! it. Both programs read the description as JSON, and report only if each submitted task was done exactly once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::child::{Child, TIMEOUT};
use crate::point::RunSample;

/// The load that the client process of a task benchmark has to produce. The load is sent to this process as JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskWorkload {
    /// The address of the peer's server, for example of Redis.
    pub endpoint: String,
    /// Number of workers. Dunlin's workers have a connection and a lease each.
    pub workers: usize,
    /// How long a worker sleeps for a task, in ns.
    pub task_ns: u64,
    /// The most unfinished tasks of a tenant that submits without a rate.
    pub backlog: usize,
    /// The tasks per second that all tenants together submit, at random (Poisson) times. If this rate is 0, each tenant
    /// submits at its own rate ([`TenantWorkload::per_s`]). If no tenant has a rate either, tenants submit as many
    /// tasks as possible.
    pub rate: f64,
    /// The size of a payload in bytes.
    pub bytes: usize,
    /// The duration of the warm-up, in ns. Tasks of the warm-up are not counted.
    pub warmup_ns: u64,
    /// How long tasks are counted, in ns.
    pub time_ns: u64,
    /// Options of our own submitters and workers.
    #[serde(default)]
    pub ours: NodeOptions,
}

/// The options of a task benchmark that apply to Dunlin only, not to peers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeOptions {
    /// URL of a node.
    pub url: String,
    /// The number of connections that submit tasks.
    pub submitters: usize,
    /// The number of tasks in one request.
    pub batch: usize,
    /// Number of tasks that a worker holds at the same time. The worker does them one by one, but completes empty tasks
    /// together.
    pub slots: u32,
    /// The number of further tasks that the worker may receive in advance.
    pub ahead: u32,
    /// Weight and rate of each tenant. Empty for a single tenant that submits at [`TaskWorkload::rate`].
    pub tenants: Vec<TenantWorkload>,
    /// Whether the workers sleep in a loop for the duration of a task, without a node.
    pub bare: bool,
}

/// The load of one tenant in a task benchmark: its weight, and its rate of submitted tasks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantWorkload {
    /// The weight of the tenant, which determines its share.
    pub weight: u32,
    /// The tasks that the tenant submits per second, at equal intervals, if [`TaskWorkload::rate`] is 0. If this field
    /// is 0 for every tenant, all tenants submit as many tasks as possible.
    pub per_s: f64,
}

/// The number and latencies of the tasks that a client process of a task benchmark counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskReport {
    /// The number of tasks that ended within the counted time.
    pub ops: u64,
    /// The number of all submitted tasks.
    pub submitted: u64,
    /// The number of all completed tasks.
    pub completed: u64,
    /// The number of tasks that were completed twice.
    pub twice: u64,
    /// How long tasks were counted, in ns.
    pub elapsed_ns: u64,
    /// The median time from a task's due time to its start, in ns.
    #[serde(default)]
    pub start_p50_ns: Option<u64>,
    /// The 99th percentile of the time from a task's due time to its start, in ns.
    #[serde(default)]
    pub start_p99_ns: Option<u64>,
    /// The median time from a task's due time to its end, in ns.
    #[serde(default)]
    pub end_p50_ns: Option<u64>,
    /// The 99th percentile of the time from a task's due time to its end, in ns.
    #[serde(default)]
    pub end_p99_ns: Option<u64>,
    /// The number of workers in one process.
    pub workers_in_a_process: u64,
    /// The number of tasks of each tenant that ended within the counted time.
    #[serde(default)]
    pub tenants: Vec<u64>,
    /// The processor time of the workers' process, in ns.
    #[serde(default)]
    pub cpu_ns: u64,
}

impl TaskWorkload {
    /// Returns the longest wait for the report, which is sent after all submitted tasks have ended.
    pub fn timeout(&self) -> Duration {
        Duration::from_nanos(self.warmup_ns + self.time_ns) + 2 * TIMEOUT
    }
}

impl TaskReport {
    /// Waits for the report of a clients' process.
    pub fn of(work: &TaskWorkload, child: &mut Child) -> Result<Self> {
        let report: Self = child.read_line(work.timeout()).context("the workers did not finish")?;
        let Self { submitted, completed, twice, ops, .. } = report;
        ensure!(
            submitted == completed && twice == 0,
            "{completed} of {submitted} tasks were done, {twice} twice"
        );
        ensure!(ops > 0, "no task was completed in the measured time");
        ensure!(submitted > 0 || work.ours.bare, "no task was submitted");
        Ok(report)
    }

    /// Returns the number of tasks per second.
    pub fn per_s(&self) -> f64 {
        self.ops as f64 * 1e9 / self.elapsed_ns as f64
    }

    /// Returns the report as a sample, with the measured latencies.
    pub fn sample(&self) -> RunSample {
        RunSample::new()
            .with("ops_per_s", self.per_s())
            .with("workers_in_a_process", self.workers_in_a_process as f64)
            .and(self.latencies())
    }

    /// Returns a sample with only the measured latencies.
    pub fn latencies(&self) -> RunSample {
        RunSample::new()
            .with_time("p50_ns", self.start_p50_ns)
            .with_time("p99_ns", self.start_p99_ns)
            .with_time("end_p50_ns", self.end_p50_ns)
            .with_time("end_p99_ns", self.end_p99_ns)
    }
}
