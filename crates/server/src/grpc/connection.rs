//! Serves one HTTP/2 connection, from the client's preface to the end of the connection.
//!
//! Limits:
//! - `sessions_max` connections. The calls of a further connection are refused, and the connection is closed.
//! - `handshake_ms_max` until the client has sent its preface.
//! - `grpc.idle_ms_max` without a call, after which the connection is closed.
//! - `grpc.streams_max` concurrent calls, of which at most [`OPEN_CALLS_MAX`] may be calls without a login.
//! - `grpc.keep_alive_ms` between two keep-alive pings; the response to a ping has the same time limit.
//! - The number of bytes that are read at a time ([`LimitedReads`]).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin::topic::{MemoryCharge, ProducerMark, Topic, Waiter};
use dunlin::wire::ErrorCode;
use dunlin::{Node, Refused};
use hyper::server::conn::http2::{Builder, Connection as Http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::dispatch::CallRouter;
use super::limited_reads::{LimitedReads, ReadAllowance};
use super::proto::dunlin as v1;
use super::requests::PendingRequests;
use crate::access::{Access, Login, MeteredCommand, RequestLoginCache};
use crate::departures::{ClientDeparture, DepartureKind, describe_refusal};
use crate::protocol::Protocol;
use crate::publishes::PublishedTopics;
use crate::shared::{STOP, SessionGuard, SharedServer, USERS};
use crate::stream::Stream;

/// The bytes with which every HTTP/2 connection starts.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The response to a client that does not use HTTP/2.
const NOT_HTTP2: &[u8] =
    b"HTTP/1.1 505 HTTP Version Not Supported\r\ncontent-type: text/plain\r\nconnection: close\r\n\
      content-length: 60\r\n\r\nThis is Dunlin's gRPC listener, which supports only HTTP/2.\n";
/// An empty SETTINGS frame, with which each side of an HTTP/2 connection begins (RFC 9113).
const SETTINGS: &[u8; 9] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// The type of a GOAWAY frame, which ends an HTTP/2 connection with a reason (RFC 9113).
const GOAWAY: u8 = 7;
/// The error code of a GOAWAY frame by which a node requires better security (INADEQUATE_SECURITY in RFC 9113).
const INADEQUATE_SECURITY: u32 = 12;
/// Interval at which the node checks whether the client's preface is complete.
const PREFACE_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long a refused client has to read the response.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of bytes that a connection buffers for a stream whose client does not read. The next batch is passed
/// to HTTP/2 when fewer bytes are buffered.
const SEND_BUFFER_BYTES: usize = 48 << 10;
/// Maximum number of concurrent calls of one connection that need no login (health and reflection).
const OPEN_CALLS_MAX: usize = 16;
/// The memory that is charged for each call that needs no login, bytes. It covers the call's state in hyper and tonic.
const OPEN_CALL_BYTES: usize = 16 << 10;

/// A connection, with the login and the permissions of one caller.
#[derive(Debug)]
pub(super) struct GrpcConnection {
    pub(super) shared: Arc<SharedServer>,
    pub(super) peer: Option<SocketAddr>,
    /// The node with the caller's permissions.
    pub(super) node: Node,
    /// The caller's login, on a node with users.
    pub(super) login: Option<Arc<Login>>,
    state: Arc<ConnectionState>,
}

/// State that the calls of all users of a connection share.
#[derive(Debug)]
struct ConnectionState {
    logins: RequestLoginCache,
    admitted: bool,
    stopping: AtomicBool,
    /// The waiters of the connection's long calls. They are notified when the connection must end and when the users
    /// file changes.
    streams: Mutex<HashMap<u64, Arc<Waiter>>>,
    stream_last: AtomicU64,
    publishes: PublishedTopics,
    /// Number of calls since the connection began.
    calls: AtomicU64,
    /// Permits for calls that need no login; each such call holds one.
    open_calls: Arc<Semaphore>,
    /// The requests whose replies are awaited; `None` before the connection's first request.
    pub(super) requests: Mutex<Option<PendingRequests>>,
}

/// A running call that needs no login, with the charge for its memory. Dropping this value makes room for another call.
#[derive(Debug)]
pub(super) struct OpenCall {
    _permit: OwnedSemaphorePermit,
    _charge: MemoryCharge,
}

/// The entry of a long call in its connection's table; dropping this removes the entry.
#[derive(Debug)]
pub(super) struct StreamRegistration {
    peer: Option<SocketAddr>,
    shared: Arc<SharedServer>,
    /// The node with the caller's permissions.
    node: Node,
    state: Arc<ConnectionState>,
    number: u64,
}

impl GrpcConnection {
    /// Counts a call. Fails if the connection exceeds the node's limit of connections.
    pub(super) fn begin_call(&self) -> Result<(), Refused> {
        self.state.calls.fetch_add(1, Ordering::Relaxed);
        if self.state.admitted {
            return Ok(());
        }
        let refused = self.shared.admission_refusal();
        self.record_departure(DepartureKind::Refused, "", &describe_refusal(&refused));
        Err(refused)
    }

    /// Admits a call that needs no login. Fails if the connection has too many such calls, or if the login share of the
    /// memory budget is used up.
    pub(super) fn begin_open_call(&self) -> Result<OpenCall, Refused> {
        let Ok(permit) = Arc::clone(&self.state.open_calls).try_acquire_owned() else {
            return Err(Refused::limit("open_calls_max", OPEN_CALLS_MAX as u64));
        };
        // One such call of a connection always has room, because health probes must work even when memory is used up.
        let is_first = self.state.open_calls.available_permits() + 1 == OPEN_CALLS_MAX;
        let budget = &self.shared.login_budget;
        let charge = if is_first {
            MemoryCharge::forced(budget, OPEN_CALL_BYTES)
        } else {
            MemoryCharge::of(budget, OPEN_CALL_BYTES)?
        };
        Ok(OpenCall { _permit: permit, _charge: charge })
    }

    pub(super) fn requests(&self) -> &Mutex<Option<PendingRequests>> {
        &self.state.requests
    }

    /// Registers a streaming call. Its waiter is notified with [`STOP`] when the connection must end.
    pub(super) fn register_stream(&self, waiter: &Arc<Waiter>) -> Result<StreamRegistration, Refused> {
        let number = self.state.stream_last.fetch_add(1, Ordering::Relaxed);
        self.state.streams().insert(number, Arc::clone(waiter));
        let registration = StreamRegistration {
            peer: self.peer,
            shared: Arc::clone(&self.shared),
            node: self.node.clone(),
            state: Arc::clone(&self.state),
            number,
        };
        if self.state.stopping.load(Ordering::Acquire) {
            return Err(Refused::new(ErrorCode::ShuttingDown, ""));
        }
        Ok(registration)
    }

    /// Reports to operators why a client was refused or cut off.
    pub(super) fn record_departure(&self, kind: DepartureKind, name: &str, why: &str) {
        add_departure(&self.shared, self.peer, kind, name, why);
    }

    /// Logs the caller in with this `authorization` header, and returns the connection with the caller's permissions.
    pub(super) async fn log_in(
        self: &Arc<GrpcConnection>,
        access: &Arc<Access>,
        authorization: Option<&[u8]>,
    ) -> Result<Arc<GrpcConnection>, Refused> {
        let from = self.peer.map(|peer| peer.ip());
        let login = self.state.logins.log_in(access, authorization, from).await?;
        Ok(Arc::new(GrpcConnection {
            shared: Arc::clone(&self.shared),
            peer: self.peer,
            node: login.node(&self.shared.node),
            login: Some(login),
            state: Arc::clone(&self.state),
        }))
    }

    /// Converts a client's producer to the mark that topics store. The mark has the user's own producer id and the
    /// record's number. Fails if `id` or `seq` is 0, because protobuf reads a missing field as 0: all records of a
    /// client that forgot `seq` would count as retries of the first record.
    pub(super) fn mark(&self, producer: v1::Producer) -> Result<ProducerMark, Refused> {
        let v1::Producer { id, epoch: producer_epoch, seq: producer_seq } = producer;
        if id == 0 || producer_seq == 0 {
            return Err(Refused::new(ErrorCode::Protocol, "set id and seq of the producer, each from 1"));
        }
        let producer = self.login.as_ref().map_or(id, |login| login.account().producer(id));
        Ok(ProducerMark { producer, producer_epoch, producer_seq })
    }

    /// Waits until `work` is done. Fails if the caller loses access earlier.
    pub(super) async fn run_while_valid<T>(
        &self,
        work: impl Future<Output = Result<T, Refused>>,
    ) -> Result<T, Refused> {
        match &self.login {
            Some(login) => login.run_while_valid(work).await,
            None => work.await,
        }
    }

    /// The generation (version number) of the users file; `None` on a node without users.
    pub(super) fn users_generation(&self) -> Option<u64> {
        self.login.as_ref().map(|login| login.access().generation())
    }

    /// The user's name; `None` on a node without users.
    pub(super) fn user_name(&self) -> Option<&str> {
        self.login.as_ref().map(|login| login.account().name())
    }

    pub(super) fn admit_publish(&self, bytes: usize) -> Result<(), Refused> {
        self.login.as_ref().map_or(Ok(()), |login| login.account().admit_publish(1, bytes as u64))
    }

    pub(super) fn admit_command(&self, command: &impl MeteredCommand, bytes: usize) -> Result<(), Refused> {
        self.login.as_ref().map_or(Ok(()), |login| login.account().admit_command(command, bytes as u64))
    }

    /// Remembers that the connection has published to the topic.
    pub(super) fn record_publish(&self, topic: &Arc<Topic>) {
        self.state.publishes.add(topic);
    }

    fn stop(&self) {
        self.state.stopping.store(true, Ordering::Release);
        self.notify_streams(STOP);
    }

    fn notify_streams(&self, token: u32) {
        self.state.streams().values().for_each(|waiter| waiter.notify(token));
    }

    fn is_idle(&self) -> bool {
        self.state.streams().is_empty()
    }

    /// Time until the next check whether any call uses the connection.
    fn next_check(&self) -> Duration {
        if !self.state.admitted {
            return CLOSE_TIMEOUT;
        }
        Duration::from_millis(self.shared.limits.grpc.idle_ms_max.into())
    }
}

impl ConnectionState {
    fn streams(&self) -> MutexGuard<'_, HashMap<u64, Arc<Waiter>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamRegistration {
    /// Reports to operators why a client was refused or cut off.
    pub(super) fn record_departure(&self, kind: DepartureKind, name: &str, why: &str) {
        add_departure(&self.shared, self.peer, kind, name, why);
    }

    pub(super) fn shared(&self) -> &SharedServer {
        &self.shared
    }

    /// The node with the caller's permissions.
    pub(super) fn node(&self) -> &Node {
        &self.node
    }
}

fn add_departure(
    shared: &SharedServer,
    peer: Option<SocketAddr>,
    kind: DepartureKind,
    name: &str,
    why: &str,
) {
    shared.departures.note(ClientDeparture::new(Protocol::Grpc, kind, why).of(name, peer));
}

impl Drop for StreamRegistration {
    fn drop(&mut self) {
        self.state.streams().remove(&self.number);
    }
}

pub(crate) async fn serve(shared: Arc<SharedServer>, stream: Stream) {
    let mut stream = stream;
    let handshake = Duration::from_millis(shared.limits.handshake_ms_max.into());
    match timeout(handshake, starts_with_preface(&mut stream)).await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => return refuse_http1(stream).await,
        // The client was too slow, or has disconnected.
        Ok(Err(_)) | Err(_) => return,
    }
    let waiter = Waiter::new();
    let guard = shared.admit(shared.node.next_session(), &waiter);
    let peer = stream.socket().and_then(|socket| socket.peer_addr().ok());
    let state = ConnectionState {
        logins: RequestLoginCache::of(stream.client_certificate()),
        admitted: guard.is_some(),
        stopping: AtomicBool::new(false),
        streams: Mutex::default(),
        stream_last: AtomicU64::new(0),
        publishes: PublishedTopics::default(),
        calls: AtomicU64::new(0),
        open_calls: Arc::new(Semaphore::new(OPEN_CALLS_MAX)),
        requests: Mutex::default(),
    };
    let node = shared.node.clone();
    let connection = Arc::new(GrpcConnection { shared, peer, node, login: None, state: Arc::new(state) });
    if connection.shared.is_stopping() {
        waiter.notify(STOP);
    }
    ConnectionDriver::new(connection, stream, waiter, guard).run().await;
}

/// Whether the client sends the HTTP/2 preface first.
async fn starts_with_preface(stream: &mut Stream) -> std::io::Result<bool> {
    let mut start = [0; PREFACE.len()];
    if let Stream::Tls(_) = stream {
        return tls_starts_with_preface(stream).await;
    }
    // The gRPC listener accepts only TCP connections, so there is always a socket.
    let Some(stream) = stream.socket() else { return Ok(false) };
    loop {
        let received = stream.peek(&mut start).await?;
        match received {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ if start[..received] != PREFACE[..received] => return Ok(false),
            _ if received == PREFACE.len() => return Ok(true),
            _ => sleep(PREFACE_POLL_INTERVAL).await,
        }
    }
}

/// Like [`starts_with_preface`], but for TLS. Bytes inside TLS cannot be read without removing them, so the read bytes
/// are put back into the stream.
async fn tls_starts_with_preface(stream: &mut Stream) -> std::io::Result<bool> {
    let mut start = [0; PREFACE.len()];
    let mut received = 0;
    while received < PREFACE.len() && start[..received] == PREFACE[..received] {
        match AsyncReadExt::read(stream, &mut start[received..]).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            more => received += more,
        }
    }
    if let Stream::Tls(tls) = stream {
        tls.unread(&start[..received]);
    }
    Ok(start == *PREFACE)
}

/// The HTTP/2 response to a client whose connection is refused: a GOAWAY frame with the reason.
pub(crate) fn refusal(refused: &Refused) -> Vec<u8> {
    let advice = refused.code.row().map_or("", |row| row.advice);
    let why = format!("{}: {advice}", refused.code);
    let mut out = SETTINGS.to_vec();
    out.extend_from_slice(&(8 + why.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[GOAWAY, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&0_u32.to_be_bytes());
    out.extend_from_slice(&INADEQUATE_SECURITY.to_be_bytes());
    out.extend_from_slice(why.as_bytes());
    out
}

async fn refuse_http1(mut stream: Stream) {
    let mut discarded = [0; 4_096];
    // Reads the bytes that have arrived. If unread bytes remained, closing the socket would discard the response.
    let _ = stream.read(&mut discarded);
    let _ = timeout(CLOSE_TIMEOUT, stream.write_all(NOT_HTTP2)).await;
    let _ = timeout(CLOSE_TIMEOUT, stream.shutdown()).await;
}

/// The socket as hyper reads and writes it.
type Socket = TokioIo<LimitedReads<Stream>>;

/// The task that serves one connection.
struct ConnectionDriver {
    connection: Arc<GrpcConnection>,
    http2: Pin<Box<Http2<Socket, CallRouter, TokioExecutor>>>,
    allowance: ReadAllowance,
    waiter: Arc<Waiter>,
    timer: Pin<Box<Sleep>>,
    /// The number of calls that the connection had received when the timer was last set. If it has received more when
    /// the timer ends, the connection is in use.
    calls_before: u64,
    closing: bool,
    _guard: Option<SessionGuard>,
}

impl ConnectionDriver {
    fn new(
        connection: Arc<GrpcConnection>,
        stream: Stream,
        waiter: Arc<Waiter>,
        guard: Option<SessionGuard>,
    ) -> ConnectionDriver {
        let limits = connection.shared.limits.grpc;
        let keep_alive = Duration::from_millis(limits.keep_alive_ms.into());
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            // gRPC has no use for the header `date`, and hyper panics when it writes a date before 1970.
            .auto_date_header(false)
            .keep_alive_interval(keep_alive)
            .keep_alive_timeout(keep_alive)
            .max_concurrent_streams(limits.streams_max)
            .max_header_list_size(limits.header_bytes_max)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .initial_stream_window_size(limits.stream_window_bytes)
            .initial_connection_window_size(limits.connection_window_bytes);
        let allowance = ReadAllowance::default();
        let io = TokioIo::new(LimitedReads::new(stream, allowance.clone()));
        let http2 = builder.serve_connection(io, CallRouter { connection: Arc::clone(&connection) });
        let timer = Box::pin(sleep(connection.next_check()));
        ConnectionDriver {
            connection,
            http2: Box::pin(http2),
            allowance,
            waiter,
            timer,
            calls_before: 0,
            closing: false,
            _guard: guard,
        }
    }

    async fn run(self) {
        let mut this = pin!(self);
        std::future::poll_fn(|cx| this.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.allowance.refill();
        loop {
            // The result is ignored, because errors of the connection come from the client.
            if self.http2.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let (mut stop, mut users) = (false, false);
            self.waiter.take_ready(|token| {
                stop |= token == STOP;
                users |= token == USERS;
            });
            if users {
                // Wakes the streams. Each stream then checks whether its own user still has access.
                self.connection.notify_streams(USERS);
            }
            if stop {
                self.connection.stop();
                let shared = Arc::clone(&self.connection.shared);
                tokio::spawn(async move { shared.grpc.report_health(false).await });
                self.close();
                continue;
            }
            if self.timer.as_mut().poll(cx).is_ready() {
                if self.check_idle() {
                    return Poll::Ready(());
                }
                continue;
            }
            if self.waiter.set_waker(cx.waker()) {
                return Poll::Pending;
            }
        }
    }

    /// Closes the connection if no call uses it. Returns whether the connection must be dropped at once.
    fn check_idle(&mut self) -> bool {
        if !self.connection.state.admitted {
            return true;
        }
        let calls = self.connection.state.calls.load(Ordering::Relaxed);
        if calls == self.calls_before && self.connection.is_idle() {
            self.close();
        }
        self.calls_before = calls;
        self.timer.as_mut().reset(Instant::now() + self.connection.next_check());
        false
    }

    /// Refuses new calls and completes the running calls.
    fn close(&mut self) {
        if !std::mem::replace(&mut self.closing, true) {
            self.http2.as_mut().graceful_shutdown();
        }
    }
}
