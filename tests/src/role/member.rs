//! `member DIR ADDRESS [join=ADDRESS token=FILE] [lease=MS] [listener=ADDRESS] [shards=COUNT] [advertise=ADDRESS]
//! [heartbeat=MS] [silent=MS] [users=FILE]`: a node of a cluster, with listeners `tcp`, `nats`, `http` and `grpc`. The
//! process reads these requests from standard input:
//!
//! | line | response |
//! |---|---|
//! | `put KEY VALUE` | `put KEY VALUE RESULT`; RESULT is `done`, `unknown`, or `refused` and the reason |
//! | `get KEY` | `get KEY VALUE`, a linearizable read; VALUE is `-` for a missing key |
//! | `state` | `state LEADER MISSING`: the leader, and why the node is not ready; each is `-` if there is none |
//! | `tasks` | `tasks LEADER`: the leader of the cluster's tasks, or `-` if there is none |
//! | `end` | `ended in order`, after the node has handed over its leadership; the process then ends |
//!
//! Requests run concurrently.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use dunlin::journal::RealDisk;
use dunlin::raft::RaftLimits;
use dunlin::state::ControlCommand;
use dunlin::{
    Config, Consistency, ControlError, ControlGroup, ControlLimits, Node, OwnershipLimits, TasksLimits,
    block_on,
};
use dunlin_server::cluster::{Cluster, ClusterConfig, ClusterLimits};
use dunlin_server::{Server, ServerConfig};

use super::option;

/// Runs the node until it reads a line `end`, or until the parent process has ended.
pub fn run(arguments: &[String]) -> Result<()> {
    let [data_dir, listen] = [0, 1].map(|at| arguments.get(at).cloned().unwrap_or_default());
    let join: String = option(arguments, "join", String::new())?;
    let token: PathBuf = option(arguments, "token", PathBuf::new())?;
    let join = match join.is_empty() {
        true => None,
        false => Some((
            join,
            std::fs::read_to_string(token).context("cannot read the join token's file")?.parse()?,
        )),
    };
    let (node, _) = Node::open(
        Config { is_cluster_member: true, ..Config::default() },
        Arc::new(RealDisk),
        data_dir.as_ref(),
    )?;
    let config = ClusterConfig {
        listen: listen.parse()?,
        advertise: Some(option(arguments, "advertise", String::new())?).filter(|address| !address.is_empty()),
        data_dir: data_dir.into(),
        cancel_join: Default::default(),
        join,
        limits: ClusterLimits {
            silent_ms_max: option(arguments, "silent", ClusterLimits::default().silent_ms_max)?,
            ..ClusterLimits::default()
        },
        control: ControlLimits { raft: raft(arguments)?, ..ControlLimits::default() },
        tasks: TasksLimits { shards: option(arguments, "shards", 1)?, ..TasksLimits::default() },
        ownership: OwnershipLimits {
            lease_ttl: std::time::Duration::from_millis(option(arguments, "lease", 3_000)?),
            ..OwnershipLimits::default()
        },
    };
    let cluster = Arc::new(Cluster::start(&node, config)?);
    let any_port = || vec![([127, 0, 0, 1], 0).into()];
    let listener: String = option(arguments, "listener", String::new())?;
    let tcp = if listener.is_empty() { any_port() } else { vec![listener.parse()?] };
    let (nats, http, grpc) = (any_port(), any_port(), any_port());
    let users: String = option(arguments, "users", String::new())?;
    let users_file = Some(PathBuf::from(users)).filter(|file| !file.as_os_str().is_empty());
    let listeners = ServerConfig { tcp, nats, http, grpc, threads: 1, users_file, ..ServerConfig::default() };
    let server = Server::start(node.clone(), listeners)?;
    server.join_cluster(&cluster)?;
    let control = node.control()?;
    let listeners = server
        .addresses()
        .iter()
        .map(|(protocol, address)| format!(" {protocol}={address}"))
        .collect::<String>();
    println!(
        "READY pid={} cluster={} node={}{listeners}",
        std::process::id(),
        cluster.address(),
        cluster.node()
    );
    let watched_cluster = Arc::clone(&cluster);
    std::thread::spawn(move || {
        loop {
            if let Some(reason) = watched_cluster.ended() {
                println!("ended {reason}");
                std::process::exit(1);
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if line == "end" {
            break;
        }
        let (control, cluster, node) = (Arc::clone(control), Arc::clone(&cluster), node.clone());
        std::thread::spawn(move || println!("{}", respond(&line, &control, &cluster, &node)));
    }
    cluster.hand_over();
    server.stop();
    println!("ended in order");
    std::process::exit(0)
}

fn raft(arguments: &[String]) -> Result<RaftLimits> {
    let defaults = RaftLimits::default();
    Ok(RaftLimits { heartbeat_ms: option(arguments, "heartbeat", defaults.heartbeat_ms)?, ..defaults })
}

fn respond(line: &str, control: &ControlGroup, cluster: &Cluster, node: &Node) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["put", key, value] => {
            let put = ControlCommand::Put { key: key.as_bytes(), value: value.as_bytes(), lease: 0 };
            match block_on(control.execute(&put)) {
                Ok(_) => format!("put {key} {value} done"),
                Err(ControlError::Unknown) => format!("put {key} {value} unknown"),
                Err(error) => format!("put {key} {value} refused {error}"),
            }
        }
        ["get", key] => {
            let read_value = |state: &dunlin::state::ControlState| {
                state.get(key.as_bytes()).map(|item| item.value.clone())
            };
            match block_on(control.read(Consistency::Linearizable, read_value)) {
                Ok(value) => {
                    let value = value.map(|value| String::from_utf8_lossy(&value).into_owned());
                    format!("get {key} {}", value.unwrap_or_else(|| "-".to_owned()))
                }
                Err(error) => format!("get {key} refused {error}"),
            }
        }
        ["state"] => {
            let leader = control.status().ok().and_then(|status| status.leader);
            let leader = leader.map_or("-".to_owned(), |leader| leader.to_string());
            format!("state {leader} {}", cluster.missing().unwrap_or_else(|| "-".to_owned()))
        }
        ["tasks"] => {
            let leader = node.tasks().ok().and_then(|tasks| tasks.status().ok()?.leader);
            format!("tasks {}", leader.map_or("-".to_owned(), |leader| leader.to_string()))
        }
        _ => format!("what is {line:?}?"),
    }
}

/// The results of a test's `put` requests: the acknowledged values, and the number of all other results.
#[derive(Debug, Default)]
pub struct PutLedger {
    /// For each key, its last acknowledged value.
    pub done: BTreeMap<String, String>,
    /// The number of writes that were refused, or whose results are unknown.
    pub others: usize,
}

impl PutLedger {
    /// Adds a line with which a node responded to `put`.
    pub fn add_line(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["put", key, value, "done"] => drop(self.done.insert(key.to_owned(), value.to_owned())),
            ["put", ..] => self.others += 1,
            _ => {}
        }
    }
}
