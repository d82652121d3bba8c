//! Worker processes that can be killed. A worker reports each task before it starts the task.

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

/// The kind of all tasks.
pub const KIND: &str = "failover";
const WORKERS: usize = 6;
const SLOTS: u32 = 4;
/// How long a worker sleeps for each batch of tasks.
const TASK: Duration = Duration::from_millis(20);
/// The time to live of a worker's lease. It is long, so that a killed worker's tasks start again because its connection
/// broke, and not because its lease ended.
const TTL: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(20);

/// The message in which a worker of a benchmark reports that it starts a task.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct StartedTask {
    /// The id of the task.
    pub task: u64,
    /// The token of this start of the task.
    pub token: u64,
    /// When the task was due to be submitted, in ns.
    pub due_ns: u64,
    /// When the task started, in ns.
    pub began_ns: u64,
}

/// The worker processes of a task benchmark, which can be killed. Dropping the handle kills them.
#[derive(Debug)]
pub struct Crew {
    url: String,
    /// The workers by number; `None` for a killed one.
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

    /// Starts another worker in place of a killed one.
    pub fn replace(&mut self, bench: &Bench) -> Result<()> {
        let args = [("url", self.url.clone())];
        self.workers.push(Some(bench.child.start("tasks-crew", &args)?));
        Ok(())
    }

    /// Adds the workers' new reports to the ledger.
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

    /// Kills the oldest worker and adds its last reports to the ledger. Returns its number.
    pub fn kill_next(&mut self, ledger: &mut TaskLedger) -> Result<usize> {
        let number = self.next;
        self.next += 1;
        let mut child = self.workers[number].take().context("the worker to kill has been killed already")?;
        child.kill()?;
        for line in child.rest() {
            // The kill may have cut off the last line. The task in that line had not started.
            if let Ok(begun) = serde_json::from_str(&line) {
                ledger.begins(number, begun)?;
            }
        }
        Ok(number)
    }
}

/// The main function of a worker. It works until it is killed.
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
