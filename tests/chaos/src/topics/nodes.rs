//! The nodes of a run: processes of `dunlin serve`, each in its own network namespace.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use dunlin_server::cluster::{ClusterClient, NodeStatus, init};

use super::NODES;
use super::network::NamespaceNetwork;
use super::plan::Fault;
use crate::process::{PATIENCE, Process};

/// The port at which every node listens for clients. All nodes can use the same port, because each one has its own
/// network namespace.
const CLIENTS_PORT: u16 = 4220;
/// The port at which every node listens for other nodes.
const NODES_PORT: u16 = 6222;
/// The interval between two queries of the nodes' status.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The nodes of a run, with their processes and their network.
pub struct Nodes {
    program: String,
    dir: PathBuf,
    running: Vec<Option<Process>>,
    /// The network of the nodes. Fields are dropped in order, and the network must be dropped after the processes, so
    /// this field is the last one.
    network: NamespaceNetwork,
}

impl Nodes {
    /// Starts the nodes, and waits until all of them are voters.
    pub fn start(program: &str, dir: &Path) -> Result<Nodes> {
        let (network, running) = (NamespaceNetwork::create(NODES)?, (0..NODES).map(|_| None).collect());
        let mut nodes = Nodes { program: program.to_owned(), dir: dir.to_owned(), running, network };
        (0..NODES).try_for_each(|node| nodes.start_node(node))?;
        nodes.wait_until_complete()?;
        Ok(nodes)
    }

    /// The nodes' addresses for clients.
    pub fn urls(&self) -> Vec<String> {
        (0..NODES)
            .map(|node| format!("dunlin://{}:{CLIENTS_PORT}", self.network.client_address(node)))
            .collect()
    }

    fn node_dir(&self, node: usize) -> PathBuf {
        self.dir.join(format!("node-{}", node + 1))
    }

    fn start_node(&mut self, node: usize) -> Result<()> {
        let (dir, network) = (self.node_dir(node), &self.network);
        let mut line = network.command_in(node);
        line.extend([self.program.clone(), "serve".into(), "--end-with-stdin".into()]);
        line.extend(["--data-dir".into(), dir.display().to_string()]);
        line.extend(["--listen".into(), format!("{}:{CLIENTS_PORT}", network.client_address(node))]);
        line.extend([
            "--insecure-listen-without-tls".into(),
            "--insecure-listen-without-authentication".into(),
        ]);
        line.extend(["--cluster-listen".into(), format!("{}:{NODES_PORT}", network.node_address(node))]);
        if node == 0 && !dir.join("cluster").exists() {
            init(&dir, &format!("{}:{NODES_PORT}", network.node_address(node)))?;
        }
        if node > 0 && !dir.join("cluster").exists() {
            let file = self.dir.join(format!("token-{}", node + 1));
            let client = ClusterClient::open(&self.node_dir(0))?;
            std::fs::write(&file, client.token(Some(PATIENCE), false)?.to_string())?;
            line.extend(["--join".into(), format!("{}:{NODES_PORT}", network.node_address(0))]);
            line.extend(["--cluster-token-file".into(), file.display().to_string()]);
        }
        std::fs::create_dir_all(&dir)?;
        let mut process = Process::start(&format!("node {}", node + 1), &line[0], &line[1..]);
        process.read_until("READY");
        self.running[node] = Some(process);
        Ok(())
    }

    /// Injects a fault. Returns a description of the fault that names the affected nodes.
    pub fn inject(&mut self, fault: Fault) -> Result<String> {
        Ok(match fault {
            Fault::Kill(node) => self.kill(node)?,
            Fault::KillAll => (0..NODES).map(|node| self.kill(node)).collect::<Result<Vec<_>>>()?.join(", "),
            Fault::KillLeader => match self.leader() {
                Some(node) => self.kill(node)?,
                None => "nobody leads".to_owned(),
            },
            Fault::Stop(node) => {
                self.running[node].iter().for_each(Process::stop);
                format!("node {} stands still", node + 1)
            }
            Fault::Isolate(node) => {
                self.network.cut(node, true)?;
                format!("node {} is cut off", node + 1)
            }
        })
    }

    fn kill(&mut self, node: usize) -> Result<String> {
        if let Some(mut process) = self.running[node].take() {
            process.kill();
            check_no_panic(node, &process)?;
        }
        Ok(format!("node {} is killed", node + 1))
    }

    /// Ends all faults and starts killed nodes again. Fails if a node has ended by itself.
    pub fn heal(&mut self) -> Result<()> {
        for node in 0..NODES {
            self.network.cut(node, false)?;
            let Some(process) = &mut self.running[node] else { continue };
            process.resume();
            if let Some(status) = process.exit_status() {
                bail!("node {} ended unexpectedly ({status}): {}", node + 1, process.errors());
            }
            check_no_panic(node, process)?;
        }
        for node in 0..NODES {
            if self.running[node].is_none() {
                self.start_node(node)?;
            }
        }
        Ok(())
    }

    /// Returns the status of each node that responds.
    pub fn statuses(&self) -> Vec<NodeStatus> {
        let client = ClusterClient::open(&self.node_dir(0)).map(|client| client.survey());
        client.unwrap_or_default().into_iter().filter_map(|node| node.status.ok()).collect()
    }

    fn leader(&self) -> Option<usize> {
        let statuses = self.statuses();
        let leaders = statuses.iter().filter(|status| status.leader == Some(status.node));
        // The ids of nodes count from 1, in the order in which the nodes joined. Indexes count from 0.
        leaders.max_by_key(|status| status.term).map(|status| status.node as usize - 1)
    }

    /// Waits until all nodes respond, are voters, and are ready.
    pub fn wait_until_complete(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let statuses = self.statuses();
            let is_complete = |status: &NodeStatus| status.voters.len() == NODES && status.missing.is_none();
            if statuses.len() == NODES && statuses.iter().all(is_complete) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the nodes did not form a complete cluster: {statuses:#?}");
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The standard error of all nodes, which helps to examine a failed run.
    pub fn errors(&self) -> Vec<String> {
        self.running.iter().map(|process| process.as_ref().map(Process::errors).unwrap_or_default()).collect()
    }
}

fn check_no_panic(node: usize, process: &Process) -> Result<()> {
    let errors = process.errors();
    if errors.contains("panicked") {
        bail!("node {} panicked:\n{errors}", node + 1);
    }
    Ok(())
}
