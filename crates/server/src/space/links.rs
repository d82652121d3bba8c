//! The connections of a process to all other processes of its world, and a table of which process runs which region.
//!
//! Of two processes, the one with the higher number opens the connection, and retries until it succeeds. A connection
//! begins with the hellos and proofs of both sides (`secret`). If a process connects again, the new connection replaces
//! the older one.
//!
//! Invariants:
//! - Until a peer has proved that it is a process of this world, only its hello and its proof are read.
//! - Messages for a region go to the process that runs the region in the highest epoch that is known here.
//! - A process that connects learns of all regions that run here, including those that started after this side's hello
//!   was written.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};

use bytes::Bytes;
use dunlin::space::RegionId;

use super::config::{SpaceLimits, WorldPeer};
use super::connection::RunnerConnection;
use super::error::RunnerRefusal;
use super::frame::SpaceFrame;
use super::hello::RunnerHello;
use super::secret::{Role, Secret, random};
use crate::accept_failures::AcceptFailures;

/// First and longest pause before this process tries again to connect to a process, ns. The pause doubles after each
/// attempt.
const RETRY_PAUSE_NS: (u64, u64) = (20_000_000, 500_000_000);
/// Maximum number of connections that are accepted before the runner checks again whether a tick is due.
const ACCEPTS_MAX: usize = 64;
/// Pause after a failure to accept a connection, ns. Without the pause, the thread would not sleep while connections
/// wait and the process has no free file descriptor.
const ACCEPT_PAUSE_NS: u64 = 50_000_000;
/// Maximum number of refusals that are kept until the runner takes them.
const REFUSALS_MAX: usize = 64;

/// A number that identifies a connection to another process of the world.
pub(super) type LinkId = u64;

/// A connection to another process of the world.
#[derive(Debug)]
pub(super) struct ProcessLink {
    pub(super) connection: RunnerConnection,
    /// Number of the peer's process; `None` until the peer has proved that it belongs to the world.
    pub(super) process: Option<u64>,
    /// If this side opened the connection, the number of the process at the other end; `None` for an accepted
    /// connection.
    expected: Option<u64>,
    /// The regions in this side's hello, with their epochs.
    announced: Vec<(RegionId, u64)>,
    hello: Vec<u8>,
    /// The peer's hello, decoded and as bytes. Kept until the peer has proved that it knows the secret.
    peer_hello: Option<(RunnerHello, Vec<u8>)>,
    since_ns: u64,
    /// Whether this turn's first frame, which states tick and time, was already queued.
    turn_sent: bool,
    /// Whether the next received frame must wait, because it belongs to a step that has not begun here.
    pub(super) must_wait: bool,
    /// The tick and the time that the peer stated for its current turn.
    pub(super) turn: (u64, u64),
}

impl ProcessLink {
    /// Whether this side opened the connection or accepted it.
    fn role(&self) -> Role {
        if self.expected.is_some() { Role::Connects } else { Role::Listens }
    }

    /// Tells the peer which regions started or stopped running here.
    fn send_region_changes(&mut self, before: &[(RegionId, u64)], now: &[(RegionId, u64)]) {
        let is_gone = |(region, _): &&(RegionId, u64)| now.iter().all(|(other, _)| other != region);
        for (region, _) in before.iter().filter(is_gone) {
            self.connection.queue(&SpaceFrame::RegionEnded(*region));
        }
        for (region, epoch) in now.iter().filter(|region| !before.contains(region)) {
            self.connection.queue(&SpaceFrame::Region { region: *region, epoch: *epoch });
        }
    }
}

#[derive(Debug)]
struct DialSchedule {
    address: SocketAddr,
    due_ns: u64,
    pause_ns: u64,
}

/// A connection to another process was established or lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LinkEvent {
    Connected { process: u64, regions: Vec<(RegionId, u64)> },
    Lost { process: u64, regions: Vec<RegionId> },
}

/// The connections of this process to all other processes of the world.
#[derive(Debug)]
pub(super) struct ProcessLinks {
    pub(super) listener: TcpListener,
    hello: RunnerHello,
    secret: Secret,
    limits: SpaceLimits,
    links: BTreeMap<LinkId, ProcessLink>,
    next_key: LinkId,
    by_process: BTreeMap<u64, LinkId>,
    dials: BTreeMap<u64, DialSchedule>,
    /// Time at which connections are accepted again, ns; `None` if they are accepted now.
    accepts_from_ns: Option<u64>,
    accept_failures: AcceptFailures,
    /// For each region that runs at another process: the number of that process, and the epoch in which it runs the
    /// region.
    routes: BTreeMap<RegionId, (u64, u64)>,
    turn: (u64, u64),
    events: Vec<LinkEvent>,
    refusals: Vec<(Option<u64>, RunnerRefusal)>,
    pub(super) dropped: u64,
    pub(super) connections_made: u64,
    /// Number of bytes that were sent, and received, over connections that have ended.
    closed_bytes: (u64, u64),
}

impl ProcessLinks {
    pub(super) fn new(
        listener: TcpListener,
        hello: RunnerHello,
        secret: Secret,
        limits: SpaceLimits,
    ) -> ProcessLinks {
        ProcessLinks {
            listener,
            hello,
            secret,
            limits,
            links: BTreeMap::new(),
            next_key: 0,
            by_process: BTreeMap::new(),
            dials: BTreeMap::new(),
            accepts_from_ns: None,
            accept_failures: AcceptFailures::default(),
            routes: BTreeMap::new(),
            turn: (0, 0),
            events: Vec::new(),
            refusals: Vec::new(),
            dropped: 0,
            connections_made: 0,
            closed_bytes: (0, 0),
        }
    }

    /// Adds another process. If its number is lower than this process's number, [`ProcessLinks::dial`] connects to it.
    pub(super) fn add_peer(&mut self, peer: WorldPeer, now_ns: u64) {
        if peer.process >= self.hello.process {
            return;
        }
        let known = self.dials.get(&peer.process).is_some_and(|dial| dial.address == peer.address);
        if !known {
            let dial = DialSchedule { address: peer.address, due_ns: now_ns, pause_ns: RETRY_PAUSE_NS.0 };
            self.dials.insert(peer.process, dial);
        }
    }

    /// Forgets a process, and closes the connection to it.
    pub(super) fn remove_peer(&mut self, process: u64) {
        self.dials.remove(&process);
        if let Some(key) = self.by_process.get(&process).copied() {
            self.close(key, None);
        }
    }

    /// Opens the connections that are due. Closes connections whose peer has not proved in time that it belongs to the
    /// world. Ends the pause after a failure to accept connections.
    pub(super) fn dial(&mut self, now_ns: u64) {
        self.accepts_from_ns = self.accepts_from_ns.filter(|from_ns| *from_ns > now_ns);
        let due = |(process, dial): (&u64, &DialSchedule)| {
            (dial.due_ns <= now_ns).then_some((*process, dial.address))
        };
        let due: Vec<(u64, SocketAddr)> = self.dials.iter().filter_map(due).collect();
        for (process, address) in due {
            self.postpone_dial(process, now_ns);
            let is_connecting = self.links.values().any(|link| link.expected == Some(process));
            if !is_connecting
                && !self.by_process.contains_key(&process)
                && let Ok(connection) = RunnerConnection::connect(address)
            {
                self.add(connection, Some(process), now_ns);
            }
        }
        let overdue = |link: &ProcessLink| {
            let time_limit_ns = self.limits.hello_ms_max * 1_000_000;
            link.process.is_none() && now_ns.saturating_sub(link.since_ns) > time_limit_ns
        };
        let overdue: Vec<LinkId> =
            self.links.iter().filter(|(_, link)| overdue(link)).map(|(key, _)| *key).collect();
        overdue.into_iter().for_each(|key| self.close(key, None));
    }

    fn postpone_dial(&mut self, process: u64, now_ns: u64) {
        if let Some(dial) = self.dials.get_mut(&process) {
            dial.due_ns = now_ns + dial.pause_ns;
            dial.pause_ns = (dial.pause_ns * 2).min(RETRY_PAUSE_NS.1);
        }
    }

    /// The next time at which [`ProcessLinks::dial`] must be called, ns; `None` if no call is needed.
    pub(super) fn next_dial_ns(&self) -> Option<u64> {
        let unverified = self.links.values().filter(|link| link.process.is_none());
        let time_limit_ns = self.limits.hello_ms_max * 1_000_000;
        let deadlines = unverified.map(|link| link.since_ns + time_limit_ns + 1);
        self.dials.values().map(|dial| dial.due_ns).chain(deadlines).chain(self.accepts_from_ns).min()
    }

    /// Whether connections are accepted now, and not paused after a failure.
    pub(super) fn is_accepting(&self) -> bool {
        self.accepts_from_ns.is_none()
    }

    /// Accepts the connections that wait at the listening socket. After a failure, accepting pauses.
    pub(super) fn accept(&mut self, now_ns: u64) {
        for _ in 0..ACCEPTS_MAX {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The peer disconnected before its connection was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    if let Some(count) = self.accept_failures.count(now_ns) {
                        tracing::warn!(%error, count, "cannot accept connections of other processes; retrying");
                    }
                    self.accepts_from_ns = Some(now_ns + ACCEPT_PAUSE_NS);
                    return;
                }
            };
            let unverified =
                || self.links.iter().filter(|(_, link)| link.process.is_none() && link.expected.is_none());
            // If too many accepted connections have no valid proof yet, closes the oldest of them, so that strangers
            // cannot keep a process of the world out.
            let oldest = unverified().next().map(|(key, _)| *key);
            if unverified().count() >= self.limits.strangers_max
                && let Some(oldest) = oldest
            {
                self.close(oldest, None);
            }
            if let Ok(connection) = RunnerConnection::from_stream(stream) {
                self.add(connection, None, now_ns);
            }
        }
    }

    fn add(&mut self, mut connection: RunnerConnection, expected: Option<u64>, now_ns: u64) {
        let Ok(nonce) = random() else { return };
        let hello = self.hello.encode(&nonce);
        connection.queue(&SpaceFrame::Hello(&hello));
        let link = ProcessLink {
            connection,
            process: None,
            expected,
            announced: self.hello.regions.clone(),
            hello,
            peer_hello: None,
            since_ns: now_ns,
            turn_sent: false,
            must_wait: false,
            turn: (0, now_ns),
        };
        self.next_key += 1;
        self.links.insert(self.next_key, link);
    }

    /// Handles a peer's hello: checks it, and sends the proof that this side knows the secret.
    pub(super) fn handle_hello(&mut self, key: LinkId, hello: &[u8]) -> Result<(), RunnerRefusal> {
        let theirs = RunnerHello::decode(hello)?;
        self.hello.check(&theirs)?;
        let Some(link) = self.links.get_mut(&key) else { return Ok(()) };
        if link.peer_hello.is_some() {
            return Err(RunnerRefusal::Frame("the process sent a second hello"));
        }
        if link.expected.is_some_and(|expected| expected != theirs.process) {
            return Err(RunnerRefusal::Frame("another process uses the address of the expected process"));
        }
        let proof = self.secret.prove(link.role(), &link.hello, hello);
        link.connection.queue(&SpaceFrame::Proof(&proof));
        link.peer_hello = Some((theirs, hello.to_vec()));
        Ok(())
    }

    /// Handles a peer's proof that it knows the secret. If the proof is valid, the connection can be used.
    pub(super) fn handle_proof(&mut self, key: LinkId, proof: &[u8]) -> Result<(), RunnerRefusal> {
        let Some(link) = self.links.get_mut(&key) else { return Ok(()) };
        let Some((theirs, hello)) = link.peer_hello.take() else { return Err(RunnerRefusal::Stranger) };
        self.secret.check(link.role().other(), &hello, &link.hello, proof)?;
        // Checks the hello again. Since the first check, this process may have begun to run a region that the hello
        // names.
        self.hello.check(&theirs)?;
        let process = theirs.process;
        let max = self.limits.peers_max;
        if !self.by_process.contains_key(&process) && self.by_process.len() >= max {
            return Err(RunnerRefusal::Full { max });
        }
        if let Some(older) = self.by_process.get(&process).copied() {
            self.close(older, None);
        }
        let Some(link) = self.links.get_mut(&key) else { return Ok(()) };
        link.process = Some(process);
        let announced = std::mem::take(&mut link.announced);
        link.send_region_changes(&announced, &self.hello.regions);
        self.by_process.insert(process, key);
        self.connections_made += 1;
        if let Some(dial) = self.dials.get_mut(&process) {
            dial.pause_ns = RETRY_PAUSE_NS.0;
        }
        for (region, epoch) in &theirs.regions {
            self.add_route(*region, process, *epoch);
        }
        self.events.push(LinkEvent::Connected { process, regions: theirs.regions });
        Ok(())
    }

    /// Sets the world's secret. Existing connections are not checked again.
    pub(super) fn set_secret(&mut self, secret: Secret) {
        self.secret = secret;
    }

    /// Remembers that a region runs at a process in an epoch, unless a higher epoch is known.
    pub(super) fn add_route(&mut self, region: RegionId, process: u64, epoch: u64) {
        let newer = self.routes.get(&region).is_none_or(|(_, known)| *known <= epoch);
        if newer {
            self.routes.insert(region, (process, epoch));
        }
    }

    /// Remembers that a process has stopped running a region.
    pub(super) fn remove_route(&mut self, region: RegionId, process: u64) {
        if self.routes.get(&region).is_some_and(|(known, _)| *known == process) {
            self.routes.remove(&region);
        }
    }

    /// The other process that runs a region, and the region's epoch; `None` if no such process is known.
    pub(super) fn route_to(&self, region: RegionId) -> Option<(u64, u64)> {
        self.routes.get(&region).copied()
    }

    /// The regions that run at other processes: region, process and epoch of each.
    pub(super) fn routes(&self) -> impl Iterator<Item = (RegionId, u64, u64)> + '_ {
        self.routes.iter().map(|(region, (process, epoch))| (*region, *process, *epoch))
    }

    /// Sets the regions that run here, and tells the other processes what has changed.
    pub(super) fn set_regions(&mut self, regions: Vec<(RegionId, u64)>) {
        let before = std::mem::replace(&mut self.hello.regions, regions);
        let regions = &self.hello.regions;
        // Peers that have proved that they belong to the world learn of the changes now. Any other peer learns of them
        // after its proof.
        for link in self.links.values_mut().filter(|link| link.process.is_some()) {
            link.send_region_changes(&before, regions);
        }
        for (region, epoch) in regions.iter().filter(|region| !before.contains(region)) {
            let is_remote = self.routes.get(region).is_some_and(|(_, known)| known <= epoch);
            if is_remote {
                self.routes.remove(region);
            }
        }
    }

    /// Begins a turn: a group of frames with one tick and time. Each process receives tick and time before the next
    /// frame.
    pub(super) fn begin_turn(&mut self, tick: u64, now_ns: u64) {
        self.turn = (tick, now_ns);
        self.links.values_mut().for_each(|link| link.turn_sent = false);
    }

    /// Sends a frame without which the connection is useless. If too many bytes wait to be sent, closes the connection.
    pub(super) fn send_or_close(&mut self, process: u64, frame: &SpaceFrame<'_>, body: &Bytes) {
        if !self.send_with(process, frame, body)
            && let Some(key) = self.by_process.get(&process).copied()
        {
            self.close(key, None);
        }
    }

    /// Sends a frame to a process. Drops the frame if the process is not connected or too many bytes wait to be sent to
    /// it. Returns whether the frame was queued.
    pub(super) fn send(&mut self, process: u64, frame: &SpaceFrame<'_>) -> bool {
        self.queue_frame(process, |connection| connection.queue(frame))
    }

    /// Like [`ProcessLinks::send`], for a frame whose body is a separate argument.
    fn send_with(&mut self, process: u64, frame: &SpaceFrame<'_>, body: &Bytes) -> bool {
        self.queue_frame(process, |connection| connection.queue_with_body(frame, body))
    }

    fn queue_frame(&mut self, process: u64, queue: impl FnOnce(&mut RunnerConnection)) -> bool {
        let link = self.by_process.get(&process).and_then(|key| self.links.get_mut(key));
        match link.filter(|link| link.connection.queued() <= self.limits.queued_bytes_max) {
            Some(link) => {
                if !std::mem::replace(&mut link.turn_sent, true) {
                    let (tick, time_ns) = self.turn;
                    link.connection.queue(&SpaceFrame::Turn { tick, time_ns });
                }
                queue(&mut link.connection);
                true
            }
            None => {
                self.dropped += 1;
                false
            }
        }
    }

    /// Sends a frame to all connected processes.
    pub(super) fn send_all(&mut self, frame: &SpaceFrame<'_>) {
        let all: Vec<u64> = self.by_process.keys().copied().collect();
        for process in all {
            self.send(process, frame);
        }
    }

    /// Sends a message to the process that runs the region `to`.
    pub(super) fn send_to(&mut self, to: RegionId, bytes: &Bytes) {
        match self.routes.get(&to).copied() {
            // If the message is dropped here, the region that sent the message sends it again later.
            Some((process, _)) => {
                self.send_with(process, &SpaceFrame::Message { to, bytes: &[] }, bytes);
            }
            None => self.dropped += 1,
        }
    }

    /// Sends the peer the reason for a refusal, and closes the connection.
    pub(super) fn refuse(&mut self, key: LinkId, refused: RunnerRefusal) {
        let by_peer = matches!(refused, RunnerRefusal::ByThem(_));
        if let Some(link) = self.links.get_mut(&key).filter(|_| !by_peer) {
            link.connection.queue(&SpaceFrame::Refused(&refused.to_string()));
            // An error is ignored, because the connection ends even if the peer does not receive the reason.
            let _ = link.connection.flush();
        }
        self.close(key, Some(refused));
    }

    /// Closes a connection. `refused` is the reason if the connection was refused.
    pub(super) fn close(&mut self, key: LinkId, refused: Option<RunnerRefusal>) {
        let Some(link) = self.links.remove(&key) else { return };
        self.closed_bytes.0 += link.connection.sent_bytes;
        self.closed_bytes.1 += link.connection.received_bytes;
        if let Some(refused) = refused
            && self.refusals.len() < REFUSALS_MAX
        {
            self.refusals.push((link.process.or(link.expected), refused));
        }
        let Some(process) = link.process else { return };
        if self.by_process.get(&process) == Some(&key) {
            self.by_process.remove(&process);
            let lost_routes = self.routes.iter().filter(|(_, (owner, _))| *owner == process);
            let regions = lost_routes.map(|(region, _)| *region).collect();
            self.events.push(LinkEvent::Lost { process, regions });
        }
    }

    /// Writes the waiting bytes of all connections to their sockets. Closes connections that fail.
    pub(super) fn flush(&mut self) {
        let broken =
            |(key, link): (&LinkId, &mut ProcessLink)| link.connection.flush().is_err().then_some(*key);
        let broken: Vec<LinkId> = self.links.iter_mut().filter_map(broken).collect();
        broken.into_iter().for_each(|key| self.close(key, None));
    }

    /// Handles a connection whose socket has become writable, perhaps because connecting is complete.
    pub(super) fn writable(&mut self, key: LinkId) {
        let Some(link) = self.links.get_mut(&key) else { return };
        let connecting = link.connection.connecting;
        let connected = if connecting { link.connection.finish_connect() } else { Ok(()) };
        if connected.and_then(|()| link.connection.flush()).is_err() {
            self.close(key, None);
        }
    }

    /// Reads once from a connection. Returns whether there may be more to read.
    pub(super) fn fill(&mut self, key: LinkId) -> bool {
        let Some(link) = self.links.get_mut(&key) else { return false };
        match link.connection.read() {
            Ok(more) => more,
            Err(error) => {
                let refused = (error.kind() != io::ErrorKind::UnexpectedEof).then(|| error.to_string());
                tracing::debug!(process = link.process, "connection lost: {}", refused.unwrap_or_default());
                self.close(key, None);
                false
            }
        }
    }

    pub(super) fn get(&mut self, key: LinkId) -> Option<&mut ProcessLink> {
        self.links.get_mut(&key)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (LinkId, &ProcessLink)> {
        self.links.iter().map(|(key, link)| (*key, link))
    }

    pub(super) fn is_connected(&self, process: u64) -> bool {
        self.by_process.contains_key(&process)
    }

    /// The numbers of the connected processes.
    pub(super) fn processes(&self) -> impl Iterator<Item = u64> + '_ {
        self.by_process.keys().copied()
    }

    pub(super) fn take_events(&mut self) -> Vec<LinkEvent> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn take_refusals(&mut self) -> Vec<(Option<u64>, RunnerRefusal)> {
        std::mem::take(&mut self.refusals)
    }

    /// Number of bytes that were sent, and received, over all connections.
    pub(super) fn bytes(&self) -> (u64, u64) {
        self.links.values().fold(self.closed_bytes, |sum, link| {
            (sum.0 + link.connection.sent_bytes, sum.1 + link.connection.received_bytes)
        })
    }
}

#[cfg(test)]
mod tests;
