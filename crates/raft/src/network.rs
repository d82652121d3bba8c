//! Asking other nodes.
//!
//! Entries go to a node in requests that follow one another without waiting for answers; a request that the disk is slow
//! over holds up nothing but those behind it. Heartbeats and votes have a lane of their own ([`Lane`]).
//!
//! A large request has another lane than small ones, whose transport may work on another thread: copying and encrypting megabytes
//! delays no heartbeat. Before the lane changes, all that was sent is answered, so that no request overtakes another.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::FuturesOrdered;
use futures_util::{Stream, StreamExt};
use openraft::EntryPayload;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use tokio::runtime::Handle;

use crate::codec::{Code, whole};
use crate::limits::Limits;
use crate::machines::LARGE_BYTES;
use crate::message::{Offer, Request};
use crate::vocabulary::{Entry, LogId, Snapshot, Types, Vote};

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

/// Requests of one lane arrive in the order in which they were asked; those of another do not wait for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Short, and on time or of no use: signs of life, votes.
    Urgent,
    /// Entries of the log.
    Log,
    /// Large requests: blocks of snapshots, and entries of many bytes.
    Bulk,
    /// What is handed on to the leader for somebody else.
    Forward,
}

impl Lane {
    /// All of them.
    pub const ALL: [Lane; 4] = [Lane::Urgent, Lane::Log, Lane::Bulk, Lane::Forward];

    /// Whether its messages may be large. A transport works on these elsewhere than where its [`runtime`](Transport::runtime) is.
    pub fn may_be_large(self) -> bool {
        matches!(self, Lane::Bulk | Lane::Forward)
    }
}

/// Brings requests to other nodes, which hand them to their [`Group::receive`](crate::Group::receive), and the answers back.
///
/// Answers may be waited for on any thread, one without a runtime of its own too. An answer that does not come is an
/// error in bounded time; one of kind [`NotConnected`](io::ErrorKind::NotConnected) says that the request was not sent.
pub trait Transport: Send + Sync + 'static {
    /// Asks: the request has its place in the lane when this returns. Dropped, nobody waits for the answer. The request is in pieces that
    /// follow one another, so that large ones need not be copied by who asks.
    fn ask(&self, member: &Member, lane: Lane, request: Vec<Bytes>) -> Asking;

    /// Where its connections of lanes for short messages live, if that is a runtime of one thread, with timers: the group lives there as well then, and
    /// nothing that goes from one to the other wakes a thread. Else the group has a thread of its own.
    fn runtime(&self) -> Option<Handle> {
        None
    }
}

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn ask(&self, member: &Member, lane: Lane, request: Vec<Bytes>) -> Asking {
        T::ask(self, member, lane, request)
    }

    fn runtime(&self) -> Option<Handle> {
        T::runtime(self)
    }
}

/// Ways to all the others.
pub(crate) struct Peers {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) limits: Limits,
}

/// One way to one of them.
pub(crate) struct Peer {
    transport: Arc<dyn Transport>,
    member: Member,
    lane: Lane,
    limits: Limits,
}

impl Peers {
    fn to(&self, id: u64, node: &openraft::BasicNode, lane: Lane) -> Peer {
        let member = Member { id, address: node.addr.clone() };
        Peer { transport: Arc::clone(&self.transport), member, lane, limits: self.limits }
    }
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &openraft::BasicNode) -> Peer {
        self.to(target, node, Lane::Log)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &openraft::BasicNode) -> Peer {
        self.to(target, node, Lane::Urgent)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &openraft::BasicNode) -> Peer {
        self.to(target, node, Lane::Bulk)
    }
}

type Answered<A> = Result<A, RPCError<Types>>;
/// What came of a request with entries, and whether those after it are of any use.
type Appended = (Answered<StreamAppendResult<Types>>, bool);

fn unreachable(error: &io::Error) -> RPCError<Types> {
    RPCError::Unreachable(Unreachable::new(error))
}

impl Peer {
    /// Asks now, and waits when it is awaited.
    fn ask<A: Code>(
        &self,
        lane: Lane,
        request: &Request,
        within: Duration,
    ) -> impl Future<Output = io::Result<A>> + Send + use<A> {
        let asking = self.transport.ask(&self.member, lane, request.pieces());
        async move { Ok(whole(tokio::time::timeout(within, asking).await??, "an answer")?) }
    }

    /// Asks for something that is of no use later.
    async fn call<A: Code>(&self, request: Request, option: &RPCOption) -> Answered<A> {
        let answer = self.ask(Lane::Urgent, &request, option.hard_ttl()).await;
        answer.map_err(|error| unreachable(&error))
    }

    /// The lane for a request with entries.
    fn lane_of(&self, append: &AppendEntriesRequest<Types>) -> Lane {
        let bytes_of = |entry: &Entry| match &entry.payload {
            EntryPayload::Normal(proposal) => proposal.0.len(),
            _ => 0,
        };
        match append.entries.iter().map(bytes_of).sum::<usize>() > LARGE_BYTES {
            true => Lane::Bulk,
            false => self.lane,
        }
    }

    /// What came of one request with entries, and whether those after it are of any use.
    fn append(
        &self,
        lane: Lane,
        append: AppendEntriesRequest<Types>,
        within: Duration,
    ) -> impl Future<Output = Appended> + Send + use<> {
        let prev = append.prev_log_id;
        let last = append.entries.last().map(|entry| entry.log_id).or(prev);
        let asking = self.ask::<AppendEntriesResponse<Types>>(lane, &Request::Append(append), within);
        async move {
            match asking.await {
                Ok(AppendEntriesResponse::Conflict) if prev.is_none() => {
                    let error = io::Error::other("a node holds what follows nothing for a conflict");
                    (Err(unreachable(&error)), false)
                }
                Ok(response) => {
                    let result: Result<Option<LogId>, _> = response.into_stream_result(prev, last);
                    let goes_on = result.as_ref().is_ok_and(|matching| *matching == last);
                    (Ok(result), goes_on)
                }
                Err(error) => (Err(unreachable(&error)), false),
            }
        }
    }

    async fn send(&self, vote: Vote, snapshot: Snapshot) -> io::Result<Vote> {
        let within = Duration::from_millis(self.limits.block_ms_max);
        let offer = Offer::of(&snapshot);
        let begin = Request::Begin(vote, offer, snapshot.meta);
        // What is there of it from an earlier attempt stays.
        let mut next: u64 = self.ask(self.lane, &begin, within).await?;
        while let Some(block) = snapshot.snapshot.0.get(next as usize) {
            let had: u64 =
                self.ask(self.lane, &Request::Block(vote, offer, next, block.clone()), within).await?;
            next = had.max(next + 1);
        }
        let within = Duration::from_millis(self.limits.install_ms_max);
        self.ask(self.lane, &Request::End(vote, offer), within).await
    }
}

/// Requests with entries on their way to one node.
struct Sending<'a, S> {
    peer: &'a Peer,
    within: Duration,
    input: S,
    /// To be sent when those in flight are answered: it has another lane.
    next: Option<AppendEntriesRequest<Types>>,
    /// There will be no more of them.
    is_over: bool,
    in_flight: FuturesOrdered<BoxFuture<'static, Appended>>,
    /// Of those in flight.
    lane: Lane,
}

impl<S: Stream<Item = AppendEntriesRequest<Types>> + Unpin> Sending<'_, S> {
    /// The next answer; none when all is answered, and no more is to be sent.
    async fn answer(&mut self) -> Option<Appended> {
        loop {
            if let Some(append) = self.next.take() {
                let lane = self.peer.lane_of(&append);
                if lane == self.lane || self.in_flight.is_empty() {
                    self.lane = lane;
                    self.in_flight.push_back(Box::pin(self.peer.append(lane, append, self.within)));
                } else {
                    self.next = Some(append);
                }
            }
            let in_flight_max = self.peer.limits.appends_in_flight_max;
            let takes = self.next.is_none() && !self.is_over && self.in_flight.len() < in_flight_max;
            tokio::select! {
                biased;
                next = self.input.next(), if takes => {
                    self.is_over = next.is_none();
                    self.next = next;
                }
                Some(answer) = self.in_flight.next(), if !self.in_flight.is_empty() => return Some(answer),
                else => return None,
            }
        }
    }
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = crate::vocabulary::Blocks;

    async fn append_entries(
        &mut self,
        append: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Answered<AppendEntriesResponse<Types>> {
        let lane = self.lane_of(&append);
        let answer = self.ask(lane, &Request::Append(append), option.hard_ttl()).await;
        answer.map_err(|error| unreachable(&error))
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Answered<BoxStream<'s, Answered<StreamAppendResult<Types>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
    {
        // openraft gives every request the time of one sign of life; a disk may take longer.
        let within = match self.lane {
            Lane::Urgent => option.hard_ttl(),
            Lane::Log | Lane::Bulk | Lane::Forward => Duration::from_millis(self.limits.append_ms_max),
        };
        let sending = Sending {
            peer: &*self,
            within,
            input,
            next: None,
            is_over: false,
            in_flight: FuturesOrdered::new(),
            lane: self.lane,
        };
        let until_refused = futures_util::stream::unfold(Some(sending), async |sending| {
            let mut sending = sending?;
            let (answer, goes_on) = sending.answer().await?;
            Some((answer, goes_on.then_some(sending)))
        });
        let until_refused: BoxStream<'s, _> = Box::pin(until_refused);
        Box::pin(std::future::ready(Ok(until_refused)))
    }

    async fn vote(&mut self, vote: VoteRequest<Types>, option: RPCOption) -> Answered<VoteResponse<Types>> {
        self.call(Request::Vote(vote), &option).await
    }

    async fn pre_vote(
        &mut self,
        vote: VoteRequest<Types>,
        option: RPCOption,
    ) -> Answered<VoteResponse<Types>> {
        self.call(Request::PreVote(vote), &option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = self.send(vote, snapshot) => match sent {
                Ok(vote) => Ok(SnapshotResponse::new(vote)),
                Err(error) => Err(StreamingError::Unreachable(Unreachable::new(&error))),
            },
        }
    }

    async fn transfer_leader(
        &mut self,
        transfer: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Answered<TransferLeaderResponse<Types>> {
        // Whether it is taken shows in who is elected.
        self.call::<Vote>(Request::TransferLeader(transfer), &option).await.map(|_| Ok(()))
    }
}
