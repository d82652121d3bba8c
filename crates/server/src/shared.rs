//! Defines the state that all listeners and sessions of a server share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use dunlin::topic::{MemoryBudget, Topic, Waiter};
use dunlin::wire::ErrorCode;
use dunlin::{Node, Refused};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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

/// Token of the notification that the server stops.
pub(crate) const STOP: u32 = u32::MAX - 1;
/// Token of the notification that the users file has changed.
pub(crate) const USERS: u32 = u32::MAX - 4;
/// Token of the notification that the client's login has a result.
pub(crate) const LOGIN: u32 = u32::MAX - 5;
/// Token of the notification that the addresses of the cluster's NATS listeners have changed.
pub(crate) const NODES: u32 = u32::MAX - 9;

/// How many connections beyond `sessions_max` may send a health probe at the same time.
const PROBES_MAX: usize = 32;

/// The state that all listeners and sessions of a server share.
#[derive(Debug)]
pub(crate) struct SharedServer {
    pub(crate) node: Node,
    /// The login share: the memory budget for connections before their login, and for request heads.
    pub(crate) login_budget: Arc<MemoryBudget>,
    pub(crate) limits: ServerLimits,
    /// Whether the listeners' threads poll all the time instead of sleeping.
    pub(crate) spin: bool,
    /// The users and their permissions; `None` if every client has all permissions.
    pub(crate) access: Option<Arc<Access>>,
    /// The configured origins whose web pages may send HTTP requests to this node.
    pub(crate) origins: Vec<String>,
    /// Path of the file that is served at `/report`.
    pub(crate) report: Option<std::path::PathBuf>,
    /// The TLS certificate; `None` if the listeners do not use TLS.
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
    /// How often the watchdog has found a listener's thread that was blocked.
    pub(crate) stalls: Arc<AtomicU64>,
    /// Limits the TLS handshakes that are in progress at the same time.
    pub(crate) handshakes: HandshakePermits,
    cores: OnceLock<Vec<Core>>,
    addresses: OnceLock<Vec<(Protocol, SocketAddr)>>,
    /// This node's part in its cluster; unset if the node is not in a cluster.
    pub(crate) cluster: OnceLock<Arc<ClusterMember>>,
    pub(crate) grpc: grpc::Services,
    stopping: AtomicBool,
    /// How many of the sessions belong to other nodes of the cluster. These sessions are ended last.
    node_sessions: AtomicUsize,
    is_stopping_nodes: AtomicBool,
    /// The progress of the node's start; `None` if the node has started.
    opening: Option<Arc<StartupProgress>>,
    sessions: Mutex<HashMap<u64, Arc<Waiter>>>,
    probe_slots: Arc<Semaphore>,
    /// Every session of Dunlin's own protocol that may still have to respond to a client holds a reference to this
    /// value.
    pub(crate) pending_responses: Arc<()>,
}

/// Counts one open session of the server until the value is dropped.
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
            probe_slots: Arc::new(Semaphore::new(PROBES_MAX)),
            pending_responses: Arc::default(),
        })
    }

    /// Whether the node is still starting. A starting node refuses every session.
    pub(crate) fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// Why [`SharedServer::admit`] has just refused a session.
    pub(crate) fn admission_refusal(&self) -> Refused {
        match &self.opening {
            Some(progress) => Refused::new(ErrorCode::Opening, progress.to_string()),
            None => Refused::limit("sessions_max", self.limits.sessions_max as u64),
        }
    }

    /// Admits a session. Returns `None` if there are too many sessions, or if the node is still starting;
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

    /// Lets an HTTP connection beyond `sessions_max` send a health probe. The slot is free again when the returned
    /// permit is dropped. Returns `None` if all slots are in use, or if the node is still starting.
    pub(crate) fn reserve_probe_slot(&self) -> Option<OwnedSemaphorePermit> {
        if self.is_opening() { None } else { Arc::clone(&self.probe_slots).try_acquire_owned().ok() }
    }

    /// The threads on which sessions run.
    pub(crate) fn cores(&self) -> &[Core] {
        self.cores.get().map_or(&[], Vec::as_slice)
    }

    /// Sets the threads on which sessions run. Only the first call has an effect.
    pub(crate) fn set_cores(&self, cores: &[Core]) {
        let _ = self.cores.set(cores.to_vec());
    }

    /// The TCP addresses of the listeners, each with its protocol.
    pub(crate) fn addresses(&self) -> &[(Protocol, SocketAddr)] {
        self.addresses.get().map_or(&[], Vec::as_slice)
    }

    /// Sets the addresses of the listeners. Only the first call has an effect.
    pub(crate) fn set_addresses(&self, addresses: &[(Protocol, SocketAddr)]) {
        let _ = self.addresses.set(addresses.to_vec());
    }

    /// The owner of a topic; `None` if the node is not in a cluster, or does not know the owner.
    pub(crate) fn owner_of(&self, topic: &Topic) -> Option<TopicOwner> {
        self.cluster.get()?.owner_of(topic)
    }

    /// Whether another node owns the topic. This node then has at most some of the topic's records.
    pub(crate) fn is_elsewhere(&self, topic: &Topic) -> bool {
        let ownership = self.cluster.get().and_then(|member| member.ownership());
        ownership.is_some_and(|ownership| ownership.owner_of(topic).0 != ownership.id())
    }

    /// The id of the cluster; `None` if the node is not in a cluster.
    pub(crate) fn cluster_id(&self) -> Option<&str> {
        self.cluster.get().map(|member| member.cluster())
    }

    pub(crate) fn session_count(&self) -> usize {
        self.sessions().len()
    }

    /// Number of sessions that do not belong to other nodes.
    pub(crate) fn client_count(&self) -> usize {
        self.session_count().saturating_sub(self.node_sessions.load(Ordering::Acquire))
    }

    /// Whether any session may still have to send a response to its client.
    pub(crate) fn has_pending_responses(&self) -> bool {
        Arc::strong_count(&self.pending_responses) > 1
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn is_stopping_nodes(&self) -> bool {
        self.is_stopping_nodes.load(Ordering::Acquire)
    }

    /// Asks the sessions that belong to other nodes to end.
    pub(crate) fn stop_nodes(&self) {
        self.is_stopping_nodes.store(true, Ordering::Release);
        self.notify_sessions(STOP);
    }

    /// Asks the sessions of all clients to end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.notify_sessions(STOP);
    }

    /// Reads the users file again and applies it. If the file is valid, notifies every session, which then checks its
    /// user's permissions again.
    pub(crate) fn reload_users(&self) -> Result<(), UsersError> {
        let Some(access) = &self.access else { return Ok(()) };
        let ChangedUsers { removed, changed } = access.reload()?;
        self.notify_sessions(USERS);
        self.node.users_changed(removed, changed);
        Ok(())
    }

    /// The addresses at which the cluster's members serve this protocol; empty if the node is not in a cluster.
    pub(crate) fn nats_addresses(&self, protocol: Protocol) -> Vec<String> {
        self.cluster.get().map_or_else(Vec::new, |member| member.addresses_of(protocol))
    }

    /// Notifies every session that the addresses of the cluster's members have changed.
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
    /// Marks the session as belonging to another node.
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
