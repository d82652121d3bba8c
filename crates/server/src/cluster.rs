//! Lets a node take part in a cluster: joins the cluster, keeps its table of nodes, removes nodes, and connects nodes
//! to each other.
//!
//! Nodes connect to each other at a port of their own, with TLS and certificates that the cluster's own authority
//! issues (`link`, `serving`). [`ControlGroup`], which holds the agreed state, sends its messages over these connections.
//! The table of nodes is part of the agreed state (`records`). The leader changes the members of the Raft groups until
//! they match this table (`reconcile`).
//!
//! Invariants:
//! - A node without a certificate of the cluster can do nothing but join, and needs a join token to join.
//! - A node number is never assigned twice. If a node was removed, or its directory is an old copy or used by another
//!   process, the cluster refuses the node with instructions, and the node ends (`registration`).
//! - Requests between nodes have several kinds, which are called lanes. Each lane has its own connection, and lanes
//!   with large messages have their own thread, so that heartbeats and votes never wait for large messages.
//!
//! Limits: [`ClusterLimits`].
//!
//! Rejected design: fewer connections that interleave the frames of all lanes. A frame cannot overtake data in the
//! kernel's buffers, and under load these buffers hold megabytes.

mod admin;
mod authority;
mod backup;
mod client;
mod error;
mod files;
mod frame;
mod hello;
mod hex;
mod join;
mod limits;
mod link;
mod marks;
mod member;
mod owner;
mod reconcile;
mod records;
mod registration;
mod secure;
mod serving;
mod token;
mod topics;
mod transport;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dunlin::journal::{Disk, RealDisk};
use dunlin::raft::RaftMember;
use dunlin::{ControlGroup, ControlLimits, Node, OwnershipLimits, Tasks, TasksLimits};
use futures_util::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub use admin::NodeStatus;
pub use backup::{BackupHeader, back_up, restore};
pub use client::{ClusterClient, NodeSurvey};
pub use error::ClusterError;
pub use limits::ClusterLimits;
pub(crate) use member::ClusterMember;
pub(crate) use owner::TopicOwner;
pub use records::NodeRecord;
pub use token::JoinToken;

use authority::CertificateAuthority;
use files::{ClusterDirectory, NodeIdentity};
use frame::{ClusterFrame, ClusterFrameKind};
use secure::ClusterTls;
use transport::RaftTransport;

/// The version of this build of Dunlin.
pub(crate) const RELEASE: &str = env!("CARGO_PKG_VERSION");
/// How long a stopping node waits until another node has become the leader.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(3);

/// The configuration of a node that takes part in a cluster.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// Address of the port for other nodes; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Host and port under which other nodes reach this node, if they differ from `listen`.
    pub advertise: Option<String>,
    /// The node's data directory.
    pub data_dir: PathBuf,
    /// Address of a member of the cluster, and a join token. Both are ignored if the node has joined before.
    pub join: Option<(String, JoinToken)>,
    /// Another thread sets this to true to cancel joining, which then fails with [`ClusterError::JoinCancelled`].
    pub cancel_join: Arc<AtomicBool>,
    /// Limits of the connections between nodes.
    pub limits: ClusterLimits,
    /// Limits of the agreed state, such as keys and leases.
    pub control: ControlLimits,
    /// Limits of tasks.
    pub tasks: TasksLimits,
    /// Limits of topic ownership.
    pub ownership: OwnershipLimits,
}

/// This node's part in its cluster. Dropping the value stops this part; the node remains a member.
pub struct Cluster {
    member: Arc<ClusterMember>,
    address: SocketAddr,
    handle: Handle,
    topics: topics::ClusterTopics,
    threads: Vec<StoppableThread>,
}

/// How many requests a node has sent to other nodes, and how many connections to them it has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLinkCounts {
    /// Number of sent requests.
    pub requests: u64,
    /// Number of opened connections.
    pub connections: u64,
}

/// A thread, and a sender. Dropping the sender ends the thread.
type StoppableThread = (oneshot::Sender<()>, JoinHandle<()>);

impl Cluster {
    /// Starts the node as a member of the cluster that its data directory names. [`init`] may have prepared this
    /// directory for a new cluster. If the directory names no cluster, the node first joins one.
    ///
    /// Call this before the listeners start and before the agreed state is used.
    pub fn start(node: &Node, config: ClusterConfig) -> Result<Cluster, ClusterError> {
        let listen = |error| ClusterError::Listen { address: config.listen, error };
        let listener = std::net::TcpListener::bind(config.listen).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (handle, connections) = start_thread("dunlin-cluster")?;
        // Large messages have a thread of their own, so that they do not delay heartbeats.
        let (bulk, transfers) = start_thread("dunlin-cluster-bulk")?;
        // Async tasks that read the agreed state have a thread of their own, because applying a snapshot may lock the
        // state for a long time.
        let (state_handle, state_thread) = start_thread("dunlin-cluster-care")?;
        // Each shard of tasks has a thread of its own, so that work on tasks delays neither keys nor heartbeats.
        let mut schedules = Vec::new();
        for _ in 0..config.tasks.shards {
            schedules.push(start_thread("dunlin-cluster-tasks")?);
        }
        let advertised_address = advertised(&config, address)?;
        let files = ClusterDirectory::of(&config.data_dir);
        let (identity, authority, is_new) =
            handle.block_on(open_identity(&files, &config, &advertised_address))?;
        let certificate = authority.issue(identity.node, address_host(&identity.address))?;
        files.write_certificate(&certificate.cert_pem, &certificate.key_pem)?;
        let secrets = ClusterTls::new(&identity.cluster, &authority, &certificate)?;
        let raft_member = RaftMember { id: identity.node, address: identity.address.clone() };
        let member =
            ClusterMember::new(config.limits, config.tasks.shards, files, identity, authority, secrets);
        member.set_handles(handle.clone(), bulk.clone());
        // Accepts connections before this start is registered: during the registration, other nodes check whether this
        // node's address responds.
        let accepting = Arc::clone(&member);
        handle.spawn(async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => serving::accept(accepting, listener).await,
                Err(error) => tracing::error!(%error, "cannot listen for other nodes"),
            }
        });
        if member.identity.before.is_some() {
            handle.block_on(registration::register(&member)).map_err(ClusterError::Refused)?;
        }
        let links = RaftTransport::new(Arc::clone(&member), None, handle.clone(), bulk.clone());
        let (disk, dir) = (Arc::new(RealDisk), ClusterDirectory::control_dir(&config.data_dir));
        let control = ControlGroup::start_member(node, raft_member.id, disk, &dir, links, config.control);
        let control = control.map_err(ClusterError::io("cannot take part in the cluster"))?;
        if !node.set_control(Arc::clone(&control)) {
            return Err(ClusterError::Refused("the node takes part in a cluster already".to_owned()));
        }
        member.set_control(Arc::clone(&control));
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let links = |shard: u8| {
            let handle = schedules[usize::from(shard)].0.clone();
            RaftTransport::new(Arc::clone(&member), Some(shard), handle, bulk.clone())
        };
        let dir = ClusterDirectory::tasks_dir(&config.data_dir);
        let tasks = Tasks::start_member(node, raft_member.id, &disk, &dir, links, config.tasks);
        let tasks = tasks.map_err(ClusterError::io("cannot start the cluster's task scheduler"))?;
        if !node.set_tasks(Arc::clone(&tasks)) {
            return Err(ClusterError::Refused(
                "cannot start the cluster's task scheduler: the node has one already".to_owned(),
            ));
        }
        member.set_tasks(tasks);
        if member.identity.is_restored {
            handle.block_on(reconcile::finish_restore(&member, &control))?;
        }
        let topics = topics::ClusterTopics::start(node, &member, &control, config.ownership)?;
        if is_new {
            if !handle.block_on(control.is_begun())? {
                handle.block_on(control.begin(&[raft_member]))?;
                tracing::info!(cluster = member.identity.cluster, "this node began a new cluster");
            }
            member.files.write_identity(&member.identity.clone().settled())?;
        }
        let mut threads = vec![state_thread, transfers];
        threads.extend(schedules.into_iter().map(|(_, thread)| thread));
        threads.push(connections);
        state_handle.spawn(reconcile::run(Arc::clone(&member)));
        state_handle.spawn(reconcile::reconcile_groups(Arc::clone(&member)));
        state_handle.spawn(reconcile::track_current_state(Arc::clone(&member)));
        state_handle.spawn(reconcile::track_task_groups(Arc::clone(&member)));
        Ok(Cluster { member, address, handle, topics, threads })
    }

    /// Takes over this node's share of the topics once the agreed state is complete. Call this when the listeners are
    /// open.
    pub(crate) fn own_topics(&self) {
        self.topics.take_share();
    }

    /// The address at which other nodes reach this node, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The host name or IP address at which other nodes reach this node.
    pub(crate) fn host(&self) -> &str {
        self.member.identity.address.rsplit_once(':').map_or("", |(host, _)| host)
    }

    /// The node's number.
    pub fn node(&self) -> u64 {
        self.member.identity.node
    }

    /// The id of the cluster.
    pub fn cluster(&self) -> &str {
        &self.member.identity.cluster
    }

    /// The number of requests sent and connections opened to other nodes since the start.
    pub fn link_use(&self) -> NodeLinkCounts {
        let count = |counted: &AtomicU64| counted.load(Ordering::Relaxed);
        NodeLinkCounts {
            requests: count(&self.member.links.requests),
            connections: count(&self.member.links.connections),
        }
    }

    /// Why this node has left the cluster permanently: its disk failed, or it was removed. The process should then
    /// end. `None` while the node is a member.
    pub fn ended(&self) -> Option<String> {
        self.member.ended()
    }

    /// Why the cluster no longer accepts this node: it was removed, or another copy of its directory started later.
    /// The process should then end. `None` while the cluster accepts the node.
    pub fn expelled(&self) -> Option<&str> {
        self.member.expelled()
    }

    /// Why the node is not ready; `None` if the cluster has a leader and this node has the complete state.
    pub fn missing(&self) -> Option<String> {
        self.member.missing()
    }

    /// Hands this node's volatile topics and the leadership over to other nodes. Call this before the node ends.
    pub fn hand_over(&self) {
        self.topics.leave();
        let (done, receiver) = std::sync::mpsc::channel();
        let member = Arc::clone(&self.member);
        self.handle.spawn(async move {
            let transfer_tasks = async {
                let shards = member.tasks().into_iter().flat_map(|tasks| tasks.shards());
                join_all(shards.map(|shard| admin::transfer_task_lead(shard, None))).await;
            };
            tokio::join!(transfer_lead(&member), transfer_tasks);
            let _ = done.send(());
        });
        let _ = receiver.recv_timeout(HAND_OVER_TIMEOUT);
    }

    pub(crate) fn member(&self) -> &Arc<ClusterMember> {
        &self.member
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.topics.end();
        if let Some(tasks) = self.member.tasks() {
            tasks.stop();
        }
        if let Some(control) = self.member.control() {
            control.stop();
        }
        for (end, thread) in self.threads.drain(..) {
            let _ = end.send(());
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("node", &self.node())
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Transfers the leadership to another voter, if this node leads and there is another voter.
async fn transfer_lead(member: &ClusterMember) {
    if let Some(control) = member.control()
        && control.status().is_ok_and(|status| status.leader == Some(status.id) && status.voters.len() > 1)
    {
        match admin::transfer_lead(control, None, admin::TRANSFER_TIMEOUT).await {
            Ok(Some(leader)) => tracing::info!(leader, "another node is the leader now"),
            Ok(None) => tracing::warn!(
                "no other node became the leader; the cluster elects one after this node has ended"
            ),
            Err(error) => tracing::warn!("cannot give the leadership to another node: {error}"),
        }
    }
}

/// Starts a thread that runs an async runtime.
fn start_thread(name: &str) -> Result<(Handle, StoppableThread), ClusterError> {
    let failed = || ClusterError::io("cannot start the cluster's thread");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed())?;
    let handle = runtime.handle().clone();
    let (end, ended) = oneshot::channel();
    let run = move || drop(runtime.block_on(ended));
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run).map_err(failed())?;
    Ok((handle, (end, thread)))
}

fn advertised(config: &ClusterConfig, address: SocketAddr) -> Result<String, ClusterError> {
    match &config.advertise {
        Some(advertise) if join::is_reachable(advertise) => Ok(advertise.clone()),
        Some(advertise) => Err(ClusterError::Refused(format!(
            "{advertise:?} is not an address of a node: expected a host and a port, such as \
                 node-1.example:6222"
        ))),
        None if address.ip().is_unspecified() => Err(ClusterError::Refused(format!(
            "other nodes cannot reach {address}: give this node's address with --cluster-advertise HOST:{}",
            address.port()
        ))),
        None => Ok(address.to_string()),
    }
}

/// Prepares a data directory for the first node of a new cluster, and returns the cluster's id. Topics, keys and tasks
/// that are in the directory remain.
///
/// `address` is the address at which other nodes will reach this node; it may be different at the next start. Fails if
/// the directory already belongs to a member of a cluster.
pub fn init(data_dir: &Path, address: &str) -> Result<String, ClusterError> {
    let files = ClusterDirectory::of(data_dir);
    if let Some(identity) = files.identity()? {
        return Err(ClusterError::Refused(format!(
            "{} is node {} of cluster {} already: start it with `dunlin serve`",
            data_dir.display(),
            identity.node,
            identity.cluster
        )));
    }
    marks::refuse_member(&files, data_dir)?;
    let cluster = new_cluster()?;
    files.write_authority(&CertificateAuthority::generate(&cluster)?)?;
    files.write_identity(&NodeIdentity::first(&cluster, backup::FIRST_NODE, address)?)?;
    Ok(cluster)
}

/// Reads the node's identity from its directory, or obtains an identity by joining a cluster. Also returns whether this
/// start begins a new cluster.
async fn open_identity(
    files: &ClusterDirectory,
    config: &ClusterConfig,
    address: &str,
) -> Result<(NodeIdentity, CertificateAuthority, bool), ClusterError> {
    let dir = config.data_dir.display();
    if let Some(identity) = files.identity()? {
        let authority = files.authority(&identity.cluster)?;
        if let Some((_, token)) = &config.join
            && token.fingerprint != authority.fingerprint()?
        {
            return Err(ClusterError::Refused(format!(
                "{dir} belongs to node {} of cluster {}, but the join token is for another cluster: start the node without --join, or give an empty directory",
                identity.node, identity.cluster
            )));
        }
        let begins = identity.begins;
        let identity = if begins { identity.with_address(address) } else { identity.next_start(address)? };
        files.write_identity(&identity)?;
        return Ok((identity, authority, begins));
    }
    marks::refuse_member(files, &config.data_dir)?;
    if let Some((bootstrap_address, token)) = &config.join {
        if ClusterDirectory::control_dir(&config.data_dir).exists() {
            return Err(ClusterError::Refused(format!(
                "{dir} contains the keys of a single node, which it would lose by joining a cluster. Give an \
                 empty directory; or create a cluster from {dir} (`dunlin cluster init --data-dir {dir}`), \
                 and let the other nodes join that cluster"
            )));
        }
        let (identity, authority) = tokio::select! {
            joined = join::join(files, bootstrap_address, token, address, config) => joined?,
            () = join::wait_until_cancelled(&config.cancel_join) => return Err(ClusterError::JoinCancelled),
        };
        return Ok((identity, authority, false));
    }
    Err(ClusterError::Refused(format!(
        "{dir} is not the data directory of a cluster's node. If a node's directory was here and is lost (is \
         its volume mounted?), let the node join its cluster anew: run `dunlin cluster token --data-dir DIR \
         > token` on another node, then `dunlin serve … --join HOST:PORT --token-file token` here. To begin \
         a new cluster, run `dunlin cluster init --data-dir {dir}` once"
    )))
}

fn new_cluster() -> Result<String, ClusterError> {
    let mut bytes = [0; 8];
    random(&mut bytes)?;
    Ok(hex::write(&bytes))
}

fn random(bytes: &mut [u8]) -> Result<(), ClusterError> {
    let filled = getrandom::fill(bytes).map_err(io::Error::other);
    filled.map_err(ClusterError::io("the system provides no random numbers"))
}

/// Returns the host of an address.
fn address_host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Encodes a message as JSON, which is used for infrequent messages.
fn to_json(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_default()
}

fn parse<T: DeserializeOwned>(frame: ClusterFrame, kind: ClusterFrameKind) -> io::Result<T> {
    if frame.kind != kind {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the client sent an unexpected message"));
    }
    serde_json::from_slice(&frame.payload).map_err(io::Error::from)
}
