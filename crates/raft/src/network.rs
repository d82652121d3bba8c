//! Asking other nodes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};

use crate::codec::{Code, whole};
use crate::message::Request;
use crate::vocabulary::{Blocks, Snapshot, Types, Vote};

/// A node of the group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Its number; never given to another node.
    pub id: u64,
    /// Where the others reach it.
    pub address: String,
}

/// The answer, when it comes.
pub type Asking = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send>>;

/// Brings requests to other nodes, which hand them to their [`Group::receive`](crate::Group::receive), and the answers back.
/// Requests to one node arrive in the order in which they were asked.
pub trait Transport: Send + Sync + 'static {
    /// Asks; dropped, nobody waits for the answer.
    fn ask(&self, member: &Member, request: Bytes) -> Asking;
}

/// Ways to all the others.
pub(crate) struct Peers<T>(pub(crate) Arc<T>);

/// The way to one.
pub(crate) struct Peer<T> {
    transport: Arc<T>,
    member: Member,
}

impl<T: Transport> RaftNetworkFactory<Types> for Peers<T> {
    type Network = Peer<T>;

    async fn new_client(&mut self, target: u64, node: &openraft::BasicNode) -> Peer<T> {
        let member = Member { id: target, address: node.addr.clone() };
        Peer { transport: Arc::clone(&self.0), member }
    }
}

impl<T: Transport> Peer<T> {
    async fn ask<A: Code>(&self, request: &Request, within: Duration) -> io::Result<A> {
        let mut bytes = Vec::new();
        request.write(&mut bytes);
        let answer = tokio::time::timeout(within, self.transport.ask(&self.member, bytes.into())).await??;
        Ok(whole(answer, "an answer")?)
    }

    async fn call<A: Code>(&self, request: Request, option: &RPCOption) -> Result<A, RPCError<Types>> {
        let answer = self.ask(&request, option.hard_ttl()).await;
        answer.map_err(|error| RPCError::Unreachable(Unreachable::new(&error)))
    }
}

impl<T: Transport> RaftNetworkV2<Types> for Peer<T> {
    type SnapshotData = Blocks;

    async fn append_entries(
        &mut self,
        append: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        self.call(Request::Append(append), &option).await
    }

    async fn vote(
        &mut self,
        vote: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.call(Request::Vote(vote), &option).await
    }

    async fn pre_vote(
        &mut self,
        vote: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.call(Request::PreVote(vote), &option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let send = async {
            let within = option.hard_ttl();
            self.ask::<Vote>(&Request::Begin(vote, snapshot.meta), within).await?;
            for block in snapshot.snapshot.0 {
                self.ask::<Vote>(&Request::Block(vote, block), within).await?;
            }
            self.ask::<Vote>(&Request::End(vote), within).await
        };
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = send => match sent {
                Ok(vote) => Ok(SnapshotResponse::new(vote)),
                Err(error) => Err(StreamingError::Unreachable(Unreachable::new(&error))),
            },
        }
    }

    async fn transfer_leader(
        &mut self,
        transfer: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        // Whether it is taken shows in who is elected.
        self.call::<Vote>(Request::TransferLeader(transfer), &option).await.map(|_| Ok(()))
    }
}
