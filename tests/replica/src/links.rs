//! Raft's messages over TCP: one connection for each other node and lane, with several messages in flight.
//!
//! Messages and responses are `length, number, bytes`. A connection without a response for [`SILENCE`] is
//! closed, and its messages fail; the next message opens a new one.

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

/// How long a connection may have unanswered messages without receiving a response, before it is closed.
const SILENCE: Duration = Duration::from_secs(2);
/// The time limit for connecting.
const CONNECT: Duration = Duration::from_millis(500);

type ReplyPromise = oneshot::Sender<io::Result<Bytes>>;

/// The connections to the other nodes, one for each lane.
pub struct Links(BTreeMap<(u64, RequestLane), mpsc::UnboundedSender<(Bytes, ReplyPromise)>>);

impl Links {
    /// Connects to the other nodes through the proxies with the addresses in `ways`.
    pub fn start(ways: BTreeMap<u64, SocketAddr>) -> Links {
        let start = |((id, way), lane)| {
            let (sender, receiver) = mpsc::unbounded_channel();
            tokio::spawn(link(way, receiver));
            ((id, lane), sender)
        };
        let lanes = ways.into_iter().flat_map(|way| RequestLane::ALL.map(|lane| (way, lane)));
        Links(lanes.map(start).collect())
    }
}

impl Transport for Links {
    fn ask(&self, member: &RaftMember, lane: RequestLane, request: Vec<Bytes>) -> ResponseFuture {
        let request = Bytes::from(request.concat());
        let (sender, answered) = oneshot::channel();
        let sent = self.0.get(&(member.id, lane)).map(|link| link.send((request, sender)));
        Box::pin(async move {
            match sent {
                Some(Ok(())) => answered.await.map_err(io::Error::other)?,
                _ => Err(io::ErrorKind::AddrNotAvailable.into()),
            }
        })
    }
}

/// The unanswered messages of a connection. The key is the message's number.
type PendingReplies = Arc<Mutex<BTreeMap<u64, ReplyPromise>>>;

async fn link(way: SocketAddr, mut requests: mpsc::UnboundedReceiver<(Bytes, ReplyPromise)>) {
    while let Some(first) = requests.recv().await {
        let connected = match timeout(CONNECT, TcpStream::connect(way)).await {
            Ok(connected) => connected,
            Err(_late) => Err(io::ErrorKind::TimedOut.into()),
        };
        let stream = match connected {
            Ok(stream) => stream,
            Err(error) => {
                let _ = first.1.send(Err(error.kind().into()));
                // The connection could not be opened, so the messages that arrived during the attempt fail too.
                while let Ok((_, answered)) = requests.try_recv() {
                    let _ = answered.send(Err(error.kind().into()));
                }
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (reading, writing) = stream.into_split();
        let waiting = PendingReplies::default();
        tokio::select! {
            () = ask(writing, first, &mut requests, &waiting) => {}
            () = hear(reading, &waiting) => {}
        }
        let left = std::mem::take(&mut *waiting.lock().expect("the lock is not poisoned"));
        for answered in left.into_values() {
            let _ = answered.send(Err(io::ErrorKind::ConnectionReset.into()));
        }
    }
}

async fn ask(
    mut writing: OwnedWriteHalf,
    first: (Bytes, ReplyPromise),
    requests: &mut mpsc::UnboundedReceiver<(Bytes, ReplyPromise)>,
    waiting: &PendingReplies,
) {
    let mut next = Some(first);
    for number in 0.. {
        let Some((request, answered)) = next else { return };
        waiting.lock().expect("the lock is not poisoned").insert(number, answered);
        if timeout(SILENCE, send(&mut writing, number, &request)).await.is_err() {
            return;
        }
        next = requests.recv().await;
    }
}

async fn hear(mut reading: OwnedReadHalf, waiting: &PendingReplies) {
    loop {
        match timeout(SILENCE, receive(&mut reading)).await {
            Ok(Ok((number, mut answer))) => {
                let answered = waiting.lock().expect("the lock is not poisoned").remove(&number);
                let is_well = answer.first() == Some(&1);
                let answer = if is_well { Ok(answer.split_off(1)) } else { Err(io::Error::other("refused")) };
                answered.map(|answered| answered.send(answer));
            }
            Ok(Err(_)) => return,
            Err(_silent) if waiting.lock().expect("the lock is not poisoned").is_empty() => {}
            Err(_silent) => return,
        }
    }
}

async fn send(writing: &mut OwnedWriteHalf, number: u64, bytes: &[u8]) -> io::Result<()> {
    let head = [&(bytes.len() as u32).to_le_bytes()[..], &number.to_le_bytes()].concat();
    writing.write_all(&[&head, bytes].concat()).await
}

async fn receive(reading: &mut OwnedReadHalf) -> io::Result<(u64, Bytes)> {
    let (len, number) = (reading.read_u32_le().await? as usize, reading.read_u64_le().await?);
    if len > FRAME_BYTES_MAX {
        return Err(io::Error::other("a message too long"));
    }
    let mut bytes = vec![0; len];
    reading.read_exact(&mut bytes).await?;
    Ok((number, bytes.into()))
}

/// Serves the other nodes. The messages of a connection are passed to raft in order, and each is answered when raft has
/// handled it.
pub async fn answer_peers<F>(
    listener: TcpListener,
    answer: impl Fn(Bytes) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = io::Result<Bytes>> + Send + 'static,
{
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let (mut reading, writing) = stream.into_split();
        let (answer, writing) = (answer.clone(), Arc::new(tokio::sync::Mutex::new(writing)));
        tokio::spawn(async move {
            while let Ok((number, request)) = receive(&mut reading).await {
                let mut answering = Box::pin(answer(request));
                let writing = Arc::clone(&writing);
                // The first poll passes the message to raft, so no later message overtakes this one.
                let ready = poll_fn(|context| Poll::Ready(answering.as_mut().poll(context))).await;
                tokio::spawn(async move {
                    let answered = match ready {
                        Poll::Ready(answered) => answered,
                        Poll::Pending => answering.await,
                    };
                    let bytes = answered.map_or(vec![0], |bytes| [&[1], &bytes[..]].concat());
                    let _ = send(&mut *writing.lock().await, number, &bytes).await;
                });
            }
        });
    }
}
