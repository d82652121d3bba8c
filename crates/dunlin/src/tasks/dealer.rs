//! The thread that deals the slots of this node's workers to the shards, where there are several (`dunlin_tasks::Dealing`).
//!
//! It is told by a shard in which something waits for a worker, and by workers that come. Slots that have not found their shard yet it looks after by itself.
//!
//! Invariant: a deal follows from what all shards have taken in of the one before, so that no slot is lost or given twice.
//!
//! Limits: at most one deal in [`PAUSE`], and a tenth of a processor.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunlin_raft::Commands;
use dunlin_tasks::{Command, Dealing, Look, Slots, State};
use futures_util::future::join_all;

use super::{Tasks, TasksError};
use crate::control::block_on;

/// Between two deals at least.
const PAUSE: Duration = Duration::from_millis(5);
/// Between two looks where slots wait for tasks to end.
const LOOK: Duration = Duration::from_millis(10);
/// The same where nothing does.
const IDLE: Duration = Duration::from_secs(1);
/// And as many times as long as the last one took, up to this.
const PAUSE_MAX: Duration = Duration::from_millis(100);
const SHARE: u32 = 10;

enum Word {
    /// Look.
    Look,
    /// A worker does so many tasks at once, and may have so many at hand besides.
    Came(u64, u32, u32),
    End,
}

/// A handle to the thread.
#[derive(Debug)]
pub(super) struct Dealer {
    words: Sender<Word>,
    told: Mutex<Option<Receiver<Word>>>,
    is_rung: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What a shard tells it by.
#[derive(Debug)]
pub(super) struct Bell {
    words: Sender<Word>,
    is_rung: Arc<AtomicBool>,
}

impl Bell {
    /// Where something could start and no worker of this shard takes it.
    pub(super) fn ring(&self, state: &State) {
        if !self.is_rung.load(Ordering::Relaxed)
            && state.is_waiting()
            && !self.is_rung.swap(true, Ordering::AcqRel)
        {
            // Whoever has ended deals nothing.
            let _ = self.words.send(Word::Look);
        }
    }
}

impl Dealer {
    pub(super) fn new() -> Dealer {
        let (words, told) = channel();
        // Rung, until somebody listens: where there is one shard nobody ever does.
        let is_rung = Arc::new(AtomicBool::new(true));
        Dealer { words, told: Mutex::new(Some(told)), is_rung, thread: Mutex::default() }
    }

    pub(super) fn bell(&self) -> Bell {
        Bell { words: self.words.clone(), is_rung: Arc::clone(&self.is_rung) }
    }

    /// Deals from now on, as long as there are tasks.
    pub(super) fn start(&self, tasks: Weak<Tasks>) -> io::Result<()> {
        let Some(told) = self.told.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        let is_rung = Arc::clone(&self.is_rung);
        let run = move || run(&told, &is_rung, &tasks);
        let thread = thread::Builder::new().name("dunlin-dealer".to_owned()).spawn(run)?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// A worker is attached, and known to all shards.
    pub(super) fn came(&self, worker: u64, slots: u32, ahead: u32) {
        let _ = self.words.send(Word::Came(worker, slots, ahead));
    }

    pub(super) fn stop(&self) {
        let _ = self.words.send(Word::End);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

fn run(told: &Receiver<Word>, is_rung: &AtomicBool, tasks: &Weak<Tasks>) {
    let (mut dealing, began) = (Dealing::default(), Instant::now());
    loop {
        is_rung.store(false, Ordering::Release);
        let mut word = told.recv_timeout(if dealing.is_open() { LOOK } else { IDLE });
        loop {
            match word {
                Ok(Word::Came(worker, slots, ahead)) => dealing.came(worker, slots, ahead),
                Ok(Word::Look) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Word::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
            match told.try_recv() {
                Ok(more) => word = Ok(more),
                Err(_none) => break,
            }
        }
        let Some(tasks) = tasks.upgrade() else { return };
        let now = Instant::now();
        // What could not be asked is dealt again; what may have been done shows.
        let _ = deal(&tasks, &mut dealing, now.duration_since(began).as_millis() as u64);
        drop(tasks);
        thread::sleep((now.elapsed() * SHARE).clamp(PAUSE, PAUSE_MAX));
    }
}

fn deal(tasks: &Tasks, dealing: &mut Dealing, now_ms: u64) -> Result<(), TasksError> {
    let home = tasks.home();
    dealing.keep(|worker| {
        tasks.outlets.has(worker) && home.with(|state| state.lease_end_ms(worker).is_ok()).unwrap_or(false)
    });
    let workers = dealing.workers();
    if workers.is_empty() {
        return Ok(());
    }
    let look = || tasks.each(|state| Look::at(state, &workers));
    let before = look()?;
    let slots = dealing.deal(now_ms, &before);
    if slots.iter().all(Vec::is_empty) {
        return Ok(());
    }
    let asked = block_on(ask(tasks, slots));
    dealing.settle(&before, &look()?);
    asked
}

/// Has each shard give as many slots as it is to, and waits until this node has taken that in.
async fn ask(tasks: &Tasks, slots: Vec<Slots>) -> Result<(), TasksError> {
    let asked = tasks.shards().iter().zip(slots).filter(|(_, slots)| !slots.is_empty());
    let asked = asked.map(|(shard, slots)| async move {
        let mut commands = Commands::default();
        for (worker, slots, ahead) in slots {
            commands.push_with(|out| Command::Slots { worker, slots, ahead }.encode(out));
        }
        let proposed = shard.propose_known(commands).await;
        // Also what may yet be done.
        shard.catch_up().await?;
        proposed.map(drop)
    });
    join_all(asked).await.into_iter().collect()
}
