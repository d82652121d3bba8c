//! Sends requests to the other nodes of a group.
//!
//! A request with log entries is sent before earlier requests have their responses. A slow disk can therefore delay
//! only later requests of the same lane. Heartbeats and votes have a separate lane ([`RequestLane`]).
//!
//! Large requests use another lane than small ones. The transport can serve the lane of large requests on another
//! thread, where copying and encrypting megabytes delays no heartbeat. Requests with entries change from one lane to
//! the other only when all earlier requests have their responses. No request with entries therefore overtakes another.

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

use crate::codec::{ValueCodec, decode_exact};
use crate::limits::RaftLimits;
use crate::machines::LARGE_BYTES;
use crate::message::{RaftRequest, SnapshotId};
use crate::type_config::{LogEntry, LogId, RaftSnapshot, Types, Vote};

/// A member of a Raft group: its number and its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RaftMember {
    /// The node's number. This number is never given to another node.
    pub id: u64,
    /// The address at which other nodes reach the member.
    pub address: String,
}

/// A future that waits for the response to a request to another node, and returns this response.
pub type ResponseFuture = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send>>;

/// One of several queues in which requests are sent to another node. The requests of one lane arrive in order. Requests
/// of different lanes do not wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestLane {
    /// Short requests that are useless when late: heartbeats, votes.
    Urgent,
    /// Entries of the log, unless they are large.
    Log,
    /// Large requests: blocks of snapshots, and large entries.
    Bulk,
    /// Requests that a node forwards to the leader.
    Forward,
}

impl RequestLane {
    /// All lanes.
    pub const ALL: [RequestLane; 4] =
        [RequestLane::Urgent, RequestLane::Log, RequestLane::Bulk, RequestLane::Forward];

    /// Whether the lane's requests may be large. A transport serves such lanes outside its
    /// [`runtime`](Transport::runtime).
    pub fn may_be_large(self) -> bool {
        matches!(self, RequestLane::Bulk | RequestLane::Forward)
    }
}

/// Sends requests to the other nodes of a Raft group, and returns their responses. A node that receives such a request
/// must pass it to [`UntypedGroup::receive`](crate::UntypedGroup::receive).
///
/// A response may be awaited on any thread, even without an async runtime. If no response arrives in time, the future
/// returns an error. The error kind [`NotConnected`](io::ErrorKind::NotConnected) means that the request was not sent.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request, which is the concatenation of the given pieces. The pieces exist so that large parts need not
    /// be copied. Requests of one lane are sent in the order in which this method is called. If the returned future is
    /// dropped, the response is ignored.
    fn request(&self, member: &RaftMember, lane: RequestLane, request: Vec<Bytes>) -> ResponseFuture;

    /// The runtime that serves the connections for short messages. The group runs on this runtime too, so that messages
    /// wake no other thread. The method must return `None` if the transport's runtime has more than one thread or no
    /// timers. The group then gets a thread of its own.
    fn runtime(&self) -> Option<Handle> {
        None
    }
}

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn request(&self, member: &RaftMember, lane: RequestLane, request: Vec<Bytes>) -> ResponseFuture {
        T::request(self, member, lane, request)
    }

    fn runtime(&self) -> Option<Handle> {
        T::runtime(self)
    }
}

/// Creates the clients for requests to the other members of a group.
pub(crate) struct MemberClients {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) limits: RaftLimits,
}

/// A client for requests to one other member of a group.
pub(crate) struct MemberClient {
    transport: Arc<dyn Transport>,
    member: RaftMember,
    lane: RequestLane,
    limits: RaftLimits,
}

impl MemberClients {
    fn to(&self, id: u64, node: &openraft::BasicNode, lane: RequestLane) -> MemberClient {
        let member = RaftMember { id, address: node.addr.clone() };
        MemberClient { transport: Arc::clone(&self.transport), member, lane, limits: self.limits }
    }
}

impl RaftNetworkFactory<Types> for MemberClients {
    type Network = MemberClient;

    async fn new_client(&mut self, target: u64, node: &openraft::BasicNode) -> MemberClient {
        self.to(target, node, RequestLane::Log)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &openraft::BasicNode) -> MemberClient {
        self.to(target, node, RequestLane::Urgent)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &openraft::BasicNode) -> MemberClient {
        self.to(target, node, RequestLane::Bulk)
    }
}

type PeerResult<A> = Result<A, RPCError<Types>>;
/// The result of a request with entries, and whether it is still useful to send later requests.
type AppendResult = (PeerResult<StreamAppendResult<Types>>, bool);

fn unreachable(error: &io::Error) -> RPCError<Types> {
    RPCError::Unreachable(Unreachable::new(error))
}

impl MemberClient {
    /// Sends a request immediately. The returned future waits for the response.
    fn request<A: ValueCodec>(
        &self,
        lane: RequestLane,
        request: &RaftRequest,
        timeout: Duration,
    ) -> impl Future<Output = io::Result<A>> + Send + use<A> {
        let response = self.transport.request(&self.member, lane, request.pieces());
        async move { Ok(decode_exact(tokio::time::timeout(timeout, response).await??, "an answer")?) }
    }

    /// Sends a request that is useless when late.
    async fn call<A: ValueCodec>(&self, request: RaftRequest, option: &RPCOption) -> PeerResult<A> {
        let response = self.request(RequestLane::Urgent, &request, option.hard_ttl()).await;
        response.map_err(|error| unreachable(&error))
    }

    fn append_lane(&self, append: &AppendEntriesRequest<Types>) -> RequestLane {
        let bytes_of = |entry: &LogEntry| match &entry.payload {
            EntryPayload::Normal(proposal) => proposal.0.len(),
            _ => 0,
        };
        match append.entries.iter().map(bytes_of).sum::<usize>() > LARGE_BYTES {
            true => RequestLane::Bulk,
            false => self.lane,
        }
    }

    /// Sends a request with entries. The future returns the result, and whether it is still useful to send later
    /// requests.
    fn append(
        &self,
        lane: RequestLane,
        append: AppendEntriesRequest<Types>,
        timeout: Duration,
    ) -> impl Future<Output = AppendResult> + Send + use<> {
        let prev = append.prev_log_id;
        let last = append.entries.last().map(|entry| entry.log_id).or(prev);
        let response =
            self.request::<AppendEntriesResponse<Types>>(lane, &RaftRequest::Append(append), timeout);
        async move {
            match response.await {
                Ok(AppendEntriesResponse::Conflict) if prev.is_none() => {
                    let error = io::Error::other("a node reports a conflict at the log's beginning");
                    (Err(unreachable(&error)), false)
                }
                Ok(response) => {
                    let result: Result<Option<LogId>, _> = response.into_stream_result(prev, last);
                    let continues = result.as_ref().is_ok_and(|matching| *matching == last);
                    (Ok(result), continues)
                }
                Err(error) => (Err(unreachable(&error)), false),
            }
        }
    }

    async fn send(&self, vote: Vote, snapshot: RaftSnapshot) -> io::Result<Vote> {
        let timeout = Duration::from_millis(self.limits.block_ms_max);
        let snapshot_id = SnapshotId::of(&snapshot);
        let begin = RaftRequest::Begin(vote, snapshot_id, snapshot.meta);
        // If an earlier attempt was interrupted, the receiver still has the blocks that it received then. These blocks
        // are not sent again.
        let mut next: u64 = self.request(self.lane, &begin, timeout).await?;
        while let Some(block) = snapshot.snapshot.0.get(next as usize) {
            let received: u64 = self
                .request(self.lane, &RaftRequest::Block(vote, snapshot_id, next, block.clone()), timeout)
                .await?;
            next = received.max(next + 1);
        }
        let timeout = Duration::from_millis(self.limits.install_ms_max);
        self.request(self.lane, &RaftRequest::End(vote, snapshot_id), timeout).await
    }
}

/// Sends requests with entries to one node. Several requests may be in flight at the same time.
struct AppendPipeline<'a, S> {
    peer: &'a MemberClient,
    timeout: Duration,
    input: S,
    /// A request that was taken from `input` but not sent yet. If it uses another lane than the requests in flight, it
    /// has to wait for their responses.
    next: Option<AppendEntriesRequest<Types>>,
    input_ended: bool,
    in_flight: FuturesOrdered<BoxFuture<'static, AppendResult>>,
    /// The lane of the requests in flight.
    lane: RequestLane,
}

impl<S: Stream<Item = AppendEntriesRequest<Types>> + Unpin> AppendPipeline<'_, S> {
    /// Sends requests until a response arrives, and returns this response. Returns `None` when `input` has ended and
    /// all sent requests have their responses.
    async fn next_response(&mut self) -> Option<AppendResult> {
        loop {
            if let Some(append) = self.next.take() {
                let lane = self.peer.append_lane(&append);
                if lane == self.lane || self.in_flight.is_empty() {
                    self.lane = lane;
                    self.in_flight.push_back(Box::pin(self.peer.append(lane, append, self.timeout)));
                } else {
                    self.next = Some(append);
                }
            }
            let in_flight_max = self.peer.limits.appends_in_flight_max;
            let accepts_input =
                self.next.is_none() && !self.input_ended && self.in_flight.len() < in_flight_max;
            tokio::select! {
                biased;
                next = self.input.next(), if accepts_input => {
                    self.input_ended = next.is_none();
                    self.next = next;
                }
                Some(response) = self.in_flight.next(), if !self.in_flight.is_empty() => return Some(response),
                else => return None,
            }
        }
    }
}

impl RaftNetworkV2<Types> for MemberClient {
    type SnapshotData = crate::type_config::Blocks;

    async fn append_entries(
        &mut self,
        append: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> PeerResult<AppendEntriesResponse<Types>> {
        let lane = self.append_lane(&append);
        let response = self.request(lane, &RaftRequest::Append(append), option.hard_ttl()).await;
        response.map_err(|error| unreachable(&error))
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, PeerResult<BoxStream<'s, PeerResult<StreamAppendResult<Types>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
    {
        // openraft allows each request only one heartbeat interval, but a disk may take longer to store entries.
        let timeout = match self.lane {
            RequestLane::Urgent => option.hard_ttl(),
            RequestLane::Log | RequestLane::Bulk | RequestLane::Forward => {
                Duration::from_millis(self.limits.append_ms_max)
            }
        };
        let pipeline = AppendPipeline {
            peer: &*self,
            timeout,
            input,
            next: None,
            input_ended: false,
            in_flight: FuturesOrdered::new(),
            lane: self.lane,
        };
        let responses = futures_util::stream::unfold(Some(pipeline), async |pipeline| {
            let mut pipeline = pipeline?;
            let (response, continues) = pipeline.next_response().await?;
            Some((response, continues.then_some(pipeline)))
        });
        let responses: BoxStream<'s, _> = Box::pin(responses);
        Box::pin(std::future::ready(Ok(responses)))
    }

    async fn vote(&mut self, vote: VoteRequest<Types>, option: RPCOption) -> PeerResult<VoteResponse<Types>> {
        self.call(RaftRequest::Vote(vote), &option).await
    }

    async fn pre_vote(
        &mut self,
        vote: VoteRequest<Types>,
        option: RPCOption,
    ) -> PeerResult<VoteResponse<Types>> {
        self.call(RaftRequest::PreVote(vote), &option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: RaftSnapshot,
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
    ) -> PeerResult<TransferLeaderResponse<Types>> {
        // The response is ignored: the next election will show whether the other node became the leader.
        self.call::<Vote>(RaftRequest::TransferLeader(transfer), &option).await.map(|_| Ok(()))
    }
}
