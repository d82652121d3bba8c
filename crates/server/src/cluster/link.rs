//! A connection to one node for one lane (a kind of requests between nodes). It is made when needed, and again after a
//! failure.
//!
//! Requests are sent in order, without waiting for earlier responses. Each lane has its own connection, so
//! that no lane waits behind another in the kernel's buffers.
//!
//! Invariants: each request receives a response or an error within `ask_ms_max` milliseconds. A request that was never
//! sent fails with `NotConnected`; one that may have been sent fails with another error.
//!
//! Limits: `ask_queue_max` requests wait; further ones fail at once. While the node is unreachable, all requests fail
//! at once.

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

/// First and longest pause before an unreachable node is tried again; the pause doubles.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// Interval of pings while responses are pending.
const PING_INTERVAL: Duration = Duration::from_millis(250);
/// Interval of pings on a connection that forwards requests to a leader.
const LEADER_PING_INTERVAL: Duration = Duration::from_millis(100);
/// Time of silence after which forwarded requests fail if the node is no longer the leader.
const DEPOSED_SILENCE: Duration = Duration::from_millis(300);
/// Approximate size of one write, bytes.
const WRITE_BYTES: usize = 256 << 10;

/// Counters of requests and connections to other nodes since the start.
#[derive(Debug, Default)]
pub(super) struct LinkCounters {
    pub(super) requests: AtomicU64,
    pub(super) connections: AtomicU64,
    /// For each node, the time at which its last message arrived.
    last_messages: Mutex<HashMap<u64, Instant>>,
}

impl LinkCounters {
    fn record_message(&self, node: u64) {
        lock(&self.last_messages).insert(node, Instant::now());
    }

    /// Whether a message of the node has arrived within this time.
    pub(super) fn has_received_from(&self, node: u64, within: Duration) -> bool {
        lock(&self.last_messages).get(&node).is_some_and(|at| at.elapsed() < within)
    }
}

/// A request to another node, and the channel for its response.
pub(super) struct QueuedRequest {
    /// The request's bytes in pieces.
    pub(super) request: Vec<Bytes>,
    pub(super) response: oneshot::Sender<io::Result<Bytes>>,
}

/// The target of a connection to another node: the node, the lane and the shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LinkTarget {
    pub(super) node: u64,
    pub(super) address: String,
    pub(super) lane: RequestLane,
    /// The shard of tasks; `None` for the group of keys.
    pub(super) shard: Option<u8>,
}

/// Connects to the node and sends its requests until the queue's senders are dropped.
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
        // The address of a member in Raft's configuration may be old, while the table has the present one. Attempts
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
        // Requests to an unreachable node fail at once.
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

/// Exchanges requests and responses until the connection ends; returns the cause.
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
    // Progress of a large write shows that the node is alive, even if its pong waits behind the data. Small writes fit
    // into the kernel's buffers and show nothing.
    let record_progress = || *lock(last_message) = Instant::now();
    let mut ping_at = Instant::now() + ping;
    loop {
        while let Some(request) = next.take() {
            // A cancelled request, such as a late heartbeat, is not sent.
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
            // Pings the node while responses are pending: a response may wait for a disk, but a pong does not.
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

    /// Whether the request was sent to the node as the leader, and the node is no longer the leader: another node
    /// leads, or a later term began.
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

/// Returns an error when the connection has to end. With pending requests, it ends if the peer is silent for too long;
/// the limit is shorter if the peer is no longer the leader. It also ends if the oldest request waits too long for its
/// response.
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
