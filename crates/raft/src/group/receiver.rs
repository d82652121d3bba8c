//! Handles the requests that other nodes of the group send to this node.
//!
//! Limit: a partly received snapshot is dropped if no request for it arrives for [`IDLE_BLOCKS`] times `block_ms_max`.
//! The drop may be late, but it happens at the latest after twice this time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::OurRaft;
use crate::codec::{ValueCodec, decode_exact};
use crate::limits::RaftLimits;
use crate::message::{RaftRequest, SnapshotId};
use crate::type_config::{Blocks, RaftSnapshot, SnapshotMeta};

/// A partly received snapshot is dropped if no request for it arrives for this many times `block_ms_max`.
const IDLE_BLOCKS: u32 = 6;

/// A partly received snapshot. If the leader changes, the new leader may send the remaining blocks.
#[derive(Debug, Default)]
pub(super) struct SnapshotReceiver {
    snapshot: Option<(SnapshotId, SnapshotMeta)>,
    blocks: Vec<Bytes>,
    bytes: u64,
    /// The time of the last request that belonged to the snapshot.
    requested_at: Option<Instant>,
}

impl SnapshotReceiver {
    /// Begins to receive a snapshot, or resumes an interrupted one. Returns how many of the snapshot's blocks this node
    /// already has.
    fn begin(
        &mut self,
        snapshot_id: SnapshotId,
        meta: SnapshotMeta,
        bytes_max: usize,
        now: Instant,
    ) -> io::Result<u64> {
        if snapshot_id.bytes > bytes_max as u64 {
            let why =
                format!("a snapshot of {} bytes exceeds snapshot_bytes_max = {bytes_max}", snapshot_id.bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let snapshot = Some((snapshot_id, meta));
        if self.snapshot != snapshot {
            *self = SnapshotReceiver { snapshot, ..SnapshotReceiver::default() };
        }
        self.requested_at = Some(now);
        Ok(self.blocks.len() as u64)
    }

    /// Takes the block with the number `at`. Returns how many blocks this node now has. A block may arrive a second
    /// time, if its first response was lost.
    fn take_block(
        &mut self,
        snapshot_id: SnapshotId,
        at: u64,
        block: Bytes,
        now: Instant,
    ) -> io::Result<u64> {
        self.check_begun(snapshot_id)?;
        self.requested_at = Some(now);
        let next = self.blocks.len() as u64;
        if at > next || (at == next && self.bytes + block.len() as u64 > snapshot_id.bytes) {
            return Err(unexpected());
        }
        if at == next {
            self.bytes += block.len() as u64;
            self.blocks.push(block);
        }
        Ok(self.blocks.len() as u64)
    }

    /// Returns the complete snapshot, with all its blocks.
    fn end(&mut self, snapshot_id: SnapshotId) -> io::Result<RaftSnapshot> {
        self.check_begun(snapshot_id)?;
        let SnapshotReceiver { snapshot: begun, blocks, .. } = std::mem::take(self);
        let (_, meta) = begun.ok_or_else(unexpected)?;
        let snapshot = RaftSnapshot { meta, snapshot: Blocks(blocks) };
        if SnapshotId::of(&snapshot) == snapshot_id { Ok(snapshot) } else { Err(unexpected()) }
    }

    /// Forgets the snapshot if its last request arrived at least `idle_max` ago. Returns the forgotten blocks, or no
    /// blocks.
    fn remove_idle(&mut self, now: Instant, idle_max: Duration) -> Vec<Bytes> {
        let is_idle = self.requested_at.is_some_and(|at| now.saturating_duration_since(at) >= idle_max);
        if is_idle { std::mem::take(self).blocks } else { Vec::new() }
    }

    fn check_begun(&self, snapshot_id: SnapshotId) -> io::Result<()> {
        let is_expected = self.snapshot.as_ref().is_some_and(|(expected, _)| *expected == snapshot_id);
        if is_expected { Ok(()) } else { Err(unexpected()) }
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "received a part of a snapshot whose transfer has not begun")
}

/// Drops a partly received snapshot if no leader sends the rest, for example because the leader has ended.
pub(super) async fn drop_idle_snapshots(receiver: Arc<Mutex<SnapshotReceiver>>, limits: RaftLimits) {
    let idle_max = Duration::from_millis(limits.block_ms_max.max(1)).saturating_mul(IDLE_BLOCKS);
    loop {
        tokio::time::sleep(idle_max).await;
        let blocks = receiver.lock().await.remove_idle(Instant::now(), idle_max);
        if !blocks.is_empty() {
            tracing::info!(blocks = blocks.len(), "dropped a snapshot whose rest has not arrived");
            // Freeing many blocks takes long and would delay heartbeats on this thread.
            tokio::task::spawn_blocking(move || drop(blocks));
        }
    }
}

pub(super) async fn receive(
    raft: &OurRaft,
    receiver: &Mutex<SnapshotReceiver>,
    bytes_max: usize,
    request: Bytes,
) -> io::Result<Bytes> {
    match decode_exact(request, "a request")? {
        RaftRequest::Append(append) => encode_response(raft.append_entries(append).await),
        RaftRequest::Vote(vote) => encode_response(raft.vote(vote).await),
        RaftRequest::PreVote(vote) => encode_response(raft.pre_vote(vote).await),
        RaftRequest::TransferLeader(transfer) => {
            let vote = *transfer.from_leader();
            encode_response(raft.handle_transfer_leader(transfer).await.map(|_| vote))
        }
        // Whether the sender leads is checked only at the end, when the snapshot is complete.
        RaftRequest::Begin(_, snapshot_id, meta) => {
            encode_response(receiver.lock().await.begin(snapshot_id, meta, bytes_max, Instant::now()))
        }
        RaftRequest::Block(_, snapshot_id, at, block) => {
            encode_response(receiver.lock().await.take_block(snapshot_id, at, block, Instant::now()))
        }
        RaftRequest::End(vote, snapshot_id) => {
            let snapshot = receiver.lock().await.end(snapshot_id)?;
            encode_response(raft.install_full_snapshot(vote, snapshot).await.map(|response| response.vote))
        }
    }
}

fn encode_response<A: ValueCodec, E: std::error::Error + Send + Sync + 'static>(
    response: Result<A, E>,
) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    response.map_err(io::Error::other)?.write(&mut bytes);
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(blocks: &[&'static str]) -> RaftSnapshot {
        let blocks = blocks.iter().map(|block| Bytes::from_static(block.as_bytes())).collect();
        RaftSnapshot { meta: SnapshotMeta::default(), snapshot: Blocks(blocks) }
    }

    fn begin(receiver: &mut SnapshotReceiver, snapshot: &RaftSnapshot) -> u64 {
        receiver.begin(SnapshotId::of(snapshot), snapshot.meta.clone(), 100, Instant::now()).unwrap()
    }

    fn take(
        receiver: &mut SnapshotReceiver,
        snapshot_id: SnapshotId,
        at: u64,
        block: &Bytes,
    ) -> io::Result<u64> {
        receiver.take_block(snapshot_id, at, block.clone(), Instant::now())
    }

    #[test]
    fn snapshot_transfer_resumes_and_accepts_repeated_blocks() {
        let (mut receiver, snapshot) = (SnapshotReceiver::default(), snapshot(&["one", "two", "three"]));
        let (snapshot_id, blocks) = (SnapshotId::of(&snapshot), snapshot.snapshot.0.clone());
        assert_eq!(begin(&mut receiver, &snapshot), 0);
        assert_eq!(take(&mut receiver, snapshot_id, 0, &blocks[0]).unwrap(), 1);
        assert_eq!(take(&mut receiver, snapshot_id, 0, &blocks[0]).unwrap(), 1, "the response was lost");
        assert_eq!(take(&mut receiver, snapshot_id, 1, &blocks[1]).unwrap(), 2);
        assert_eq!(begin(&mut receiver, &snapshot), 2, "the transfer resumes after those blocks");
        assert!(take(&mut receiver, snapshot_id, 3, &blocks[2]).is_err(), "a block is missing");
        assert_eq!(take(&mut receiver, snapshot_id, 2, &blocks[2]).unwrap(), 3);
        assert_eq!(receiver.end(snapshot_id).unwrap().snapshot, snapshot.snapshot);
        assert!(receiver.end(snapshot_id).is_err(), "it ends once");
    }

    #[test]
    fn incomplete_or_mixed_snapshot_is_refused() {
        let (mut receiver, one) = (SnapshotReceiver::default(), snapshot(&["one", "two"]));
        begin(&mut receiver, &one);
        take(&mut receiver, SnapshotId::of(&one), 0, &Bytes::from("one")).unwrap();
        let other = snapshot(&["one", "2"]);
        assert!(
            take(&mut receiver, SnapshotId::of(&other), 1, &Bytes::from("2")).is_err(),
            "this snapshot was not begun"
        );
        assert!(
            take(&mut receiver, SnapshotId::of(&one), 1, &Bytes::from("two and more")).is_err(),
            "too long"
        );
        assert!(receiver.end(SnapshotId::of(&one)).is_err(), "the second block is missing");
        assert_eq!(begin(&mut receiver, &other), 0, "another snapshot begins from the start");
        let large = snapshot(&[
            "more than a hundred bytes: ------------------------------------------------------------------------",
        ]);
        assert!(receiver.begin(SnapshotId::of(&large), large.meta, 50, Instant::now()).is_err());
    }

    #[test]
    fn partly_received_snapshot_is_dropped_when_idle_for_too_long() {
        let (mut receiver, snapshot) = (SnapshotReceiver::default(), snapshot(&["one", "two"]));
        let (snapshot_id, block) = (SnapshotId::of(&snapshot), snapshot.snapshot.0[0].clone());
        let (began, idle_max) = (Instant::now(), Duration::from_secs(60));
        let at = |seconds| began + Duration::from_secs(seconds);
        assert!(receiver.remove_idle(at(1_000), idle_max).is_empty(), "no snapshot has begun");
        receiver.begin(snapshot_id, snapshot.meta.clone(), 100, at(0)).unwrap();
        receiver.take_block(snapshot_id, 0, block.clone(), at(50)).unwrap();
        assert!(receiver.remove_idle(at(109), idle_max).is_empty(), "a block arrived 59 seconds ago");
        assert_eq!(receiver.begin(snapshot_id, snapshot.meta.clone(), 100, at(109)).unwrap(), 1);
        assert!(receiver.remove_idle(at(168), idle_max).is_empty(), "the transfer was resumed");
        assert_eq!(receiver.remove_idle(at(169), idle_max), std::slice::from_ref(&block));
        assert!(receiver.take_block(snapshot_id, 1, block, at(170)).is_err(), "the snapshot was dropped");
        assert_eq!(receiver.begin(snapshot_id, snapshot.meta.clone(), 100, at(171)).unwrap(), 0);
    }
}
