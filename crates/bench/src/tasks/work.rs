//! What submitters and workers are to do, and what came of it: the same order to ours and to the rivals'.
//!
//! Ours is the role `tasks-clients` of this program, the rivals' are `peers/tasks`. All read it as JSON, and report only after each task
//! that was submitted was done, and none of them twice.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::child::{Child, PATIENCE};
use crate::point::Sample;

/// The order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Work {
    /// Where the rivals' store is.
    pub endpoint: String,
    /// Workers: ours have a connection and a lease each.
    pub workers: usize,
    /// How long a task sleeps.
    pub task_ns: u64,
    /// Tasks of a tenant that wait or run, at most, where there is no rate.
    pub backlog: usize,
    /// Tasks a second of all tenants that have no rate of their own, by Poisson processes; 0 for as many as there can be.
    pub rate: f64,
    /// Bytes of a payload.
    pub bytes: usize,
    /// Not counted.
    pub warmup_ns: u64,
    /// Counted.
    pub time_ns: u64,
    /// Of ours: how they submit and take tasks.
    #[serde(default)]
    pub ours: Ours,
}

/// What the rivals' programs know nothing of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ours {
    /// A node's door.
    pub url: String,
    /// Connections that submit.
    pub submitters: usize,
    /// Tasks of one request.
    pub batch: usize,
    /// Tasks that a worker is given at once; it does one at a time, or all where they do nothing.
    pub slots: u32,
    /// Where many wait, so many more that it has at hand.
    pub ahead: u32,
    /// Each: its weight, and its own rate where there is one. None for one tenant, and the rate above.
    pub tenants: Vec<TenantLoad>,
    /// Nobody is asked: the same workers do the same over and over.
    pub bare: bool,
}

/// What a tenant is to have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantLoad {
    /// Its share.
    pub weight: u32,
    /// Tasks a second, one after another in equal times; 0 for as many as there can be.
    pub per_s: f64,
}

/// What was done within the time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Tasks that ended within it.
    pub ops: u64,
    /// Tasks that were submitted at all.
    pub submitted: u64,
    /// Tasks that were done at all.
    pub completed: u64,
    /// Tasks that were done twice.
    pub twice: u64,
    /// The time.
    pub elapsed_ns: u64,
    /// From when a task was due to be submitted until it began.
    #[serde(default)]
    pub start_p50_ns: Option<u64>,
    /// See above.
    #[serde(default)]
    pub start_p99_ns: Option<u64>,
    /// From then until it was over.
    #[serde(default)]
    pub end_p50_ns: Option<u64>,
    /// See above.
    #[serde(default)]
    pub end_p99_ns: Option<u64>,
    /// Workers of one process.
    pub workers_in_a_process: u64,
    /// Of each tenant: tasks that ended within the time.
    #[serde(default)]
    pub tenants: Vec<u64>,
    /// Processor time that the process of the workers took.
    #[serde(default)]
    pub cpu_ns: u64,
}

impl Work {
    /// How long its report may take: what was submitted is done to its end.
    pub fn patience(&self) -> Duration {
        Duration::from_nanos(self.warmup_ns + self.time_ns) + 2 * PATIENCE
    }
}

impl Report {
    /// Waits for the report of who does the work.
    pub fn of(work: &Work, child: &mut Child) -> Result<Self> {
        let report: Self = child.line(work.patience()).context("waiting for the workers")?;
        let Self { submitted, completed, twice, ops, .. } = report;
        ensure!(
            submitted == completed && twice == 0,
            "{completed} of {submitted} tasks were done, {twice} twice"
        );
        ensure!(ops > 0, "nothing was done within the time");
        ensure!(submitted > 0 || work.ours.bare, "nothing was submitted");
        Ok(report)
    }

    /// Tasks a second.
    pub fn per_s(&self) -> f64 {
        self.ops as f64 * 1e9 / self.elapsed_ns as f64
    }

    /// As figures; latencies where they were measured.
    pub fn sample(&self) -> Sample {
        Sample::new()
            .with("ops_per_s", self.per_s())
            .with("workers_in_a_process", self.workers_in_a_process as f64)
            .and(self.latencies())
    }

    /// The latencies alone, where they were measured.
    pub fn latencies(&self) -> Sample {
        Sample::new()
            .with_time("p50_ns", self.start_p50_ns)
            .with_time("p99_ns", self.start_p99_ns)
            .with_time("end_p50_ns", self.end_p50_ns)
            .with_time("end_p99_ns", self.end_p99_ns)
    }
}
