//! The thread that divides the slots of this node's workers among the shards (`dunlin_tasks::SlotAllocator`).
//!
//! The thread is woken by a shard with tasks that wait for a worker, and by a new worker. While some slots are not
//! assigned to a shard, the thread also checks for waiting tasks at intervals.
//!
//! Invariant: a division starts only after all shards have applied the previous one, so that no slot is lost or
//! assigned twice.
//!
//! Limits: at most one division in [`PAUSE`], and at most a tenth of a processor.

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

/// The minimum pause between two divisions of slots.
const PAUSE: Duration = Duration::from_millis(5);
/// The interval of checks for waiting tasks while some slots are not assigned to a shard.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// The interval of checks for waiting tasks while all slots are assigned to shards.
const IDLE: Duration = Duration::from_secs(1);
/// The maximum pause after a division. Up to this maximum, a pause is [`PAUSE_FACTOR`] times as long as the division
/// took.
const PAUSE_MAX: Duration = Duration::from_millis(100);
const PAUSE_FACTOR: u32 = 10;

enum DealerMessage {
    /// A shard has tasks that may have to wait for slots.
    DemandChanged,
    /// A worker has attached. The values are its id, the number of its slots, and the number of tasks that it may
    /// receive in addition to those that it runs.
    WorkerAttached(u64, u32, u32),
    End,
}

/// A handle to the thread that divides workers' slots among shards.
#[derive(Debug)]
pub(super) struct Dealer {
    sender: Sender<DealerMessage>,
    receiver: Mutex<Option<Receiver<DealerMessage>>>,
    is_signalled: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A handle with which a shard wakes the thread that divides workers' slots among shards.
#[derive(Debug)]
pub(super) struct DealerSignal {
    sender: Sender<DealerMessage>,
    is_signalled: Arc<AtomicBool>,
}

impl DealerSignal {
    /// Wakes the thread if the shard has a task that could start, but none of the shard's slots is free.
    pub(super) fn signal_demand(&self, state: &SchedulerState) {
        if !self.is_signalled.load(Ordering::Relaxed)
            && state.has_waiting_tasks()
            && !self.is_signalled.swap(true, Ordering::AcqRel)
        {
            // Ignore the error: the thread has ended.
            let _ = self.sender.send(DealerMessage::DemandChanged);
        }
    }
}

impl Dealer {
    pub(super) fn new() -> Dealer {
        let (sender, receiver) = channel();
        // The flag keeps shards from sending signals. It stays set until the thread starts. If there is only one shard,
        // the thread never starts.
        let is_signalled = Arc::new(AtomicBool::new(true));
        Dealer { sender, receiver: Mutex::new(Some(receiver)), is_signalled, thread: Mutex::default() }
    }

    pub(super) fn signal(&self) -> DealerSignal {
        DealerSignal { sender: self.sender.clone(), is_signalled: Arc::clone(&self.is_signalled) }
    }

    /// Starts the thread. The thread ends when `tasks` is dropped, or with [`stop`](Dealer::stop).
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

    /// Tells the thread that a worker has attached. All shards must know the worker already.
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
        // Ignore the error: slots that could not be assigned are part of the next division.
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

/// Proposes the new slots of workers to each shard, and waits until this node has applied them.
async fn propose_slots(tasks: &Tasks, slots: Vec<SlotChanges>) -> Result<(), TasksError> {
    let proposals = tasks.shards().iter().zip(slots).filter(|(_, slots)| !slots.is_empty());
    let proposals = proposals.map(|(shard, slots)| async move {
        let mut commands = CommandBatch::default();
        for (worker, slots, ahead) in slots {
            commands.push_with(|out| TaskCommand::Slots { worker, slots, ahead }.encode(out));
        }
        let proposed = shard.propose_decoded(commands).await;
        // Wait even after an error: the outcome of the proposal may be unknown.
        shard.catch_up().await?;
        proposed.map(drop)
    });
    join_all(proposals).await.into_iter().collect()
}
