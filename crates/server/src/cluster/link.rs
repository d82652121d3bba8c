//! Sends requests to another node over one connection. Requests have several kinds, which are called lanes; each lane
//! has its own connection to the node, so that no lane waits behind another in the kernel's buffers.
//!
//! The connection is made for the first request, and made again after a failure. Requests are sent in order, without
//! waiting for earlier responses.
//!
//! Invariants: each request receives a response or an error within `ask_ms_max` milliseconds. The error is
//! `NotConnected` if the request was certainly not sent, and another error if it may have been sent.
//!
//! Limits: at most `ask_queue_max` requests wait to be sent; further requests fail at once. While the node is
//! unreachable, all requests fail at once.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dunlin::raft::RequestLane;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::frame::{self, ClusterFrameKind, ClusterFrames};
use super::member::ClusterMember;
use crate::stream::Stream;

/// First and longest pause between two attempts to connect to an unreachable node. The pause doubles after each failed
/// attempt.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// Interval at which the node is pinged while responses are pending.
const PING_INTERVAL: Duration = Duration::from_millis(250);
/// Like [`PING_INTERVAL`], but for a connection that forwards requests to a leader.
const LEADER_PING_INTERVAL: Duration = Duration::from_millis(100);
/// Requests that were forwarded to a node fail if that node sent nothing for this time and is no longer the leader.
const DEPOSED_SILENCE: Duration = Duration::from_millis(300);
/// Requests are collected into one write until the write has about this size, bytes.
const WRITE_BYTES: usize = 256 << 10;

/// Counts the requests that this node has sent to other nodes, and the connections that it has opened to them. Also
/// stores when each node's last message arrived.
#[derive(Debug, Default)]
pub(super) struct LinkCounters {
    pub(super) requests: AtomicU64,
    pub(super) connections: AtomicU64,
    /// For each node, the arrival time of its last message.
    last_messages: Mutex<HashMap<u64, Instant>>,
}

impl LinkCounters {
    fn record_message(&self, node: u64) {
        lock(&self.last_messages).insert(node, Instant::now());
    }

    /// Whether a message from the node has arrived in the period `within`, which ends now.
    pub(super) fn has_received_from(&self, node: u64, within: Duration) -> bool {
        lock(&self.last_messages).get(&node).is_some_and(|at| at.elapsed() < within)
    }
}

/// A request that waits to be sent to another node, and the channel for its response.
pub(super) struct QueuedRequest {
    /// The request's bytes as pieces, one after another.
    pub(super) request: Vec<Bytes>,
    pub(super) response: oneshot::Sender<io::Result<Bytes>>,
}

/// Identifies a connection to another node: by the node, the lane, and the shard of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LinkTarget {
    pub(super) node: u64,
    pub(super) address: String,
    pub(super) lane: RequestLane,
    /// The shard of tasks whose Raft group uses the connection; `None` for the Raft group of the keys.
    pub(super) shard: Option<u8>,
}

/// Sends the requests of the queue `requests` to the node of `target`, over a connection that is made again after a
/// failure. Returns when all senders of the queue were dropped.
pub(super) async fn run(
    member: Arc<ClusterMember>,
    target: LinkTarget,
    mut requests: mpsc::Receiver<QueuedRequest>,
) {
    let (mut pause, mut use_table_address) = (RETRY_PAUSE.0, false);
    while let Some(first) = requests.recv().await {
        if first.response.is_closed() {
            continue;
        }
        let time_limit = Duration::from_millis(member.limits.connect_ms_max);
        // A member's address in Raft's configuration may be older than its address in the table of nodes. Attempts
        // alternate between the two addresses.
        let table_address = member.address_of(target.node).filter(|_| use_table_address);
        let address = table_address.unwrap_or_else(|| target.address.clone());
        use_table_address = !use_table_address;
        let connecting = timeout(time_limit, member.open_lane(target.node, &address, target.lane));
        let connected = tokio::select! {
            connected = connecting => connected.unwrap_or_else(|elapsed| Err(elapsed.into())),
            () = target.wait_until_deposed(&member) => Err(io::Error::other("the node no longer leads")),
        };
        let failed = match connected {
            Ok(connection) => {
                (pause, use_table_address) = (RETRY_PAUSE.0, !use_table_address);
                member.links.connections.fetch_add(1, Ordering::Relaxed);
                let error = exchange(&member, &target, connection, first, &mut requests).await;
                tracing::debug!(node = target.node, lane = ?target.lane, "lost the connection: {error}");
                continue;
            }
            Err(error) => error,
        };
        member.log_unreachable(target.node, &address, &failed);
        let why = format!("node {} at {address}: {failed}", target.node);
        fail(first, &why);
        // During the pause, requests to the unreachable node fail at once.
        let deadline = Instant::now() + pause;
        while let Ok(Some(request)) = timeout_at(deadline, requests.recv()).await {
            fail(request, &why);
        }
        pause = (pause * 2).min(RETRY_PAUSE.1);
    }
}

fn fail(request: QueuedRequest, why: &str) {
    let _ = request.response.send(Err(io::Error::new(io::ErrorKind::NotConnected, why.to_owned())));
}

type PendingRequests = Arc<Mutex<HashMap<u64, (Instant, oneshot::Sender<io::Result<Bytes>>)>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends requests and receives responses until the connection ends; returns the reason for its end.
async fn exchange(
    member: &ClusterMember,
    target: &LinkTarget,
    (frames, write): (ClusterFrames<ReadHalf<Stream>>, WriteHalf<Stream>),
    first: QueuedRequest,
    requests: &mut mpsc::Receiver<QueuedRequest>,
) -> io::Error {
    let pending = PendingRequests::default();
    let last_message = Mutex::new(Instant::now());
    let record_message = || member.links.record_message(target.node);
    let result = tokio::select! {
        result = send_requests((member, target.ping()), write, first, requests, (&pending, &last_message)) => result,
        result = receive_responses(frames, &pending, &last_message, record_message) => result,
        result = watch(member, target, &pending, &last_message) => result,
    };
    let error = result.err().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into());
    for (_, (_, response)) in lock(&pending).drain() {
        let _ = response.send(Err(io::Error::new(io::ErrorKind::ConnectionReset, error.to_string())));
    }
    error
}

async fn send_requests(
    (member, ping): (&ClusterMember, Duration),
    mut write: WriteHalf<Stream>,
    first: QueuedRequest,
    requests: &mut mpsc::Receiver<QueuedRequest>,
    (pending, last_message): (&PendingRequests, &Mutex<Instant>),
) -> io::Result<()> {
    let (mut out, mut id, mut next) = (Vec::new(), 0, Some(first));
    // If a large write progresses, the other node is alive, even though its pong may wait behind the data. A small
    // write proves nothing, because it fits into the kernel's buffers.
    let record_progress = || *lock(last_message) = Instant::now();
    let mut ping_at = Instant::now() + ping;
    loop {
        while let Some(request) = next.take() {
            // A request that was cancelled while it waited, such as a late heartbeat, is not sent.
            if !request.response.is_closed() {
                id += 1;
                member.links.requests.fetch_add(1, Ordering::Relaxed);
                frame::encode_pieces(&mut out, id, ClusterFrameKind::Request, &request.request);
                lock(pending).insert(id, (Instant::now(), request.response));
            }
            if out.len() < WRITE_BYTES {
                next = requests.try_recv().ok();
            }
        }
        if Instant::now() >= ping_at {
            ping_at = Instant::now() + ping;
            // Pings the node only while responses are pending. A response may wait for a disk, but a pong comes at
            // once.
            if !lock(pending).is_empty() {
                frame::encode(&mut out, 0, ClusterFrameKind::Ping, &[]);
            }
        }
        if !out.is_empty() {
            match out.len() > WRITE_BYTES {
                true => frame::write_in_chunks(&mut write, &out, record_progress).await?,
                false => frame::write_in_chunks(&mut write, &out, || ()).await?,
            }
            out.clear();
            out.shrink_to(WRITE_BYTES);
        }
        match timeout_at(ping_at, requests.recv()).await {
            Ok(None) => return Ok(()),
            Ok(some) => next = some,
            Err(_due) => {}
        }
    }
}

async fn receive_responses(
    mut frames: ClusterFrames<ReadHalf<Stream>>,
    pending: &PendingRequests,
    last_message: &Mutex<Instant>,
    on_message: impl Fn(),
) -> io::Result<()> {
    loop {
        let frame = frames.next().await?;
        *lock(last_message) = Instant::now();
        on_message();
        let response = match frame.kind {
            ClusterFrameKind::Response => Ok(frame.payload),
            ClusterFrameKind::Failed => {
                Err(io::Error::other(String::from_utf8_lossy(&frame.payload).into_owned()))
            }
            ClusterFrameKind::Pong => continue,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        if let Some((_, sender)) = lock(pending).remove(&frame.id) {
            let _ = sender.send(response);
        }
    }
}

impl LinkTarget {
    fn ping(&self) -> Duration {
        if self.lane == RequestLane::Forward { LEADER_PING_INTERVAL } else { PING_INTERVAL }
    }

    /// Whether the connection forwards requests to the node as the leader, but the node is not the leader any more.
    fn is_deposed(&self, member: &ClusterMember) -> bool {
        self.lane == RequestLane::Forward && member.leader_of(self.shard) != Some(self.node)
    }

    async fn wait_until_deposed(&self, member: &ClusterMember) {
        loop {
            sleep(LEADER_PING_INTERVAL).await;
            if self.is_deposed(member) {
                return;
            }
        }
    }
}

/// Returns an error as soon as the connection has to end. It has to end if the peer is silent for too long while
/// requests are pending, or if one request waits too long for its response. The permitted silence is shorter if the
/// peer is no longer the leader.
async fn watch(
    member: &ClusterMember,
    target: &LinkTarget,
    pending: &PendingRequests,
    last_message: &Mutex<Instant>,
) -> io::Result<()> {
    let silent_max = Duration::from_millis(member.limits.silent_ms_max);
    let request_timeout = Duration::from_millis(member.limits.ask_ms_max);
    loop {
        sleep(target.ping()).await;
        let Some(oldest) = lock(pending).values().map(|(since, _)| *since).min() else { continue };
        let silent = oldest.max(*lock(last_message)).elapsed();
        let is_deposed = || silent > DEPOSED_SILENCE && target.is_deposed(member);
        if silent > silent_max || oldest.elapsed() > request_timeout || is_deposed() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}
