//! Starts and stops a node with its listeners, according to a validated configuration.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use dunlin::journal::RealDisk;
use dunlin::{Node, NodeLimits, OwnershipLimits, RecoveredTopic};
use dunlin_server::cluster::{Cluster, ClusterConfig, ClusterError, ClusterLimits};
use dunlin_server::workers::Workers;
use dunlin_server::{NatsLimits, Protocol, Server, ServerConfig, StartError, StartupListeners, read_text};
use dunlin_topic::{Retention, TopicConfig};

use crate::config::NodeConfig;
use crate::outcome::CommandRefusal;
use crate::signals::StopFlag;
use crate::telemetry::Telemetry;
use crate::workers::GRACE;

/// The two reasons why a node is not ready, as clients receive them: it reads its data directory, or it joins its
/// cluster.
const READING: &str = "its topics, keys and tasks are being read from its data directory";
const JOINING: &str = "it is joining its cluster";

/// A running node with its listeners, its cluster membership, and the worker processes that it started.
#[derive(Debug)]
pub struct RunningNode {
    pub node: Node,
    pub server: Server,
    /// The node's membership of its cluster; `None` for a node without a cluster.
    pub cluster: Option<Cluster>,
    /// The logging and tracing of this process, which must end after the node; `None` if the command has not set them
    /// up.
    pub telemetry: Option<Telemetry>,
    /// The worker processes that the node has started, if any.
    pub workers: Option<Workers>,
}

impl RunningNode {
    /// Starts the node and its listeners. If `stop` is set while the node joins a cluster, the start is interrupted.
    pub fn start(config: &NodeConfig, stop: &StopFlag) -> Result<RunningNode> {
        // Only a node with a data directory takes long to start, so only such a node reports its progress to clients in
        // the meantime.
        let opening =
            config.data_dir.as_ref().map(|_| StartupListeners::start(&server_config(config), READING));
        let opening = opening.transpose().context("cannot open the listeners")?;
        let node = match &config.data_dir {
            Some(dir) => open(node_config(config), dir)?,
            None => Node::start(node_config(config)).context("cannot start the node")?,
        };
        if let Some(opening) = &opening {
            opening.set_step(JOINING);
        }
        let cluster = cluster_config(config, stop)?.map(|cluster| Cluster::start(&node, cluster)).transpose();
        let cluster = cluster.map_err(refused)?;
        let server = match opening {
            Some(opening) => Server::open(node.clone(), server_config(config), opening),
            None => Server::start(node.clone(), server_config(config)),
        };
        let server = server.context("cannot open the listeners")?;
        if let Some(cluster) = &cluster {
            server.join_cluster(cluster).context("cannot serve the other nodes")?;
        }
        let mut running = RunningNode { node, server, cluster, telemetry: None, workers: None };
        let workers = config.workers.as_ref().map(|workers| workers.start(&running.node, running.url()));
        running.workers = workers.transpose()?;
        if let Some(workers) = &running.workers {
            running.server.show_workers(workers);
        }
        Ok(running)
    }

    /// The URL of the node for clients that use Dunlin's own protocol.
    pub fn url(&self) -> String {
        self.urls().next().unwrap_or_default()
    }

    pub fn urls(&self) -> impl Iterator<Item = String> {
        let scheme = self.scheme(Protocol::Tcp);
        let tcp = self.server.tcp_addresses().iter().map(move |address| format!("{scheme}://{address}"));
        tcp.chain(self.server.unix_paths().map(|path| format!("unix://{}", path.display())))
    }

    /// The URLs of the node for clients of other protocols.
    pub fn other_urls(&self) -> impl Iterator<Item = (Protocol, String)> {
        let others = self.server.addresses().iter().filter(|(protocol, _)| *protocol != Protocol::Tcp);
        others.map(|(protocol, address)| (*protocol, format!("{}://{address}", self.scheme(*protocol))))
    }

    fn scheme(&self, protocol: Protocol) -> &'static str {
        if self.server.has_tls() { protocol.tls_scheme() } else { protocol.scheme() }
    }

    /// Ends the node: stops its workers, hands over its leadership of the cluster, closes all sessions, and stops all
    /// other parts.
    pub fn stop(self) {
        if let Some(workers) = self.workers {
            workers.stop(GRACE);
        }
        if let Some(cluster) = &self.cluster {
            cluster.hand_over();
        }
        self.server.stop();
        drop(self.cluster);
        self.node.stop();
        if let Some(telemetry) = self.telemetry {
            telemetry.stop();
        }
    }
}

/// Adds advice to the error if the cause is another program that uses the port.
pub fn add_port_advice(error: anyhow::Error) -> anyhow::Error {
    let taken = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(StartError::Listen { address, error }) if error.kind() == ErrorKind::AddrInUse => Some(*address),
        _ => None,
    });
    match taken {
        Some(address) => anyhow!(
            "{error:#}: another program listens on {address}. If it is a node, use that node (`dunlin topics list`), or choose \
             other addresses with --listen 127.0.0.1:0, --http-listen and so on; `ss -ltnp` shows the program"
        ),
        None => error,
    }
}

/// Opens a node with the durable topics in the directory `dir`, and logs each topic found there.
fn open(config: dunlin::Config, dir: &Path) -> Result<Node> {
    let opened = Node::open(config, Arc::new(RealDisk), dir);
    let advice = match &opened {
        Err(error) if error.lacks_resource() => {
            ": the process or the machine lacks file descriptors or memory; raise the limit of open files \
             (ulimit -n; LimitNOFILE in a systemd unit)"
        }
        _ => "",
    };
    let (node, topics) =
        opened.with_context(|| format!("cannot open the data directory {}{advice}", dir.display()))?;
    for RecoveredTopic { name, records, clean, remarks, refused } in topics {
        if let Some(why) = refused {
            tracing::error!(topic = name, why, "this topic could not be opened; the node serves the others");
            continue;
        }
        tracing::info!(topic = name, records, clean, "this topic was found on disk");
        if !clean {
            tracing::warn!(
                topic = name,
                records,
                "this topic was not closed cleanly; it continues in a new epoch"
            );
        }
        remarks.iter().for_each(|remark| tracing::warn!(topic = name, "{remark}"));
    }
    Ok(node)
}

/// Converts an error of the cluster to an error of the command.
fn refused(error: ClusterError) -> anyhow::Error {
    match error {
        ClusterError::Refused(why) => CommandRefusal(why).into(),
        error => anyhow::Error::new(error).context("cannot take part in the cluster"),
    }
}

fn cluster_config(config: &NodeConfig, stop: &StopFlag) -> Result<Option<ClusterConfig>> {
    let (Some(cluster), Some(data_dir)) = (&config.cluster, &config.data_dir) else { return Ok(None) };
    let join = match &cluster.join {
        Some((at, file)) => {
            let text = read_text(file)
                .with_context(|| format!("cannot read the join token file {}", file.display()))?;
            Some((at.clone(), text.parse().with_context(|| file.display().to_string())?))
        }
        None => None,
    };
    let (mut control, mut tasks) = (config.limits.control, config.limits.tasks);
    let heartbeat_ms = cluster.heartbeat.as_millis() as u64;
    (control.raft.heartbeat_ms, tasks.raft.heartbeat_ms) = (heartbeat_ms, heartbeat_ms);
    Ok(Some(ClusterConfig {
        listen: cluster.listen,
        advertise: cluster.advertise.clone(),
        data_dir: data_dir.clone(),
        join,
        cancel_join: stop.flag(),
        limits: ClusterLimits::default(),
        control,
        tasks,
        ownership: OwnershipLimits { lease_ttl: cluster.lease_ttl, ..OwnershipLimits::default() },
    }))
}

fn node_config(config: &NodeConfig) -> dunlin::Config {
    let retention = Retention {
        bytes: config.retention_bytes,
        records: config.retention_records,
        age: config.retention_age,
    };
    let record_bytes_max = u32::try_from(config.record_bytes_max).unwrap_or(u32::MAX);
    dunlin::Config {
        topic: TopicConfig { retention, record_bytes_max, ..TopicConfig::default() },
        auto_create: config.auto_create,
        limits: NodeLimits {
            reserved_files: server_config(config).limits.reserved_files(),
            ..config.limits.clone()
        },
        is_cluster_member: config.cluster.is_some(),
        name: config.name.clone(),
    }
}

fn server_config(config: &NodeConfig) -> ServerConfig {
    ServerConfig {
        tcp: config.listen.into_iter().collect(),
        unix: config.unix.clone().into_iter().collect(),
        nats: config.nats.into_iter().collect(),
        http: config.http.into_iter().collect(),
        http_origins: config.http_origins.clone(),
        http_report: config.http_report.clone(),
        users_file: config.users_file.clone(),
        grpc: config.grpc.into_iter().collect(),
        tls: config.tls.clone(),
        // `NodeConfig` has already checked that the operator allows clients on the network without a login.
        anyone_on_the_network_may_connect: true,
        threads: config.threads.unwrap_or(0),
        spin: config.spin,
        limits: dunlin_server::ServerLimits {
            sessions_max: config.connections_max,
            subscriptions_max: u32::try_from(config.subscriptions_max).unwrap_or(u32::MAX),
            heartbeat_ms: u32::try_from(config.heartbeat.as_millis()).unwrap_or(u32::MAX),
            grpc: config.grpc_limits,
            nats: NatsLimits {
                publish_ms_max: u32::try_from(config.nats_publish.as_millis()).unwrap_or(u32::MAX),
                ping_ms: u32::try_from(config.nats_ping.as_millis()).unwrap_or(u32::MAX),
                pings_max: config.nats_pings_max,
                ..NatsLimits::default()
            },
            ..dunlin_server::ServerLimits::default()
        },
    }
}
