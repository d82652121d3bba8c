//! Accepts connections from other nodes and serves their requests.
//!
//! Limits:
//! - `connections_max` connections of nodes, and `unverified_max` connections of peers without a certificate;
//! - `handshake_ms_max` until a peer has identified itself;
//! - `answers_max` requests of one connection at a time. At this limit, the next request is read only after a response
//!   was sent.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use dunlin::{Tasks, steady_ns};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::frame::{self, ClusterFrameKind, ClusterFrames};
use super::hello::{self, ClusterHello, ClusterWelcome, HelloRefusal, Purpose};
use super::member::ClusterMember;
use super::secure::AcceptedNode;
use super::{admin, join, registration};
use crate::accept_failures::AcceptFailures;
use crate::stream::Stream;

/// Pause after a failed attempt to accept a connection.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How long a connection stays open after a refusal or a last reply, so that the peer can read it.
const REFUSAL_READ_TIMEOUT: Duration = Duration::from_millis(500);

/// If nothing arrives on a connection for this time, the system probes the connection, and repeats the probe at this
/// interval.
const PROBE_PAUSE: Duration = Duration::from_secs(15);
/// A connection ends if this many probes in a row get no response.
const PROBES_MAX: u32 = 4;

/// Accepts connections from other nodes until the future is dropped.
pub(super) async fn accept(member: Arc<ClusterMember>, listener: TcpListener) {
    let permits = Arc::new(Semaphore::new(member.limits.connections_max));
    let mut unverified = UnverifiedConnections::default();
    let mut failures = AcceptFailures::default();
    loop {
        match listener.accept().await {
            Ok((socket, from)) => {
                let (member, permits) = (Arc::clone(&member), Arc::clone(&permits));
                let closed = unverified.add(member.limits.unverified_max);
                tokio::spawn(async move {
                    if let Err(error) = serve(member, socket, closed, permits).await
                        && error.kind() != io::ErrorKind::UnexpectedEof
                    {
                        tracing::debug!(%from, "a connection from another node ended: {error}");
                    }
                });
            }
            // The peer disconnected before its connection was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if let Some(count) = failures.count(steady_ns()) {
                    tracing::warn!(%error, count, "cannot accept connections of other nodes; retrying");
                }
                sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// The connections whose peers have not shown a certificate of the cluster yet, oldest first.
///
/// The value has a sender for each connection. Dropping the sender closes the connection. If the sender's receiver was
/// dropped, the connection is verified or has ended.
#[derive(Default)]
struct UnverifiedConnections(VecDeque<oneshot::Sender<()>>);

impl UnverifiedConnections {
    /// Adds a connection. If there are already `max` connections, closes the oldest one, so that peers without a
    /// certificate cannot keep nodes from connecting. The returned receiver completes when the new connection must
    /// close.
    fn add(&mut self, max: usize) -> oneshot::Receiver<()> {
        self.0.retain(|connection| !connection.is_closed());
        while self.0.len() >= max.max(1) {
            self.0.pop_front();
        }
        let (connection, closed) = oneshot::channel();
        self.0.push_back(connection);
        closed
    }
}

/// Verifies the peer of an accepted connection, and serves the connection until it ends.
async fn serve(
    member: Arc<ClusterMember>,
    socket: TcpStream,
    mut closed: oneshot::Receiver<()>,
    permits: Arc<Semaphore>,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    enable_keep_alive(&socket)?;
    let time_limit = Duration::from_millis(member.limits.handshake_ms_max);
    let peer = tokio::select! {
        peer = timeout(time_limit, member.secrets.accept(socket)) => peer??,
        _ = &mut closed => return Err(io::ErrorKind::ConnectionAborted.into()),
    };
    let Some(node) = peer.node else {
        let has_token = AtomicBool::new(false);
        let must_close = async {
            let _ = closed.await;
            // If the peer has a valid token, its connection is kept: the token may already be used up, and the peer
            // still needs the reply.
            if has_token.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        return tokio::select! {
            served = serve_peer(member, peer, &has_token) => served,
            () = must_close => Err(io::ErrorKind::ConnectionAborted.into()),
        };
    };
    drop(closed);
    let Ok(_permit) = permits.try_acquire() else {
        let max = member.limits.connections_max;
        tracing::warn!(
            node,
            "closed a connection of another node: the limit connections_max = {max} is reached"
        );
        return Err(io::ErrorKind::ConnectionAborted.into());
    };
    serve_peer(member, peer, &AtomicBool::new(false)).await
}

/// Lets the system probe the connection, so that the connection ends when the other node has vanished. Otherwise,
/// connections to vanished nodes would remain, until the limit is reached.
fn enable_keep_alive(socket: &TcpStream) -> io::Result<()> {
    let probes =
        TcpKeepalive::new().with_time(PROBE_PAUSE).with_interval(PROBE_PAUSE).with_retries(PROBES_MAX);
    SockRef::from(socket).set_tcp_keepalive(&probes)
}

/// Serves one connection until it ends. Sets `has_token` if the peer sends a join request with a valid token.
async fn serve_peer(
    member: Arc<ClusterMember>,
    peer: AcceptedNode,
    has_token: &AtomicBool,
) -> io::Result<()> {
    let time_limit = Duration::from_millis(member.limits.handshake_ms_max);
    if peer.is_for_listener {
        let Some(node) = peer.node else { return Err(io::ErrorKind::PermissionDenied.into()) };
        return member.hand_to_listener(node, peer.stream);
    }
    let (read, mut write) = split(peer.stream);
    let mut frames = ClusterFrames::new(read, member.limits.hello_bytes_max);
    let hello: ClusterHello =
        super::parse(timeout(time_limit, frames.next()).await??, ClusterFrameKind::Hello)?;
    let checked = check(&member, peer.node, &hello);
    let refused = checked.as_ref().err().cloned();
    let (version, release) = (hello::VERSION, super::RELEASE.to_owned());
    let identity = &member.identity;
    let (now, before) = (Some(identity.now.clone()), identity.before.clone());
    let welcome = ClusterWelcome { version, release, node: identity.node, now, before, refused };
    send_frame(&mut write, 0, ClusterFrameKind::Hello, &super::to_json(&welcome)).await?;
    if let Err(refused) = checked {
        tracing::warn!(node = peer.node, "this node refused a connection of another node: {}", refused.why);
        let _ = timeout(REFUSAL_READ_TIMEOUT, frames.next()).await;
        return Ok(());
    }
    match hello.purpose {
        Purpose::Control => match member.bulk().filter(|_| hello.is_bulk) {
            Some(bulk) => {
                serve_on_thread(bulk, frames.into_inner()?.unsplit(write), Arc::clone(&member)).await
            }
            None => {
                frames.set_limit(member.limits.frame_bytes_max);
                serve_requests(&member, frames, write).await
            }
        },
        Purpose::Admin => {
            frames.set_limit(member.limits.frame_bytes_max);
            admin::serve(&member, frames, write).await
        }
        Purpose::Start => {
            let Some(node) = peer.node else { return Err(io::ErrorKind::PermissionDenied.into()) };
            let request = timeout(time_limit, frames.next()).await??;
            let reply = registration::handle_request(
                &member,
                node,
                super::parse(request, ClusterFrameKind::Request)?,
            )
            .await;
            send_frame(&mut write, 1, ClusterFrameKind::Response, &super::to_json(&reply)).await?;
            let _ = timeout(REFUSAL_READ_TIMEOUT, frames.next()).await;
            Ok(())
        }
        Purpose::Join => {
            let request = timeout(time_limit, frames.next()).await??;
            let request = super::parse(request, ClusterFrameKind::Request)?;
            has_token.store(join::is_token_valid(&member, &request), Ordering::Relaxed);
            let response = join::handle_request(&member, request).await;
            send_frame(&mut write, 1, ClusterFrameKind::Response, &super::to_json(&response)).await?;
            let _ = timeout(REFUSAL_READ_TIMEOUT, frames.next()).await;
            Ok(())
        }
    }
}

/// Checks that this peer may use the connection for the purpose in its `hello`.
fn check(member: &ClusterMember, node: Option<u64>, hello: &ClusterHello) -> Result<(), HelloRefusal> {
    hello::check_version(hello.version, &hello.release)?;
    if matches!(hello.purpose, Purpose::Join | Purpose::Start) {
        hello::check_shards(hello.shards, member.shards)?;
    }
    match (hello.purpose, node) {
        (Purpose::Join, _) => Ok(()),
        (_, None) => {
            Err(HelloRefusal::temporary("only nodes of the cluster may send this request".to_owned()))
        }
        (Purpose::Admin | Purpose::Start, Some(node)) => member.check_removed(node),
        (Purpose::Control, Some(node)) => {
            member.check_node(node, (hello.now.as_ref(), hello.before.as_ref()))
        }
    }
}

/// Moves a connection to the thread of `bulk` and serves it there. Dropping the future ends the connection.
async fn serve_on_thread(bulk: &Handle, stream: Stream, member: Arc<ClusterMember>) -> io::Result<()> {
    let Stream::Tls(secured) = stream else { return Err(io::ErrorKind::InvalidData.into()) };
    let leaving = secured.detach()?;
    let mut serving = JoinSet::new();
    let connection = async move {
        let (read, write) = split(Stream::Tls(Box::new(leaving.attach()?)));
        serve_requests(&member, ClusterFrames::new(read, member.limits.frame_bytes_max), write).await
    };
    serving.spawn_on(connection, bulk);
    serving.join_next().await.map_or(Ok(()), |ended| ended.unwrap_or_else(|stopped| Err(stopped.into())))
}

pub(super) async fn send_frame(
    write: &mut WriteHalf<Stream>,
    id: u64,
    kind: ClusterFrameKind,
    payload: &[u8],
) -> io::Result<()> {
    let mut out = Vec::new();
    frame::encode(&mut out, id, kind, payload);
    write.write_all(&out).await?;
    write.flush().await
}

type PendingResponse = Pin<Box<dyn Future<Output = (u64, io::Result<Bytes>)> + Send>>;

/// Passes the connection's requests to Raft in the order in which they arrive, and sends the responses.
async fn serve_requests(
    member: &Arc<ClusterMember>,
    mut frames: ClusterFrames<ReadHalf<Stream>>,
    mut write: WriteHalf<Stream>,
) -> io::Result<()> {
    let mut pending = FuturesUnordered::<PendingResponse>::new();
    let mut out = Vec::new();
    loop {
        let has_capacity = pending.len() < member.limits.answers_max;
        tokio::select! {
            biased;
            Some(response) = pending.next(), if !pending.is_empty() => {
                encode_response(&mut out, response);
                // If further responses are ready, they are sent together with this one.
                while let Some(Some(more)) = futures_util::FutureExt::now_or_never(pending.next()) {
                    encode_response(&mut out, more);
                }
            }
            frame = frames.next(), if has_capacity => {
                let frame = frame?;
                match frame.kind {
                    ClusterFrameKind::Request => {
                        if let Some(response) = start_request(member, frame.id, frame.payload, &mut pending).await {
                            encode_response(&mut out, response);
                        }
                    }
                    ClusterFrameKind::Ping => frame::encode(&mut out, frame.id, ClusterFrameKind::Pong, &[]),
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                }
            }
        }
        if !out.is_empty() {
            frame::write_in_chunks(&mut write, &out, || ()).await?;
            out.clear();
        }
    }
}

/// Begins to handle a request, before the next request is read. Returns the response if it is ready at once; otherwise
/// adds it to `pending`.
async fn start_request(
    member: &Arc<ClusterMember>,
    id: u64,
    request: Bytes,
    pending: &mut FuturesUnordered<PendingResponse>,
) -> Option<(u64, io::Result<Bytes>)> {
    let member = Arc::clone(member);
    let mut response: PendingResponse = Box::pin(async move {
        let Some(control) = member.control() else {
            return (id, Err(io::Error::other("the node is not ready yet")));
        };
        if !Tasks::is_for(&request) {
            return (id, control.receive(request).await);
        }
        match member.tasks() {
            Some(tasks) => (id, tasks.receive(request).await),
            None => (id, Err(io::Error::other("the node is not ready yet"))),
        }
    });
    let first = poll_fn(|cx| Poll::Ready(response.as_mut().poll(cx))).await;
    match first {
        Poll::Ready(response) => Some(response),
        Poll::Pending => {
            pending.push(response);
            None
        }
    }
}

fn encode_response(out: &mut Vec<u8>, (id, response): (u64, io::Result<Bytes>)) {
    match response {
        Ok(response) => frame::encode(out, id, ClusterFrameKind::Response, &response),
        Err(error) => frame::encode(out, id, ClusterFrameKind::Failed, error.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connection_from_a_node_has_tcp_keep_alive_enabled() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_peer, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (socket, _) = accepted.unwrap();
        assert!(!SockRef::from(&socket).keepalive().unwrap());
        enable_keep_alive(&socket).unwrap();
        assert!(SockRef::from(&socket).keepalive().unwrap());
    }
}
