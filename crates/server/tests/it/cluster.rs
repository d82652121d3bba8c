//! Tests the port at which a node of a cluster accepts connections from other nodes.

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use dunlin::journal::RealDisk;
use dunlin::{Config, ControlLimits, Node, OwnershipLimits, TasksLimits};
use dunlin_server::cluster::{Cluster, ClusterClient, ClusterConfig, ClusterLimits, init};
use dunlin_wait::until;

/// Starts a node in `dir`, which [`init`] has prepared, at a free port.
fn start(dir: &Path) -> (Node, Cluster) {
    let config = Config { is_cluster_member: true, ..Config::default() };
    let (node, _) = Node::open(config, Arc::new(RealDisk), dir).unwrap();
    let config = ClusterConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        advertise: None,
        data_dir: dir.to_owned(),
        join: None,
        cancel_join: Arc::default(),
        limits: ClusterLimits {
            connections_max: 8,
            unverified_max: 4,
            handshake_ms_max: 600_000,
            ..ClusterLimits::default()
        },
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
fn cluster_client_uses_the_address_of_the_latest_node_start() {
    let dir = tempfile::tempdir().unwrap();
    init(dir.path(), "127.0.0.1:0").unwrap();
    let client = ClusterClient::open(dir.path()).unwrap();
    let (_node, cluster) = start(dir.path());
    until("the node creates a token", || client.token(None, true).is_ok());
    assert_eq!(client.address(), cluster.address().to_string());
}
