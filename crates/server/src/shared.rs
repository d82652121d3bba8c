//! What all sessions of a server share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use dunlin::topic::{Charge, SubscribeError, Topic, Waiter};
use dunlin::wire::ErrorCode;
use dunlin::{Node, Refused};
use tokio::sync::Semaphore;

use crate::access::{Access, Changed, UsersError};
use crate::cluster::{Owner, Seat};
use crate::config::{Limits, ServerConfig};
use crate::departures::Departures;
use crate::door::Door;
use crate::grpc;
use crate::housekeeping::Housekeeping;
use crate::http::Surveys;
use crate::itself::Itself;
use crate::opening::Progress;
use crate::reload::Reloads;
use crate::runtime::Core;
use crate::tls::Identity;
use crate::traffic::Traffic;

/// The token by which a session is told that the server stops.
pub(crate) const STOP: u32 = u32::MAX - 1;
/// The token by which a session is told that the users file has changed.
pub(crate) const USERS: u32 = u32::MAX - 4;
/// The token by which a session is told that it is known who its client is.
pub(crate) const LOGIN: u32 = u32::MAX - 5;
/// The token by which a session is told that clients reach other nodes than before.
pub(crate) const NODES: u32 = u32::MAX - 9;

/// What a subscription takes of the node's memory, and each log that it reads: a cursor, what wakes it, what operators see
/// of it. Texts that the client gave come on top.
const SUBSCRIPTION_BYTES: usize = 1 << 10;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) node: Node,
    pub(crate) limits: Limits,
    /// The threads never park.
    pub(crate) spin: bool,
    /// Who may come in; without it, everybody.
    pub(crate) access: Option<Arc<Access>>,
    /// Pages of these origins may use door `http`.
    pub(crate) origins: Vec<String>,
    /// The file that is given at `/report`.
    pub(crate) report: Option<std::path::PathBuf>,
    /// Where clients come by TLS.
    pub(crate) tls: Option<Arc<Identity>>,
    pub(crate) reloads: Arc<Reloads>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) surveys: Surveys,
    pub(crate) itself: Itself,
    pub(crate) began: Instant,
    pub(crate) departures: Departures,
    pub(crate) housekeeping: Housekeeping,
    /// How often a listener's thread stood still.
    pub(crate) stalls: Arc<AtomicU64>,
    /// Who may be in a handshake of TLS.
    pub(crate) handshakes: Semaphore,
    cores: OnceLock<Vec<Core>>,
    addresses: OnceLock<Vec<(Door, SocketAddr)>>,
    /// Where the node is one of a cluster.
    pub(crate) cluster: OnceLock<Arc<Seat>>,
    pub(crate) grpc: grpc::Services,
    stopping: AtomicBool,
    /// The sessions of other nodes, which are the last to end.
    nodes: AtomicUsize,
    stopping_nodes: AtomicBool,
    /// What is waited for before anybody is let in, where it is: the node is not there yet.
    opening: Option<Arc<Progress>>,
    sessions: Mutex<HashMap<u64, Arc<Waiter>>>,
    /// Held by each session of door `tcp`, which may owe answers.
    pub(crate) answering: Arc<()>,
}

/// A session's place among those of the server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
    session: u64,
    is_of_node: bool,
}

impl Shared {
    pub(crate) fn new(
        node: Node,
        config: &ServerConfig,
        tls: Option<Arc<Identity>>,
        access: Option<Arc<Access>>,
        opening: Option<Arc<Progress>>,
    ) -> Arc<Shared> {
        let (stopping, sessions) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Shared {
            node,
            limits: config.limits,
            spin: config.spin,
            access,
            origins: config.http_origins.clone(),
            report: config.http_report.clone(),
            tls,
            reloads: Arc::default(),
            traffic: Arc::default(),
            surveys: Surveys::default(),
            itself: Itself::default(),
            began: Instant::now(),
            departures: Departures::new(config.limits.departures_max),
            housekeeping: Housekeeping::default(),
            stalls: Arc::default(),
            grpc: grpc::Services::default(),
            handshakes: Semaphore::new(config.limits.handshakes_max.clamp(1, Semaphore::MAX_PERMITS)),
            cores: OnceLock::new(),
            addresses: OnceLock::new(),
            cluster: OnceLock::new(),
            stopping,
            nodes: AtomicUsize::new(0),
            stopping_nodes: AtomicBool::new(false),
            opening,
            sessions,
            answering: Arc::default(),
        })
    }

    /// Nobody is let in yet.
    pub(crate) fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// Why there is no place for a session.
    pub(crate) fn no_place(&self) -> Refused {
        match &self.opening {
            Some(progress) => Refused::new(ErrorCode::Opening, progress.to_string()),
            None => Refused::limit("sessions_max", self.limits.sessions_max as u64),
        }
    }

    /// A place for one more session; `None` when all are taken, or the node is not open yet: [`Shared::no_place`] says so.
    pub(crate) fn admit(self: &Arc<Shared>, session: u64, waiter: &Arc<Waiter>) -> Option<Place> {
        let mut sessions = self.sessions();
        if self.is_opening() || sessions.len() >= self.limits.sessions_max {
            self.traffic.refused();
            return None;
        }
        sessions.insert(session, Arc::clone(waiter));
        Some(Place { shared: Arc::clone(self), session, is_of_node: false })
    }

    /// Charges the node for so many subscriptions, or logs that one reads, which keep so many bytes of text.
    pub(crate) fn charge_readers(&self, readers: usize, texts: usize) -> Result<Charge, SubscribeError> {
        let budget = self.node.budget();
        Charge::of(budget, readers * SUBSCRIPTION_BYTES + texts)
            .map_err(|spent| SubscribeError::Limit { limit: "memory_bytes_max", value: spent.limit })
    }

    /// The threads that serve sessions.
    pub(crate) fn cores(&self) -> &[Core] {
        self.cores.get().map_or(&[], Vec::as_slice)
    }

    /// Says, once, which threads serve sessions.
    pub(crate) fn set_cores(&self, cores: &[Core]) {
        let _ = self.cores.set(cores.to_vec());
    }

    /// Where doors listen.
    pub(crate) fn addresses(&self) -> &[(Door, SocketAddr)] {
        self.addresses.get().map_or(&[], Vec::as_slice)
    }

    /// Says, once, where doors listen.
    pub(crate) fn set_addresses(&self, addresses: &[(Door, SocketAddr)]) {
        let _ = self.addresses.set(addresses.to_vec());
    }

    /// Who owns a topic, where nodes are many.
    pub(crate) fn owner_of(&self, topic: &Topic) -> Option<Owner> {
        self.cluster.get()?.owner_of(topic)
    }

    /// Whether another node owns a topic: what this one holds of it is a part, or nothing.
    pub(crate) fn is_elsewhere(&self, topic: &Topic) -> bool {
        let ownership = self.cluster.get().and_then(|seat| seat.ownership());
        ownership.is_some_and(|ownership| ownership.owner_of(topic).0 != ownership.id())
    }

    /// The id of the cluster that the node is of.
    pub(crate) fn cluster_id(&self) -> Option<&str> {
        self.cluster.get().map(|seat| seat.cluster())
    }

    pub(crate) fn session_count(&self) -> usize {
        self.sessions().len()
    }

    /// Sessions of clients, which are not other nodes.
    pub(crate) fn client_count(&self) -> usize {
        self.session_count().saturating_sub(self.nodes.load(Ordering::Acquire))
    }

    /// Whether sessions are left that may owe their clients answers.
    pub(crate) fn is_answering(&self) -> bool {
        Arc::strong_count(&self.answering) > 1
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn is_stopping_nodes(&self) -> bool {
        self.stopping_nodes.load(Ordering::Acquire)
    }

    /// Tells the sessions of other nodes to say good-bye.
    pub(crate) fn stop_nodes(&self) {
        self.stopping_nodes.store(true, Ordering::Release);
        self.tell(STOP);
    }

    /// Tells every session of a client to say good-bye.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.tell(STOP);
    }

    /// Takes the users file anew, and has every session look at what its user may do now.
    pub(crate) fn reload_users(&self) -> Result<(), UsersError> {
        let Some(access) = &self.access else { return Ok(()) };
        let Changed { removed, changed } = access.reload()?;
        self.tell(USERS);
        self.node.users_changed(removed, changed);
        Ok(())
    }

    /// Where NATS clients reach the nodes of the cluster, by a door; nowhere outside a cluster.
    pub(crate) fn nats_addresses(&self, door: Door) -> Vec<String> {
        self.cluster.get().map_or_else(Vec::new, |seat| seat.addresses_of(door))
    }

    /// Has every session look at where clients reach the nodes now.
    pub(crate) fn nodes_changed(&self) {
        self.tell(NODES);
    }

    fn tell(&self, token: u32) {
        let waiters: Vec<_> = self.sessions().values().cloned().collect();
        waiters.iter().for_each(|waiter| waiter.notify(token));
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<u64, Arc<Waiter>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The session is another node's.
    pub(crate) fn is_of_node(&mut self) {
        self.is_of_node = true;
        self.shared.nodes.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.sessions().remove(&self.session);
        if self.is_of_node {
            self.shared.nodes.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
