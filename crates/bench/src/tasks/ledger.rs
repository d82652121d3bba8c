//! Records which tasks were submitted, started and ended while nodes and workers are killed, and checks that each task
//! was done exactly once.
//!
//! A subscriber reads the topic of task events to learn which tasks have ended. If this subscriber's node is killed,
//! the subscriber reconnects and continues.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use dunlin_client::topic::{Event, Notice, Position, Start, Subscribe, SubscribeOptions};
use dunlin_client::{Client, ClientOptions, Tasks, TasksError};
use dunlin_tasks::NewTask;
use serde::Deserialize;

use super::worker_processes::{KIND, StartedTask};
use crate::child::TIMEOUT;
use crate::clock::monotonic_ns;

const TENANT: &str = "failover";
/// The number of tasks in one request. There are 100 requests a second, so 400 tasks are submitted a second. The
/// workers could do about 1,000 a second.
const BATCH: usize = 4;
const REQUEST_INTERVAL: Duration = Duration::from_millis(10);
const RETRY_DELAY: Duration = Duration::from_millis(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A start of a task by a worker.
#[derive(Clone, Copy, Debug)]
struct Run {
    worker: usize,
    token: u64,
    due_ns: u64,
    started_ns: u64,
}

/// The tasks that were submitted, started and completed, kept to check that each acknowledged task was completed
/// exactly once.
#[derive(Debug, Default)]
pub struct TaskLedger {
    acknowledged: HashSet<u64>,
    runs: HashMap<u64, Vec<Run>>,
    tokens: HashSet<u64>,
    starts: usize,
    completed: HashSet<u64>,
    /// The most recently added starts, over all tasks: at least the last 10,000 if there are so many.
    latest: Vec<Run>,
}

impl TaskLedger {
    /// Adds a start of a task by a worker. Returns an error if an earlier start had the same token.
    pub fn record_start(&mut self, worker: usize, start: StartedTask) -> Result<()> {
        let StartedTask { task, token, due_ns, started_ns } = start;
        ensure!(self.tokens.insert(token), "two tasks received token {token}; the second is task {task:x}");
        let runs = self.runs.entry(task).or_default();
        let is_later = runs.iter().all(|run| run.token < token);
        // The reports of one worker are read before those of another. A start can therefore be added after a newer
        // start of the same task.
        let run = Run { worker, token, due_ns, started_ns };
        if is_later {
            runs.push(run)
        } else {
            runs.insert(0, run)
        }
        self.starts += 1;
        self.latest.push(run);
        if self.latest.len() > 20_000 {
            self.latest.drain(..10_000);
        }
        Ok(())
    }

    fn record_end(&mut self, task: u64) -> Result<()> {
        ensure!(self.completed.insert(task), "task {task:x} was completed twice");
        Ok(())
    }

    /// Returns the number of starts so far.
    pub fn starts(&self) -> usize {
        self.starts
    }

    /// Considers the tasks that became due after `due_ns`. Returns the time of the earliest start of one of these
    /// tasks; `None` if none of them has started.
    pub fn first_start_after(&self, due_ns: u64) -> Option<u64> {
        self.latest.iter().filter(|run| run.due_ns > due_ns).map(|run| run.started_ns).min()
    }

    /// Returns the tasks that this worker was the last to start, and that have not been completed.
    pub fn unfinished_tasks_of(&self, worker: usize) -> Vec<u64> {
        let of = |(task, runs): (&u64, &Vec<Run>)| {
            let is_last_run = runs.last().is_some_and(|run| run.worker == worker);
            (is_last_run && !self.is_completed(*task)).then_some(*task)
        };
        self.runs.iter().filter_map(of).collect()
    }

    /// Returns the time of the last start of `task`. Returns `None` if `worker` made this start, or if the task has not
    /// started.
    pub fn restarted_at(&self, task: u64, worker: usize) -> Option<u64> {
        let last = self.runs.get(&task)?.last()?;
        (last.worker != worker).then_some(last.started_ns)
    }

    /// Whether the cluster has reported that the task is completed.
    pub fn is_completed(&self, task: u64) -> bool {
        self.completed.contains(&task)
    }

    /// Whether all acknowledged tasks are completed.
    pub fn are_all_completed(&self) -> bool {
        self.acknowledged.is_subset(&self.completed)
    }

    /// Returns the number of acknowledged tasks.
    pub fn submitted(&self) -> usize {
        self.acknowledged.len()
    }

    /// Returns how many starts were restarts: starts of a task that had already started before.
    pub fn restarts(&self) -> usize {
        self.starts - self.runs.len()
    }
}

impl fmt::Display for TaskLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (acknowledged, completed) = (self.acknowledged.len(), self.completed.len());
        write!(f, "{acknowledged} acknowledged, {} begun, {completed} done", self.starts)
    }
}

/// The submitter of a benchmark of tasks. It has two threads: the first submits tasks, and the second receives events
/// about completed tasks.
#[derive(Debug)]
pub struct SubmitterThreads {
    tasks: Tasks,
    stop_submitting: Arc<AtomicBool>,
    acknowledged: Receiver<u64>,
    ended: Receiver<u64>,
    submitter: Option<JoinHandle<Result<()>>>,
    watcher: Option<JoinHandle<Result<()>>>,
    /// Whether the thread that receives events must end. It ends later than the submitting thread, because workers may
    /// still be busy after the last submission. The submitting thread therefore has a separate flag.
    stop_watching: Arc<AtomicBool>,
}

impl SubmitterThreads {
    /// Starts both threads. Any node may be killed while they run.
    pub fn start(url: &str) -> Result<Self> {
        let connect = || Client::connect(url, ClientOptions::default()).context("cannot connect to the node");
        let tasks = connect()?.tasks();
        let (stop_submitting, stop_watching) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let ((sender, acknowledged), (end_sender, ended)) = (channel(), channel());
        let events = connect()?;
        let (submitter_stop, submitter_tasks) = (Arc::clone(&stop_submitting), connect()?.tasks());
        let submitter = thread::spawn(move || submit(&submitter_tasks, &submitter_stop, &sender));
        let watcher_stop = Arc::clone(&stop_watching);
        let watcher = thread::spawn(move || watch(&events, &watcher_stop, &end_sender));
        let (submitter, watcher) = (Some(submitter), Some(watcher));
        Ok(Self { tasks, stop_submitting, acknowledged, ended, submitter, watcher, stop_watching })
    }

    /// Adds newly acknowledged and newly completed tasks to the ledger.
    pub fn receive_reports(&mut self, ledger: &mut TaskLedger) -> Result<()> {
        ledger.acknowledged.extend(self.acknowledged.try_iter());
        self.ended.try_iter().try_for_each(|task| ledger.record_end(task))?;
        // A thread that has ended although nothing stopped it has failed.
        for (thread, is_stopped) in
            [(&mut self.submitter, &self.stop_submitting), (&mut self.watcher, &self.stop_watching)]
        {
            if !is_stopped.load(Ordering::Acquire)
                && let Some(ended) = thread.take_if(|thread| thread.is_finished())
            {
                join(ended)?;
                bail!("the thread that submits or watches tasks ended unexpectedly");
            }
        }
        Ok(())
    }

    /// Stops the submitting thread, and waits for its end.
    pub fn stop(&mut self) -> Result<()> {
        self.stop_submitting.store(true, Ordering::Release);
        self.submitter.take().map_or(Ok(()), join)
    }

    /// Compares the ledger with the cluster's own count of completed tasks. Exactly the acknowledged tasks must be
    /// completed.
    pub fn check(mut self, ledger: &TaskLedger) -> Result<()> {
        self.stop_watching.store(true, Ordering::Release);
        self.watcher.take().map_or(Ok(()), join)?;
        let tenants = self.tasks.tenants(TENANT)?;
        let completed = tenants.first().context("no tenant exists: no task was submitted")?.account.completed;
        let (acknowledged, received) = (ledger.acknowledged.len() as u64, ledger.completed.len() as u64);
        ensure!(
            (completed, received) == (acknowledged, acknowledged),
            "{acknowledged} tasks were acknowledged, {completed} completed, and the watcher received {received} completions"
        );
        Ok(())
    }
}

fn join(thread: JoinHandle<Result<()>>) -> Result<()> {
    thread.join().map_err(|_| anyhow!("a client thread panicked"))?
}

/// Submits tasks until stopped. If a request was refused, or if its result is unknown, repeats the request with the
/// same idempotency keys.
fn submit(tasks: &Tasks, stop_submitting: &AtomicBool, acknowledged: &Sender<u64>) -> Result<()> {
    let (mut number, mut next) = (0_u64, Instant::now());
    while !stop_submitting.load(Ordering::Acquire) {
        let due = monotonic_ns().to_le_bytes();
        let keys: Vec<[u8; 8]> = (number..).take(BATCH).map(u64::to_be_bytes).collect();
        number += BATCH as u64;
        let deadline = Instant::now() + TIMEOUT;
        let submitted = loop {
            let new = keys
                .iter()
                .map(|key| NewTask { idempotency_key: key, ..NewTask::new(KIND.as_bytes(), &due) });
            match tasks.submit_all(TENANT, new.collect()) {
                Ok(submitted) => break submitted.tasks,
                Err(TasksError::Unknown(_) | TasksError::Disconnected(_) | TasksError::Refused(_))
                    if Instant::now() < deadline =>
                {
                    thread::sleep(RETRY_DELAY);
                }
                Err(error) => return Err(error).context("cannot submit tasks"),
            }
        };
        for task in submitted {
            acknowledged.send(task.task).context("the thread that reads the ledger has ended")?;
        }
        // After a delay, the requests that should have been sent meanwhile are left out.
        next = (next + REQUEST_INTERVAL).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

#[derive(Deserialize)]
struct LedgerEvent {
    task: String,
    event: String,
}

/// Reads events until stopped, and reports which tasks are completed.
fn watch(client: &Client, stop_watching: &AtomicBool, ended: &Sender<u64>) -> Result<()> {
    let mut after = None;
    while !stop_watching.load(Ordering::Acquire) {
        let start = after.map_or(Start::Earliest, Start::After);
        let options = SubscribeOptions { start, ..SubscribeOptions::default() };
        // A restarted node may not have the position of the last event yet, and then refuses. The loop tries again.
        if let Ok(mut events) = client.subscribe("$tasks.>", options) {
            while !stop_watching.load(Ordering::Acquire)
                && let Ok(next) = events.next_timeout(POLL_INTERVAL)
            {
                after = next.map_or(Ok(None), |event| handle_event(&event, ended))?.or(after);
            }
        }
        thread::sleep(RETRY_DELAY);
    }
    Ok(())
}

/// If the event says that a task is completed, sends the task to `ended`. Returns the position of the event.
fn handle_event(event: &Event<'_>, ended: &Sender<u64>) -> Result<Option<Position>> {
    match event {
        Event::Record(record) => {
            let LedgerEvent { task, event } = serde_json::from_slice(record.payload())?;
            match event.as_str() {
                "completed" => ended.send(u64::from_str_radix(&task, 16)?)?,
                "dead" | "cancelled" => bail!("unexpected event {event} of task {task}"),
                _ => {}
            }
            Ok(Some(record.position))
        }
        Event::Notice(Notice::Gap(gap)) => bail!("the watcher missed events: {gap:?}"),
        Event::Notice(Notice::EpochChanged(changed)) => {
            bail!("the topic of the tasks' events began another epoch: {changed:?}")
        }
        Event::Notice(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(task: u64, token: u64, started_ns: u64) -> StartedTask {
        StartedTask { task, token, due_ns: started_ns - 1, started_ns }
    }

    #[test]
    fn worker_holds_a_task_until_the_task_ends_or_moves() {
        let mut ledger = TaskLedger::default();
        ledger.acknowledged.extend([1, 2]);
        ledger.record_start(0, start(1, 10, 100)).unwrap();
        ledger.record_start(0, start(2, 11, 100)).unwrap();
        ledger.record_end(2).unwrap();
        assert_eq!((ledger.unfinished_tasks_of(0), ledger.restarted_at(1, 0)), (vec![1], None));
        ledger.record_start(1, start(1, 12, 300)).unwrap();
        assert_eq!((ledger.unfinished_tasks_of(0), ledger.restarted_at(1, 0)), (vec![], Some(300)));
        assert_eq!((ledger.starts(), ledger.restarts(), ledger.first_start_after(150)), (3, 1, Some(300)));
        assert!(!ledger.are_all_completed());
        ledger.record_end(1).unwrap();
        assert!(ledger.are_all_completed());
        assert!(ledger.record_end(1).is_err(), "a task is completed once");
        assert!(ledger.record_start(2, start(2, 12, 400)).is_err(), "each token is assigned once");
    }
}
