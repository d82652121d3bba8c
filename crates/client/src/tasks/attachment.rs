//! A worker, attached to the cluster under one lease over any number of connections.
//!
//! Threads take tasks with [`Attachment::next`] and finish them with [`Attachment::complete`] or
//! [`Attachment::fail`], which do not wait; [`Attachment::load`] counts the results. One waiting thread reads
//! the connection for all, so that a task wakes only the thread that runs it. While no thread waits, the
//! worker's own thread reads, and renews the lease.
//!
//! Invariants:
//! - A result without a response is sent again on the next connection, under the same token, and counts once.
//! - If a result itself is refused, the task fails with that reason: no task stays unfinished.
//! - [`AssignedTask::is_stopped`] returns `true` as soon as the worker knows that it has lost the task.

mod driving;
mod worker_state;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunlin_tasks::{AttemptReport, TaskCommand};

use super::Tasks;
use super::assigned::{AssignedTask, TaskUsage};
use super::error::TasksError;
use super::line::WorkerInbox;
use crate::client::SharedClient;
use crate::follow::lock;
use crate::interrupt::interruptible;
use crate::pending_request::deadline;
use crate::started::NAME_VARIABLE;
use driving::Driver;
use worker_state::{QueuedCommand, WorkerState};

/// Options of a worker: the tasks that it runs, its slots, and its resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOptions {
    /// The worker's name, which operators see. In a process that a node started, the node's name for the worker is used
    /// instead.
    pub name: String,
    /// The kinds of tasks that the worker runs.
    pub kinds: Vec<String>,
    /// The queues that the worker serves; empty for all.
    pub queues: Vec<String>,
    /// The largest number of tasks that run at the same time.
    pub slots: u32,
    /// The processors that the worker has, in thousandths of a processor; 0 if unknown.
    pub cpu_milli: u32,
    /// The memory that the worker has, in bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// The time without a renewal after which the worker counts as dead and its tasks go to others.
    pub ttl: Duration,
    /// Labels that tasks may require, by key and value.
    pub labels: Vec<(String, String)>,
    /// The tenants whose tasks the worker takes; empty for all.
    pub tenants: Vec<String>,
}

impl Default for WorkerOptions {
    fn default() -> WorkerOptions {
        WorkerOptions {
            name: String::new(),
            kinds: Vec::new(),
            queues: Vec::new(),
            slots: 1,
            cpu_milli: 0,
            memory_bytes: 0,
            ttl: Duration::from_secs(10),
            labels: Vec::new(),
            tenants: Vec::new(),
        }
    }
}

/// The numbers of an attached worker's tasks: assigned, unfinished, accepted and lost ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttachmentLoad {
    /// The worker's number in the cluster; 0 if it has none yet.
    pub worker: u64,
    /// The number of assigned tasks that no thread has taken yet.
    pub ready: u64,
    /// The number of assigned tasks that are not finished.
    pub unanswered: u64,
    /// The number of tasks that were assigned since the worker began.
    pub given: u64,
    /// The number of results that the cluster accepted.
    pub answered: u64,
    /// The number of results that the cluster refused because they came too late.
    pub stale: u64,
    /// The number of tasks that went to other workers before they were finished.
    pub lost: u64,
}

/// A worker's attachment to a node, which sends it tasks.
/// Dropping the attachment detaches the worker, whose tasks go to other workers.
#[derive(Debug)]
pub struct Attachment {
    core: Arc<AttachmentShared>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the worker's own thread and the threads of its user share.
#[derive(Debug)]
pub(super) struct AttachmentShared {
    shared: Arc<SharedClient>,
    line: Arc<WorkerInbox>,
    options: WorkerOptions,
    /// The number of tasks that the worker holds in addition to those that fill its slots.
    ahead: u32,
    phase: Mutex<Phase>,
    /// The state of the driving thread. The thread that reads the connection and renews the lease holds this lock.
    driver: Mutex<Driver>,
    /// Notified when there is a task for a waiting thread, or when a waiting thread has to read the connection.
    ready: Condvar,
    /// Notified when the worker's own thread has work to do.
    own: Condvar,
    /// Notified after any other change.
    changed: Condvar,
    /// The thread that sends queued commands holds this lock.
    queued: Mutex<()>,
    /// Whether the worker was dropped.
    ended: AtomicBool,
}

#[derive(Debug, Default)]
struct Phase {
    worker_state: WorkerState,
    error: Option<TasksError>,
    /// The number of threads that wait for a task, except the one that reads the connection.
    idle: usize,
    /// Whether a thread that waits for a task reads the connection.
    is_driven: bool,
    /// The time at which the last waiting thread left with a task; `None` if a thread waits.
    left_at: Option<Instant>,
    /// Whether the worker's own thread sleeps.
    own_rests: bool,
    /// The number of threads that wait for any other change.
    watching: usize,
    /// The time until which the worker tries to send its last commands; `None` while it is not detaching.
    until: Option<Instant>,
    /// The time since which the worker is detached; `None` while it is attached.
    away: Option<Instant>,
}

impl Phase {
    /// Queues the result of a task, unless the worker no longer holds the task.
    fn answer<'a>(
        &mut self,
        given: &AssignedTask,
        used: &TaskUsage,
        command: impl FnOnce(AttemptReport) -> TaskCommand<'a>,
    ) {
        let (task, token, worker_state) = (given.task(), given.token(), &mut self.worker_state);
        if worker_state.answer(task, token) {
            let answer = AttemptReport {
                worker: worker_state.worker,
                task,
                token,
                run_us: TaskUsage::micros(used.run),
                cpu_us: TaskUsage::micros(used.cpu),
                memory_bytes: used.memory_bytes,
                credit: 1,
            };
            let queued = QueuedCommand::new(&command(answer), Some((task, token)), true);
            worker_state.say(queued.or_failure());
        }
    }

    /// Whether a draining worker may end although no node is reachable. All its tasks must have a result. If results
    /// are not sent yet, the worker waits until its lease has ended.
    fn may_go_unheard(&self, ttl: Duration, now: Instant) -> bool {
        let patience = if self.worker_state.holds_anything() { ttl.max(FAREWELL) } else { FAREWELL };
        self.worker_state.is_draining
            && self.worker_state.unanswered() == 0
            && self.away.is_some_and(|since| now.saturating_duration_since(since) >= patience)
    }

    /// Whether the worker was asked to end and has nothing left to wait for.
    fn is_given_up(&self) -> bool {
        self.worker_state.has_nothing_to_send() || self.until.is_none_or(|until| Instant::now() >= until)
    }
}

/// How long a detaching worker waits for a connection or for the node's response.
const FAREWELL: Duration = Duration::from_secs(1);

impl Tasks {
    /// Makes a worker. Returns at once; the worker attaches as soon as a node is reachable. Fails if no
    /// thread can be started.
    pub fn attach(&self, options: WorkerOptions) -> std::io::Result<Attachment> {
        self.attach_ahead(options, 0)
    }

    /// Like [`attach`](Self::attach). If tasks wait in the cluster, the worker receives `ahead` tasks more than it has
    /// slots, so that a free slot has its next task at once. The timeout of such a task begins when the worker receives
    /// it.
    pub fn attach_ahead(&self, mut options: WorkerOptions, ahead: u32) -> std::io::Result<Attachment> {
        // A node recognizes the workers that it started by their names, and ends the others.
        if let Some(name) = std::env::var(NAME_VARIABLE).ok().filter(|name| !name.is_empty()) {
            options.name = name;
        }
        let core = Arc::new(AttachmentShared {
            shared: Arc::clone(&self.shared),
            line: Arc::default(),
            options,
            ahead,
            phase: Mutex::default(),
            driver: Mutex::new(Driver::new()),
            ready: Condvar::new(),
            own: Condvar::new(),
            changed: Condvar::new(),
            queued: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let driven = Arc::clone(&core);
        let run = move || {
            let asked = Arc::clone(&driven);
            // Dropping the worker does not wait for an unreachable node.
            interruptible(move || asked.ended.load(Ordering::Acquire), || driven.drive_while_nobody_does());
        };
        let thread = thread::Builder::new().name("dunlin-worker".to_owned()).spawn(run)?;
        Ok(Attachment { core, thread: Some(thread) })
    }
}

impl Attachment {
    /// Returns the next task; `None` after `timeout`. Fails when the worker has ended for good.
    pub fn next(&self, timeout: Duration) -> Result<Option<AssignedTask>, TasksError> {
        Ok(self.next_batch(1, timeout)?.pop())
    }

    /// Returns all available tasks, at most `count_max`; empty after `timeout`.
    pub fn next_batch(&self, count_max: usize, timeout: Duration) -> Result<Vec<AssignedTask>, TasksError> {
        let deadline = deadline(timeout);
        let mut phase = lock(&self.core.phase);
        loop {
            let ready = phase.worker_state.ready.len().min(count_max);
            if ready > 0 {
                return Ok(phase.worker_state.ready.drain(..ready).collect());
            }
            if let Some(error) = &phase.error {
                return Err(TasksError::Ended(error.to_string()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.core.ended.load(Ordering::Acquire) {
                return Ok(Vec::new());
            }
            if let Ok(mut driver) = self.core.driver.try_lock() {
                phase.is_driven = true;
                drop(phase);
                let is_interrupted = self.core.drive_for_a_task(&mut driver, deadline).is_break();
                drop(driver);
                phase = lock(&self.core.phase);
                self.core.leave(&mut phase);
                if is_interrupted {
                    return Ok(Vec::new());
                }
                continue;
            }
            phase.idle += 1;
            let waited = self.core.ready.wait_timeout(phase, left);
            phase = waited.unwrap_or_else(PoisonError::into_inner).0;
            phase.idle -= 1;
        }
    }

    /// Completes a task. A result above the cluster's `result_bytes_max` fails the task.
    pub fn complete(&self, given: &AssignedTask, result: &[u8], used: &TaskUsage) {
        self.answer(given, used, |answer| TaskCommand::Complete { answer, result });
    }

    /// Completes tasks without results. `used` applies to each.
    pub fn complete_all(&self, given: &[AssignedTask], used: &TaskUsage) {
        self.core.with(|phase| {
            given.iter().for_each(|given| {
                phase.answer(given, used, |answer| TaskCommand::Complete { answer, result: b"" })
            });
        });
        self.core.say_what_is_to_be_said();
    }

    /// Reports that a task failed. `retry` allows another attempt. At most 1 MiB of `error` is kept.
    pub fn fail(&self, given: &AssignedTask, error: &[u8], retry: bool, used: &TaskUsage) {
        let error = cut(error);
        self.answer(given, used, |answer| TaskCommand::Fail { answer, error, retry });
    }

    /// Reports a task's progress, in thousandths and in words.
    pub fn progress(&self, given: &AssignedTask, permille: u16, note: &str) {
        self.say_of(given, |worker| TaskCommand::Progress {
            worker,
            task: given.task(),
            token: given.token(),
            permille,
            note: cut(note.as_bytes()),
        });
    }

    /// Restarts a task's timeout: with `timeout`, or with the task's own timeout if `timeout` is `None`.
    pub fn extend(&self, given: &AssignedTask, timeout: Option<Duration>) {
        let timeout_ms = timeout.map_or(0, |timeout| u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX));
        let (task, token) = (given.task(), given.token());
        self.say_of(given, |worker| TaskCommand::Extend { worker, task, token, timeout_ms });
    }

    /// Stops taking new tasks. Tasks that the worker holds still have to be finished.
    pub fn drain(&self) {
        self.core.with(|phase| {
            let worker_state = &mut phase.worker_state;
            if !std::mem::replace(&mut worker_state.is_draining, true) {
                let worker = worker_state.worker;
                worker_state.is_drained = worker == 0;
                worker_state.say(QueuedCommand::new(&TaskCommand::Drain { worker }, None, true));
            }
        });
        self.core.say_what_is_to_be_said();
        self.core.poke();
    }

    /// Whether a drained worker has finished all tasks and may end; `false` for a worker that was not drained. Without
    /// a reachable node, the worker may end once all its tasks have results, but not before unsent results are useless
    /// because its lease has ended.
    pub fn is_drained(&self) -> bool {
        self.core.with(|phase| {
            let worker_state = &phase.worker_state;
            let is_nobody = worker_state.is_draining && worker_state.worker == 0;
            worker_state.is_drained
                || is_nobody
                || phase.may_go_unheard(self.core.options.ttl, Instant::now())
        })
    }

    /// Waits until the worker is drained, at most `timeout`. Returns whether the worker is drained.
    pub fn wait_drained(&self, timeout: Duration) -> bool {
        let deadline = deadline(timeout);
        while !self.is_drained() {
            let left = deadline.saturating_duration_since(Instant::now());
            let phase = lock(&self.core.phase);
            if left.is_zero() || phase.error.is_some() {
                return false;
            }
            self.core.wait_for_change(phase, left.min(LOOK));
        }
        true
    }

    /// The worker's current and past tasks.
    pub fn load(&self) -> AttachmentLoad {
        self.core.with(|phase| {
            let WorkerState { worker, ready, counts, .. } = &phase.worker_state;
            AttachmentLoad {
                worker: *worker,
                ready: ready.len() as u64,
                unanswered: phase.worker_state.unanswered() as u64,
                given: counts.given,
                answered: counts.answered,
                stale: counts.stale,
                lost: counts.lost,
            }
        })
    }

    /// Whether the worker is attached, according to its last message.
    pub fn is_attached(&self) -> bool {
        self.core.with(|phase| phase.worker_state.is_attached)
    }

    /// The error with which the worker has ended for good.
    pub fn error(&self) -> Option<TasksError> {
        self.core.with(|phase| phase.error.clone())
    }

    /// Waits at most `timeout` until the cluster has answered all results. Returns whether all are answered.
    pub fn flush(&self, timeout: Duration) -> bool {
        let deadline = deadline(timeout);
        loop {
            let phase = lock(&self.core.phase);
            let left = deadline.saturating_duration_since(Instant::now());
            let is_over = phase.may_go_unheard(self.core.options.ttl, Instant::now());
            if phase.worker_state.has_nothing_to_send() || left.is_zero() || phase.error.is_some() || is_over
            {
                return phase.worker_state.has_nothing_to_send();
            }
            self.core.wait_for_change(phase, left.min(LOOK));
        }
    }

    fn answer<'a>(
        &self,
        given: &AssignedTask,
        used: &TaskUsage,
        command: impl FnOnce(AttemptReport) -> TaskCommand<'a>,
    ) {
        self.core.with(|phase| phase.answer(given, used, command));
        self.core.say_what_is_to_be_said();
    }

    fn say_of<'a>(&self, given: &AssignedTask, command: impl FnOnce(u64) -> TaskCommand<'a>) {
        self.core.with(|phase| {
            let worker_state = &mut phase.worker_state;
            if worker_state.holds(given.task(), given.token()) {
                let worker = worker_state.worker;
                worker_state.say(QueuedCommand::new(&command(worker), None, true));
            }
        });
        self.core.say_what_is_to_be_said();
    }
}

impl AttachmentShared {
    /// Wakes the thread that reads the connection.
    fn poke(&self) {
        self.line.poke();
        drop(lock(&self.phase));
        self.own.notify_one();
    }

    /// Waits until something changes, at most `longest`.
    fn wait_for_change(&self, mut phase: MutexGuard<'_, Phase>, longest: Duration) {
        if let Ok(mut driver) = self.driver.try_lock() {
            drop(phase);
            let _ = self.step(&mut driver, Instant::now() + longest, || false);
            drop(driver);
            return self.leave(&mut lock(&self.phase));
        }
        phase.watching += 1;
        let waited = self.changed.wait_timeout(phase, longest);
        waited.unwrap_or_else(PoisonError::into_inner).0.watching -= 1;
    }
}

/// The number of bytes of a text that the cluster keeps; the worker sends no more.
const TEXT_BYTES_MAX: usize = 1 << 20;

fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(TEXT_BYTES_MAX)]
}

/// The interval at which a waiting thread checks for changes even if it was not notified.
const LOOK: Duration = Duration::from_millis(50);

impl Drop for Attachment {
    fn drop(&mut self) {
        self.core.with(|phase| {
            phase.until = Some(Instant::now() + FAREWELL);
            let worker = phase.worker_state.worker;
            if phase.worker_state.is_attached {
                phase.worker_state.say(QueuedCommand::new(&TaskCommand::Leave { worker }, None, false));
            }
        });
        self.core.say_what_is_to_be_said();
        self.core.ended.store(true, Ordering::Release);
        self.core.poke();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        lock(&self.core.shared.session).remove_working(&self.core.line);
        self.core.ready.notify_all();
        self.core.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use dunlin_tasks::{TaskStart, WorkerOrder};

    use super::*;

    /// Makes the phase of a draining worker that is detached since `since`.
    fn away(since: Instant) -> Phase {
        let mut phase = Phase { away: Some(since), ..Phase::default() };
        (phase.worker_state.worker, phase.worker_state.is_draining) = (1, true);
        phase
    }

    #[test]
    fn disconnected_worker_waits_only_if_it_has_unsent_results() {
        let mut phase = away(Instant::now());
        phase.until = Some(Instant::now() + Duration::from_secs(1_000));
        phase.worker_state.say(QueuedCommand::new(&TaskCommand::Drain { worker: 1 }, None, true));
        assert!(phase.is_given_up(), "no node can receive the drain command");
        let answer =
            AttemptReport { worker: 1, task: 2, token: 3, run_us: 0, cpu_us: 0, memory_bytes: 0, credit: 1 };
        phase.worker_state.say(QueuedCommand::new(
            &TaskCommand::Complete { answer, result: b"" },
            Some((2, 3)),
            true,
        ));
        assert!(!phase.is_given_up(), "a node that comes back is to have the answer");
        let mut attached = Phase { away: None, ..away(Instant::now()) };
        attached.until = phase.until;
        attached.worker_state.is_attached = true;
        attached.worker_state.say(QueuedCommand::new(&TaskCommand::Drain { worker: 1 }, None, true));
        assert!(!attached.is_given_up(), "the node has to receive the command");
    }

    #[test]
    fn draining_worker_keeps_unsent_results_until_its_lease_ends() {
        let (ttl, since) = (Duration::from_secs(1_000), Instant::now());
        let (soon, late) = (since + Duration::from_secs(10), since + 2 * ttl);
        assert!(away(since).may_go_unheard(ttl, soon));
        assert!(!away(since).may_go_unheard(ttl, since), "a node may come back");
        assert!(!Phase { away: None, ..away(since) }.may_go_unheard(ttl, late), "a node will say so");
        let mut takes_more = away(since);
        takes_more.worker_state.is_draining = false;
        assert!(!takes_more.may_go_unheard(ttl, late));
        let mut busy = away(since);
        busy.worker_state.ordered(WorkerOrder::Start(TaskStart {
            worker: 1,
            task: 2,
            token: 3,
            tenant: b"t"[..].into(),
            kind: b"k"[..].into(),
            payload: b""[..].into(),
            attempt: 1,
            timeout_ms: 1,
        }));
        assert!(!busy.may_go_unheard(ttl, late), "the worker has a task");
        busy.worker_state.answer(2, 3);
        assert!(!busy.may_go_unheard(ttl, soon), "the result counts until the lease ends");
        assert!(busy.may_go_unheard(ttl, late));
    }
}
