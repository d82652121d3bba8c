//! Answering other nodes.

use std::io;

use bytes::Bytes;
use tokio::sync::Mutex;

use super::OurRaft;
use crate::codec::{Code, whole};
use crate::machine::Machine;
use crate::message::Request;
use crate::vocabulary::{Blocks, Snapshot, SnapshotMeta, Vote};

/// A snapshot of which not all has come.
#[derive(Debug, Default)]
pub(super) struct Receiving(Option<(Vote, SnapshotMeta, Vec<Bytes>)>);

impl Receiving {
    fn take_block(&mut self, vote: Vote, block: Bytes) -> io::Result<()> {
        let expected = self.0.as_mut().filter(|(from, ..)| *from == vote);
        let (.., blocks) = expected.ok_or_else(unexpected)?;
        blocks.push(block);
        Ok(())
    }

    fn end(&mut self, vote: Vote) -> io::Result<Snapshot> {
        let (from, meta, blocks) = self.0.take().ok_or_else(unexpected)?;
        if from == vote { Ok(Snapshot { meta, snapshot: Blocks(blocks) }) } else { Err(unexpected()) }
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "part of a snapshot that was not begun")
}

pub(super) async fn receive<M: Machine>(
    raft: &OurRaft<M>,
    receiving: &Mutex<Receiving>,
    request: Bytes,
) -> io::Result<Bytes> {
    match whole(request, "a request")? {
        Request::Append(append) => answer(raft.append_entries(append).await),
        Request::Vote(vote) => answer(raft.vote(vote).await),
        Request::PreVote(vote) => answer(raft.pre_vote(vote).await),
        Request::TransferLeader(transfer) => {
            let vote = *transfer.from_leader();
            answer(raft.handle_transfer_leader(transfer).await.map(|_| vote))
        }
        Request::Begin(vote, meta) => {
            receiving.lock().await.0 = Some((vote, meta, Vec::new()));
            answer(Ok::<_, io::Error>(vote))
        }
        Request::Block(vote, block) => answer(receiving.lock().await.take_block(vote, block).map(|()| vote)),
        Request::End(vote) => {
            let snapshot = receiving.lock().await.end(vote)?;
            answer(raft.install_full_snapshot(vote, snapshot).await.map(|response| response.vote))
        }
    }
}

fn answer<A: Code, E: std::error::Error + Send + Sync + 'static>(answer: Result<A, E>) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    answer.map_err(io::Error::other)?.write(&mut bytes);
    Ok(bytes.into())
}
