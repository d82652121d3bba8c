//! A connection to one node for one lane, made when needed and again after a failure.
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
const REST: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// Interval of pings while responses are pending.
const PING: Duration = Duration::from_millis(250);
/// Interval of pings on a connection that forwards requests to a leader.
const PING_LEADER: Duration = Duration::from_millis(100);
/// Time of silence after which forwarded requests fail if the node is no longer the leader.
const DEPOSED: Duration = Duration::from_millis(300);
/// Approximate size of one write, bytes.
const WRITE_BYTES: usize = 256 << 10;

/// Counters of requests and connections to other nodes since the start.
#[derive(Debug, Default)]
pub(super) struct LinkCounters {
    pub(super) asked: AtomicU64,
    pub(super) opened: AtomicU64,
    /// For each node, the time at which its last message arrived.
    heard: Mutex<HashMap<u64, Instant>>,
}

impl LinkCounters {
    fn hears(&self, node: u64) {
        lock(&self.heard).insert(node, Instant::now());
    }

    /// Whether a message of the node has arrived within this time.
    pub(super) fn has_heard(&self, node: u64, within: Duration) -> bool {
        lock(&self.heard).get(&node).is_some_and(|at| at.elapsed() < within)
    }
}

/// A request, and the sender of its response.
pub(super) struct QueuedRequest {
    /// The request's bytes in pieces.
    pub(super) request: Vec<Bytes>,
    pub(super) answer: oneshot::Sender<io::Result<Bytes>>,
}

/// The node and lane of a connection.
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
    seat: Arc<ClusterMember>,
    target: LinkTarget,
    mut asks: mpsc::Receiver<QueuedRequest>,
) {
    let (mut rest, mut by_table) = (REST.0, false);
    while let Some(first) = asks.recv().await {
        if first.answer.is_closed() {
            continue;
        }
        let patience = Duration::from_millis(seat.limits.connect_ms_max);
        // The address of a member in Raft's configuration may be old, while the table has the present one. Attempts
        // alternate between both.
        let moved_to = seat.address_of(target.node).filter(|_| by_table);
        let address = moved_to.unwrap_or_else(|| target.address.clone());
        by_table = !by_table;
        let connecting = timeout(patience, seat.open_lane(target.node, &address, target.lane));
        let connected = tokio::select! {
            connected = connecting => connected.unwrap_or_else(|late| Err(late.into())),
            () = target.until_deposed(&seat) => Err(io::Error::other("the node no longer leads")),
        };
        let failed = match connected {
            Ok(connection) => {
                (rest, by_table) = (REST.0, !by_table);
                seat.links.opened.fetch_add(1, Ordering::Relaxed);
                let error = talk(&seat, &target, connection, first, &mut asks).await;
                tracing::debug!(node = target.node, lane = ?target.lane, "lost the connection: {error}");
                continue;
            }
            Err(error) => error,
        };
        seat.unreachable(target.node, &address, &failed);
        let why = format!("node {} at {address}: {failed}", target.node);
        fail(first, &why);
        // Requests to an unreachable node fail at once.
        let until = Instant::now() + rest;
        while let Ok(Some(ask)) = timeout_at(until, asks.recv()).await {
            fail(ask, &why);
        }
        rest = (rest * 2).min(REST.1);
    }
}

fn fail(ask: QueuedRequest, why: &str) {
    let _ = ask.answer.send(Err(io::Error::new(io::ErrorKind::NotConnected, why.to_owned())));
}

type PendingRequests = Arc<Mutex<HashMap<u64, (Instant, oneshot::Sender<io::Result<Bytes>>)>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Exchanges requests and responses until the connection ends; returns the cause.
async fn talk(
    seat: &ClusterMember,
    target: &LinkTarget,
    (frames, write): (ClusterFrames<ReadHalf<Stream>>, WriteHalf<Stream>),
    first: QueuedRequest,
    asks: &mut mpsc::Receiver<QueuedRequest>,
) -> io::Error {
    let awaited = PendingRequests::default();
    let heard = Mutex::new(Instant::now());
    let ended = tokio::select! {
        ended = ask_all((seat, target.ping()), write, first, asks, (&awaited, &heard)) => ended,
        ended = hear(frames, &awaited, &heard, || seat.links.hears(target.node)) => ended,
        ended = watch(seat, target, &awaited, &heard) => ended,
    };
    let error = ended.err().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into());
    for (_, (_, answer)) in lock(&awaited).drain() {
        let _ = answer.send(Err(io::Error::new(io::ErrorKind::ConnectionReset, error.to_string())));
    }
    error
}

async fn ask_all(
    (seat, ping): (&ClusterMember, Duration),
    mut write: WriteHalf<Stream>,
    first: QueuedRequest,
    asks: &mut mpsc::Receiver<QueuedRequest>,
    (awaited, heard): (&PendingRequests, &Mutex<Instant>),
) -> io::Result<()> {
    let (mut out, mut id, mut next) = (Vec::new(), 0, Some(first));
    // Progress of a large write shows that the node is alive, even if its pong waits behind the data. Small writes fit
    // into the kernel's buffers and show nothing.
    let progressed = || *lock(heard) = Instant::now();
    let mut ping_at = Instant::now() + ping;
    loop {
        while let Some(ask) = next.take() {
            // A cancelled request, such as a late heartbeat, is not sent.
            if !ask.answer.is_closed() {
                id += 1;
                seat.links.asked.fetch_add(1, Ordering::Relaxed);
                frame::put_pieces(&mut out, id, ClusterFrameKind::Request, &ask.request);
                lock(awaited).insert(id, (Instant::now(), ask.answer));
            }
            if out.len() < WRITE_BYTES {
                next = asks.try_recv().ok();
            }
        }
        if Instant::now() >= ping_at {
            ping_at = Instant::now() + ping;
            // Pings the node while responses are pending: a response may wait for a disk, but a pong does not.
            if !lock(awaited).is_empty() {
                frame::put(&mut out, 0, ClusterFrameKind::Ping, &[]);
            }
        }
        if !out.is_empty() {
            match out.len() > WRITE_BYTES {
                true => frame::write_in_turns(&mut write, &out, progressed).await?,
                false => frame::write_in_turns(&mut write, &out, || ()).await?,
            }
            out.clear();
            out.shrink_to(WRITE_BYTES);
        }
        match timeout_at(ping_at, asks.recv()).await {
            Ok(None) => return Ok(()),
            Ok(some) => next = some,
            Err(_due) => {}
        }
    }
}

async fn hear(
    mut frames: ClusterFrames<ReadHalf<Stream>>,
    awaited: &PendingRequests,
    heard: &Mutex<Instant>,
    hears: impl Fn(),
) -> io::Result<()> {
    loop {
        let frame = frames.next().await?;
        *lock(heard) = Instant::now();
        hears();
        let answer = match frame.kind {
            ClusterFrameKind::Answer => Ok(frame.payload),
            ClusterFrameKind::Failed => {
                Err(io::Error::other(String::from_utf8_lossy(&frame.payload).into_owned()))
            }
            ClusterFrameKind::Pong => continue,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        if let Some((_, who)) = lock(awaited).remove(&frame.id) {
            let _ = who.send(answer);
        }
    }
}

impl LinkTarget {
    fn ping(&self) -> Duration {
        if self.lane == RequestLane::Forward { PING_LEADER } else { PING }
    }

    /// Whether the request was sent to the node as the leader, and the node is no longer the leader: another node
    /// leads, or a later term began.
    fn is_deposed(&self, seat: &ClusterMember) -> bool {
        self.lane == RequestLane::Forward && seat.leader_of(self.shard) != Some(self.node)
    }

    async fn until_deposed(&self, seat: &ClusterMember) {
        loop {
            sleep(PING_LEADER).await;
            if self.is_deposed(seat) {
                return;
            }
        }
    }
}

/// Ends a connection whose peer is silent while requests are pending, or leaves a request open for too long.
async fn watch(
    seat: &ClusterMember,
    target: &LinkTarget,
    awaited: &PendingRequests,
    heard: &Mutex<Instant>,
) -> io::Result<()> {
    let silent_max = Duration::from_millis(seat.limits.silent_ms_max);
    let ask_max = Duration::from_millis(seat.limits.ask_ms_max);
    loop {
        sleep(target.ping()).await;
        let Some(oldest) = lock(awaited).values().map(|(since, _)| *since).min() else { continue };
        let silent = oldest.max(*lock(heard)).elapsed();
        let is_deposed = || silent > DEPOSED && target.is_deposed(seat);
        if silent > silent_max || oldest.elapsed() > ask_max || is_deposed() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}
