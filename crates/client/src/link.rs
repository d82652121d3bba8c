//! The reading half of the connection. It connects, greets the node, and delivers received messages to the client's
//! handles.
//!
//! [`Link::pump`] does all work that is possible, and waits only as long as its caller allows. An async caller allows
//! no wait, and lets its task wait between two calls.
//!
//! ```text
//! Disconnected --time--> Connecting --writable--> Greeting --WELCOME--> Up --loss--> Disconnected
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_topic::SpinBudget;
use dunlin_wire::{
    ALL_ANSWERED, DecodeOutcome, Decoder, ErrorCode, FromClient, FromNode, Hello, PREAMBLE_BYTES, Preamble,
};

use crate::backoff::{RandomBackoff, random_seed};
use crate::chunk::Chunks;
use crate::client::{ClientOptions, SharedClient};
use crate::disconnect_reason::DisconnectReason;
use crate::follow::lock;
use crate::limits::{ClientLimits, TICK};
use crate::pending_request::deadline;
use crate::refusal::RefusedError;
use crate::session::ConnectionError;
use crate::socket::Socket;

/// When a client closes its connection, it waits at most this long for the node to close the connection first.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// How many times a spinning caller checks the socket before it reads the clock again.
const SPINS: u32 = 16;

/// The reading half of the connection. The thread that has locked it reads for all waiting threads.
#[derive(Debug)]
pub(crate) struct Link {
    phase: Phase,
    chunks: Chunks,
    /// The size of the next message in bytes; the read buffer must have room for it.
    need: usize,
    decoder: Decoder,
    backoff: RandomBackoff,
    /// The index of the endpoint that the next attempt to connect uses.
    endpoint: usize,
    /// Whether the last read took all available bytes from the socket.
    is_drained: bool,
    /// Whether to skip the next read, because it would find no bytes.
    skip_read: bool,
    /// Since when callers have waited without receiving a message; `None` after a message.
    silent_since: Option<Instant>,
    /// When a caller last waited without receiving anything.
    last_wait: Instant,
    heartbeat: Duration,
    was_connected: bool,
    /// How long a wait spins before it blocks. The value adapts to the durations of earlier waits.
    pub(crate) spinning: SpinBudget,
}

#[derive(Debug)]
enum Phase {
    Disconnected { why: DisconnectReason, since: Instant, retry_at: Instant },
    Connecting { socket: Arc<Socket>, deadline: Instant, disconnected: (DisconnectReason, Instant) },
    Greeting { socket: Arc<Socket>, deadline: Instant, disconnected: (DisconnectReason, Instant) },
    Up { socket: Arc<Socket> },
    Closed,
}

/// The result of one call of [`Link::pump`].
#[derive(Debug)]
pub(crate) enum PumpOutcome {
    /// At least one message was delivered, or a connection was made.
    Received,
    Quiet,
    /// There is no connection. The values say why, and since when.
    Disconnected(DisconnectReason, Instant),
    Closed,
}

/// How long one call of [`Link::pump`] may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PumpWait {
    Now,
    /// The call checks the socket a few times, but does not block.
    Spin,
    Block(Duration),
}

/// The socket events and the time at which [`Link::pump`] has work again.
#[cfg(feature = "tokio")]
#[derive(Debug)]
pub(crate) struct WakeConditions {
    pub(crate) socket: Option<Arc<Socket>>,
    pub(crate) write: bool,
    pub(crate) at: Instant,
}

impl Link {
    pub(crate) fn new(limits: &ClientLimits) -> Link {
        let now = Instant::now();
        let wire_limits = dunlin_wire::DecoderLimits {
            run_bytes_max: limits.run_bytes_max,
            control_bytes_max: limits.control_bytes_max,
        };
        Link {
            phase: Phase::Disconnected { why: DisconnectReason::New, since: now, retry_at: now },
            chunks: Chunks::new(limits.chunk_bytes),
            need: 0,
            decoder: Decoder::new(wire_limits),
            backoff: RandomBackoff::new(limits.backoff_base_ms, limits.backoff_max_ms, random_seed()),
            endpoint: 0,
            is_drained: false,
            skip_read: false,
            silent_since: None,
            last_wait: now,
            heartbeat: Duration::from_secs(1),
            was_connected: false,
            spinning: SpinBudget::default(),
        }
    }

    /// Does all work that is possible now. Waits only as `wait` allows.
    #[inline]
    pub(crate) fn pump(&mut self, shared: &SharedClient, wait: PumpWait) -> PumpOutcome {
        match &self.phase {
            Phase::Up { socket } => {
                let socket = Arc::clone(socket);
                self.pump_connected(shared, &socket, wait)
            }
            _ => self.pump_disconnected(shared, wait),
        }
    }

    /// The number of failed attempts to connect since the client was last connected.
    pub(crate) fn failures(&self) -> u32 {
        self.backoff.attempts()
    }

    /// How long a caller waits without a connection before its wait fails.
    pub(crate) fn silence_max(&self, limits: &ClientLimits) -> Duration {
        self.heartbeat * limits.patience_heartbeats
    }

    #[inline]
    fn pump_connected(&mut self, shared: &SharedClient, socket: &Arc<Socket>, wait: PumpWait) -> PumpOutcome {
        let flushed = shared.outbox.flush();
        let blocking = match wait {
            // Skips at most one read in a row: a caller that never waits would otherwise receive nothing.
            PumpWait::Now if std::mem::take(&mut self.skip_read) => return PumpOutcome::Quiet,
            PumpWait::Now => false,
            PumpWait::Spin => return self.spin(shared, socket),
            PumpWait::Block(longest) if flushed && longest >= TICK => true,
            PumpWait::Block(longest) => {
                if !socket.wait(!flushed, longest.min(TICK)).read {
                    return self.handle_silence(shared);
                }
                false
            }
        };
        let room = self.chunks.reserve(self.need);
        let spare = room.capacity() - room.len();
        let read = socket.recv(room, blocking);
        self.is_drained = read.as_ref().map_or(true, |read| *read < spare);
        self.skip_read = self.is_drained && read.is_ok();
        self.handle_read(shared, read)
    }

    /// Prepares a pause in reading, which lasts until the runtime reports an event of the socket. Returns `None` if
    /// there may be bytes left to read or to write.
    #[cfg(feature = "tokio")]
    pub(crate) fn pause_reading(&mut self, shared: &SharedClient) -> Option<PumpOutcome> {
        let can_pause = self.is_drained && matches!(self.phase, Phase::Up { .. }) && shared.outbox.is_empty();
        can_pause.then(|| self.handle_silence(shared))
    }

    /// Makes the next call read the socket.
    #[cfg(feature = "tokio")]
    pub(crate) fn resume_reading(&mut self) {
        (self.is_drained, self.skip_read) = (false, false);
    }

    /// Checks the socket several times for each reading of the clock, because reading the clock takes as long as one
    /// check.
    #[inline]
    fn spin(&mut self, shared: &SharedClient, socket: &Socket) -> PumpOutcome {
        let room = self.chunks.reserve(self.need);
        let mut read = socket.recv(room, false);
        for _ in 1..SPINS {
            if !read.as_ref().is_err_and(would_block) {
                break;
            }
            read = socket.recv(room, false);
        }
        self.handle_read(shared, read)
    }

    #[inline]
    fn handle_read(&mut self, shared: &SharedClient, read: std::io::Result<usize>) -> PumpOutcome {
        match read {
            Ok(0) => self.disconnect(
                shared,
                DisconnectReason::Io("the node closed the connection".to_owned()),
                None,
            ),
            Ok(_) => self.deliver_received(shared),
            Err(error) if would_block(&error) => self.handle_silence(shared),
            Err(error) => self.disconnect(
                shared,
                DisconnectReason::Io(format!("cannot read from the node: {error}")),
                None,
            ),
        }
    }

    #[inline]
    fn deliver_received(&mut self, shared: &SharedClient) -> PumpOutcome {
        self.silent_since = None;
        match self.deliver_messages(shared) {
            Ok(()) => PumpOutcome::Received,
            Err(ConnectionError::Goodbye { reconnect_after_ms, reason }) => {
                if reason.code == ErrorCode::ShuttingDown && reason.numbers[0] == ALL_ANSWERED {
                    lock(&shared.session).resend_unanswered();
                }
                let why = DisconnectReason::Io(format!("the node is shutting down: {reason}"));
                self.disconnect(shared, why, Some(Duration::from_millis(reconnect_after_ms.into())));
                PumpOutcome::Received
            }
            Err(broken) => self.disconnect(shared, DisconnectReason::Io(broken.to_string()), None),
        }
    }

    #[inline]
    fn deliver_messages(&mut self, shared: &SharedClient) -> Result<(), ConnectionError> {
        let mut session = lock(&shared.session);
        let (chunk, mut at) = self.chunks.unread();
        loop {
            match self.decoder.next_from_node(&chunk[at..])? {
                DecodeOutcome::Message(message, taken) => {
                    session.deliver_message(&message, chunk, at, at + taken)?;
                    at += taken;
                }
                DecodeOutcome::Need(bytes) => {
                    self.need = bytes;
                    break;
                }
            }
        }
        self.chunks.advance_to(at);
        Ok(())
    }

    /// Called when a caller has waited and no message has arrived. If no message has arrived for two heartbeat
    /// intervals, the node counts as dead, and the connection is ended.
    fn handle_silence(&mut self, shared: &SharedClient) -> PumpOutcome {
        let now = Instant::now();
        // A period in which no caller waited does not count as silence of the node.
        if now.duration_since(self.last_wait) > self.heartbeat {
            self.silent_since = None;
        }
        self.last_wait = now;
        let since = *self.silent_since.get_or_insert(now);
        let silence = now.duration_since(since);
        if silence < 2 * self.heartbeat {
            return PumpOutcome::Quiet;
        }
        let why = DisconnectReason::Io(format!("no message from the node for {} ms", silence.as_millis()));
        self.disconnect_since(shared, why, since, None)
    }

    fn disconnect(
        &mut self,
        shared: &SharedClient,
        why: DisconnectReason,
        wait: Option<Duration>,
    ) -> PumpOutcome {
        self.disconnect_since(shared, why, Instant::now(), wait)
    }

    /// Ends the connection or the attempt to connect. `since` is the time at which the connection was lost or the node
    /// became silent.
    fn disconnect_since(
        &mut self,
        shared: &SharedClient,
        why: DisconnectReason,
        since: Instant,
        wait: Option<Duration>,
    ) -> PumpOutcome {
        if matches!(self.phase, Phase::Closed) {
            return PumpOutcome::Closed;
        }
        if let Phase::Up { socket } = &self.phase {
            socket.shutdown();
        }
        shared.outbox.close();
        lock(&shared.session).handle_disconnect(&why.to_string(), since);
        self.chunks.clear();
        self.need = 0;
        self.silent_since = None;
        (self.is_drained, self.skip_read) = (false, false);
        let is_over = self.was_connected && shared.options.connects_once;
        let wait = if is_over { Duration::MAX } else { wait.unwrap_or_default() + self.backoff.next_wait() };
        let retry_at = deadline(wait);
        self.phase = Phase::Disconnected { why: why.clone(), since, retry_at };
        shared.followers.wake_all();
        PumpOutcome::Disconnected(why, since)
    }

    fn pump_disconnected(&mut self, shared: &SharedClient, wait: PumpWait) -> PumpOutcome {
        let now = Instant::now();
        let (write, until) = match &self.phase {
            Phase::Disconnected { retry_at, .. } if now < *retry_at => (false, *retry_at),
            Phase::Disconnected { why, since, .. } => {
                let disconnected = (why.clone(), *since);
                return self.connect(shared, disconnected, now);
            }
            Phase::Connecting { deadline, .. } => (true, *deadline),
            Phase::Greeting { deadline, .. } => (false, *deadline),
            Phase::Closed | Phase::Up { .. } => return PumpOutcome::Closed,
        };
        let longest = match wait {
            PumpWait::Now | PumpWait::Spin => Duration::ZERO,
            PumpWait::Block(longest) => longest.min(until.saturating_duration_since(now)),
        };
        let (socket, disconnected) = match &self.phase {
            Phase::Connecting { socket, disconnected, .. } | Phase::Greeting { socket, disconnected, .. } => {
                (Arc::clone(socket), disconnected.clone())
            }
            Phase::Disconnected { why, since, .. } => {
                if !longest.is_zero() {
                    crate::socket::sleep(longest);
                }
                return PumpOutcome::Disconnected(why.clone(), *since);
            }
            Phase::Closed | Phase::Up { .. } => return PumpOutcome::Closed,
        };
        let ready = socket.wait(write, longest);
        if Instant::now() >= until {
            let why = DisconnectReason::Io(format!("{} did not answer in time", shared.address));
            return self.disconnect_since(shared, why, disconnected.1, None);
        }
        match (write && ready.write, !write && ready.read) {
            (true, _) => self.send_greeting(shared, &socket, disconnected, until),
            (_, true) => self.read_greeting_response(shared, &socket, disconnected),
            _ => PumpOutcome::Disconnected(disconnected.0, disconnected.1),
        }
    }

    fn connect(
        &mut self,
        shared: &SharedClient,
        disconnected: (DisconnectReason, Instant),
        now: Instant,
    ) -> PumpOutcome {
        let result = shared.address.resolve().and_then(|endpoints| {
            let at = self.endpoint % endpoints.len().max(1);
            let (node, endpoint) = endpoints.get(at).ok_or(std::io::ErrorKind::AddrNotAvailable)?;
            self.endpoint = at + 1;
            Socket::connect(endpoint, shared.tls.get(*node).and_then(Option::as_ref))
        });
        match result {
            Ok(socket) => {
                let deadline = now + Duration::from_millis(shared.limits.connect_ms_max);
                self.phase = Phase::Connecting {
                    socket: Arc::new(socket),
                    deadline,
                    disconnected: disconnected.clone(),
                };
                PumpOutcome::Disconnected(disconnected.0, disconnected.1)
            }
            Err(error) => self.disconnect_since(shared, connect_error(shared, &error), disconnected.1, None),
        }
    }

    fn send_greeting(
        &mut self,
        shared: &SharedClient,
        socket: &Arc<Socket>,
        disconnected: (DisconnectReason, Instant),
        deadline: Instant,
    ) -> PumpOutcome {
        let greeting = greeting(&shared.options);
        // The send buffer of a new socket is empty, so the greeting fits into it as a whole.
        if let Err(error) = socket.connected().and_then(|()| socket.send(&greeting)) {
            return self.disconnect_since(shared, connect_error(shared, &error), disconnected.1, None);
        }
        self.phase =
            Phase::Greeting { socket: Arc::clone(socket), deadline, disconnected: disconnected.clone() };
        PumpOutcome::Disconnected(disconnected.0, disconnected.1)
    }

    fn read_greeting_response(
        &mut self,
        shared: &SharedClient,
        socket: &Arc<Socket>,
        disconnected: (DisconnectReason, Instant),
    ) -> PumpOutcome {
        match socket.recv(self.chunks.reserve(self.need), false) {
            Ok(0) => {
                let why = DisconnectReason::Io(format!("{} closed the connection at once", shared.address));
                self.disconnect_since(shared, why, disconnected.1, None)
            }
            Ok(_) => match self.read_welcome(shared, socket) {
                Ok(true) => self.deliver_received(shared),
                Ok(false) => PumpOutcome::Disconnected(disconnected.0, disconnected.1),
                Err(why) => {
                    // A node may request a pause before the next attempt. If the address has several nodes, the client
                    // does not pause, because another node may accept the client.
                    let wait = why.wait().filter(|_| shared.tls.len() == 1);
                    self.disconnect_since(shared, why, disconnected.1, wait)
                }
            },
            Err(error) if would_block(&error) => PumpOutcome::Disconnected(disconnected.0, disconnected.1),
            Err(error) => self.disconnect_since(shared, connect_error(shared, &error), disconnected.1, None),
        }
    }

    /// Reads the node's response to the greeting. If it is a complete WELCOME, sends the session's state again, and
    /// returns `true`: the connection can be used.
    fn read_welcome(
        &mut self,
        shared: &SharedClient,
        socket: &Arc<Socket>,
    ) -> Result<bool, DisconnectReason> {
        let broken = |error: dunlin_wire::WireError| DisconnectReason::Io(error.to_string());
        let (chunk, at) = self.chunks.unread();
        let bytes = &chunk[at..];
        // The node has sent a TLS alert: it expects TLS, but the address is not a TLS address.
        if shared.tls.iter().all(Option::is_none) && bytes.starts_with(&[0x15, 0x03]) {
            return Err(DisconnectReason::Io(format!(
                "{} accepts only TLS: use tls:// instead of dunlin://",
                shared.address
            )));
        }
        if let Some(protocol) = detect_other_protocol(bytes) {
            return Err(DisconnectReason::Io(format!(
                "{} is the address of {protocol}: use the port of Dunlin's own protocol, by default 4220",
                shared.address
            )));
        }
        let Some(preamble) = Preamble::parse(bytes).map_err(broken)? else { return Ok(false) };
        let (welcome, taken) = match self.decoder.next_from_node(&bytes[PREAMBLE_BYTES..]).map_err(broken)? {
            DecodeOutcome::Need(need) => {
                self.need = PREAMBLE_BYTES + need;
                return Ok(false);
            }
            DecodeOutcome::Message(FromNode::Welcome(welcome), taken) => (welcome, taken),
            DecodeOutcome::Message(FromNode::Refused(refusal), _) => {
                return Err(DisconnectReason::refused(RefusedError::new(&refusal), self.was_connected));
            }
            DecodeOutcome::Message(..) => {
                return Err(DisconnectReason::Io("the node's first message is not WELCOME".to_owned()));
            }
        };
        if let Some(refused) = lock(&shared.session).check_cluster(welcome.cluster.0) {
            // If the address has several nodes, another one may accept the client.
            let is_only_one = shared.tls.len() == 1;
            return Err(if is_only_one {
                DisconnectReason::Refused(refused)
            } else {
                DisconnectReason::Io(refused.to_string())
            });
        }
        self.decoder.set_version(preamble.version_max);
        self.heartbeat = Duration::from_millis(u64::from(welcome.heartbeat_ms).max(1));
        self.backoff.reset();
        self.was_connected = true;
        // The messages of other threads wait until the session has sent its state again.
        shared.outbox.cork(socket);
        let mut again = Vec::new();
        lock(&shared.session).handle_welcome(&welcome, preamble.version_max, &mut again);
        shared.outbox.uncork(again);
        let done = at + PREAMBLE_BYTES + taken;
        self.chunks.advance_to(done);
        self.phase = Phase::Up { socket: Arc::clone(socket) };
        shared.followers.wake_all();
        Ok(true)
    }

    /// Closes the connection. First waits a moment, so that the node can read the last bytes and close the connection
    /// itself. If the client closed the connection before it had read all responses, the operating system would discard
    /// bytes that are still to be sent.
    pub(crate) fn close(&mut self, shared: &SharedClient) {
        let until = Instant::now() + CLOSE_TIMEOUT;
        if let Phase::Up { socket } = std::mem::replace(&mut self.phase, Phase::Closed) {
            while !shared.outbox.flush() && Instant::now() < until {
                socket.wait(true, TICK);
            }
            socket.end_writing();
            let mut unread = Vec::with_capacity(4 << 10);
            while Instant::now() < until {
                unread.clear();
                match socket.recv(&mut unread, false) {
                    Ok(0) => break,
                    Err(error) if !would_block(&error) => break,
                    Ok(_) => {}
                    Err(_) => drop(socket.wait(false, until.saturating_duration_since(Instant::now()))),
                }
            }
        }
        shared.outbox.close();
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn wake_conditions(&self, shared: &SharedClient) -> WakeConditions {
        let tick = Instant::now() + self.heartbeat / 2;
        match &self.phase {
            Phase::Up { socket } => WakeConditions {
                socket: Some(Arc::clone(socket)),
                write: !shared.outbox.is_empty(),
                at: tick,
            },
            Phase::Connecting { socket, deadline, .. } => {
                WakeConditions { socket: Some(Arc::clone(socket)), write: true, at: tick.min(*deadline) }
            }
            Phase::Greeting { socket, deadline, .. } => {
                WakeConditions { socket: Some(Arc::clone(socket)), write: false, at: tick.min(*deadline) }
            }
            Phase::Disconnected { retry_at, .. } => {
                WakeConditions { socket: None, write: false, at: tick.min(*retry_at) }
            }
            Phase::Closed => WakeConditions { socket: None, write: false, at: tick },
        }
    }
}

fn greeting(options: &ClientOptions) -> Vec<u8> {
    let mut out = Preamble::OURS.to_bytes().to_vec();
    let hello =
        Hello { tenant: &options.tenant, credentials: options.credentials.as_bytes(), client: &options.name };
    FromClient::Hello(hello).encode(&mut out);
    out
}

fn connect_error(shared: &SharedClient, error: &std::io::Error) -> DisconnectReason {
    DisconnectReason::Io(format!("connecting to {}: {error}", shared.address))
}

fn would_block(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted)
}

/// Returns what kind of listener sent `first_bytes`, if the bytes belong to one of the other protocols that a node
/// serves.
fn detect_other_protocol(first_bytes: &[u8]) -> Option<&'static str> {
    // The first message of an HTTP/2 server is a SETTINGS frame.
    let is_http2 = first_bytes.len() > 4 && first_bytes[..2] == [0, 0] && first_bytes[3] == 4;
    match first_bytes {
        [b'I', b'N', b'F', b'O', b' ', ..] => Some("a NATS listener"),
        [b'H', b'T', b'T', b'P', b'/', ..] => Some("an HTTP listener"),
        _ if is_http2 => Some("a gRPC listener"),
        _ => None,
    }
}
