//! Defines `ClusterMember`: the state of a node as a member of its cluster, which all its cluster connections share.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use dunlin::raft::{RequestLane, Status};
use dunlin::{ControlGroup, Leadership, Ownership, Tasks};
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::ClusterLimits;
use super::admin::{self, NodeStatus};
use super::authority::CertificateAuthority;
use super::files::{ClusterDirectory, Incarnation, NodeIdentity};
use super::frame::{ClusterFrameKind, ClusterFrames};
use super::hello::{self, ClusterHello, ClusterWelcome, HelloRefusal, Purpose};
use super::link::LinkCounters;
use super::records::NodeRecord;
use super::secure::ClusterTls;
use super::serving::send_frame;
use crate::Protocol;
use crate::figures::{ANSWER_WITHIN, FiguresRequest, FiguresResponse};
use crate::stream::Stream;

/// For this time after a successful check, this node counts as having the complete agreed state.
const STATE_AGE_MAX: Duration = Duration::from_secs(2);
/// After a successful check, a task shard's Raft group counts as having a majority for this time.
const TASKS_AGE_MAX: Duration = Duration::from_secs(5);
/// While this node has no majority, another node counts as down after this time without a message from it. While this
/// node has a majority, the other node's lease decides instead.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Shortest time between two warnings about the same unreachable node.
const WARNING_INTERVAL: Duration = Duration::from_secs(30);

/// A function that serves another node's connection with Dunlin's own protocol.
type ConnectionHandler = Box<dyn Fn(u64, Stream) -> io::Result<()> + Send + Sync>;
/// A function that collects this node's counters of topics for another node that requests them. The function may take a
/// while.
type FiguresSource = Arc<dyn Fn(&FiguresRequest) -> FiguresResponse + Send + Sync>;

/// The state of a node as a member of its cluster. Cluster connections, listeners and topic ownership share this state.
pub(crate) struct ClusterMember {
    pub(super) limits: ClusterLimits,
    /// Number of task shards with which this node is configured.
    pub(super) shards: u8,
    pub(super) files: ClusterDirectory,
    pub(super) identity: NodeIdentity,
    pub(super) authority: CertificateAuthority,
    pub(super) secrets: ClusterTls,
    pub(super) links: LinkCounters,
    control: OnceLock<Arc<ControlGroup>>,
    tasks: OnceLock<Arc<Tasks>>,
    ownership: OnceLock<Weak<Ownership>>,
    listener: OnceLock<ConnectionHandler>,
    figures: OnceLock<FiguresSource>,
    /// Handles of the two threads that serve connections to other nodes: the first for short messages, the second for
    /// large ones.
    handles: OnceLock<(Handle, Handle)>,
    listeners: Mutex<BTreeMap<String, String>>,
    /// A copy of the cluster's table of nodes, refreshed periodically. Connections read this copy, so that they need
    /// not wait for the agreed state.
    table: Mutex<Vec<NodeRecord>>,
    /// Whether the cluster's table has the present address and start of this node.
    announced: AtomicBool,
    /// Why the cluster refuses this node permanently; unset while the cluster accepts it.
    expelled: OnceLock<String>,
    /// Time of the last check that found the complete agreed state at this node; `None` if no check has succeeded.
    current: Mutex<Option<Instant>>,
    /// For each task shard, the time of the last check that found a majority of its Raft group.
    task_majorities: Mutex<BTreeMap<u8, Instant>>,
    warned: Mutex<BTreeMap<u64, Instant>>,
}

impl std::fmt::Debug for ClusterMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterMember").field("identity", &self.identity).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection between nodes after its handshake, split into a reader of frames and a writer.
pub(super) type MemberConnection = (ClusterFrames<ReadHalf<Stream>>, WriteHalf<Stream>);

impl ClusterMember {
    pub(super) fn new(
        limits: ClusterLimits,
        shards: u8,
        files: ClusterDirectory,
        identity: NodeIdentity,
        authority: CertificateAuthority,
        secrets: ClusterTls,
    ) -> Arc<ClusterMember> {
        Arc::new(ClusterMember {
            limits,
            shards,
            files,
            identity,
            authority,
            secrets,
            links: LinkCounters::default(),
            control: OnceLock::new(),
            tasks: OnceLock::new(),
            ownership: OnceLock::new(),
            listener: OnceLock::new(),
            figures: OnceLock::new(),
            handles: OnceLock::new(),
            listeners: Mutex::default(),
            table: Mutex::default(),
            announced: AtomicBool::new(false),
            expelled: OnceLock::new(),
            current: Mutex::default(),
            task_majorities: Mutex::default(),
            warned: Mutex::default(),
        })
    }

    /// The id of the cluster.
    pub(crate) fn cluster(&self) -> &str {
        &self.identity.cluster
    }

    pub(super) fn control(&self) -> Option<&Arc<ControlGroup>> {
        self.control.get()
    }

    pub(super) fn set_control(&self, control: Arc<ControlGroup>) {
        let _ = self.control.set(control);
    }

    pub(super) fn tasks(&self) -> Option<&Arc<Tasks>> {
        self.tasks.get()
    }

    pub(super) fn set_tasks(&self, tasks: Arc<Tasks>) {
        let _ = self.tasks.set(tasks);
    }

    /// The component that decides which topics this node owns; `None` before it has started or after it has stopped.
    pub(crate) fn ownership(&self) -> Option<Arc<Ownership>> {
        self.ownership.get()?.upgrade()
    }

    pub(super) fn set_ownership(&self, ownership: &Arc<Ownership>) {
        let _ = self.ownership.set(Arc::downgrade(ownership));
    }

    /// Sets the addresses of this node's listeners, and the function that serves other nodes' connections with Dunlin's
    /// own protocol.
    pub(crate) fn set_listeners(
        &self,
        addresses: BTreeMap<String, String>,
        on_connection: ConnectionHandler,
    ) {
        *lock(&self.listeners) = addresses;
        let _ = self.listener.set(on_connection);
    }

    /// Sets the function that collects this node's counters of topics when another node requests them.
    pub(crate) fn set_figures_source(
        &self,
        source: impl Fn(&FiguresRequest) -> FiguresResponse + Send + Sync + 'static,
    ) {
        let _ = self.figures.set(Arc::new(source));
    }

    pub(super) fn figures(&self) -> Option<FiguresSource> {
        self.figures.get().cloned()
    }

    pub(super) fn set_handles(&self, connections: Handle, bulk: Handle) {
        let _ = self.handles.set((connections, bulk));
    }

    /// Handle of the thread that serves connections with large messages; `None` before the handle is set.
    pub(super) fn bulk(&self) -> Option<&Handle> {
        self.handles.get().map(|(_, bulk)| bulk)
    }

    /// Numbers and addresses of the other nodes that are alive.
    pub(crate) fn others(&self) -> Vec<(u64, String)> {
        let is_other = |record: &&NodeRecord| {
            record.removed.is_none() && record.node != self.identity.node && self.is_alive(record.node)
        };
        let table = lock(&self.table).clone();
        table.iter().filter(is_other).map(|record| (record.node, record.address.clone())).collect()
    }

    /// Requests the counters of topics from these nodes, from all at the same time.
    pub(crate) fn request_figures(
        self: &Arc<ClusterMember>,
        others: Vec<(u64, String)>,
        request: FiguresRequest,
    ) -> Vec<(u64, JoinHandle<Option<FiguresResponse>>)> {
        let Some((handle, _)) = self.handles.get() else { return Vec::new() };
        let request = Arc::new(request);
        let spawn_request = |(node, address): (u64, String)| {
            let (member, request) = (Arc::clone(self), Arc::clone(&request));
            let response = async move {
                let response =
                    timeout(ANSWER_WITHIN, admin::request_figures(&member, node, &address, &request)).await;
                match response.unwrap_or_else(|elapsed| Err(elapsed.into())) {
                    Ok(figures) => Some(figures),
                    Err(error) => {
                        tracing::debug!(node, "cannot read the topics' counters of a node: {error}");
                        None
                    }
                }
            };
            (node, handle.spawn(response))
        };
        others.into_iter().map(spawn_request).collect()
    }

    pub(super) fn listeners(&self) -> BTreeMap<String, String> {
        lock(&self.listeners).clone()
    }

    pub(super) fn hand_to_listener(&self, node: u64, stream: Stream) -> io::Result<()> {
        if self.record(node).is_none_or(|record| record.removed.is_some()) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let listener = self.listener.get().ok_or(io::ErrorKind::NotConnected)?;
        listener(node, stream)
    }

    /// The status of the keys' Raft group; `None` if this node takes no part in the group.
    pub(super) fn status(&self) -> Option<Status> {
        self.control()?.status().ok()
    }

    /// The status of the cluster as this node sees it; `None` while this node takes no part in the cluster.
    pub(crate) fn node_status(&self) -> Option<NodeStatus> {
        let control = self.control()?;
        Some(admin::node_status(self, control, &control.status().ok()?))
    }

    /// Calls `matches` with the address of each member's HTTP listener, and returns whether any call returned true.
    /// `matches` compares the address with the origin of a web page.
    pub(crate) fn is_origin(&self, matches: impl Fn(&str) -> bool) -> bool {
        let table = lock(&self.table);
        let members = table.iter().filter(|record| record.removed.is_none());
        members.filter_map(|record| record.listeners.get("http")).any(|address| matches(address))
    }

    /// The entry of `node` in this node's copy of the cluster's table.
    pub(super) fn record(&self, node: u64) -> Option<NodeRecord> {
        lock(&self.table).iter().find(|record| record.node == node).cloned()
    }

    /// The addresses at which the live members serve this protocol. Wildcard addresses such as `0.0.0.0` are omitted,
    /// because clients cannot connect to them.
    pub(crate) fn addresses_of(&self, listener: Protocol) -> Vec<String> {
        let Some(ownership) = self.ownership() else { return Vec::new() };
        let is_live = |record: &&NodeRecord| record.removed.is_none() && ownership.is_alive(record.node);
        let address = |record: &NodeRecord| record.listeners.get(listener.name()).cloned();
        let is_specified = |address: &String| {
            address.parse::<SocketAddr>().map_or(true, |address| !address.ip().is_unspecified())
        };
        lock(&self.table).iter().filter(is_live).filter_map(address).filter(is_specified).collect()
    }

    /// The address of `node` in this node's copy of the cluster's table.
    pub(super) fn address_of(&self, node: u64) -> Option<String> {
        lock(&self.table).iter().find(|record| record.node == node).map(|record| record.address.clone())
    }

    /// Replaces this node's copy of the cluster's table.
    pub(super) fn store_table(&self, table: &[NodeRecord]) {
        let mut stored = lock(&self.table);
        if *stored != table {
            *stored = table.to_vec();
        }
    }

    /// Refuses a node that was removed. The refusal is permanent if no Raft group needs the removed node's vote any
    /// more. An unknown node is accepted, because it may have joined while this node was away.
    pub(super) fn check_removed(&self, node: u64) -> Result<(), HelloRefusal> {
        match self.record(node).and_then(|record| record.removed) {
            Some(why) if self.is_in_a_group(node) => Err(HelloRefusal::temporary(format!(
                "node {node} was removed from this cluster ({why}), and runs until the cluster no longer needs its vote"
            ))),
            Some(why) => Err(HelloRefusal::permanent(format!(
                "node {node} was removed from this cluster ({why}): empty its data directory, and let it join anew with a token \
                 (`dunlin cluster token` on a node of the cluster)"
            ))),
            None => Ok(()),
        }
    }

    /// Whether this node knows `node` as a member of any Raft group: that of the keys, or that of a task shard.
    pub(super) fn is_in_a_group(&self, node: u64) -> bool {
        let includes =
            |status: &Status| status.voters.iter().chain(&status.learners).any(|member| member.id == node);
        let in_tasks = || {
            let shards = self.tasks().into_iter().flat_map(|tasks| tasks.shards());
            shards.filter_map(|shard| shard.status().ok()).any(|status| includes(&status))
        };
        self.status().is_some_and(|status| includes(&status)) || in_tasks()
    }

    /// Refuses a removed node, unless it is still in a Raft group: the group may need the node's vote to complete the
    /// removal. Also refuses a node whose start is older than its last registered start. Starts that were not
    /// registered do not count (`registration`). If they counted, a copy of the node's directory could lock out the
    /// original node although the copy itself failed to start.
    pub(super) fn check_node(
        &self,
        node: u64,
        (now, before): (Option<&Incarnation>, Option<&Incarnation>),
    ) -> Result<(), HelloRefusal> {
        if !self.is_in_a_group(node) {
            self.check_removed(node)?;
        }
        if let Some(known) = self.record(node).and_then(|record| record.incarnation) {
            hello::check_incarnation(node, (now, before), &known)?;
        }
        Ok(())
    }

    /// The entry that the cluster's table should have for this node.
    pub(super) fn own_record(&self) -> NodeRecord {
        NodeRecord {
            node: self.identity.node,
            address: self.identity.address.clone(),
            release: super::RELEASE.to_owned(),
            listeners: self.listeners(),
            incarnation: Some(self.identity.now.clone()),
            removed: None,
        }
    }

    /// Connects to another node and completes the handshake.
    pub(super) async fn open(
        &self,
        node: u64,
        address: &str,
        purpose: Purpose,
    ) -> io::Result<MemberConnection> {
        self.open_for(node, address, (purpose, false)).await
    }

    /// Connects to another node for one lane, which is a kind of requests, and completes the handshake.
    pub(super) async fn open_lane(
        &self,
        node: u64,
        address: &str,
        lane: RequestLane,
    ) -> io::Result<MemberConnection> {
        self.open_for(node, address, (Purpose::Control, lane.may_be_large())).await
    }

    async fn open_for(
        &self,
        node: u64,
        address: &str,
        options: (Purpose, bool),
    ) -> io::Result<MemberConnection> {
        let (connection, welcome) = self.handshake(node, address, options).await?;
        if options.0 == Purpose::Control {
            let started = (welcome.now.as_ref(), welcome.before.as_ref());
            let checked = self.check_node(node, started);
            checked.map_err(|refused| io::Error::new(io::ErrorKind::PermissionDenied, refused.why))?;
        }
        Ok(connection)
    }

    /// Connects to a node at this address, and returns the start that the node reports.
    pub(super) async fn incarnation_at(&self, node: u64, address: &str) -> io::Result<Option<Incarnation>> {
        let time_limit = Duration::from_millis(self.limits.connect_ms_max);
        let (_, welcome) =
            timeout(time_limit, self.handshake(node, address, (Purpose::Admin, false))).await??;
        Ok(welcome.now)
    }

    async fn handshake(
        &self,
        node: u64,
        address: &str,
        (purpose, is_bulk): (Purpose, bool),
    ) -> io::Result<(MemberConnection, ClusterWelcome)> {
        let stream = self.secrets.connect(node, address).await?;
        let (read, mut write) = split(stream);
        let mut frames = ClusterFrames::new(read, self.limits.hello_bytes_max);
        let hello = ClusterHello {
            version: hello::VERSION,
            release: super::RELEASE.to_owned(),
            purpose,
            now: Some(self.identity.now.clone()),
            before: self.identity.before.clone(),
            shards: self.shards,
            is_bulk,
        };
        send_frame(&mut write, 0, ClusterFrameKind::Hello, &super::to_json(&hello)).await?;
        let welcome: ClusterWelcome = super::parse(frames.next().await?, ClusterFrameKind::Hello)?;
        if let Some(refused) = &welcome.refused {
            if refused.for_good {
                self.set_expelled(refused.why.clone());
            }
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, refused.why.clone()));
        }
        frames.set_limit(self.limits.frame_bytes_max);
        Ok(((frames, write), welcome))
    }

    /// Whether the node completes a handshake at this address in time.
    pub(super) async fn is_responding(&self, node: u64, address: &str) -> bool {
        let time_limit = Duration::from_millis(self.limits.connect_ms_max);
        let opened = timeout(time_limit, self.open(node, address, Purpose::Control)).await;
        matches!(opened, Ok(Ok(_)))
    }

    /// Records that the cluster refuses this node permanently, and logs the reason. Later reasons are ignored.
    pub(super) fn set_expelled(&self, why: String) {
        if self.expelled.set(why).is_ok() {
            tracing::error!("{}", self.expelled.get().map_or("", String::as_str));
        }
    }

    /// Why the cluster refuses this node permanently; `None` while the cluster accepts it.
    pub(super) fn expelled(&self) -> Option<&str> {
        self.expelled.get().map(String::as_str)
    }

    /// Why this node's part in the cluster has ended permanently; `None` while it is a member.
    pub(super) fn ended(&self) -> Option<String> {
        let stopped =
            || Some(format!("this node's part in the cluster has ended: {}", self.status()?.stopped?));
        let tasks = || {
            let stopped = self.tasks()?.shards().iter().find_map(|shard| shard.status().ok()?.stopped)?;
            Some(format!("this node's part in the cluster's tasks has ended: {stopped}"))
        };
        self.expelled.get().cloned().or_else(stopped).or_else(tasks)
    }

    /// If the disk is full, describes which data has no room, with the disk's error; otherwise `None`.
    pub(super) fn lacks_room(&self) -> Option<String> {
        let tasks = || self.tasks()?.lacks_room();
        self.control()?.lacks_room().or_else(tasks)
    }

    /// Records that the cluster's table has the present address and start of this node.
    pub(super) fn set_announced(&self) {
        self.announced.store(true, Ordering::Release);
    }

    pub(super) fn is_announced(&self) -> bool {
        self.announced.load(Ordering::Acquire)
    }

    /// Records that this node has the complete agreed state at this moment.
    pub(super) fn set_current(&self) {
        *lock(&self.current) = Some(Instant::now());
    }

    /// Records that the Raft group of this task shard has a leader with a majority at this moment.
    pub(super) fn set_task_majority(&self, shard: u8) {
        lock(&self.task_majorities).insert(shard, Instant::now());
    }

    fn has_task_majority(&self, shard: u8) -> bool {
        lock(&self.task_majorities).get(&shard).is_some_and(|at| at.elapsed() < TASKS_AGE_MAX)
    }

    fn is_fresh(&self, within: Duration) -> bool {
        lock(&self.current).is_some_and(|at| at.elapsed() < within)
    }

    /// The number of the present leader. Raft reports a leader until it knows the next one, even if the leader is dead.
    /// This function returns `None` if the leader is dead or has no majority.
    pub(super) fn leader(&self, status: &Status) -> Option<u64> {
        let is_responsive = |leader: &u64| match *leader == self.identity.node {
            true => self.is_fresh(STATE_AGE_MAX),
            false => self.is_fresh(SILENCE_MAX) || self.links.has_received_from(*leader, SILENCE_MAX),
        };
        status.leader.filter(is_responsive)
    }

    /// The leader that Raft reports for this shard of tasks; with `None`, for the keys.
    pub(super) fn leader_of(&self, shard: Option<u8>) -> Option<u64> {
        let lead = match shard {
            None => self.control()?.lead().ok()?,
            Some(shard) => self.tasks()?.shards().get(usize::from(shard))?.lead().ok()?,
        };
        match lead {
            Leadership::Local => Some(self.identity.node),
            Leadership::Remote(leader) => Some(leader.id),
            Leadership::Unknown => None,
        }
    }

    /// Whether `node` is alive. If this node has the complete state, the lease of `node` decides. If this node lacks
    /// the complete state, it may lack a majority, and leases do not end without a majority. Then `node` counts as
    /// alive if it has sent a message recently.
    pub(crate) fn is_alive(&self, node: u64) -> bool {
        match self.is_fresh(SILENCE_MAX) {
            true => self.ownership().is_some_and(|ownership| ownership.is_alive(node)),
            false => node == self.identity.node || self.links.has_received_from(node, SILENCE_MAX),
        }
    }

    fn describe_missing_leader(&self, status: &Status) -> String {
        if status.voters.is_empty() {
            return "no member of the cluster has sent this node the cluster's state yet".to_owned();
        }
        let is_reachable =
            |id: u64| id == self.identity.node || self.links.has_received_from(id, SILENCE_MAX);
        let silent = status.voters.iter().map(|voter| voter.id).filter(|id| !is_reachable(*id));
        let silent: Vec<String> = silent.map(|id| id.to_string()).collect();
        let (voters, needed) = (status.voters.len(), status.voters.len() / 2 + 1);
        match voters - silent.len() < needed {
            true => format!(
                "the cluster has no leader: {needed} of its {voters} voters must respond, but these do not: \
                 {}",
                silent.join(", ")
            ),
            false => "the cluster has no leader that this node knows of".to_owned(),
        }
    }

    /// Why this node is not ready; `None` if it is ready.
    pub(crate) fn missing(&self) -> Option<String> {
        if let Some(why) = self.ended().or_else(|| self.lacks_room()) {
            return Some(why);
        }
        let Some(status) = self.status() else {
            return Some("this node does not take part in its cluster at present".to_owned());
        };
        if self.leader(&status).is_none() {
            return Some(self.describe_missing_leader(&status));
        }
        if !self.is_announced() {
            return Some("the cluster's table does not have this node's address yet".to_owned());
        }
        if !self.is_fresh(STATE_AGE_MAX) {
            return Some("this node has not caught up with its cluster".to_owned());
        }
        if let Some(leaderless) = (0..self.shards).find(|shard| self.leader_of(Some(*shard)).is_none()) {
            return Some(format!(
                "this node refuses tasks: it knows no leader of the tasks' group {leaderless}"
            ));
        }
        // Raft reports a leader even if it is dead or has no majority.
        if let Some(minority) = (0..self.shards).find(|shard| !self.has_task_majority(*shard)) {
            return Some(format!(
                "this node refuses tasks: the leader of the tasks' group {minority} has no majority"
            ));
        }
        let is_live = self.ownership().is_some_and(|ownership| ownership.is_alive(ownership.id()));
        if !is_live {
            return Some("this node owns no topics: its lease has expired, or has not begun".to_owned());
        }
        if !status.has_vote {
            return Some("this node has no vote in its cluster yet".to_owned());
        }
        let has_vote = |shard: u8| {
            let tasks = self.tasks()?;
            Some(tasks.shards().get(usize::from(shard))?.status().ok()?.has_vote)
        };
        let voteless = (0..self.shards).find(|shard| has_vote(*shard) != Some(true))?;
        Some(format!("this node has no vote in the tasks' group {voteless} yet"))
    }

    pub(super) fn log_unreachable(&self, node: u64, address: &str, error: &io::Error) {
        let mut warned = lock(&self.warned);
        if warned.get(&node).is_none_or(|at| at.elapsed() > WARNING_INTERVAL) {
            warned.insert(node, Instant::now());
            tracing::warn!(node, address, "cannot reach another node: {error}");
        }
    }
}
