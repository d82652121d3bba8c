//! Worker processes that can be killed. Each reports a task before it starts it.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dunlin_client::{Client, ClientOptions, TaskUsage, WorkerOptions};
use serde::{Deserialize, Serialize};

use super::ledger::TaskLedger;
use crate::child::Child;
use crate::clock::monotonic_ns;
use crate::point::Bench;
use crate::role::{RoleArgs, say};

/// Kind of all tasks.
pub const KIND: &str = "failover";
const WORKERS: usize = 6;
const SLOTS: u32 = 4;
/// Time that a worker sleeps for each set of tasks.
const TASK: Duration = Duration::from_millis(20);
/// Lease of a worker. It is so long that the tasks of a killed worker must start again before the lease ends.
const TTL: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(20);

/// The message in which a worker of a benchmark reports that it starts a task.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct StartedTask {
    /// Id of the task.
    pub task: u64,
    /// Token of the start.
    pub token: u64,
    /// Time at which the task was due to be submitted.
    pub due_ns: u64,
    /// Start of the task.
    pub began_ns: u64,
}

/// The worker processes of a task benchmark, which can be killed. Dropping the handle kills them.
#[derive(Debug)]
pub struct Crew {
    url: String,
    /// Workers by number; `None` for killed ones.
    workers: Vec<Option<Child>>,
    next: usize,
}

impl Crew {
    /// Starts the workers.
    pub fn start(bench: &Bench, url: &str) -> Result<Self> {
        let mut crew = Self { url: url.to_owned(), workers: Vec::new(), next: 0 };
        (0..WORKERS).try_for_each(|_| crew.replace(bench))?;
        Ok(crew)
    }

    /// Starts another worker.
    pub fn replace(&mut self, bench: &Bench) -> Result<()> {
        let args = [("url", self.url.clone())];
        self.workers.push(Some(bench.child.start("tasks-crew", &args)?));
        Ok(())
    }

    /// Records the workers' reports.
    pub fn hear(&mut self, ledger: &mut TaskLedger) -> Result<()> {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let Some(child) = worker else { continue };
            for line in child.said() {
                ledger.begins(number, serde_json::from_str(&line)?)?;
            }
            ensure!(child.ended()?.is_none(), "worker {number} ended unexpectedly{}", child.last_words());
        }
        Ok(())
    }

    /// Kills the oldest worker, and records its last reports; returns its number.
    pub fn kill_next(&mut self, ledger: &mut TaskLedger) -> Result<usize> {
        let number = self.next;
        self.next += 1;
        let mut child = self.workers[number].take().context("the worker to kill has been killed already")?;
        child.kill()?;
        for line in child.rest() {
            // The last line may be cut off. The task of that line was not started.
            if let Ok(begun) = serde_json::from_str(&line) {
                ledger.begins(number, begun)?;
            }
        }
        Ok(number)
    }
}

/// Main function of a worker; it works until it is killed.
pub(crate) fn work(args: &RoleArgs) -> Result<()> {
    let client = Client::connect(args.text("url")?, ClientOptions::default())?;
    let options =
        WorkerOptions { kinds: vec![KIND.to_owned()], slots: SLOTS, ttl: TTL, ..WorkerOptions::default() };
    let attachment = client.tasks().attach(options)?;
    loop {
        let given = attachment.next_batch(SLOTS as usize, LOOK)?;
        if given.is_empty() {
            continue;
        }
        let began_ns = monotonic_ns();
        for given in &given {
            let due =
                given.payload().first_chunk().context("a task's payload differs from the submitted one")?;
            let due_ns = u64::from_le_bytes(*due);
            say(&StartedTask { task: given.task(), token: given.token(), due_ns, began_ns })?;
        }
        thread::sleep(TASK);
        attachment.complete_all(&given, &TaskUsage { run: TASK, ..TaskUsage::default() });
    }
}
