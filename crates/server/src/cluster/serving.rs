//! Accepts connections of other nodes and serves their requests.
//!
//! Limits: `connections_max` connections; `handshake_ms_max` for a peer to identify itself; `answers_max` requests of a
//! connection at a time; further ones wait in the peer.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use dunlin::Tasks;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::frame::{self, ClusterFrameKind, ClusterFrames};
use super::hello::{self, ClusterHello, ClusterWelcome, HelloRefusal, Purpose};
use super::member::ClusterMember;
use super::{admin, join, started};
use crate::stream::Stream;

/// Pause before the next connection is accepted, after accepting has failed.
const REST: Duration = Duration::from_millis(50);
/// Time for a refused peer to read the refusal.
const FAREWELL: Duration = Duration::from_millis(500);

/// Accepts connections until the future is dropped.
pub(super) async fn accept(seat: Arc<ClusterMember>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(seat.limits.connections_max));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((socket, from)) => {
                let seat = Arc::clone(&seat);
                tokio::spawn(async move {
                    let _place = place;
                    if let Err(error) = serve(seat, socket).await
                        && error.kind() != io::ErrorKind::UnexpectedEof
                    {
                        tracing::debug!(%from, "a connection from another node ended: {error}");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections of other nodes; retrying");
                sleep(REST).await;
            }
        }
    }
}

/// Serves one connection until it ends.
async fn serve(seat: Arc<ClusterMember>, socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let patience = Duration::from_millis(seat.limits.handshake_ms_max);
    let caller = timeout(patience, seat.secrets.accept(socket)).await??;
    if caller.is_for_listener {
        let Some(node) = caller.node else { return Err(io::ErrorKind::PermissionDenied.into()) };
        return seat.hand_to_listener(node, caller.stream);
    }
    let (read, mut write) = split(caller.stream);
    let mut frames = ClusterFrames::new(read, seat.limits.hello_bytes_max);
    let hello: ClusterHello =
        super::parse(timeout(patience, frames.next()).await??, ClusterFrameKind::Hello)?;
    let checked = check(&seat, caller.node, &hello);
    let refused = checked.as_ref().err().cloned();
    let (version, release) = (hello::VERSION, super::RELEASE.to_owned());
    let identity = &seat.identity;
    let (now, before) = (Some(identity.now.clone()), identity.before.clone());
    let welcome = ClusterWelcome { version, release, node: identity.node, now, before, refused };
    say(&mut write, 0, ClusterFrameKind::Hello, &super::text(&welcome)).await?;
    if let Err(refused) = checked {
        tracing::warn!(node = caller.node, "this node refused a connection of another node: {}", refused.why);
        let _ = timeout(FAREWELL, frames.next()).await;
        return Ok(());
    }
    match hello.purpose {
        Purpose::Control => match seat.bulk().filter(|_| hello.is_bulk) {
            Some(bulk) => move_to(bulk, frames.into_inner()?.unsplit(write), Arc::clone(&seat)).await,
            None => {
                frames.allow(seat.limits.frame_bytes_max);
                answer_all(&seat, frames, write).await
            }
        },
        Purpose::Admin => {
            frames.allow(seat.limits.frame_bytes_max);
            admin::serve(&seat, frames, write).await
        }
        Purpose::Start => {
            let Some(node) = caller.node else { return Err(io::ErrorKind::PermissionDenied.into()) };
            let request = timeout(patience, frames.next()).await??;
            let told = started::answer(&seat, node, super::parse(request, ClusterFrameKind::Request)?).await;
            say(&mut write, 1, ClusterFrameKind::Answer, &super::text(&told)).await?;
            let _ = timeout(FAREWELL, frames.next()).await;
            Ok(())
        }
        Purpose::Join => {
            let request = timeout(patience, frames.next()).await??;
            let answer = join::answer(&seat, super::parse(request, ClusterFrameKind::Request)?).await;
            say(&mut write, 1, ClusterFrameKind::Answer, &super::text(&answer)).await?;
            let _ = timeout(FAREWELL, frames.next()).await;
            Ok(())
        }
    }
}

/// Checks that a peer may use the connection for its purpose.
fn check(seat: &ClusterMember, node: Option<u64>, hello: &ClusterHello) -> Result<(), HelloRefusal> {
    hello::check_version(hello.version, &hello.release)?;
    if matches!(hello.purpose, Purpose::Join | Purpose::Start) {
        hello::check_shards(hello.shards, seat.shards)?;
    }
    match (hello.purpose, node) {
        (Purpose::Join, _) => Ok(()),
        (_, None) => Err(HelloRefusal::for_now("only nodes of the cluster may send this request".to_owned())),
        (Purpose::Admin | Purpose::Start, Some(node)) => seat.check_removed(node),
        (Purpose::Control, Some(node)) => seat.check_node(node, (hello.now.as_ref(), hello.before.as_ref())),
    }
}

/// Moves a connection to another thread and serves it there; dropping the future ends the connection.
async fn move_to(bulk: &Handle, stream: Stream, seat: Arc<ClusterMember>) -> io::Result<()> {
    let Stream::Tls(secured) = stream else { return Err(io::ErrorKind::InvalidData.into()) };
    let leaving = secured.leave()?;
    let mut answering = JoinSet::new();
    let answer = async move {
        let (read, write) = split(Stream::Tls(Box::new(leaving.arrive()?)));
        answer_all(&seat, ClusterFrames::new(read, seat.limits.frame_bytes_max), write).await
    };
    answering.spawn_on(answer, bulk);
    answering.join_next().await.map_or(Ok(()), |ended| ended.unwrap_or_else(|stopped| Err(stopped.into())))
}

pub(super) async fn say(
    write: &mut WriteHalf<Stream>,
    id: u64,
    kind: ClusterFrameKind,
    payload: &[u8],
) -> io::Result<()> {
    let mut out = Vec::new();
    frame::put(&mut out, id, kind, payload);
    write.write_all(&out).await?;
    write.flush().await
}

type PendingResponse = Pin<Box<dyn Future<Output = (u64, io::Result<Bytes>)> + Send>>;

/// Passes requests to Raft in the order of their arrival.
async fn answer_all(
    seat: &Arc<ClusterMember>,
    mut frames: ClusterFrames<ReadHalf<Stream>>,
    mut write: WriteHalf<Stream>,
) -> io::Result<()> {
    let mut answering = FuturesUnordered::<PendingResponse>::new();
    let mut out = Vec::new();
    loop {
        let may_ask = answering.len() < seat.limits.answers_max;
        tokio::select! {
            biased;
            Some(answered) = answering.next(), if !answering.is_empty() => {
                put_answer(&mut out, answered);
                // Sends other finished responses together with this one.
                while let Some(Some(more)) = futures_util::FutureExt::now_or_never(answering.next()) {
                    put_answer(&mut out, more);
                }
            }
            frame = frames.next(), if may_ask => {
                let frame = frame?;
                match frame.kind {
                    ClusterFrameKind::Request => {
                        if let Some(answered) = begin(seat, frame.id, frame.payload, &mut answering).await {
                            put_answer(&mut out, answered);
                        }
                    }
                    ClusterFrameKind::Ping => frame::put(&mut out, frame.id, ClusterFrameKind::Pong, &[]),
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                }
            }
        }
        if !out.is_empty() {
            frame::write_in_turns(&mut write, &out, || ()).await?;
            out.clear();
        }
    }
}

/// Begins to handle a request before any later request begins. Returns the response if it is available without waiting.
async fn begin(
    seat: &Arc<ClusterMember>,
    id: u64,
    request: Bytes,
    answering: &mut FuturesUnordered<PendingResponse>,
) -> Option<(u64, io::Result<Bytes>)> {
    let seat = Arc::clone(seat);
    let mut answer: PendingResponse = Box::pin(async move {
        let Some(control) = seat.control() else {
            return (id, Err(io::Error::other("the node is not ready yet")));
        };
        if !Tasks::is_for(&request) {
            return (id, control.receive(request).await);
        }
        match seat.tasks() {
            Some(tasks) => (id, tasks.receive(request).await),
            None => (id, Err(io::Error::other("the node is not ready yet"))),
        }
    });
    let first = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await;
    match first {
        Poll::Ready(answered) => Some(answered),
        Poll::Pending => {
            answering.push(answer);
            None
        }
    }
}

fn put_answer(out: &mut Vec<u8>, (id, answer): (u64, io::Result<Bytes>)) {
    match answer {
        Ok(answer) => frame::put(out, id, ClusterFrameKind::Answer, &answer),
        Err(error) => frame::put(out, id, ClusterFrameKind::Failed, error.to_string().as_bytes()),
    }
}
