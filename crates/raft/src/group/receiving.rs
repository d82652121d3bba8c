//! Handles requests of other nodes.

use std::io;

use bytes::Bytes;
use tokio::sync::Mutex;

use super::OurRaft;
use crate::codec::{ValueCodec, whole};
use crate::message::{RaftRequest, SnapshotId};
use crate::vocabulary::{Blocks, RaftSnapshot, SnapshotMeta};

/// A partly received snapshot. Any leader may send the rest.
#[derive(Debug, Default)]
pub(super) struct SnapshotReceiver {
    of: Option<(SnapshotId, SnapshotMeta)>,
    blocks: Vec<Bytes>,
    bytes: u64,
}

impl SnapshotReceiver {
    /// Begins or resumes a snapshot. Returns how many of its blocks this node has.
    fn begin(&mut self, offer: SnapshotId, meta: SnapshotMeta, bytes_max: usize) -> io::Result<u64> {
        if offer.bytes > bytes_max as u64 {
            let why = format!("a snapshot of {} bytes exceeds snapshot_bytes_max = {bytes_max}", offer.bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let of = Some((offer, meta));
        if self.of != of {
            *self = SnapshotReceiver { of, ..SnapshotReceiver::default() };
        }
        Ok(self.blocks.len() as u64)
    }

    /// Takes the next block. A repeated block is not an error, because a response may have been lost.
    fn take_block(&mut self, offer: SnapshotId, at: u64, block: Bytes) -> io::Result<u64> {
        self.expect(offer)?;
        let next = self.blocks.len() as u64;
        if at > next || (at == next && self.bytes + block.len() as u64 > offer.bytes) {
            return Err(unexpected());
        }
        if at == next {
            self.bytes += block.len() as u64;
            self.blocks.push(block);
        }
        Ok(self.blocks.len() as u64)
    }

    /// Returns the complete snapshot.
    fn end(&mut self, offer: SnapshotId) -> io::Result<RaftSnapshot> {
        self.expect(offer)?;
        let SnapshotReceiver { of, blocks, .. } = std::mem::take(self);
        let (_, meta) = of.ok_or_else(unexpected)?;
        let snapshot = RaftSnapshot { meta, snapshot: Blocks(blocks) };
        if SnapshotId::of(&snapshot) == offer { Ok(snapshot) } else { Err(unexpected()) }
    }

    fn expect(&self, offer: SnapshotId) -> io::Result<()> {
        let is_expected = self.of.as_ref().is_some_and(|(expected, _)| *expected == offer);
        if is_expected { Ok(()) } else { Err(unexpected()) }
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "received a part of a snapshot whose transfer has not begun")
}

pub(super) async fn receive(
    raft: &OurRaft,
    receiving: &Mutex<SnapshotReceiver>,
    bytes_max: usize,
    request: Bytes,
) -> io::Result<Bytes> {
    match whole(request, "a request")? {
        RaftRequest::Append(append) => answer(raft.append_entries(append).await),
        RaftRequest::Vote(vote) => answer(raft.vote(vote).await),
        RaftRequest::PreVote(vote) => answer(raft.pre_vote(vote).await),
        RaftRequest::TransferLeader(transfer) => {
            let vote = *transfer.from_leader();
            answer(raft.handle_transfer_leader(transfer).await.map(|_| vote))
        }
        // The leadership of the sender is checked at the end, when the snapshot is complete.
        RaftRequest::Begin(_, offer, meta) => answer(receiving.lock().await.begin(offer, meta, bytes_max)),
        RaftRequest::Block(_, offer, at, block) => {
            answer(receiving.lock().await.take_block(offer, at, block))
        }
        RaftRequest::End(vote, offer) => {
            let snapshot = receiving.lock().await.end(offer)?;
            answer(raft.install_full_snapshot(vote, snapshot).await.map(|response| response.vote))
        }
    }
}

fn answer<A: ValueCodec, E: std::error::Error + Send + Sync + 'static>(
    answer: Result<A, E>,
) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    answer.map_err(io::Error::other)?.write(&mut bytes);
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(blocks: &[&'static str]) -> RaftSnapshot {
        let blocks = blocks.iter().map(|block| Bytes::from_static(block.as_bytes())).collect();
        RaftSnapshot { meta: SnapshotMeta::default(), snapshot: Blocks(blocks) }
    }

    fn begin(receiving: &mut SnapshotReceiver, snapshot: &RaftSnapshot) -> u64 {
        receiving.begin(SnapshotId::of(snapshot), snapshot.meta.clone(), 100).unwrap()
    }

    #[test]
    fn interrupted_snapshot_resumes_and_takes_repeated_blocks() {
        let (mut receiving, snapshot) = (SnapshotReceiver::default(), snapshot(&["one", "two", "three"]));
        let (offer, blocks) = (SnapshotId::of(&snapshot), snapshot.snapshot.0.clone());
        assert_eq!(begin(&mut receiving, &snapshot), 0);
        assert_eq!(receiving.take_block(offer, 0, blocks[0].clone()).unwrap(), 1);
        assert_eq!(receiving.take_block(offer, 0, blocks[0].clone()).unwrap(), 1, "the response was lost");
        assert_eq!(receiving.take_block(offer, 1, blocks[1].clone()).unwrap(), 2);
        assert_eq!(begin(&mut receiving, &snapshot), 2, "the transfer resumes after those blocks");
        assert!(receiving.take_block(offer, 3, blocks[2].clone()).is_err(), "a block is missing");
        assert_eq!(receiving.take_block(offer, 2, blocks[2].clone()).unwrap(), 3);
        assert_eq!(receiving.end(offer).unwrap().snapshot, snapshot.snapshot);
        assert!(receiving.end(offer).is_err(), "it ends once");
    }

    #[test]
    fn incomplete_or_mixed_snapshot_is_refused() {
        let (mut receiving, one) = (SnapshotReceiver::default(), snapshot(&["one", "two"]));
        begin(&mut receiving, &one);
        receiving.take_block(SnapshotId::of(&one), 0, Bytes::from("one")).unwrap();
        let other = snapshot(&["one", "2"]);
        assert!(
            receiving.take_block(SnapshotId::of(&other), 1, Bytes::from("2")).is_err(),
            "this snapshot was not begun"
        );
        assert!(
            receiving.take_block(SnapshotId::of(&one), 1, Bytes::from("two and more")).is_err(),
            "too long"
        );
        assert!(receiving.end(SnapshotId::of(&one)).is_err(), "the second block is missing");
        assert_eq!(begin(&mut receiving, &other), 0, "another snapshot begins from the start");
        let large = snapshot(&[
            "more than a hundred bytes: ------------------------------------------------------------------------",
        ]);
        assert!(receiving.begin(SnapshotId::of(&large), large.meta, 50).is_err());
    }
}
