//! Workers that are processes of their own, to be killed. Each says what it begins before it begins it.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dunlin_client::{Client, Options, Used, WorkerOptions};
use serde::{Deserialize, Serialize};

use super::ledger::Ledger;
use crate::child::Child;
use crate::clock::monotonic_ns;
use crate::point::Bench;
use crate::role::{RoleArgs, say};

/// What all tasks are.
pub const KIND: &str = "failover";
const WORKERS: usize = 6;
const SLOTS: u32 = 4;
/// A worker sleeps so long over what it takes at once.
const TASK: Duration = Duration::from_millis(20);
/// Long enough for nobody to come to its end: what a killed worker had is not to wait for it.
const TTL: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(20);

/// What a worker says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Begun {
    /// Which task.
    pub task: u64,
    /// Under which token.
    pub token: u64,
    /// When it was to be submitted.
    pub due_ns: u64,
    /// When it began.
    pub began_ns: u64,
}

/// Workers that run, and have run. Gone when dropped.
#[derive(Debug)]
pub struct Crew {
    url: String,
    /// By number; who was killed is none.
    workers: Vec<Option<Child>>,
    next: usize,
}

impl Crew {
    /// Starts them.
    pub fn start(bench: &Bench, url: &str) -> Result<Self> {
        let mut crew = Self { url: url.to_owned(), workers: Vec::new(), next: 0 };
        (0..WORKERS).try_for_each(|_| crew.replace(bench))?;
        Ok(crew)
    }

    /// Starts another.
    pub fn replace(&mut self, bench: &Bench) -> Result<()> {
        let args = [("url", self.url.clone())];
        self.workers.push(Some(bench.child.start("tasks-crew", &args)?));
        Ok(())
    }

    /// Notes what they have said.
    pub fn hear(&mut self, ledger: &mut Ledger) -> Result<()> {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let Some(child) = worker else { continue };
            for line in child.said() {
                ledger.begins(number, serde_json::from_str(&line)?)?;
            }
            ensure!(child.ended()?.is_none(), "worker {number} has ended{}", child.last_words());
        }
        Ok(())
    }

    /// Kills the one that is there longest, and notes what it said last; its number.
    pub fn kill_next(&mut self, ledger: &mut Ledger) -> Result<usize> {
        let number = self.next;
        self.next += 1;
        let mut child = self.workers[number].take().context("one that was killed already")?;
        child.kill()?;
        for line in child.rest() {
            // The last may have been cut off: then it has not begun.
            if let Ok(begun) = serde_json::from_str(&line) {
                ledger.begins(number, begun)?;
            }
        }
        Ok(number)
    }
}

/// The worker's process: works until it is killed.
pub(crate) fn work(args: &RoleArgs) -> Result<()> {
    let client = Client::connect(args.text("url")?, Options::default())?;
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
            let due = given.payload().first_chunk().context("a payload is not as it was submitted")?;
            let due_ns = u64::from_le_bytes(*due);
            say(&Begun { task: given.task(), token: given.token(), due_ns, began_ns })?;
        }
        thread::sleep(TASK);
        attachment.complete_all(&given, &Used { run: TASK, ..Used::default() });
    }
}
