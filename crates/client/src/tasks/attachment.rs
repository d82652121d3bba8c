//! A worker's attachment to the cluster. It has one lease, which lasts over any number of connections.
//!
//! Threads take tasks with [`Attachment::next`], and finish them with [`Attachment::complete`] or [`Attachment::fail`].
//! These two do not wait; [`Attachment::load`] counts the results. While threads wait for a task, one of them reads the
//! connection for all, so that a new task wakes only the thread that runs it. While no thread waits, the worker's own
//! thread reads the connection and renews the lease.
//!
//! Invariants:
//! - A result without a response is sent again on the next connection, under the same token, and counts once.
//! - If the cluster refuses a result because of its content, the task fails with the reason for the refusal. Otherwise,
//!   the task would never end.
//! - [`AssignedTask::is_stopped`] returns `true` as soon as the worker knows that the task does not belong to it any
//!   more.

mod driver;
mod worker_state;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunlin_tasks::{AttemptReport, TaskCommand};

use super::Tasks;
use super::assigned::{AssignedTask, TaskUsage};
use super::error::TasksError;
use super::worker_inbox::WorkerInbox;
use crate::client::SharedClient;
use crate::follow::lock;
use crate::interrupt::interruptible;
use crate::pending_request::deadline;
use crate::worker_launch::NAME_VARIABLE;
use driver::Driver;
use worker_state::{QueuedCommand, WorkerState};

/// The options of a worker: the tasks that it runs, its slots, and its resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOptions {
    /// The worker's name, as operators see it. In a process that a node has started, the name that this node chose is
    /// used instead.
    pub name: String,
    /// The kinds of tasks that the worker runs.
    pub kinds: Vec<String>,
    /// The queues that the worker serves; empty for all.
    pub queues: Vec<String>,
    /// The largest number of tasks that run at the same time.
    pub slots: u32,
    /// The worker's processors, in thousandths of a processor; 0 if unknown.
    pub cpu_milli: u32,
    /// The worker's memory, in bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// The time to live of the worker's lease. If the worker does not renew the lease for this time, the worker counts
    /// as dead, and its tasks go to other workers.
    pub ttl: Duration,
    /// The worker's labels, each with a key and a value. A task may require labels.
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

/// Counts of a worker's present and past tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttachmentLoad {
    /// The number that the cluster has assigned to the worker; 0 if there is none yet.
    pub worker: u64,
    /// The number of assigned tasks that no thread has taken yet.
    pub ready: u64,
    /// The number of assigned tasks that have no result yet.
    pub unanswered: u64,
    /// The number of tasks that were assigned since the worker began.
    pub assigned: u64,
    /// The number of results that the cluster has accepted.
    pub answered: u64,
    /// The number of results that the cluster has refused because they came too late.
    pub stale: u64,
    /// The number of tasks that went to other workers before they were finished.
    pub lost: u64,
}

/// A worker's attachment to a node, from which the worker receives tasks. Dropping the value detaches the worker, and
/// its tasks go to other workers.
#[derive(Debug)]
pub struct Attachment {
    core: Arc<AttachmentShared>,
    thread: Option<JoinHandle<()>>,
}

/// The state of a worker, which its own thread and all threads that use the [`Attachment`] share.
#[derive(Debug)]
pub(super) struct AttachmentShared {
    shared: Arc<SharedClient>,
    inbox: Arc<WorkerInbox>,
    options: WorkerOptions,
    /// How many more tasks than slots the worker may receive.
    ahead: u32,
    phase: Mutex<Phase>,
    /// The data that the thread which drives the worker needs. This thread holds the lock while it reads the connection
    /// and renews the lease.
    driver: Mutex<Driver>,
    /// Notified when one of the waiting threads has a task to run, or has to read the connection.
    ready: Condvar,
    /// Notified when the worker's own thread has work to do.
    driver_work: Condvar,
    /// Notified after any change except a new task.
    changed: Condvar,
    /// Locked by the thread that sends the queued commands.
    queued: Mutex<()>,
    /// Whether the worker has ended, for example because it was dropped.
    ended: AtomicBool,
}

#[derive(Debug, Default)]
struct Phase {
    worker_state: WorkerState,
    error: Option<TasksError>,
    /// How many threads wait for a task without reading the connection.
    idle: usize,
    /// Whether a thread that waits for a task reads the connection.
    is_driven: bool,
    /// When a thread last stopped reading the connection, for example because it received a task.
    left_at: Option<Instant>,
    /// Whether the worker's own thread sleeps for a long time, because another thread reads the connection.
    own_thread_sleeps: bool,
    /// How many threads wait for `changed`.
    watching: usize,
    /// The time until which a worker that was dropped tries to send its last commands; `None` for any other worker.
    close_deadline: Option<Instant>,
    /// Since when the worker is detached; `None` while it is attached.
    detached_since: Option<Instant>,
}

impl Phase {
    /// Queues the result of a task, unless the task does not belong to the worker any more.
    fn report_result<'a>(
        &mut self,
        assigned: &AssignedTask,
        used: &TaskUsage,
        command: impl FnOnce(AttemptReport) -> TaskCommand<'a>,
    ) {
        let (task, token, worker_state) = (assigned.task(), assigned.token(), &mut self.worker_state);
        if worker_state.record_result(task, token) {
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
            worker_state.enqueue(queued.or_failure());
        }
    }

    /// Whether the worker's own thread must be woken when another thread stops reading the connection. It is not enough
    /// to notify a waiting thread, which may return with a task, or at its timeout, without reading the connection.
    fn own_thread_must_wake(&self) -> bool {
        self.own_thread_sleeps
    }

    /// Whether a draining worker may end although no node can be reached. All its tasks must have a result. If a result
    /// has no response, the worker first waits until its lease has certainly ended.
    fn may_end_unconfirmed(&self, ttl: Duration, now: Instant) -> bool {
        let patience = if self.worker_state.holds_tasks() { ttl.max(CLOSE_TIMEOUT) } else { CLOSE_TIMEOUT };
        self.worker_state.is_draining
            && self.worker_state.unanswered() == 0
            && self.detached_since.is_some_and(|since| now.saturating_duration_since(since) >= patience)
    }

    /// Whether a worker that was dropped may stop: all its commands have responses, or `close_deadline` has passed.
    fn can_stop(&self) -> bool {
        self.worker_state.is_flushed() || self.close_deadline.is_none_or(|until| Instant::now() >= until)
    }
}

/// How long a worker that was dropped or is drained waits for a connection and for the node's responses.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

impl Tasks {
    /// Makes a worker without waiting. The worker attaches itself as soon as a node can be reached. Fails if no thread
    /// can be started.
    pub fn attach(&self, options: WorkerOptions) -> std::io::Result<Attachment> {
        self.attach_ahead(options, 0)
    }

    /// Like [`attach`](Self::attach). The worker may receive up to `ahead` more tasks than it has slots, so that a free
    /// slot can begin its next task at once. The timeout of each task begins when the worker receives the task.
    pub fn attach_ahead(&self, mut options: WorkerOptions, ahead: u32) -> std::io::Result<Attachment> {
        // A node that has started this process recognizes its worker by this name.
        if let Some(name) = std::env::var(NAME_VARIABLE).ok().filter(|name| !name.is_empty()) {
            options.name = name;
        }
        let core = Arc::new(AttachmentShared {
            shared: Arc::clone(&self.shared),
            inbox: Arc::default(),
            options,
            ahead,
            phase: Mutex::default(),
            driver: Mutex::new(Driver::new()),
            ready: Condvar::new(),
            driver_work: Condvar::new(),
            changed: Condvar::new(),
            queued: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let driven = Arc::clone(&core);
        let run = move || {
            let stop_requested = Arc::clone(&driven);
            // Dropping the worker interrupts the thread, so that the drop does not wait for a node that cannot be
            // reached.
            interruptible(move || stop_requested.ended.load(Ordering::Acquire), || driven.drive_when_idle());
        };
        let thread = thread::Builder::new().name("dunlin-worker".to_owned()).spawn(run)?;
        Ok(Attachment { core, thread: Some(thread) })
    }
}

impl Attachment {
    /// Returns the next task; `None` if there is none within `timeout`. Fails if the worker has ended.
    pub fn next(&self, timeout: Duration) -> Result<Option<AssignedTask>, TasksError> {
        Ok(self.next_batch(1, timeout)?.pop())
    }

    /// Returns all tasks that are available, at most `count_max`. Waits at most `timeout` for the first one; if none
    /// arrives, the result is empty.
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
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() || self.core.ended.load(Ordering::Acquire) {
                return Ok(Vec::new());
            }
            if let Ok(mut driver) = self.core.driver.try_lock() {
                phase.is_driven = true;
                drop(phase);
                let is_interrupted = self.core.drive_until_task(&mut driver, deadline).is_break();
                drop(driver);
                phase = lock(&self.core.phase);
                self.core.stop_driving(&mut phase);
                if is_interrupted {
                    return Ok(Vec::new());
                }
                continue;
            }
            phase.idle += 1;
            let waited = self.core.ready.wait_timeout(phase, remaining);
            phase = waited.unwrap_or_else(PoisonError::into_inner).0;
            phase.idle -= 1;
        }
    }

    /// Completes a task with a result. If the cluster refuses the result as too large, the task fails instead.
    pub fn complete(&self, assigned: &AssignedTask, result: &[u8], used: &TaskUsage) {
        self.report_result(assigned, used, |answer| TaskCommand::Complete { report: answer, result });
    }

    /// Completes several tasks with empty results. `used` is reported as the usage of each of the tasks.
    pub fn complete_all(&self, assigned: &[AssignedTask], used: &TaskUsage) {
        self.core.with_phase(|phase| {
            assigned.iter().for_each(|assigned| {
                phase.report_result(assigned, used, |answer| TaskCommand::Complete {
                    report: answer,
                    result: b"",
                })
            });
        });
        self.core.send_queued();
    }

    /// Reports that a task has failed. If `retry` is set, the task may receive another attempt. At most 1 MiB of
    /// `error` is kept.
    pub fn fail(&self, assigned: &AssignedTask, error: &[u8], retry: bool, used: &TaskUsage) {
        let error = cut(error);
        self.report_result(assigned, used, |answer| TaskCommand::Fail { report: answer, error, retry });
    }

    /// Reports the progress of a task: a number of thousandths, and a note.
    pub fn progress(&self, assigned: &AssignedTask, permille: u16, note: &str) {
        self.send_for_task(assigned, |worker| TaskCommand::Progress {
            worker,
            task: assigned.task(),
            token: assigned.token(),
            permille,
            note: cut(note.as_bytes()),
        });
    }

    /// Restarts the timeout of a task. The timeout then has the length `timeout`; `None` means the length that the task
    /// itself states.
    pub fn extend(&self, assigned: &AssignedTask, timeout: Option<Duration>) {
        let timeout_ms = timeout.map_or(0, |timeout| u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX));
        let (task, token) = (assigned.task(), assigned.token());
        self.send_for_task(assigned, |worker| TaskCommand::Extend { worker, task, token, timeout_ms });
    }

    /// Stops taking new tasks. The tasks that the worker has must still be finished.
    pub fn drain(&self) {
        self.core.with_phase(|phase| {
            let worker_state = &mut phase.worker_state;
            if !std::mem::replace(&mut worker_state.is_draining, true) {
                let worker = worker_state.worker;
                worker_state.is_drained = worker == 0;
                worker_state.enqueue(QueuedCommand::new(&TaskCommand::Drain { worker }, None, true));
            }
        });
        self.core.send_queued();
        self.core.wake_driver();
    }

    /// Whether a draining worker has finished all its tasks and may end; `false` if the worker is not draining.
    ///
    /// If no node can be reached, the worker may end once all its tasks have results. If a result has no response, the
    /// worker first waits until its lease has ended: after that, the cluster would refuse the result anyway.
    pub fn is_drained(&self) -> bool {
        self.core.with_phase(|phase| {
            let worker_state = &phase.worker_state;
            let has_no_number = worker_state.is_draining && worker_state.worker == 0;
            worker_state.is_drained
                || has_no_number
                || phase.may_end_unconfirmed(self.core.options.ttl, Instant::now())
        })
    }

    /// Waits until the worker is drained, for at most `timeout`. Returns whether it is drained.
    pub fn wait_drained(&self, timeout: Duration) -> bool {
        let deadline = deadline(timeout);
        while !self.is_drained() {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let phase = lock(&self.core.phase);
            if remaining.is_zero() || phase.error.is_some() {
                return false;
            }
            self.core.wait_for_change(phase, remaining.min(CHECK_INTERVAL));
        }
        true
    }

    /// Returns the counts of the worker's present and past tasks.
    pub fn load(&self) -> AttachmentLoad {
        self.core.with_phase(|phase| {
            let WorkerState { worker, ready, counts, .. } = &phase.worker_state;
            AttachmentLoad {
                worker: *worker,
                ready: ready.len() as u64,
                unanswered: phase.worker_state.unanswered() as u64,
                assigned: counts.assigned,
                answered: counts.answered,
                stale: counts.stale,
                lost: counts.lost,
            }
        })
    }

    /// Whether the worker is attached, as far as it knows from the node's last message.
    pub fn is_attached(&self) -> bool {
        self.core.with_phase(|phase| phase.worker_state.is_attached)
    }

    /// The reason why the worker has ended; `None` if it has not.
    pub fn error(&self) -> Option<TasksError> {
        self.core.with_phase(|phase| phase.error.clone())
    }

    /// Waits at most `timeout` until all results have a response of the cluster. Returns whether they have.
    pub fn flush(&self, timeout: Duration) -> bool {
        let deadline = deadline(timeout);
        loop {
            let phase = lock(&self.core.phase);
            let remaining = deadline.saturating_duration_since(Instant::now());
            let is_over = phase.may_end_unconfirmed(self.core.options.ttl, Instant::now());
            if phase.worker_state.is_flushed() || remaining.is_zero() || phase.error.is_some() || is_over {
                return phase.worker_state.is_flushed();
            }
            self.core.wait_for_change(phase, remaining.min(CHECK_INTERVAL));
        }
    }

    fn report_result<'a>(
        &self,
        assigned: &AssignedTask,
        used: &TaskUsage,
        command: impl FnOnce(AttemptReport) -> TaskCommand<'a>,
    ) {
        self.core.with_phase(|phase| phase.report_result(assigned, used, command));
        self.core.send_queued();
    }

    fn send_for_task<'a>(&self, assigned: &AssignedTask, command: impl FnOnce(u64) -> TaskCommand<'a>) {
        self.core.with_phase(|phase| {
            let worker_state = &mut phase.worker_state;
            if worker_state.holds(assigned.task(), assigned.token()) {
                let worker = worker_state.worker;
                worker_state.enqueue(QueuedCommand::new(&command(worker), None, true));
            }
        });
        self.core.send_queued();
    }
}

impl AttachmentShared {
    /// Wakes the thread that drives the worker.
    fn wake_driver(&self) {
        self.inbox.wake();
        drop(lock(&self.phase));
        self.driver_work.notify_one();
    }

    fn wait_for_change(&self, mut phase: MutexGuard<'_, Phase>, longest: Duration) {
        if let Ok(mut driver) = self.driver.try_lock() {
            drop(phase);
            let _ = self.step(&mut driver, Instant::now() + longest, || false);
            drop(driver);
            return self.stop_driving(&mut lock(&self.phase));
        }
        phase.watching += 1;
        let waited = self.changed.wait_timeout(phase, longest);
        waited.unwrap_or_else(PoisonError::into_inner).0.watching -= 1;
    }
}

/// The maximum size in bytes of an error text or a note. The worker cuts longer texts.
const TEXT_BYTES_MAX: usize = 1 << 20;

fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(TEXT_BYTES_MAX)]
}

/// The interval at which a waiting thread checks for changes, even if no thread notifies it.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl Drop for Attachment {
    fn drop(&mut self) {
        self.core.with_phase(|phase| {
            phase.close_deadline = Some(Instant::now() + CLOSE_TIMEOUT);
            let worker = phase.worker_state.worker;
            if phase.worker_state.is_attached {
                phase.worker_state.enqueue(QueuedCommand::new(&TaskCommand::Leave { worker }, None, false));
            }
        });
        self.core.send_queued();
        self.core.ended.store(true, Ordering::Release);
        self.core.wake_driver();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        lock(&self.core.shared.session).remove_worker(&self.core.inbox);
        self.core.ready.notify_all();
        self.core.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use dunlin_tasks::{TaskStart, WorkerOrder};

    use super::*;

    /// Returns the phase of a worker that is draining, and detached since the time `since`.
    fn detached_phase(since: Instant) -> Phase {
        let mut phase = Phase { detached_since: Some(since), ..Phase::default() };
        (phase.worker_state.worker, phase.worker_state.is_draining) = (1, true);
        phase
    }

    #[test]
    fn disconnected_worker_delays_its_end_only_for_unsent_results() {
        let mut phase = detached_phase(Instant::now());
        phase.close_deadline = Some(Instant::now() + Duration::from_secs(1_000));
        phase.worker_state.enqueue(QueuedCommand::new(&TaskCommand::Drain { worker: 1 }, None, true));
        assert!(phase.can_stop(), "no node can receive the drain command");
        let answer =
            AttemptReport { worker: 1, task: 2, token: 3, run_us: 0, cpu_us: 0, memory_bytes: 0, credit: 1 };
        phase.worker_state.enqueue(QueuedCommand::new(
            &TaskCommand::Complete { report: answer, result: b"" },
            Some((2, 3)),
            true,
        ));
        assert!(!phase.can_stop(), "a node that comes back is to have the answer");
        let mut attached = Phase { detached_since: None, ..detached_phase(Instant::now()) };
        attached.close_deadline = phase.close_deadline;
        attached.worker_state.is_attached = true;
        attached.worker_state.enqueue(QueuedCommand::new(&TaskCommand::Drain { worker: 1 }, None, true));
        assert!(!attached.can_stop(), "the node has to receive the command");
    }

    #[test]
    fn sleeping_worker_thread_is_woken_even_if_others_are_idle() {
        let phase = |idle| Phase { idle, own_thread_sleeps: true, ..Phase::default() };
        assert!(phase(0).own_thread_must_wake() && phase(1).own_thread_must_wake());
        assert!(
            !Phase::default().own_thread_must_wake(),
            "a thread that does not sleep costs no system call"
        );
    }

    #[test]
    fn draining_worker_keeps_unsent_results_until_its_lease_ends() {
        let (ttl, since) = (Duration::from_secs(1_000), Instant::now());
        let (soon, late) = (since + Duration::from_secs(10), since + 2 * ttl);
        assert!(detached_phase(since).may_end_unconfirmed(ttl, soon));
        assert!(!detached_phase(since).may_end_unconfirmed(ttl, since), "a node may come back");
        assert!(
            !Phase { detached_since: None, ..detached_phase(since) }.may_end_unconfirmed(ttl, late),
            "a node will say so"
        );
        let mut takes_more = detached_phase(since);
        takes_more.worker_state.is_draining = false;
        assert!(!takes_more.may_end_unconfirmed(ttl, late));
        let mut busy = detached_phase(since);
        busy.worker_state.handle_order(WorkerOrder::Start(TaskStart {
            worker: 1,
            task: 2,
            token: 3,
            tenant: b"t"[..].into(),
            kind: b"k"[..].into(),
            payload: b""[..].into(),
            attempt: 1,
            timeout_ms: 1,
        }));
        assert!(!busy.may_end_unconfirmed(ttl, late), "the worker has a task");
        busy.worker_state.record_result(2, 3);
        assert!(!busy.may_end_unconfirmed(ttl, soon), "the result counts until the lease ends");
        assert!(busy.may_end_unconfirmed(ttl, late));
    }

    #[test]
    fn refused_task_request_is_repeated_only_if_it_had_no_effect() {
        let mut worker_state = Phase::default().worker_state;
        (worker_state.worker, worker_state.is_attached) = (1, true);
        let pull = TaskCommand::Pull { worker: 1, credit: 1 };
        worker_state.enqueue(QueuedCommand::new(&pull, None, false));
        let sent = worker_state.next_request(7);
        assert!(sent.is_some());
        worker_state.requeue_request(7, true);
        assert_eq!(worker_state.next_request(8), sent);
        worker_state.requeue_request(8, false);
        assert_eq!(worker_state.next_request(9), None, "the worker would receive two tasks for one slot");
    }
}
