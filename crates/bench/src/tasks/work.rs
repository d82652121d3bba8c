//! The work of submitters and workers, and their report: the same for Dunlin and for rivals.
//! Dunlin's role is `tasks-clients` of this program, the rivals' program is `peers/tasks`. All read the work
//! as JSON, and report only if each submitted task was done exactly once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::child::{Child, PATIENCE};
use crate::point::RunSample;

/// The load that the client process of a task benchmark has to produce, sent to that process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskWork {
    /// Address of the rivals' store.
    pub endpoint: String,
    /// Number of workers. Dunlin's workers have a connection and a lease each.
    pub workers: usize,
    /// Sleep of a task, ns.
    pub task_ns: u64,
    /// Maximum number of unfinished tasks of a tenant whose submission has no rate.
    pub backlog: usize,
    /// Tasks per second of all tenants that have no rate of their own, at random (Poisson) times; 0 for as many
    /// as possible.
    pub rate: f64,
    /// Size of a payload, bytes.
    pub bytes: usize,
    /// Uncounted time.
    pub warmup_ns: u64,
    /// Counted time.
    pub time_ns: u64,
    /// Options of our own submitters and workers.
    #[serde(default)]
    pub ours: NodeOptions,
}

/// The options of a task benchmark that apply to Dunlin only, not to rivals.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeOptions {
    /// URL of a node.
    pub url: String,
    /// Connections that submit.
    pub submitters: usize,
    /// Tasks of a request.
    pub batch: usize,
    /// Number of tasks that a worker receives at once. The worker does them one by one; it completes empty
    /// tasks together.
    pub slots: u32,
    /// Further tasks that the worker may hold ahead.
    pub ahead: u32,
    /// Weight and rate of each tenant. Empty for a single tenant with the rate above.
    pub tenants: Vec<TenantWork>,
    /// Whether workers run the same tasks in a loop, without a node.
    pub bare: bool,
}

/// The load of one tenant in a task benchmark: its weight, and its rate of submitted tasks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantWork {
    /// Weight of the tenant's share.
    pub weight: u32,
    /// Tasks a second at equal intervals; 0 for as many as possible.
    pub per_s: f64,
}

/// The number and latencies of the tasks that a client process of a task benchmark counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskReport {
    /// Tasks that ended within the counted time.
    pub ops: u64,
    /// All submitted tasks.
    pub submitted: u64,
    /// All completed tasks.
    pub completed: u64,
    /// Tasks that were completed twice.
    pub twice: u64,
    /// Length of the counted time, ns.
    pub elapsed_ns: u64,
    /// Time from due to start, median.
    #[serde(default)]
    pub start_p50_ns: Option<u64>,
    /// Time from due to start, 99th percentile.
    #[serde(default)]
    pub start_p99_ns: Option<u64>,
    /// Time from due to end, median.
    #[serde(default)]
    pub end_p50_ns: Option<u64>,
    /// Time from due to end, 99th percentile.
    #[serde(default)]
    pub end_p99_ns: Option<u64>,
    /// Workers in a process.
    pub workers_in_a_process: u64,
    /// Tasks of each tenant that ended within the counted time.
    #[serde(default)]
    pub tenants: Vec<u64>,
    /// Processor time of the workers' process.
    #[serde(default)]
    pub cpu_ns: u64,
}

impl TaskWork {
    /// Longest wait for the report, which comes after all submitted tasks have ended.
    pub fn patience(&self) -> Duration {
        Duration::from_nanos(self.warmup_ns + self.time_ns) + 2 * PATIENCE
    }
}

impl TaskReport {
    /// Waits for the report of a child.
    pub fn of(work: &TaskWork, child: &mut Child) -> Result<Self> {
        let report: Self = child.line(work.patience()).context("the workers did not finish")?;
        let Self { submitted, completed, twice, ops, .. } = report;
        ensure!(
            submitted == completed && twice == 0,
            "{completed} of {submitted} tasks were done, {twice} twice"
        );
        ensure!(ops > 0, "no task was completed in the measured time");
        ensure!(submitted > 0 || work.ours.bare, "no task was submitted");
        Ok(report)
    }

    /// Tasks a second.
    pub fn per_s(&self) -> f64 {
        self.ops as f64 * 1e9 / self.elapsed_ns as f64
    }

    /// The report as figures, with measured latencies.
    pub fn sample(&self) -> RunSample {
        RunSample::new()
            .with("ops_per_s", self.per_s())
            .with("workers_in_a_process", self.workers_in_a_process as f64)
            .and(self.latencies())
    }

    /// Only the measured latencies.
    pub fn latencies(&self) -> RunSample {
        RunSample::new()
            .with_time("p50_ns", self.start_p50_ns)
            .with_time("p99_ns", self.start_p99_ns)
            .with_time("end_p50_ns", self.end_p50_ns)
            .with_time("end_p99_ns", self.end_p99_ns)
    }
}
