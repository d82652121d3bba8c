//! The thread that stores records: in each round, it writes and syncs the staged records of all logs.
//!
//! Records that are published during a round are stored in the next one, so that more publishers share each sync. A log
//! whose publishers store their records themselves is visited later. An immediate visit would sync the first records of
//! a batch alone, and the publisher would wait for two syncs.
//!
//! Invariant: a log is in each list at most once. It is removed from a list before its records are staged, so that
//! records which are staged afterwards put the log into the list again.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunlin_journal::Disk;
use dunlin_topic::Log;

use super::disk_log::{DiskLog, NextVisit, Shortage};
use super::{catalogue, lock};

/// The pause before the thread tries again to write a log for which there was a [`Shortage`].
const RETRY: Duration = Duration::from_millis(100);
/// The pause before subscribers read from disk again, after the process lacked a resource for a read, such as file
/// descriptors.
const READ_RETRY: Duration = Duration::from_millis(100);
/// How long the thread waits for a log's publishers to store their records, before it stores the records itself.
const LATER_DELAY: Duration = Duration::from_millis(1);
/// How many times the thread checks the queue before it sleeps. The checks take about 20 µs together, a time in which a
/// publisher often publishes again.
const SPIN_CHECKS: u32 = 400;

/// The queue of the storing thread: the logs with records to store, and other work.
#[derive(Debug, Default)]
pub(super) struct StoreQueue {
    has_entries: AtomicBool,
    /// The worst shortage in the thread's last round.
    shortage: Mutex<Option<Shortage>>,
    /// Whether, since the start, the disk has failed for any log.
    has_failed: AtomicBool,
    state: Mutex<QueueState>,
    work_added: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    logs: Vec<Arc<DiskLog>>,
    /// The logs to visit later, each with the value that [`DiskLog::helped`] had when the log was last checked.
    later: Vec<(Arc<DiskLog>, u64)>,
    removed: Vec<Removal>,
    /// The logs whose subscribers wait until they may read from disk again.
    deferred: Vec<Weak<DiskLog>>,
    /// The time at which the subscribers of the logs in `deferred` may read again; `None` if there are none.
    retry_reads_at: Option<Instant>,
    sleep: Sleep,
    stopping: bool,
}

/// The work that the thread does next, except for the logs to store.
struct QueuedWork {
    is_running: bool,
    removed: Vec<Removal>,
    /// The logs whose subscribers may read from disk again.
    deferred: Vec<Weak<DiskLog>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Sleep {
    #[default]
    Awake,
    /// The thread sleeps until it is time for the logs in `later`.
    UntilTimeout,
    UntilWoken,
}

/// A handle to the storing thread. The thread ends when the handle is stopped or dropped.
#[derive(Debug)]
pub(super) struct StoreWorker {
    queue: Arc<StoreQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl StoreWorker {
    pub(super) fn start() -> io::Result<StoreWorker> {
        let queue = Arc::<StoreQueue>::default();
        let thread_queue = Arc::clone(&queue);
        let thread =
            thread::Builder::new().name("dunlin-store".to_owned()).spawn(move || run(&thread_queue))?;
        Ok(StoreWorker { queue, thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn queue(&self) -> &Arc<StoreQueue> {
        &self.queue
    }

    /// The worst shortage in the thread's last round.
    pub(super) fn shortage(&self) -> Option<Shortage> {
        *lock(&self.queue.shortage)
    }

    /// Whether, since the start, the disk has failed for any log.
    pub(super) fn has_failed(&self) -> bool {
        self.queue.has_failed.load(Ordering::Relaxed)
    }

    /// Makes the thread visit a log soon: it stores the log's records, and applies retention.
    pub(super) fn visit(&self, log: &Arc<DiskLog>) {
        self.queue.add(Arc::clone(log));
    }

    /// Makes the thread remove a deleted topic: it stores the remaining records of the topic's logs, removes the logs,
    /// and then removes the topic's deletion mark.
    pub(super) fn remove(&self, removal: Removal) {
        self.queue.change(|state| state.removed.push(removal));
    }

    /// Makes the thread store everything in the queue, and waits until the thread has ended.
    pub(super) fn stop(&self) {
        self.queue.change(|state| state.stopping = true);
        if let Some(thread) = lock(&self.thread).take() {
            // Ignore the error: a thread that panicked has already reported the panic.
            let _ = thread.join();
        }
    }
}

impl Drop for StoreWorker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl StoreQueue {
    pub(super) fn add(&self, log: Arc<DiskLog>) {
        self.change(|state| {
            if !state.logs.iter().any(|other| Arc::ptr_eq(other, &log)) {
                state.logs.push(log);
            }
        });
    }

    /// Notes that the disk has failed for a log.
    pub(super) fn record_failure(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Makes the thread visit the log later, in case the log's publishers no longer store its records.
    pub(super) fn add_later(&self, log: Arc<DiskLog>) {
        let mut state = lock(&self.state);
        let helped = log.helped();
        state.later.push((log, helped));
        if state.sleep == Sleep::UntilWoken {
            state.sleep = Sleep::Awake;
            self.work_added.notify_one();
        }
    }

    /// After [`READ_RETRY`], lets the log's subscribers read from disk again.
    pub(super) fn add_deferred(&self, log: Weak<DiskLog>) {
        let mut state = lock(&self.state);
        state.deferred.push(log);
        state.retry_reads_at.get_or_insert_with(|| Instant::now() + READ_RETRY);
        if state.sleep == Sleep::UntilWoken {
            state.sleep = Sleep::Awake;
            self.work_added.notify_one();
        }
    }

    fn change(&self, change: impl FnOnce(&mut QueueState)) {
        let mut state = lock(&self.state);
        change(&mut state);
        self.has_entries.store(true, Ordering::Release);
        if std::mem::take(&mut state.sleep) != Sleep::Awake {
            self.work_added.notify_one();
        }
    }

    /// Waits for work, but at most for `timeout`. Moves the logs in the queue to `round`, and returns the other work.
    fn wait_for_work(&self, round: &mut Vec<Arc<DiskLog>>, timeout: Option<Duration>) -> QueuedWork {
        for _ in 0..SPIN_CHECKS {
            if self.has_entries.load(Ordering::Acquire) {
                break;
            }
            std::hint::spin_loop();
        }
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let mut state = lock(&self.state);
        while state.logs.is_empty() && state.removed.is_empty() && !state.stopping {
            let until = until.into_iter().chain(state.retry_reads_at).min();
            let remaining = until.map(|until| until.saturating_duration_since(Instant::now()));
            if remaining.is_some_and(|remaining| remaining.is_zero()) {
                break;
            }
            let has_later = !state.later.is_empty();
            state.sleep = if has_later { Sleep::UntilTimeout } else { Sleep::UntilWoken };
            let sleep_max = if has_later {
                Some(remaining.map_or(LATER_DELAY, |remaining| remaining.min(LATER_DELAY)))
            } else {
                remaining
            };
            let timed_out;
            (state, timed_out) = self.sleep(state, sleep_max);
            if timed_out {
                state.requeue_unstored();
            }
        }
        state.sleep = Sleep::Awake;
        self.has_entries.store(false, Ordering::Relaxed);
        round.append(&mut state.logs);
        QueuedWork {
            is_running: !state.stopping,
            removed: std::mem::take(&mut state.removed),
            deferred: state.take_deferred(),
        }
    }

    fn sleep<'w>(
        &self,
        state: MutexGuard<'w, QueueState>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'w, QueueState>, bool) {
        match timeout {
            None => (self.work_added.wait(state).unwrap_or_else(PoisonError::into_inner), false),
            Some(timeout) => {
                let waited = self.work_added.wait_timeout(state, timeout);
                let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                (state, timeout.timed_out())
            }
        }
    }
}

impl QueueState {
    /// Takes the logs whose subscribers may read from disk again. Returns no logs before the time `retry_reads_at`.
    fn take_deferred(&mut self) -> Vec<Weak<DiskLog>> {
        if self.retry_reads_at.is_none_or(|at| Instant::now() < at) {
            return Vec::new();
        }
        self.retry_reads_at = None;
        std::mem::take(&mut self.deferred)
    }

    /// Moves those logs from `later` to `logs` whose records no publisher has stored since the last check.
    fn requeue_unstored(&mut self) {
        let QueueState { logs, later, .. } = self;
        later.retain_mut(|(log, helped)| {
            let before = std::mem::replace(helped, log.helped());
            if *helped != before || log.is_being_stored() {
                return true;
            }
            log.remove_from_later();
            if !logs.iter().any(|other| Arc::ptr_eq(other, log)) {
                logs.push(Arc::clone(log));
            }
            false
        });
    }
}

/// A deleted topic, whose logs the storing thread has to remove.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) id: u64,
    pub(super) logs: Vec<(Arc<DiskLog>, Arc<Log>)>,
}

/// Removes the logs of deleted topics, and then the topics' deletion marks.
fn remove(removed: &[Removal]) {
    let mut finished = Vec::new();
    for Removal { id, logs, .. } in removed {
        // If removing one log fails, still remove the others.
        let failed = logs.iter().filter(|(disk_log, log)| !disk_log.finish(log)).count();
        finished.extend((failed == 0).then_some(*id));
    }
    // All removed topics are in the same data directory.
    if let Some(Removal { disk, dir, .. }) = removed.first() {
        catalogue::remove_marks(&**disk, dir, &finished);
    }
}

fn run(queue: &StoreQueue) {
    let mut round: Vec<Arc<DiskLog>> = Vec::new();
    let mut retried: Vec<(Arc<DiskLog>, Shortage)> = Vec::new();
    loop {
        let timeout = (!retried.is_empty()).then_some(RETRY);
        let QueuedWork { is_running, removed, deferred } = queue.wait_for_work(&mut round, timeout);
        deferred.iter().filter_map(Weak::upgrade).for_each(|log| log.retry_reads());
        for (log, _) in retried.drain(..) {
            if !round.iter().any(|other| Arc::ptr_eq(other, &log)) {
                round.push(log);
            }
        }
        round.iter().for_each(|log| log.write());
        for log in round.drain(..) {
            if let NextVisit::Retry(shortage) = log.sync()
                && is_running
            {
                retried.push((log, shortage));
            }
        }
        for (disk_log, _) in removed.iter().flat_map(|removal| &removal.logs) {
            retried.retain(|(other, _)| !Arc::ptr_eq(other, disk_log));
        }
        *lock(&queue.shortage) = retried.iter().map(|(_, shortage)| *shortage).max();
        remove(&removed);
        if !is_running {
            return;
        }
    }
}
