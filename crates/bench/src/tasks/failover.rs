//! Measures case `failover`, in which the node that leads the tasks, or a worker, is killed repeatedly under load.
//!
//! There are three nodes, worker processes ([`WorkerProcesses`]), and a submitter that is never killed. If the result
//! of a request is unknown, the submitter repeats the request with the same idempotency key. The measured time is
//! - for a killed leader: from the leader's death until the start of a task that became due after this death;
//! - for a killed worker: from the worker's death until other workers have restarted all unfinished tasks of this
//!   worker.
//!
//! A result is reported only if each acknowledged task is done exactly once at the end, and no two starts had the same
//! token ([`TaskLedger`](super::ledger::TaskLedger)).

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::ledger::{SubmitterThreads, TaskLedger};
use super::nodes::{ClusterSize, TaskNodes};
use super::worker_processes::WorkerProcesses;
use crate::child::TIMEOUT;
use crate::clock::monotonic_ns;
use crate::point::{BenchContext, RunSample};
use crate::stats::Latencies;

/// The kind of process that the benchmark kills: the leading node, or a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillTarget {
    /// The leading node.
    Leader,
    /// A worker that has started tasks.
    Worker,
}

const NODES: usize = 3;
/// The number of tasks that must start between two kills. These starts show that work has resumed after the first of
/// the two kills.
const STARTS_BETWEEN_KILLS: usize = 200;
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Kills `kills` processes of the given kind, one after another, and measures the recovery after each kill.
pub fn measure(bench: &BenchContext, victim: KillTarget, kills: u64) -> Result<RunSample> {
    let mut setup = FailoverSetup::start(bench)?;
    let mut latencies = Latencies::default();
    while latencies.count() < kills {
        setup.wait_for_starts()?;
        match victim {
            KillTarget::Leader => latencies.record(setup.kill_leader()?),
            // If the killed worker had no unfinished task, nothing has to recover. `kill_worker` then returns `None`,
            // and the kill does not count.
            KillTarget::Worker => setup.kill_worker()?.into_iter().for_each(|ns| latencies.record(ns)),
        }
    }
    let (tasks, restarts) = setup.finish()?;
    Ok(latencies
        .sample()
        .with_time("max_ns", latencies.quantile_ns(1.0))
        .with("kills", kills as f64)
        .with("tasks", tasks as f64)
        .with("begun_again", restarts as f64))
}

struct FailoverSetup<'b> {
    bench: &'b BenchContext,
    nodes: TaskNodes,
    workers: WorkerProcesses,
    ledger: TaskLedger,
    submitting: SubmitterThreads,
}

impl<'b> FailoverSetup<'b> {
    fn start(bench: &'b BenchContext) -> Result<Self> {
        let nodes = TaskNodes::start(bench, ClusterSize::of(NODES))?;
        let url = nodes.listeners()?;
        let workers = WorkerProcesses::start(bench, &url)?;
        let submitting = SubmitterThreads::start(&url)?;
        Ok(Self { bench, nodes, workers, ledger: TaskLedger::default(), submitting })
    }

    /// Adds the reports of started and ended tasks to the ledger, until `condition` holds.
    fn wait_for(&mut self, goal: &str, condition: impl Fn(&TaskLedger) -> bool) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            self.workers.receive_reports(&mut self.ledger)?;
            self.submitting.receive_reports(&mut self.ledger)?;
            if condition(&self.ledger) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "timed out waiting for {goal}: {}", self.ledger);
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn wait_for_starts(&mut self) -> Result<()> {
        let starts = self.ledger.starts() + STARTS_BETWEEN_KILLS;
        self.wait_for("tasks to begin", |ledger| ledger.starts() >= starts)
    }

    fn kill_leader(&mut self) -> Result<u64> {
        let leader = self.nodes.leader()?;
        let killed_ns = monotonic_ns();
        self.nodes.kill(leader)?;
        self.wait_for("tasks that begin without their leader", |ledger| {
            ledger.first_start_after(killed_ns).is_some()
        })?;
        let started_ns = self.ledger.first_start_after(killed_ns).context("no task began after the kill")?;
        self.nodes.restart(self.bench, leader)?;
        Ok(started_ns - killed_ns)
    }

    fn kill_worker(&mut self) -> Result<Option<u64>> {
        let killed_ns = monotonic_ns();
        let victim = self.workers.kill_oldest(&mut self.ledger)?;
        let unfinished = self.ledger.unfinished_tasks_of(victim);
        self.wait_for("the end of tasks that a worker had begun", |ledger| {
            unfinished
                .iter()
                .all(|task| ledger.is_completed(*task) || ledger.restarted_at(*task, victim).is_some())
        })?;
        self.workers.replace(self.bench)?;
        let restarts = unfinished.iter().filter_map(|task| self.ledger.restarted_at(*task, victim));
        Ok(restarts.max().map(|started_ns| started_ns.saturating_sub(killed_ns)))
    }

    /// Stops submitting, and waits until all submitted tasks are done. Checks that each task was done exactly once.
    /// Returns two numbers: the tasks, and the restarts of tasks.
    fn finish(mut self) -> Result<(usize, usize)> {
        self.submitting.stop()?;
        self.wait_for("the end of all submitted tasks", TaskLedger::are_all_completed)?;
        self.submitting.check(&self.ledger)?;
        Ok((self.ledger.submitted(), self.ledger.restarts()))
    }
}
