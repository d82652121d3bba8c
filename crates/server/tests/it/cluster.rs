//! Tests the port at which a node of a cluster accepts connections from other nodes.

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use dunlin::journal::RealDisk;
use dunlin::{Config, ControlLimits, Leadership, Node, OwnershipLimits, TasksLimits};
use dunlin_server::cluster::{Cluster, ClusterClient, ClusterConfig, ClusterLimits, JoinToken, init};
use dunlin_wait::{find, until};

/// Starts a node in `dir`, which [`init`] has prepared, at a free port.
fn start(dir: &Path) -> (Node, Cluster) {
    let limits = ClusterLimits {
        connections_max: 8,
        unverified_max: 4,
        handshake_ms_max: 600_000,
        ..ClusterLimits::default()
    };
    start_with(dir, None, limits)
}

/// Starts a node in `dir` at a free port. With `join`, the node joins the cluster of the node at this address.
fn start_with(dir: &Path, join: Option<(String, JoinToken)>, limits: ClusterLimits) -> (Node, Cluster) {
    let config = Config { is_cluster_member: true, ..Config::default() };
    let (node, _) = Node::open(config, Arc::new(RealDisk), dir).unwrap();
    let config = ClusterConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        advertise: None,
        data_dir: dir.to_owned(),
        join,
        cancel_join: Arc::default(),
        limits,
        control: ControlLimits::default(),
        tasks: TasksLimits::default(),
        ownership: OwnershipLimits::default(),
    };
    let cluster = Cluster::start(&node, config).unwrap();
    (node, cluster)
}

#[test]
fn connections_without_certificates_do_not_lock_out_nodes() {
    let dir = tempfile::tempdir().unwrap();
    init(dir.path(), "127.0.0.1:0").unwrap();
    let (_node, cluster) = start(dir.path());
    let idle: Vec<_> = (0..20).map(|_| TcpStream::connect(cluster.address()).unwrap()).collect();
    let client = ClusterClient::open(dir.path()).unwrap();
    until("the node responds", || client.survey()[0].status.is_ok());
    drop(idle);
}

/// `dunlin cluster add` prints the address for other nodes. The node may have started since the command began.
#[test]
fn cluster_client_returns_the_address_of_the_running_node() {
    let dir = tempfile::tempdir().unwrap();
    init(dir.path(), "127.0.0.1:0").unwrap();
    let client = ClusterClient::open(dir.path()).unwrap();
    let (_node, cluster) = start(dir.path());
    until("the node creates a token", || client.token(None, true).is_ok());
    assert_eq!(client.address(), cluster.address().to_string());
}

/// Only the group of the tasks loses its majority; the keys keep theirs.
#[test]
fn task_leader_is_not_ready_if_its_raft_group_has_no_majority() {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    init(dirs[0].path(), "127.0.0.1:0").unwrap();
    let mut nodes = vec![start_with(dirs[0].path(), None, ClusterLimits::default())];
    let client = ClusterClient::open(dirs[0].path()).unwrap();
    for dir in &dirs[1..] {
        let token = find("the node creates a token", || client.token(None, false).ok());
        let join = Some((client.address(), token));
        nodes.push(start_with(dir.path(), join, ClusterLimits::default()));
    }
    let (nodes, clusters): (Vec<Node>, Vec<Cluster>) = nodes.into_iter().unzip();
    let tasks: Vec<_> = nodes.iter().map(|node| Arc::clone(node.tasks().unwrap())).collect();
    until("all nodes vote on tasks", || {
        tasks.iter().all(|tasks| {
            let status = tasks.shards()[0].status();
            status.is_ok_and(|status| status.voters.len() == 3 && !status.is_changing)
        })
    });
    let leader = find("the tasks have a leader", || {
        tasks.iter().position(|tasks| tasks.shards()[0].lead() == Ok(Leadership::Local))
    });
    let is_without_majority =
        || clusters[leader].missing().is_some_and(|why| why.contains("group 0 has no majority"));
    until("the tasks have a majority", || !is_without_majority());
    tasks.iter().enumerate().filter(|(at, _)| *at != leader).for_each(|(_, tasks)| tasks.stop());
    until("the leader of the tasks is not ready", is_without_majority);
}
