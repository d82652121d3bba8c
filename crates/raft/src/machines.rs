//! The machine as openraft drives it.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dunlin_journal::Disk;
use futures_util::{Stream, StreamExt};
use openraft::EntryPayload;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};

use crate::machine::{Frozen, Machine};
use crate::proposal;
use crate::snapshots::Snapshots;
use crate::vocabulary::{Answers, Blocks, LogId, Snapshot, SnapshotMeta, StoredMembership, Types};

/// A handle to the machine and its snapshots.
pub(crate) struct Machines<M> {
    running: Arc<Mutex<Running<M>>>,
    snapshots: Arc<Mutex<Snapshots>>,
    /// Of the last snapshot.
    snapshot_bytes: Arc<AtomicU64>,
}

/// The machine, and what it has taken in.
struct Running<M> {
    machine: M,
    applied: Option<LogId>,
    membership: StoredMembership,
}

impl<M> Clone for Machines<M> {
    fn clone(&self) -> Machines<M> {
        let (running, snapshots) = (Arc::clone(&self.running), Arc::clone(&self.snapshots));
        Machines { running, snapshots, snapshot_bytes: Arc::clone(&self.snapshot_bytes) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Machine> Machines<M> {
    /// The machine as its last snapshot has it; `machine` is one that has taken nothing in.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path, mut machine: M) -> io::Result<Machines<M>> {
        let snapshots = Snapshots::open(disk, dir)?;
        let (mut meta, mut bytes) = (SnapshotMeta::default(), 0);
        if let Some((last, blocks)) = snapshots.load()? {
            bytes = bytes_of(&blocks.0);
            machine.restore(&mut blocks.0.into_iter())?;
            meta = last;
        }
        let running = Running { machine, applied: meta.last_log_id, membership: meta.last_membership };
        let (running, snapshots) = (Arc::new(Mutex::new(running)), Arc::new(Mutex::new(snapshots)));
        Ok(Machines { running, snapshots, snapshot_bytes: Arc::new(bytes.into()) })
    }

    /// Looks at the machine, or asks it.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut M) -> R) -> R {
        look(&mut lock(&self.running).machine)
    }

    /// Bytes of the last snapshot, 0 where there is none.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        self.snapshot_bytes.load(Ordering::Relaxed)
    }

    /// Puts a snapshot on the disk.
    fn save(
        &self,
        meta: &SnapshotMeta,
        write: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut bytes = 0;
        lock(&self.snapshots).save(meta, |take| {
            write(&mut |block| {
                bytes += block.len() as u64;
                take(block)
            })
        })?;
        self.snapshot_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn frozen(&self) -> (SnapshotMeta, Box<dyn Frozen>) {
        let running = lock(&self.running);
        let meta = SnapshotMeta { last_log_id: running.applied, last_membership: running.membership.clone() };
        (meta, running.machine.freeze())
    }
}

impl<M: Machine> Running<M> {
    fn take_in(
        &mut self,
        log_id: LogId,
        payload: &EntryPayload<crate::vocabulary::Proposal, u64, openraft::BasicNode>,
    ) -> Answers {
        self.applied = Some(log_id);
        match payload {
            EntryPayload::Blank => Answers::default(),
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(log_id), membership.clone());
                Answers::default()
            }
            EntryPayload::Normal(proposed) => {
                let (now_ms, commands) = proposal::split(&proposed.0);
                // A new leader counts on from what it has taken in, while later times may be on their way.
                self.machine.advance(now_ms.max(self.machine.now_ms()));
                Answers(commands.map(|command| self.machine.apply(log_id.index, command)).collect())
            }
        }
    }
}

impl<M: Machine> RaftStateMachine<Types> for Machines<M> {
    type SnapshotData = Blocks;
    type SnapshotBuilder = Machines<M>;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let running = lock(&self.running);
        Ok((running.applied, running.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + Send,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let answers = lock(&self.running).take_in(entry.log_id, &entry.payload);
            if let Some(responder) = responder {
                responder.send(answers);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Machines<M> {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Blocks) -> io::Result<()> {
        let (kept, meta) = (self.clone(), meta.clone());
        blocking(move || {
            // Refused by the machine, it is not kept either.
            let mut running = lock(&kept.running);
            running.machine.restore(&mut snapshot.0.iter().cloned())?;
            (running.applied, running.membership) = (meta.last_log_id, meta.last_membership.clone());
            drop(running);
            let blocks = |take: &mut dyn FnMut(&[u8]) -> io::Result<()>| {
                snapshot.0.iter().try_for_each(|block: &Bytes| take(block))
            };
            kept.save(&meta, blocks)
        })
        .await
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let kept = self.clone();
        let loaded = blocking(move || lock(&kept.snapshots).load()).await?;
        Ok(loaded.map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }
}

impl<M: Machine> RaftSnapshotBuilder<Types> for Machines<M> {
    type SnapshotData = Blocks;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let (meta, frozen) = self.frozen();
        let kept = self.clone();
        blocking(move || {
            let mut blocks = Vec::new();
            kept.save(&meta, |take| {
                frozen.write(&mut |block| {
                    blocks.push(Bytes::copy_from_slice(block));
                    take(block)
                })
            })?;
            Ok(Snapshot { meta, snapshot: Blocks(blocks) })
        })
        .await
    }
}

fn bytes_of(blocks: &[Bytes]) -> u64 {
    blocks.iter().map(|block| block.len() as u64).sum()
}

/// On a thread that may wait for the disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|stopped| Err(io::Error::other(stopped)))
}
