//! State that all sessions of a server share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use dunlin::topic::{MemoryBudget, Topic, Waiter};
use dunlin::wire::ErrorCode;
use dunlin::{Node, Refused};

use crate::accept_failures::AcceptStatus;
use crate::access::{Access, ChangedUsers, UsersError};
use crate::charging;
use crate::cluster::{ClusterMember, TopicOwner};
use crate::config::{ServerConfig, ServerLimits};
use crate::departures::Departures;
use crate::grpc;
use crate::housekeeping::Housekeeping;
use crate::http::Surveys;
use crate::node_connections::NodeConnections;
use crate::node_report::NodeReports;
use crate::opening::StartupProgress;
use crate::protocol::Protocol;
use crate::reload::Reloads;
use crate::runtime::Core;
use crate::tls::{HandshakePermits, TlsIdentity};
use crate::traffic::Traffic;

/// Token with which a waiter is notified that the server stops.
pub(crate) const STOP: u32 = u32::MAX - 1;
/// Token with which a waiter is notified that the users file has changed.
pub(crate) const USERS: u32 = u32::MAX - 4;
/// Token with which a waiter is notified that the client's login has a result.
pub(crate) const LOGIN: u32 = u32::MAX - 5;
/// Token with which a waiter is notified that the addresses of the cluster's NATS listeners have changed.
pub(crate) const NODES: u32 = u32::MAX - 9;

/// The state that all listeners and sessions of a server share.
#[derive(Debug)]
pub(crate) struct SharedServer {
    pub(crate) node: Node,
    /// The budget for connections before their login, and for request heads.
    pub(crate) login_budget: Arc<MemoryBudget>,
    pub(crate) limits: ServerLimits,
    /// Whether the threads of the listeners never park.
    pub(crate) spin: bool,
    /// Users and permissions; without them, every client has all permissions.
    pub(crate) access: Option<Arc<Access>>,
    /// Origins whose web pages may use HTTP.
    pub(crate) origins: Vec<String>,
    /// The file served at `/report`.
    pub(crate) report: Option<std::path::PathBuf>,
    /// The certificate, if clients must use TLS.
    pub(crate) tls: Option<Arc<TlsIdentity>>,
    pub(crate) reloads: Arc<Reloads>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) surveys: Surveys,
    pub(crate) node_report: NodeReports,
    pub(crate) node_connections: NodeConnections,
    pub(crate) began: Instant,
    pub(crate) departures: Departures,
    pub(crate) housekeeping: Housekeeping,
    pub(crate) accept_status: AcceptStatus,
    /// Number of stalls that the watchdog has detected in listener threads.
    pub(crate) stalls: Arc<AtomicU64>,
    /// Permits for TLS handshakes.
    pub(crate) handshakes: HandshakePermits,
    cores: OnceLock<Vec<Core>>,
    addresses: OnceLock<Vec<(Protocol, SocketAddr)>>,
    /// The node's part in its cluster, if it has one.
    pub(crate) cluster: OnceLock<Arc<ClusterMember>>,
    pub(crate) grpc: grpc::Services,
    stopping: AtomicBool,
    /// Number of sessions of other nodes. They are ended last.
    node_sessions: AtomicUsize,
    is_stopping_nodes: AtomicBool,
    /// The progress of the start, while the node is still starting.
    opening: Option<Arc<StartupProgress>>,
    sessions: Mutex<HashMap<u64, Arc<Waiter>>>,
    /// Each session of Dunlin's own protocol that may still owe responses holds a reference to this value.
    pub(crate) pending_responses: Arc<()>,
}

/// Counts one session of the server until it is dropped.
#[derive(Debug)]
pub(crate) struct SessionGuard {
    shared: Arc<SharedServer>,
    session: u64,
    is_of_node: bool,
}

impl SharedServer {
    pub(crate) fn new(
        node: Node,
        config: &ServerConfig,
        tls: Option<Arc<TlsIdentity>>,
        access: Option<Arc<Access>>,
        opening: Option<Arc<StartupProgress>>,
    ) -> Arc<SharedServer> {
        let (stopping, sessions) = (AtomicBool::new(false), Mutex::default());
        Arc::new(SharedServer {
            login_budget: charging::login_budget(&node),
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
            node_report: NodeReports::default(),
            node_connections: NodeConnections::default(),
            began: Instant::now(),
            departures: Departures::new(config.limits.departures_max),
            housekeeping: Housekeeping::default(),
            accept_status: AcceptStatus::default(),
            stalls: Arc::default(),
            grpc: grpc::Services::default(),
            handshakes: HandshakePermits::new(config.limits.handshakes_max),
            cores: OnceLock::new(),
            addresses: OnceLock::new(),
            cluster: OnceLock::new(),
            stopping,
            node_sessions: AtomicUsize::new(0),
            is_stopping_nodes: AtomicBool::new(false),
            opening,
            sessions,
            pending_responses: Arc::default(),
        })
    }

    /// Whether the node is still starting and refuses every session.
    pub(crate) fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// The reason why [`SharedServer::admit`] did not admit a session.
    pub(crate) fn admission_refusal(&self) -> Refused {
        match &self.opening {
            Some(progress) => Refused::new(ErrorCode::Opening, progress.to_string()),
            None => Refused::limit("sessions_max", self.limits.sessions_max as u64),
        }
    }

    /// Admits one more session. Returns `None` if the limit is reached or the node is still starting;
    /// [`SharedServer::admission_refusal`] then returns the reason.
    pub(crate) fn admit(
        self: &Arc<SharedServer>,
        session: u64,
        waiter: &Arc<Waiter>,
    ) -> Option<SessionGuard> {
        let mut sessions = self.sessions();
        if self.is_opening() || sessions.len() >= self.limits.sessions_max {
            self.traffic.count_refused();
            return None;
        }
        sessions.insert(session, Arc::clone(waiter));
        Some(SessionGuard { shared: Arc::clone(self), session, is_of_node: false })
    }

    /// The threads that serve sessions.
    pub(crate) fn cores(&self) -> &[Core] {
        self.cores.get().map_or(&[], Vec::as_slice)
    }

    /// Sets the threads that serve sessions. May be called once.
    pub(crate) fn set_cores(&self, cores: &[Core]) {
        let _ = self.cores.set(cores.to_vec());
    }

    /// The listeners' addresses.
    pub(crate) fn addresses(&self) -> &[(Protocol, SocketAddr)] {
        self.addresses.get().map_or(&[], Vec::as_slice)
    }

    /// Sets the listeners' addresses. May be called once.
    pub(crate) fn set_addresses(&self, addresses: &[(Protocol, SocketAddr)]) {
        let _ = self.addresses.set(addresses.to_vec());
    }

    /// The owner of a topic; `None` outside a cluster.
    pub(crate) fn owner_of(&self, topic: &Topic) -> Option<TopicOwner> {
        self.cluster.get()?.owner_of(topic)
    }

    /// Whether another node owns a topic, so that this node holds at most a part of it.
    pub(crate) fn is_elsewhere(&self, topic: &Topic) -> bool {
        let ownership = self.cluster.get().and_then(|member| member.ownership());
        ownership.is_some_and(|ownership| ownership.owner_of(topic).0 != ownership.id())
    }

    /// The id of the node's cluster; `None` outside a cluster.
    pub(crate) fn cluster_id(&self) -> Option<&str> {
        self.cluster.get().map(|member| member.cluster())
    }

    pub(crate) fn session_count(&self) -> usize {
        self.sessions().len()
    }

    /// Number of sessions of clients that are not other nodes.
    pub(crate) fn client_count(&self) -> usize {
        self.session_count().saturating_sub(self.node_sessions.load(Ordering::Acquire))
    }

    /// Whether a session still exists that may owe its client a response.
    pub(crate) fn has_pending_responses(&self) -> bool {
        Arc::strong_count(&self.pending_responses) > 1
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn is_stopping_nodes(&self) -> bool {
        self.is_stopping_nodes.load(Ordering::Acquire)
    }

    /// Asks the sessions of other nodes to end.
    pub(crate) fn stop_nodes(&self) {
        self.is_stopping_nodes.store(true, Ordering::Release);
        self.notify_sessions(STOP);
    }

    /// Asks every client's session to end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.notify_sessions(STOP);
    }

    /// Reads the users file again, and makes every session check its user's permissions.
    pub(crate) fn reload_users(&self) -> Result<(), UsersError> {
        let Some(access) = &self.access else { return Ok(()) };
        let ChangedUsers { removed, changed } = access.reload()?;
        self.notify_sessions(USERS);
        self.node.users_changed(removed, changed);
        Ok(())
    }

    /// The addresses at which all members serve this protocol; empty outside a cluster.
    pub(crate) fn nats_addresses(&self, protocol: Protocol) -> Vec<String> {
        self.cluster.get().map_or_else(Vec::new, |member| member.addresses_of(protocol))
    }

    /// Notifies every session that the members' addresses have changed.
    pub(crate) fn nodes_changed(&self) {
        self.notify_sessions(NODES);
    }

    fn notify_sessions(&self, token: u32) {
        let waiters: Vec<_> = self.sessions().values().cloned().collect();
        waiters.iter().for_each(|waiter| waiter.notify(token));
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<u64, Arc<Waiter>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionGuard {
    /// Marks the session as one of another node.
    pub(crate) fn mark_as_node(&mut self) {
        self.is_of_node = true;
        self.shared.node_sessions.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.shared.sessions().remove(&self.session);
        if self.is_of_node {
            self.shared.node_sessions.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
