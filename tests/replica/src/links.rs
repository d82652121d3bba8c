//! Sends raft's messages over TCP. A lane is the queue for one kind of messages. Each lane has one connection to each
//! other node. Several messages on a connection can wait for responses at the same time.
//!
//! Messages and responses are encoded as `length, number, bytes`. If messages on a connection wait for responses, and
//! none arrives for [`RESPONSE_TIMEOUT`], the connection is closed, and the waiting messages fail. The next message
//! opens a new connection.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use dunlin_raft::{RaftMember, RequestLane, ResponseFuture, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::protocol::FRAME_BYTES_MAX;

/// If messages on a connection wait and no response arrives for this long, the connection is closed.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

type ReplyPromise = oneshot::Sender<io::Result<Bytes>>;

/// The connections to the other nodes: one for each pair of a node and a lane.
pub struct Links(BTreeMap<(u64, RequestLane), mpsc::UnboundedSender<(Bytes, ReplyPromise)>>);

impl Links {
    /// Starts the connections to the other nodes. `addresses` contains, for each node, the address of the proxy that
    /// leads to it.
    pub fn start(addresses: BTreeMap<u64, SocketAddr>) -> Links {
        let start = |((id, address), lane)| {
            let (sender, receiver) = mpsc::unbounded_channel();
            tokio::spawn(run_link(address, receiver));
            ((id, lane), sender)
        };
        let lanes = addresses.into_iter().flat_map(|address| RequestLane::ALL.map(|lane| (address, lane)));
        Links(lanes.map(start).collect())
    }
}

impl Transport for Links {
    fn request(&self, member: &RaftMember, lane: RequestLane, request: Vec<Bytes>) -> ResponseFuture {
        let request = Bytes::from(request.concat());
        let (sender, response) = oneshot::channel();
        let sent = self.0.get(&(member.id, lane)).map(|link| link.send((request, sender)));
        Box::pin(async move {
            match sent {
                Some(Ok(())) => response.await.map_err(io::Error::other)?,
                _ => Err(io::ErrorKind::AddrNotAvailable.into()),
            }
        })
    }
}

/// The messages of a connection that have no response yet. The keys are the messages' numbers.
type PendingReplies = Arc<Mutex<BTreeMap<u64, ReplyPromise>>>;

async fn run_link(address: SocketAddr, mut requests: mpsc::UnboundedReceiver<(Bytes, ReplyPromise)>) {
    while let Some(first) = requests.recv().await {
        let connection = match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(connection) => connection,
            Err(_late) => Err(io::ErrorKind::TimedOut.into()),
        };
        let stream = match connection {
            Ok(stream) => stream,
            Err(error) => {
                let _ = first.1.send(Err(error.kind().into()));
                // The connection could not be opened. The messages that were queued during the attempt fail too.
                while let Ok((_, promise)) = requests.try_recv() {
                    let _ = promise.send(Err(error.kind().into()));
                }
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (reader, writer) = stream.into_split();
        let pending = PendingReplies::default();
        tokio::select! {
            () = send_requests(writer, first, &mut requests, &pending) => {}
            () = receive_responses(reader, &pending) => {}
        }
        let unanswered = std::mem::take(&mut *pending.lock().expect("the lock is not poisoned"));
        for promise in unanswered.into_values() {
            let _ = promise.send(Err(io::ErrorKind::ConnectionReset.into()));
        }
    }
}

async fn send_requests(
    mut writer: OwnedWriteHalf,
    first: (Bytes, ReplyPromise),
    requests: &mut mpsc::UnboundedReceiver<(Bytes, ReplyPromise)>,
    pending: &PendingReplies,
) {
    let mut next = Some(first);
    for number in 0.. {
        let Some((request, promise)) = next else { return };
        pending.lock().expect("the lock is not poisoned").insert(number, promise);
        if timeout(RESPONSE_TIMEOUT, send(&mut writer, number, &request)).await.is_err() {
            return;
        }
        next = requests.recv().await;
    }
}

async fn receive_responses(mut reader: OwnedReadHalf, pending: &PendingReplies) {
    loop {
        match timeout(RESPONSE_TIMEOUT, receive(&mut reader)).await {
            Ok(Ok((number, mut response))) => {
                let promise = pending.lock().expect("the lock is not poisoned").remove(&number);
                let is_ok = response.first() == Some(&1);
                let response =
                    if is_ok { Ok(response.split_off(1)) } else { Err(io::Error::other("refused")) };
                promise.map(|promise| promise.send(response));
            }
            Ok(Err(_)) => return,
            Err(_silent) if pending.lock().expect("the lock is not poisoned").is_empty() => {}
            Err(_silent) => return,
        }
    }
}

async fn send(writer: &mut OwnedWriteHalf, number: u64, bytes: &[u8]) -> io::Result<()> {
    let head = [&(bytes.len() as u32).to_le_bytes()[..], &number.to_le_bytes()].concat();
    writer.write_all(&[&head, bytes].concat()).await
}

async fn receive(reader: &mut OwnedReadHalf) -> io::Result<(u64, Bytes)> {
    let (len, number) = (reader.read_u32_le().await? as usize, reader.read_u64_le().await?);
    if len > FRAME_BYTES_MAX {
        return Err(io::Error::other("a message too long"));
    }
    let mut bytes = vec![0; len];
    reader.read_exact(&mut bytes).await?;
    Ok((number, bytes.into()))
}

/// Serves the other nodes. Passes the messages of a connection to raft in the order of their arrival. Sends each
/// response as soon as it is ready, so the responses may be in another order than the messages.
pub async fn serve_peers<F>(
    listener: TcpListener,
    answer: impl Fn(Bytes) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = io::Result<Bytes>> + Send + 'static,
{
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let (mut reader, writer) = stream.into_split();
        let (answer, writer) = (answer.clone(), Arc::new(tokio::sync::Mutex::new(writer)));
        tokio::spawn(async move {
            while let Ok((number, request)) = receive(&mut reader).await {
                let mut response_future = Box::pin(answer(request));
                let writer = Arc::clone(&writer);
                // The first poll passes the message to raft. The poll happens here and not in the new task, so that a
                // later message of this connection cannot reach raft before this message.
                let ready = poll_fn(|context| Poll::Ready(response_future.as_mut().poll(context))).await;
                tokio::spawn(async move {
                    let response = match ready {
                        Poll::Ready(response) => response,
                        Poll::Pending => response_future.await,
                    };
                    let bytes = response.map_or(vec![0], |bytes| [&[1], &bytes[..]].concat());
                    let _ = send(&mut *writer.lock().await, number, &bytes).await;
                });
            }
        });
    }
}
