//! The storing thread: in each round, it writes and syncs the staged records of all logs.
//!
//! Records published during a round belong to the next one, so that more publishers share each sync. A log
//! whose publishers store their own records is visited later. An immediate visit would sync the first records
//! of a batch alone, and the publisher would wait for two syncs.
//!
//! Invariant: a log is in each list at most once. It is removed from the list before its records are staged, so that
//! records staged later put it into the list again.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunlin_journal::Disk;
use dunlin_topic::Log;

use super::disk_log::{DiskLog, NextVisit};
use super::{catalogue, lock};

/// The interval between attempts to write a log whose disk is full.
const RETRY: Duration = Duration::from_millis(100);
/// The time after which subscribers read again if the process lacked a resource for a read, such as file descriptors.
const READ_RETRY: Duration = Duration::from_millis(100);
/// If the publishers of a log have not stored its records within this time, the thread stores them.
const LATER_DELAY: Duration = Duration::from_millis(1);
/// The number of times that the thread checks the queue before it sleeps. The checks take about 20 µs together. In that
/// time, a publisher often publishes again.
const SPIN_CHECKS: u32 = 400;

/// The logs with records to store.
#[derive(Debug, Default)]
pub(super) struct StoreQueue {
    has_entries: AtomicBool,
    /// Whether a disk had no room in the thread's last round.
    is_full: AtomicBool,
    /// Whether the disk of any log has failed since the start.
    has_failed: AtomicBool,
    state: Mutex<QueueState>,
    work_added: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    logs: Vec<Arc<DiskLog>>,
    /// The logs to visit later. For each log, the number of times that publishers had stored it when it was added.
    later: Vec<(Arc<DiskLog>, u64)>,
    removed: Vec<Removal>,
    /// The logs whose subscribers wait for another attempt to read.
    deferred: Vec<Weak<DiskLog>>,
    /// The time at which the subscribers of `deferred` read again; `None` if there are none.
    retry_reads_at: Option<Instant>,
    sleep: Sleep,
    stopping: bool,
}

/// The work that the thread does next.
struct QueuedWork {
    is_running: bool,
    removed: Vec<Removal>,
    /// The logs whose subscribers read again.
    deferred: Vec<Weak<DiskLog>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Sleep {
    #[default]
    Awake,
    /// The thread sleeps, but wakes in time for the logs in `later`.
    UntilTimeout,
    UntilWoken,
}

/// A handle of the storing thread. The thread ends when the handle is stopped or dropped.
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

    /// Whether a disk was full in the thread's last round.
    pub(super) fn lacks_room(&self) -> bool {
        self.queue.is_full.load(Ordering::Relaxed)
    }

    /// Whether the disk of any log has failed since the start.
    pub(super) fn has_failed(&self) -> bool {
        self.queue.has_failed.load(Ordering::Relaxed)
    }

    /// Adds a log to the queue, so that the thread visits it.
    pub(super) fn visit(&self, log: &Arc<DiskLog>) {
        self.queue.add(Arc::clone(log));
    }

    /// Makes the thread store the remaining records of a topic's logs, and then remove the logs and the mark of the
    /// topic's deletion.
    pub(super) fn remove(&self, removal: Removal) {
        self.queue.change(|state| state.removed.push(removal));
    }

    /// Stores everything in the queue and ends the thread.
    pub(super) fn stop(&self) {
        self.queue.change(|state| state.stopping = true);
        if let Some(thread) = lock(&self.thread).take() {
            // If the thread panicked, it has already reported the panic.
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

    /// Stores that the disk of a log has failed.
    pub(super) fn record_failure(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Visits the log later, in case its publishers stop storing it.
    pub(super) fn add_later(&self, log: Arc<DiskLog>) {
        let mut state = lock(&self.state);
        let helped = log.helped();
        state.later.push((log, helped));
        if state.sleep == Sleep::UntilWoken {
            state.sleep = Sleep::Awake;
            self.work_added.notify_one();
        }
    }

    /// Lets the log's subscribers read again after [`READ_RETRY`].
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

    /// Moves the logs in the queue to `round`, after a wait of at most `timeout`. Returns the other work.
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
    /// If it is time for another attempt to read, returns the logs whose subscribers wait for it. Otherwise returns no
    /// logs.
    fn take_deferred(&mut self) -> Vec<Weak<DiskLog>> {
        if self.retry_reads_at.is_none_or(|at| Instant::now() < at) {
            return Vec::new();
        }
        self.retry_reads_at = None;
        std::mem::take(&mut self.deferred)
    }

    /// Moves the logs that no publisher has stored since the last check to the logs that the thread stores next.
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

/// The logs of a deleted topic, which the storing thread removes.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) id: u64,
    pub(super) logs: Vec<(Arc<DiskLog>, Arc<Log>)>,
}

/// Removes the logs of deleted topics, then their marks.
fn remove(removed: &[Removal]) {
    let mut finished = Vec::new();
    for Removal { id, logs, .. } in removed {
        // Try to remove all logs, even if removing one fails.
        let failed = logs.iter().filter(|(disk_log, log)| !disk_log.finish(log)).count();
        finished.extend((failed == 0).then_some(*id));
    }
    // The marks of all removed topics are in the same data directory.
    if let Some(Removal { disk, dir, .. }) = removed.first() {
        catalogue::remove_marks(&**disk, dir, &finished);
    }
}

fn run(queue: &StoreQueue) {
    let (mut round, mut full): (Vec<Arc<DiskLog>>, Vec<Arc<DiskLog>>) = (Vec::new(), Vec::new());
    loop {
        let timeout = (!full.is_empty()).then_some(RETRY);
        let QueuedWork { is_running, removed, deferred } = queue.wait_for_work(&mut round, timeout);
        deferred.iter().filter_map(Weak::upgrade).for_each(|log| log.retry_reads());
        for log in full.drain(..) {
            if !round.iter().any(|other| Arc::ptr_eq(other, &log)) {
                round.push(log);
            }
        }
        round.iter().for_each(|log| log.write());
        for log in round.drain(..) {
            if log.sync() == NextVisit::Retry && is_running {
                full.push(log);
            }
        }
        for (disk_log, _) in removed.iter().flat_map(|removal| &removal.logs) {
            full.retain(|other| !Arc::ptr_eq(other, disk_log));
        }
        queue.is_full.store(!full.is_empty(), Ordering::Relaxed);
        remove(&removed);
        if !is_running {
            return;
        }
    }
}
