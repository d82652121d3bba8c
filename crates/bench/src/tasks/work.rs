//! The description of the work that submitters and workers do, and their report. Dunlin and the peers (other systems)
//! get the same description.
//!
//! For Dunlin, this program does the work in its role `tasks-clients`; for peers, the program `peers/tasks` does it.
//! Both programs read the description as JSON. A report is accepted only if each submitted task was done exactly once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::child::{Child, TIMEOUT};
use crate::point::RunSample;

/// The load that the client process of a benchmark of tasks must produce. The process receives this description as
/// JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskWorkload {
    /// The address of the server that the measured peer needs, such as Redis.
    pub endpoint: String,
    /// The number of workers. Each of Dunlin's workers has a connection and a lease of its own.
    pub workers: usize,
    /// How long a worker sleeps for a task, in ns.
    pub task_ns: u64,
    /// The most unfinished tasks that a tenant may have. This limit applies to tenants that submit without a rate.
    pub backlog: usize,
    /// The total number of tasks per second that the tenants submit, at random times (a Poisson process). If this rate
    /// is 0, each tenant submits at its own rate ([`TenantWorkload::per_s`]). If no tenant has a rate either, tenants
    /// submit as many tasks as possible.
    pub rate: f64,
    /// The size of a payload in bytes.
    pub bytes: usize,
    /// The duration of the warm-up in ns. Tasks that end in the warm-up do not count.
    pub warmup_ns: u64,
    /// The time during which tasks are counted, in ns.
    pub time_ns: u64,
    /// The options of Dunlin's submitters and workers.
    #[serde(default)]
    pub ours: NodeOptions,
}

/// The options of a benchmark of tasks that apply to Dunlin only, not to peers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeOptions {
    /// The URL of a node.
    pub url: String,
    /// The number of connections that submit tasks.
    pub submitters: usize,
    /// The number of tasks in one request.
    pub batch: usize,
    /// The number of tasks that a worker holds at the same time. The worker does these tasks one after another, except
    /// for empty tasks, which it completes together.
    pub slots: u32,
    /// The number of further tasks that the worker may receive in advance, before it has free slots for them.
    pub ahead: u32,
    /// The weight and the rate of each tenant. If the list is empty, there is a single tenant, which submits at
    /// [`TaskWorkload::rate`].
    pub tenants: Vec<TenantWorkload>,
    /// Whether the run has no node. The workers then only sleep for one task after another.
    pub bare: bool,
}

/// The load of one tenant in a benchmark of tasks: its weight, and the rate at which it submits tasks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantWorkload {
    /// The weight, which determines the tenant's share.
    pub weight: u32,
    /// The number of tasks per second that the tenant submits, at equal intervals. This rate applies only if
    /// [`TaskWorkload::rate`] is 0. If this rate, too, is 0 for every tenant, all tenants submit as many tasks as
    /// possible.
    pub per_s: f64,
}

/// The report of a client process in a benchmark of tasks: how many tasks it counted, and their latencies.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskReport {
    /// The number of tasks that ended in the counted time.
    pub ops: u64,
    /// The number of all submitted tasks.
    pub submitted: u64,
    /// The number of all completed tasks.
    pub completed: u64,
    /// The number of tasks that were completed twice.
    pub twice: u64,
    /// The time during which tasks were counted, in ns.
    pub elapsed_ns: u64,
    /// The median time from when a task was due until it started, in ns.
    #[serde(default)]
    pub start_p50_ns: Option<u64>,
    /// The 99th percentile of the time from when a task was due until it started, in ns.
    #[serde(default)]
    pub start_p99_ns: Option<u64>,
    /// The median time from when a task was due until it ended, in ns.
    #[serde(default)]
    pub end_p50_ns: Option<u64>,
    /// The 99th percentile of the time from when a task was due until it ended, in ns.
    #[serde(default)]
    pub end_p99_ns: Option<u64>,
    /// The number of workers in one process.
    pub workers_in_a_process: u64,
    /// For each tenant: the number of tasks that ended in the counted time.
    #[serde(default)]
    pub tenants: Vec<u64>,
    /// The processor time of the client process, in ns.
    #[serde(default)]
    pub cpu_ns: u64,
}

impl TaskWorkload {
    /// Returns how long to wait for the report. The report is sent after all submitted tasks have ended.
    pub fn timeout(&self) -> Duration {
        Duration::from_nanos(self.warmup_ns + self.time_ns) + 2 * TIMEOUT
    }
}

impl TaskReport {
    /// Waits for the report of a client process. Returns an error unless each submitted task was done exactly once.
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

    /// Returns the number of counted tasks per second.
    pub fn per_s(&self) -> f64 {
        self.ops as f64 * 1e9 / self.elapsed_ns as f64
    }

    /// Returns the report as a sample of a measurement, with the latencies.
    pub fn sample(&self) -> RunSample {
        RunSample::new()
            .with("ops_per_s", self.per_s())
            .with("workers_in_a_process", self.workers_in_a_process as f64)
            .and(self.latencies())
    }

    /// Returns a sample with the latencies only.
    pub fn latencies(&self) -> RunSample {
        RunSample::new()
            .with_time("p50_ns", self.start_p50_ns)
            .with_time("p99_ns", self.start_p99_ns)
            .with_time("end_p50_ns", self.end_p50_ns)
            .with_time("end_p99_ns", self.end_p99_ns)
    }
}
