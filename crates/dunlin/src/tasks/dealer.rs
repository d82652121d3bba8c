//! The thread that divides the slots of this node's workers among several shards (`dunlin_tasks::SlotAllocator`).
//!
//! A shard with tasks that wait for a worker wakes the thread, as does a new worker. While some slots are not assigned,
//! the thread also checks for waiting tasks at intervals.
//!
//! Invariant: a division starts only when all shards have applied the previous division, so that no slot is lost or
//! assigned twice.
//!
//! Limits: at most one division in [`PAUSE`], and a tenth of a processor.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunlin_raft::CommandBatch;
use dunlin_tasks::{DemandSnapshot, SchedulerState, SlotAllocator, SlotChanges, TaskCommand};
use futures_util::future::join_all;

use super::{Tasks, TasksError};
use crate::control::block_on;

/// The smallest pause between two divisions of slots.
const PAUSE: Duration = Duration::from_millis(5);
/// The interval of checks for waiting tasks while some slots are not assigned.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// The interval of checks for waiting tasks while all slots are assigned.
const IDLE: Duration = Duration::from_secs(1);
/// The largest pause after a division. The pause is [`PAUSE_FACTOR`] times as long as the division took.
const PAUSE_MAX: Duration = Duration::from_millis(100);
const PAUSE_FACTOR: u32 = 10;

enum DealerMessage {
    /// Tasks may wait for slots.
    DemandChanged,
    /// A worker has attached: its id, its slots, and the number of tasks that it may receive in addition to those that
    /// it runs.
    WorkerAttached(u64, u32, u32),
    End,
}

/// A handle of the thread that divides the slots of workers among shards.
#[derive(Debug)]
pub(super) struct Dealer {
    sender: Sender<DealerMessage>,
    receiver: Mutex<Option<Receiver<DealerMessage>>>,
    is_signalled: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A handle with which a shard wakes the thread that divides slots among shards.
#[derive(Debug)]
pub(super) struct DealerSignal {
    sender: Sender<DealerMessage>,
    is_signalled: Arc<AtomicBool>,
}

impl DealerSignal {
    /// Wakes the dealer if a task of this shard could start, but no worker of the shard has a free slot.
    pub(super) fn signal_demand(&self, state: &SchedulerState) {
        if !self.is_signalled.load(Ordering::Relaxed)
            && state.has_waiting_tasks()
            && !self.is_signalled.swap(true, Ordering::AcqRel)
        {
            // The send fails only if the dealer has stopped.
            let _ = self.sender.send(DealerMessage::DemandChanged);
        }
    }
}

impl Dealer {
    pub(super) fn new() -> Dealer {
        let (sender, receiver) = channel();
        // The flag is set until the thread starts, so that no shard sends a signal earlier. With one shard, the thread
        // never starts.
        let is_signalled = Arc::new(AtomicBool::new(true));
        Dealer { sender, receiver: Mutex::new(Some(receiver)), is_signalled, thread: Mutex::default() }
    }

    pub(super) fn signal(&self) -> DealerSignal {
        DealerSignal { sender: self.sender.clone(), is_signalled: Arc::clone(&self.is_signalled) }
    }

    /// Starts the thread, which ends with `tasks`.
    pub(super) fn start(&self, tasks: Weak<Tasks>) -> io::Result<()> {
        let Some(receiver) = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        let is_signalled = Arc::clone(&self.is_signalled);
        let run = move || run(&receiver, &is_signalled, &tasks);
        let thread = thread::Builder::new().name("dunlin-dealer".to_owned()).spawn(run)?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Reports a worker that has attached and that all shards know.
    pub(super) fn worker_attached(&self, worker: u64, slots: u32, ahead: u32) {
        let _ = self.sender.send(DealerMessage::WorkerAttached(worker, slots, ahead));
    }

    pub(super) fn stop(&self) {
        let _ = self.sender.send(DealerMessage::End);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

fn run(receiver: &Receiver<DealerMessage>, is_signalled: &AtomicBool, tasks: &Weak<Tasks>) {
    let (mut allocator, began) = (SlotAllocator::default(), Instant::now());
    loop {
        is_signalled.store(false, Ordering::Release);
        let mut message =
            receiver.recv_timeout(if allocator.has_pending_slots() { CHECK_INTERVAL } else { IDLE });
        loop {
            match message {
                Ok(DealerMessage::WorkerAttached(worker, slots, ahead)) => {
                    allocator.set_worker(worker, slots, ahead)
                }
                Ok(DealerMessage::DemandChanged) | Err(RecvTimeoutError::Timeout) => {}
                Ok(DealerMessage::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
            match receiver.try_recv() {
                Ok(more) => message = Ok(more),
                Err(_none) => break,
            }
        }
        let Some(tasks) = tasks.upgrade() else { return };
        let now = Instant::now();
        // If this fails, the slots that were not assigned are divided again.
        let _ = allocate_slots(&tasks, &mut allocator, now.duration_since(began).as_millis() as u64);
        drop(tasks);
        thread::sleep((now.elapsed() * PAUSE_FACTOR).clamp(PAUSE, PAUSE_MAX));
    }
}

fn allocate_slots(tasks: &Tasks, allocator: &mut SlotAllocator, now_ms: u64) -> Result<(), TasksError> {
    let first_shard = tasks.first_shard();
    allocator.retain(|worker| {
        tasks.dispatcher.has(worker)
            && first_shard.with(|state| state.lease_end_ms(worker).is_ok()).unwrap_or(false)
    });
    let workers = allocator.workers();
    if workers.is_empty() {
        return Ok(());
    }
    let take_snapshot = || tasks.read_each(|state| DemandSnapshot::new(state, &workers));
    let before = take_snapshot()?;
    let slots = allocator.allocate(now_ms, &before);
    if slots.iter().all(Vec::is_empty) {
        return Ok(());
    }
    let proposals = block_on(propose_slots(tasks, slots));
    allocator.update_pending(&before, &take_snapshot()?);
    proposals
}

/// Proposes the slots of each shard and waits until this node has applied them.
async fn propose_slots(tasks: &Tasks, slots: Vec<SlotChanges>) -> Result<(), TasksError> {
    let proposals = tasks.shards().iter().zip(slots).filter(|(_, slots)| !slots.is_empty());
    let proposals = proposals.map(|(shard, slots)| async move {
        let mut commands = CommandBatch::default();
        for (worker, slots, ahead) in slots {
            commands.push_with(|out| TaskCommand::Slots { worker, slots, ahead }.encode(out));
        }
        let proposed = shard.propose_decoded(commands).await;
        // Wait even if the proposal failed: its outcome may be unknown.
        shard.catch_up().await?;
        proposed.map(drop)
    });
    join_all(proposals).await.into_iter().collect()
}
