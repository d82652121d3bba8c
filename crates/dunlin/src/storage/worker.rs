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
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunlin_journal::Disk;
use dunlin_topic::Log;

use super::disk_log::{DiskLog, Next};
use super::{catalogue, lock};

/// The interval between attempts to write a log whose disk is full.
const RETRY: Duration = Duration::from_millis(100);
/// If the publishers of a log have not stored its records within this time, the thread stores them.
const LATER: Duration = Duration::from_millis(1);
/// The number of times that the thread checks the queue before it sleeps. The checks take about 20 µs together. In that
/// time, a publisher often publishes again.
const LOOKS: u32 = 400;

/// The logs with records to store.
#[derive(Debug, Default)]
pub(super) struct StoreQueue {
    any: AtomicBool,
    /// Whether a disk had no room in the thread's last round.
    is_full: AtomicBool,
    /// Whether the disk of any log has failed since the start.
    has_failed: AtomicBool,
    state: Mutex<Waiting>,
    awake: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    logs: Vec<Arc<DiskLog>>,
    /// The logs to visit later. For each log, the number of times that publishers had stored it when it was added.
    later: Vec<(Arc<DiskLog>, u64)>,
    removed: Vec<Removal>,
    sleep: Sleep,
    stopping: bool,
}

/// Whether the thread sleeps.
#[derive(Debug, Default, PartialEq, Eq)]
enum Sleep {
    #[default]
    Awake,
    /// The thread sleeps, but wakes in time for the logs in `later`.
    Dozing,
    UntilWoken,
}

/// The thread, until it is stopped or dropped.
#[derive(Debug)]
pub(super) struct StoreWorker {
    queue: Arc<StoreQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl StoreWorker {
    pub(super) fn start() -> io::Result<StoreWorker> {
        let queue = Arc::<StoreQueue>::default();
        let of_thread = Arc::clone(&queue);
        let thread = thread::Builder::new().name("dunlin-store".to_owned()).spawn(move || run(&of_thread))?;
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
        self.queue.change(|waiting| waiting.removed.push(removal));
    }

    /// Stores everything in the queue and ends the thread.
    pub(super) fn stop(&self) {
        self.queue.change(|waiting| waiting.stopping = true);
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
        self.change(|waiting| {
            if !waiting.logs.iter().any(|other| Arc::ptr_eq(other, &log)) {
                waiting.logs.push(log);
            }
        });
    }

    /// Records that the disk of a log has failed.
    pub(super) fn note_failure(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Visits the log later, in case its publishers stop storing it.
    pub(super) fn add_later(&self, log: Arc<DiskLog>) {
        let mut waiting = lock(&self.state);
        let helped = log.helped();
        waiting.later.push((log, helped));
        if waiting.sleep == Sleep::UntilWoken {
            waiting.sleep = Sleep::Awake;
            self.awake.notify_one();
        }
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        let mut waiting = lock(&self.state);
        change(&mut waiting);
        self.any.store(true, Ordering::Release);
        if std::mem::take(&mut waiting.sleep) != Sleep::Awake {
            self.awake.notify_one();
        }
    }

    /// Takes the logs in the queue, after a wait of at most `longest`. Returns whether the thread continues, and the
    /// topics to remove.
    fn take(&self, round: &mut Vec<Arc<DiskLog>>, longest: Option<Duration>) -> (bool, Vec<Removal>) {
        for _ in 0..LOOKS {
            if self.any.load(Ordering::Acquire) {
                break;
            }
            std::hint::spin_loop();
        }
        let until = longest.map(|longest| Instant::now() + longest);
        let mut waiting = lock(&self.state);
        while waiting.logs.is_empty() && waiting.removed.is_empty() && !waiting.stopping {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            let dozing = !waiting.later.is_empty();
            waiting.sleep = if dozing { Sleep::Dozing } else { Sleep::UntilWoken };
            let nap = if dozing { Some(left.map_or(LATER, |left| left.min(LATER))) } else { left };
            let timed_out;
            (waiting, timed_out) = self.sleep(waiting, nap);
            if timed_out {
                waiting.take_left_alone();
            }
        }
        waiting.sleep = Sleep::Awake;
        self.any.store(false, Ordering::Relaxed);
        round.append(&mut waiting.logs);
        (!waiting.stopping, std::mem::take(&mut waiting.removed))
    }

    fn sleep<'w>(
        &self,
        waiting: MutexGuard<'w, Waiting>,
        longest: Option<Duration>,
    ) -> (MutexGuard<'w, Waiting>, bool) {
        match longest {
            None => (self.awake.wait(waiting).unwrap_or_else(PoisonError::into_inner), false),
            Some(longest) => {
                let waited = self.awake.wait_timeout(waiting, longest);
                let (waiting, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                (waiting, timeout.timed_out())
            }
        }
    }
}

impl Waiting {
    /// Moves the logs that no publisher has stored since the last check to the logs that the thread stores next.
    fn take_left_alone(&mut self) {
        let Waiting { logs, later, .. } = self;
        later.retain_mut(|(log, helped)| {
            let before = std::mem::replace(helped, log.helped());
            if *helped != before || log.is_being_stored() {
                return true;
            }
            log.leave_later();
            if !logs.iter().any(|other| Arc::ptr_eq(other, log)) {
                logs.push(Arc::clone(log));
            }
            false
        });
    }
}

/// A deleted topic whose files are to be removed.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) disk: Arc<dyn Disk>,
    /// The data directory.
    pub(super) dir: PathBuf,
    pub(super) id: u64,
    pub(super) logs: Vec<(Arc<DiskLog>, Arc<Log>)>,
}

/// Removes the logs of deleted topics, then their marks.
fn remove(removed: &[Removal]) {
    let mut gone = Vec::new();
    for Removal { id, logs, .. } in removed {
        // Try to remove all logs, even if removing one fails.
        let failed = logs.iter().filter(|(disk_log, log)| !disk_log.finish(log)).count();
        gone.extend((failed == 0).then_some(*id));
    }
    // The marks of all removed topics are in the same data directory.
    if let Some(Removal { disk, dir, .. }) = removed.first() {
        catalogue::unmark(&**disk, dir, &gone);
    }
}

fn run(queue: &StoreQueue) {
    let (mut round, mut full): (Vec<Arc<DiskLog>>, Vec<Arc<DiskLog>>) = (Vec::new(), Vec::new());
    loop {
        let (going_on, removed) = queue.take(&mut round, (!full.is_empty()).then_some(RETRY));
        for log in full.drain(..) {
            if !round.iter().any(|other| Arc::ptr_eq(other, &log)) {
                round.push(log);
            }
        }
        round.iter().for_each(|log| log.write());
        for log in round.drain(..) {
            if log.sync() == Next::TryAgain && going_on {
                full.push(log);
            }
        }
        queue.is_full.store(!full.is_empty(), Ordering::Relaxed);
        for (disk_log, _) in removed.iter().flat_map(|removal| &removal.logs) {
            full.retain(|other| !Arc::ptr_eq(other, disk_log));
        }
        remove(&removed);
        if !going_on {
            return;
        }
    }
}
