//! Starts a cluster of Dunlin nodes. Each node is a process with a data directory on a real disk, and listens on
//! 127.0.0.1.

use anyhow::{Result, ensure};
use dunlin_server::ReservedAddress;
use dunlin_server::cluster::ClusterClient;

use super::clients::{self, StoreConnection};
use super::cluster::MeasuredCluster;
use super::node::NodeReady;
use super::peer::{ports_of, reserve_ports};
use super::work::ControlWorkload;
use crate::child::{Child, TIMEOUT};
use crate::point::BenchContext;
use crate::scratch_disk::ScratchDisk;

/// A running cluster of Dunlin nodes. Dropping the value kills the nodes.
#[derive(Debug)]
pub struct OwnCluster {
    nodes: Vec<Node>,
    _disk: ScratchDisk,
    _reserved: Vec<ReservedAddress>,
}

#[derive(Debug)]
struct Node {
    args: Vec<(&'static str, String)>,
    endpoint: String,
    child: Child,
}

impl OwnCluster {
    /// Starts `count` nodes with a single shard of tasks.
    pub fn start(bench: &BenchContext, count: usize) -> Result<Self> {
        Self::with_shards(bench, count, 1)
    }

    /// Starts `count` nodes with `shards` shards of tasks. The first node starts a cluster; the others join it and
    /// become voters.
    pub fn with_shards(bench: &BenchContext, count: usize, shards: u8) -> Result<Self> {
        let disk = ScratchDisk::new()?;
        let reserved = reserve_ports(3 * count)?;
        let ports = ports_of(&reserved);
        let data_dirs = disk.path().to_owned();
        let dir = |nth: usize| data_dirs.join(format!("n{nth}"));
        let mut ours = Self { nodes: Vec::new(), _disk: disk, _reserved: reserved };
        let (mut join, mut token) = (String::new(), String::new());
        for nth in 0..count {
            let [peer, client, suite] = [0, 1, 2].map(|at| ports[3 * nth + at]);
            let args = vec![
                ("dir", dir(nth).display().to_string()),
                ("ports", serde_json::to_string(&[peer, client, suite])?),
                ("join", join.clone()),
                ("token", token.clone()),
                ("shards", shards.to_string()),
            ];
            let child = bench.child.start("control-node", &args)?;
            ours.nodes.push(Node { args, endpoint: format!("127.0.0.1:{suite}"), child });
            ours.wait_until_ready(nth)?;
            if nth == 0 && count > 1 {
                token = ClusterClient::open(&dir(0))?.token(None, true)?.to_string();
                join = format!("127.0.0.1:{peer}");
            }
        }
        ours.wait_for_voters()?;
        Ok(ours)
    }

    fn wait_until_ready(&mut self, nth: usize) -> Result<()> {
        let NodeReady { id } = self.nodes[nth].child.read_line(TIMEOUT)?;
        ensure!(id == nth as u64 + 1, "node {id} is ready, but node {} was started", nth + 1);
        Ok(())
    }

    fn wait_for_voters(&self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let nodes: Vec<_> = self.nodes.iter().map(|node| StoreConnection::new(&node.endpoint)).collect();
            clients::wait_for_leader(&nodes, Some(nodes.len())).await.map(drop)
        })
    }
}

impl MeasuredCluster for OwnCluster {
    fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.endpoint.clone()).collect()
    }

    fn processes(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.child.id()).collect()
    }

    fn clients(&self, bench: &BenchContext, work: &ControlWorkload) -> Result<Child> {
        let work = ControlWorkload { endpoints: self.endpoints(), ..work.clone() };
        bench.child.start("control-clients", &[("work", serde_json::to_string(&work)?)])
    }

    fn kill(&mut self, nth: usize) -> Result<()> {
        self.nodes[nth].child.kill()
    }

    fn restart(&mut self, bench: &BenchContext, nth: usize) -> Result<()> {
        self.nodes[nth].child = bench.child.start("control-node", &self.nodes[nth].args)?;
        self.wait_until_ready(nth)
    }
}
