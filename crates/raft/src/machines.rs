//! Implements openraft's interface for state machines with the state machine and the snapshots of this node.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use bytes::Bytes;
use dunlin_journal::Disk;
use futures_util::{Stream, StreamExt};
use openraft::EntryPayload;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};

use crate::error::RaftGroupError;
use crate::log::DiskSpace;
use crate::machine::{FrozenMachine, StateMachine};
use crate::proposal;
use crate::snapshots::Snapshots;
use crate::type_config::{
    Blocks, EntryResponses, LogId, Proposal, RaftSnapshot, SnapshotMeta, StoredMembership, Types,
};

/// Batches of commands with more than this many bytes are handled on another thread, because they would delay
/// heartbeats on Raft's thread. The same holds for snapshots. Passing something smaller to another thread would cost
/// more than handling it.
pub(crate) const LARGE_BYTES: usize = 128 << 10;
/// The pause after the first failed attempt to write a snapshot for which the disk lacks room. Each further pause is
/// twice as long.
const FULL_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between attempts to write a snapshot for which the disk lacks room.
const FULL_PAUSE_MAX: Duration = Duration::from_secs(10);

/// A handle to a group's state machine and its snapshots. The handle has no type parameter for the machine, so that
/// openraft is compiled only once.
#[derive(Clone)]
pub(crate) struct Machines {
    applied_machine: Arc<Mutex<AppliedMachine>>,
    /// The functions [`StateMachine::grows`] and [`StateMachine::is_optional_block`] of the machine.
    pub(crate) grows: fn(&[u8]) -> bool,
    is_optional_block: fn(&[u8]) -> bool,
    snapshots: Arc<Mutex<Snapshots>>,
    snapshot_bytes: Arc<AtomicU64>,
    room: DiskSpace,
}

/// The machine, with the last entry and the last membership that were applied.
struct AppliedMachine {
    machine: Box<dyn StateMachine>,
    applied: Option<LogId>,
    membership: StoredMembership,
    /// Whether a change of the machine has begun and not ended. This stays `true` if the machine panics or refuses a
    /// snapshot.
    is_changing: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machines {
    /// Restores the last snapshot into `machine`, which must be in its initial state. Also fills the reserve for
    /// snapshots, and reports to `room` whether the reserve is filled. With a filled reserve, a snapshot can be written
    /// even if the disk becomes full.
    pub(crate) fn open<M: StateMachine>(
        disk: Arc<dyn Disk>,
        dir: &Path,
        mut machine: M,
        reserve_bytes: u64,
        room: DiskSpace,
    ) -> io::Result<Machines> {
        let snapshots = Snapshots::open(disk, dir, reserve_bytes)?;
        let (mut meta, mut bytes) = (SnapshotMeta::default(), 0);
        if let Some((last, blocks)) = snapshots.load()? {
            bytes = bytes_of(&blocks.0);
            machine.restore(&mut blocks.0.into_iter())?;
            meta = last;
        }
        let applied_machine = AppliedMachine {
            machine: Box::new(machine),
            applied: meta.last_log_id,
            membership: meta.last_membership,
            is_changing: false,
        };
        let (applied_machine, snapshots) =
            (Arc::new(Mutex::new(applied_machine)), Arc::new(Mutex::new(snapshots)));
        let (grows, is_optional_block) = (M::grows, M::is_optional_block);
        let machines = Machines {
            applied_machine,
            grows,
            is_optional_block,
            snapshots,
            snapshot_bytes: Arc::new(bytes.into()),
            room,
        };
        machines.fill_reserve_of(&mut lock(&machines.snapshots));
        Ok(machines)
    }

    pub(crate) fn applied(&self) -> Option<LogId> {
        lock(&self.applied_machine).applied
    }

    /// Calls `read` with the machine.
    pub(crate) fn with<R>(&self, read: impl FnOnce(&dyn StateMachine) -> R) -> R {
        read(&*lock(&self.applied_machine).machine)
    }

    /// Like [`Machines::with`], but returns `None` without calling `read` while the machine is busy.
    pub(crate) fn try_with<R>(&self, read: impl FnOnce(&dyn StateMachine) -> R) -> Option<R> {
        match self.applied_machine.try_lock() {
            Ok(applied_machine) => Some(read(&*applied_machine.machine)),
            Err(TryLockError::Poisoned(applied_machine)) => {
                Some(read(&*applied_machine.into_inner().machine))
            }
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Applies an entry. An entry that takes long to apply is applied on another thread, so that heartbeats are not
    /// delayed.
    async fn apply_entry(
        &self,
        log_id: LogId,
        payload: EntryPayload<Proposal, u64, openraft::BasicNode>,
    ) -> io::Result<EntryResponses> {
        if let Some(responses) = self.apply_short_entry(log_id, &payload) {
            return Ok(responses);
        }
        let applied_machine = Arc::clone(&self.applied_machine);
        blocking(move || Ok(lock(&applied_machine).apply_entry(log_id, &payload))).await
    }

    /// Applies an entry unless this would take long. Returns the responses if the entry was applied.
    fn apply_short_entry(
        &self,
        log_id: LogId,
        payload: &EntryPayload<Proposal, u64, openraft::BasicNode>,
    ) -> Option<EntryResponses> {
        let EntryPayload::Normal(proposed) = payload else {
            return Some(lock(&self.applied_machine).apply_entry(log_id, payload));
        };
        if proposed.0.len() > LARGE_BYTES {
            return None;
        }
        let (now_ms, mut commands) = proposal::split(&proposed.0);
        let mut applied_machine = lock(&self.applied_machine);
        let is_long = applied_machine.machine.is_long(now_ms, &mut commands);
        (!is_long).then(|| applied_machine.apply_entry(log_id, payload))
    }

    /// Size of the last snapshot, bytes; 0 if there is none.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        self.snapshot_bytes.load(Ordering::Relaxed)
    }

    /// Writes a snapshot, and omits optional blocks if there is little room. Returns `false` if there is too little
    /// room even then.
    fn save(&self, snapshots: &mut Snapshots, meta: &SnapshotMeta, blocks: &mut Blocks) -> io::Result<bool> {
        if !snapshots.has_ample_room(blocks)? {
            blocks.0.retain(|block| !(self.is_optional_block)(block));
        }
        let is_saved = snapshots.save(meta, blocks)?;
        if is_saved {
            self.snapshot_bytes.store(bytes_of(&blocks.0), Ordering::Relaxed);
        }
        self.fill_reserve_of(snapshots);
        Ok(is_saved)
    }

    fn frozen(&self) -> io::Result<(SnapshotMeta, Box<dyn FrozenMachine>)> {
        let applied_machine = lock(&self.applied_machine);
        if applied_machine.is_changing {
            return Err(io::Error::other("the state machine failed during a change"));
        }
        let meta = SnapshotMeta {
            last_log_id: applied_machine.applied,
            last_membership: applied_machine.membership.clone(),
        };
        Ok((meta, applied_machine.machine.freeze()))
    }

    /// Fills the reserve for snapshots if it is not filled and the disk has room.
    pub(crate) async fn fill_reserve(&self) {
        // Does not wait for the lock: whichever thread holds it is writing a snapshot, and manages the reserve itself.
        let is_lacking = self.snapshots.try_lock().is_ok_and(|snapshots| snapshots.lacks_reserve());
        if is_lacking {
            let machines = self.clone();
            let fill = move || {
                machines.fill_reserve_of(&mut lock(&machines.snapshots));
                Ok(())
            };
            let _ = blocking(fill).await;
        }
    }

    /// Fills the reserve for snapshots if there is room, and reports whether the reserve is filled.
    fn fill_reserve_of(&self, snapshots: &mut Snapshots) {
        let shortage = match snapshots.fill_reserve() {
            Ok(true) => None,
            Err(error) if error.lacks_resource() => Some(RaftGroupError::LacksResource(error.to_string())),
            // If the disk has failed, the next snapshot reports this error.
            Ok(false) | Err(_) => {
                let why = "the disk has too little room for the reserve of the snapshots";
                Some(RaftGroupError::NoRoom(why.to_owned()))
            }
        };
        self.room.set_snapshot_shortage(shortage);
    }

    /// Writes a snapshot of the present state; returns `None` if the disk has no room.
    fn build(&self) -> io::Result<Option<RaftSnapshot>> {
        let (meta, frozen) = self.frozen()?;
        let mut blocks = Vec::new();
        let mut add_block = |block: &[u8]| {
            blocks.push(Bytes::copy_from_slice(block));
            Ok(())
        };
        frozen.write(&mut add_block)?;
        frozen.write_history(&mut add_block)?;
        let mut snapshot = Blocks(blocks);
        let mut snapshots = lock(&self.snapshots);
        if snapshots.last() > meta.last_log_id {
            // While this snapshot was prepared, a later one arrived from another node. The later one is returned.
            return Ok(snapshots.load()?.map(|(meta, snapshot)| RaftSnapshot { meta, snapshot }));
        }
        Ok(self.save(&mut snapshots, &meta, &mut snapshot)?.then_some(RaftSnapshot { meta, snapshot }))
    }
}

impl AppliedMachine {
    fn apply_entry(
        &mut self,
        log_id: LogId,
        payload: &EntryPayload<Proposal, u64, openraft::BasicNode>,
    ) -> EntryResponses {
        self.is_changing = true;
        self.applied = Some(log_id);
        let responses = match payload {
            EntryPayload::Blank => EntryResponses::default(),
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(log_id), membership.clone());
                EntryResponses::default()
            }
            EntryPayload::Normal(proposed) => {
                let (now_ms, commands) = proposal::split(&proposed.0);
                // The time of this entry may be earlier than the machine's time, which must not decrease. Reason: a new
                // leader starts its clock at the time of its applied state, and entries that it has not yet applied may
                // have later times.
                self.machine.advance(now_ms.max(self.machine.now_ms()));
                let responses = commands.map(|command| self.machine.apply(log_id.index, command)).collect();
                self.machine.end_entry();
                EntryResponses(responses)
            }
        };
        self.is_changing = false;
        responses
    }
}

impl RaftStateMachine<Types> for Machines {
    type SnapshotData = Blocks;
    type SnapshotBuilder = Machines;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let applied_machine = lock(&self.applied_machine);
        Ok((applied_machine.applied, applied_machine.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + Send,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let responses = self.apply_entry(entry.log_id, entry.payload).await?;
            if let Some(responder) = responder {
                responder.send(responses);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Machines {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Blocks) -> io::Result<()> {
        let (machines, new_meta, snapshot) = (self.clone(), meta.clone(), Arc::new(snapshot));
        let blocks = Arc::clone(&snapshot);
        blocking(move || {
            // The machine restores the snapshot first, and the snapshot is stored after that. A snapshot that the
            // machine refuses is therefore never stored.
            let mut applied_machine = lock(&machines.applied_machine);
            applied_machine.is_changing = true;
            applied_machine.machine.restore(&mut blocks.0.iter().cloned())?;
            applied_machine.is_changing = false;
            (applied_machine.applied, applied_machine.membership) =
                (new_meta.last_log_id, new_meta.last_membership);
            Ok(())
        })
        .await?;
        retry_until_room(|| {
            let (machines, new_meta, mut blocks) = (self.clone(), meta.clone(), Blocks::clone(&snapshot));
            move || Ok(machines.save(&mut lock(&machines.snapshots), &new_meta, &mut blocks)?.then_some(()))
        })
        .await
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<RaftSnapshot>> {
        let machines = self.clone();
        let loaded = blocking(move || lock(&machines.snapshots).load()).await?;
        Ok(loaded.map(|(meta, snapshot)| RaftSnapshot { meta, snapshot }))
    }
}

impl RaftSnapshotBuilder<Types> for Machines {
    type SnapshotData = Blocks;

    async fn build_snapshot(&mut self) -> io::Result<RaftSnapshot> {
        retry_until_room(|| {
            let machines = self.clone();
            move || machines.build()
        })
        .await
    }
}

fn bytes_of(blocks: &[Bytes]) -> u64 {
    blocks.iter().map(|block| block.len() as u64).sum()
}

/// Calls `work` until it returns a result. `work` returns `None` if the disk lacks room. The pauses between the calls
/// grow.
async fn retry_until_room<T: Send + 'static, W: FnOnce() -> io::Result<Option<T>> + Send + 'static>(
    work: impl Fn() -> W,
) -> io::Result<T> {
    let mut pause = FULL_PAUSE;
    loop {
        if let Some(done) = blocking(work()).await? {
            return Ok(done);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(FULL_PAUSE_MAX);
    }
}

/// Runs `work` on a thread that may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|stopped| Err(io::Error::other(stopped)))
}
