//! The nodes: `dunlin serve`, each in its own network namespace.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use dunlin_server::cluster::{ClusterClient, NodeStatus, init};

use super::NODES;
use super::network::Network;
use super::plan::Fault;
use crate::process::{PATIENCE, Process};

/// The port of every node for clients. All nodes can use the same port, because each has its own namespace.
const CLIENTS_PORT: u16 = 4220;
/// The port of every node for other nodes.
const NODES_PORT: u16 = 6222;
/// The interval between two queries of the nodes' status.
const LOOK: Duration = Duration::from_millis(50);

/// The nodes of a run.
pub struct Nodes {
    program: String,
    dir: PathBuf,
    running: Vec<Option<Process>>,
    /// The network. It is the last field, so that it is dropped after the nodes.
    network: Network,
}

impl Nodes {
    /// Starts the nodes, and waits until all of them are voters.
    pub fn start(program: &str, dir: &Path) -> Result<Nodes> {
        let (network, running) = (Network::make(NODES)?, (0..NODES).map(|_| None).collect());
        let mut nodes = Nodes { program: program.to_owned(), dir: dir.to_owned(), running, network };
        (0..NODES).try_for_each(|node| nodes.start_one(node))?;
        nodes.wait_whole()?;
        Ok(nodes)
    }

    /// The nodes' addresses for clients.
    pub fn urls(&self) -> Vec<String> {
        (0..NODES).map(|node| format!("dunlin://{}:{CLIENTS_PORT}", self.network.for_clients(node))).collect()
    }

    fn dir_of(&self, node: usize) -> PathBuf {
        self.dir.join(format!("node-{}", node + 1))
    }

    fn start_one(&mut self, node: usize) -> Result<()> {
        let (dir, network) = (self.dir_of(node), &self.network);
        let mut line = network.inside(node);
        line.extend([self.program.clone(), "serve".into(), "--end-with-stdin".into()]);
        line.extend(["--data-dir".into(), dir.display().to_string()]);
        line.extend(["--listen".into(), format!("{}:{CLIENTS_PORT}", network.for_clients(node))]);
        line.extend([
            "--insecure-listen-without-tls".into(),
            "--insecure-listen-without-authentication".into(),
        ]);
        line.extend(["--cluster-listen".into(), format!("{}:{NODES_PORT}", network.for_nodes(node))]);
        if node == 0 && !dir.join("cluster").exists() {
            init(&dir, &format!("{}:{NODES_PORT}", network.for_nodes(node)))?;
        }
        if node > 0 && !dir.join("cluster").exists() {
            let file = self.dir.join(format!("token-{}", node + 1));
            let client = ClusterClient::open(&self.dir_of(0))?;
            std::fs::write(&file, client.token(Some(PATIENCE), false)?.to_string())?;
            line.extend(["--join".into(), format!("{}:{NODES_PORT}", network.for_nodes(0))]);
            line.extend(["--cluster-token-file".into(), file.display().to_string()]);
        }
        std::fs::create_dir_all(&dir)?;
        let mut process = Process::start(&format!("node {}", node + 1), &line[0], &line[1..]);
        process.until("READY");
        self.running[node] = Some(process);
        Ok(())
    }

    /// Injects a fault. Returns the name of the affected node.
    pub fn strike(&mut self, fault: Fault) -> Result<String> {
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
            no_panic(node, &process)?;
        }
        Ok(format!("node {} is killed", node + 1))
    }

    /// Ends all faults, and checks that no node has ended by itself.
    pub fn heal(&mut self) -> Result<()> {
        for node in 0..NODES {
            self.network.cut(node, false)?;
            let Some(process) = &mut self.running[node] else { continue };
            process.go_on();
            if let Some(status) = process.ended() {
                bail!("node {} ended unexpectedly ({status}): {}", node + 1, process.errors());
            }
            no_panic(node, process)?;
        }
        for node in 0..NODES {
            if self.running[node].is_none() {
                self.start_one(node)?;
            }
        }
        Ok(())
    }

    /// The status of each node that responds.
    pub fn heard(&self) -> Vec<NodeStatus> {
        let asker = ClusterClient::open(&self.dir_of(0)).map(|asker| asker.survey());
        asker.unwrap_or_default().into_iter().filter_map(|node| node.status.ok()).collect()
    }

    fn leader(&self) -> Option<usize> {
        let heard = self.heard();
        let leads = heard.iter().filter(|status| status.leader == Some(status.node));
        // Node ids count from 1 in the order in which the nodes joined.
        leads.max_by_key(|status| status.term).map(|status| status.node as usize - 1)
    }

    /// Waits until all nodes respond, are voters, and are ready.
    pub fn wait_whole(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let heard = self.heard();
            let is_whole = |status: &NodeStatus| status.voters.len() == NODES && status.missing.is_none();
            if heard.len() == NODES && heard.iter().all(is_whole) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the nodes did not form a complete cluster: {heard:#?}");
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The nodes' standard error, to examine a failed run.
    pub fn errors(&self) -> Vec<String> {
        self.running.iter().map(|process| process.as_ref().map(Process::errors).unwrap_or_default()).collect()
    }
}

fn no_panic(node: usize, process: &Process) -> Result<()> {
    let errors = process.errors();
    if errors.contains("panicked") {
        bail!("node {} panicked:\n{errors}", node + 1);
    }
    Ok(())
}
