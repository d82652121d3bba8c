//! Worker processes that the benchmark can kill. A worker reports each task before it starts the task.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dunlin_client::{Client, ClientOptions, TaskUsage, WorkerOptions};
use serde::{Deserialize, Serialize};

use super::ledger::TaskLedger;
use crate::child::Child;
use crate::clock::monotonic_ns;
use crate::point::BenchContext;
use crate::role::{RoleArgs, print_line};

/// The kind of all tasks in this benchmark.
pub const KIND: &str = "failover";
const WORKERS: usize = 6;
const SLOTS: u32 = 4;
/// How long a worker sleeps for each batch of tasks.
const TASK: Duration = Duration::from_millis(20);
/// The time to live of a worker's lease. It is long, so that the tasks of a killed worker are restarted because the
/// worker's connection breaks, not because its lease ends.
const TTL: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A worker's report that it starts a task.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct StartedTask {
    /// The id of the task.
    pub task: u64,
    /// The token of this start of the task.
    pub token: u64,
    /// The time at which the task was due, in ns.
    pub due_ns: u64,
    /// The time at which the task started, in ns.
    pub started_ns: u64,
}

/// The worker processes of the failover benchmark. The benchmark can kill a single worker. Dropping this handle kills
/// all of them.
#[derive(Debug)]
pub struct WorkerProcesses {
    url: String,
    /// The workers by number. The entry of a killed worker is `None`.
    workers: Vec<Option<Child>>,
    next: usize,
}

impl WorkerProcesses {
    /// Starts all workers.
    pub fn start(bench: &BenchContext, url: &str) -> Result<Self> {
        let mut processes = Self { url: url.to_owned(), workers: Vec::new(), next: 0 };
        (0..WORKERS).try_for_each(|_| processes.replace(bench))?;
        Ok(processes)
    }

    /// Starts one more worker, in place of a killed one.
    pub fn replace(&mut self, bench: &BenchContext) -> Result<()> {
        let args = [("url", self.url.clone())];
        self.workers.push(Some(bench.child.start("tasks-worker", &args)?));
        Ok(())
    }

    /// Adds the new reports of all workers to the ledger.
    pub fn receive_reports(&mut self, ledger: &mut TaskLedger) -> Result<()> {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let Some(child) = worker else { continue };
            for line in child.available_lines() {
                ledger.record_start(number, serde_json::from_str(&line)?)?;
            }
            ensure!(child.try_wait()?.is_none(), "worker {number} ended unexpectedly{}", child.stderr_text());
        }
        Ok(())
    }

    /// Kills the worker that has run longest, and returns its number. Adds the killed worker's last reports to the
    /// ledger.
    pub fn kill_oldest(&mut self, ledger: &mut TaskLedger) -> Result<usize> {
        let number = self.next;
        self.next += 1;
        let mut child = self.workers[number].take().context("the worker to kill has been killed already")?;
        child.kill()?;
        for line in child.remaining_lines() {
            // The last line is incomplete if the worker was killed while it wrote this line. The task in such a line
            // has not started.
            if let Ok(started) = serde_json::from_str(&line) {
                ledger.record_start(number, started)?;
            }
        }
        Ok(number)
    }
}

/// The main function of a worker's process, which runs until it is killed.
pub(crate) fn run(args: &RoleArgs) -> Result<()> {
    let client = Client::connect(args.text("url")?, ClientOptions::default())?;
    let options =
        WorkerOptions { kinds: vec![KIND.to_owned()], slots: SLOTS, ttl: TTL, ..WorkerOptions::default() };
    let attachment = client.tasks().attach(options)?;
    loop {
        let batch = attachment.next_batch(SLOTS as usize, POLL_INTERVAL)?;
        if batch.is_empty() {
            continue;
        }
        let started_ns = monotonic_ns();
        for task in &batch {
            let due =
                task.payload().first_chunk().context("a task's payload differs from the submitted one")?;
            let due_ns = u64::from_le_bytes(*due);
            print_line(&StartedTask { task: task.task(), token: task.token(), due_ns, started_ns })?;
        }
        thread::sleep(TASK);
        attachment.complete_all(&batch, &TaskUsage { run: TASK, ..TaskUsage::default() });
    }
}
