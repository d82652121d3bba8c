//! Runs a Dunlin node in a separate process, with the configuration that `dunlin serve` uses. The node has a data
//! directory on a real disk, mutual TLS between nodes, listener `tcp` for clients, and default limits except for
//! memory.
//!
//! For requests that ordinary clients cannot make, the node also serves this suite's own protocol ([`session`]).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin::journal::RealDisk;
use dunlin::{
    Config, ControlGroup, ControlLimits, Node, NodeLimits, OwnershipLimits, TaskShard, TasksLimits,
};
use dunlin_server::cluster::{Cluster, ClusterConfig, ClusterLimits, init};
use dunlin_server::{Server, ServerConfig};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use super::session;
use crate::role::{RoleArgs, print_line};

/// The line that a node process prints when it can serve clients.
#[derive(Serialize, Deserialize)]
pub struct NodeReady {
    /// The id of the node.
    pub id: u64,
}

/// The status of a benchmarked node: leader, log positions, elections, and requests to other nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredNodeStatus {
    /// The id of the leader.
    pub leader: Option<u64>,
    /// The number of voters in the cluster.
    pub voters: usize,
    /// The index of the last entry of the log.
    pub last: u64,
    /// The index of the last applied entry.
    pub applied: u64,
    /// The index of the last entry that a snapshot contains.
    pub snapshot: u64,
    /// For each election that this node won: how long the election took, in ns.
    pub elections_ns: Vec<u64>,
    /// The mean time from the proposal of a command to its result, in ns.
    pub commit_ns: f64,
    /// The address of listener `tcp`.
    pub listener: SocketAddr,
    /// The number of requests that this node sent to other nodes.
    pub asked: u64,
    /// The number of connections that this node opened for its requests to other nodes.
    pub opened: u64,
    /// For each shard of tasks: the id of the shard's leader, and the number of the shard's voters. `None` until this
    /// node takes part in all shards and each shard has a leader.
    pub tasks: Option<Vec<(u64, usize)>>,
}

/// The state of a node process in a key-value benchmark: the node, and its membership in the cluster.
pub struct ControlNodeState {
    /// The part of the node that agrees with the other nodes on keys.
    pub control: Arc<ControlGroup>,
    node: Node,
    listener: SocketAddr,
    cluster: Cluster,
    /// The number and the total duration of all commits up to the last reset. Only later commits are reported.
    before: Mutex<(u64, Duration)>,
}

const MEMORY_BYTES_MAX: u64 = 8 << 30;
/// The memory limit for keys, in bytes, which is enough for ten million keys.
const KEY_BYTES_MAX: u64 = 8 << 30;
/// The memory limit for tasks, in bytes, which is enough for ten million waiting tasks.
const TASK_BYTES_MAX: u64 = 4 << 30;

pub(crate) fn serve(args: &RoleArgs) -> Result<()> {
    let (data_dir, ports): (PathBuf, [u16; 3]) =
        (args.get("dir")?, serde_json::from_str(args.text("ports")?)?);
    let [peer, client, suite] = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let join = match args.text("join")? {
        "" => None,
        address => Some((address.to_owned(), args.text("token")?.parse()?)),
    };
    if join.is_none() && !data_dir.join("cluster").exists() {
        init(&data_dir, &peer.to_string()).context("cannot start a new cluster")?;
    }
    let limits = NodeLimits::with_memory(MEMORY_BYTES_MAX);
    let (control, tasks) = (limits.control, limits.tasks);
    let config = Config { name: "bench".to_owned(), limits, is_cluster_member: true, ..Config::default() };
    let (node, _) = Node::open(config, Arc::new(RealDisk), &data_dir).context("cannot open the node")?;
    let cluster = ClusterConfig {
        listen: peer,
        advertise: None,
        data_dir,
        cancel_join: Default::default(),
        join,
        limits: ClusterLimits::default(),
        control: ControlLimits { state_bytes_max: KEY_BYTES_MAX, ..control },
        tasks: TasksLimits { shards: args.get("shards")?, state_bytes_max: TASK_BYTES_MAX, ..tasks },
        ownership: OwnershipLimits::default(),
    };
    let cluster = Cluster::start(&node, cluster).context("cannot take part in the cluster")?;
    let listeners = ServerConfig { tcp: vec![client], ..ServerConfig::default() };
    let server = Server::start(node.clone(), listeners).context("cannot open the listener")?;
    server.join_cluster(&cluster).context("cannot register the node as an owner of topics")?;
    let listener = *server.tcp_addresses().first().context("the node has no open listener")?;
    let control = Arc::clone(node.control()?);
    let state = ControlNodeState { control, node, listener, cluster, before: Mutex::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(suite).await?;
        print_line(&NodeReady { id: state.cluster.node() })?;
        accept(listener, Arc::new(state)).await;
        Ok(())
    })
}

async fn accept(listener: TcpListener, node: Arc<ControlNodeState>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(session::serve(stream, Arc::clone(&node)));
    }
}

impl ControlNodeState {
    fn task_leaders(&self) -> Option<Vec<(u64, usize)>> {
        let shards = self.node.tasks_if_any()?.shards();
        let lead = |shard: &Arc<TaskShard>| {
            shard.status().ok().and_then(|status| Some((status.leader?, status.voters.len())))
        };
        shards.iter().map(lead).collect()
    }

    /// Returns the node's status. If `reset` is set, commits are counted from zero afterwards.
    pub fn usage(&self, reset: bool) -> Result<MeasuredNodeStatus> {
        let (status, elections) = (self.control.status()?, self.control.elections_won()?);
        let links = self.cluster.link_use();
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let (commands, commit_time) = self.control.commits()?;
        let counted = (commands - before.0).max(1);
        let commit_ns = (commit_time - before.1).as_nanos() as f64 / counted as f64;
        if reset {
            *before = (commands, commit_time);
        }
        Ok(MeasuredNodeStatus {
            leader: status.leader,
            voters: status.voters.len(),
            last: status.last.unwrap_or(0),
            applied: status.applied.unwrap_or(0),
            snapshot: status.snapshot.unwrap_or(0),
            elections_ns: elections.iter().map(|election| election.as_nanos() as u64).collect(),
            commit_ns,
            listener: self.listener,
            asked: links.requests,
            opened: links.connections,
            tasks: self.task_leaders(),
        })
    }
}
