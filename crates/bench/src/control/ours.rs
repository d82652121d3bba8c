//! A cluster of ours: each node a process of its own with a directory on a real disk, all on 127.0.0.1.

use anyhow::{Result, ensure};

use super::cluster::Cluster;
use super::node::Ready;
use super::rival::free_ports;
use super::work::Work;
use crate::child::{Child, PATIENCE};
use crate::point::Bench;
use crate::scratch_disk::ScratchDisk;

/// Its nodes, gone when dropped.
#[derive(Debug)]
pub struct Ours {
    nodes: Vec<Node>,
    _disk: ScratchDisk,
}

#[derive(Debug)]
struct Node {
    args: Vec<(&'static str, String)>,
    endpoint: String,
    child: Child,
}

impl Ours {
    /// Starts so many nodes.
    pub fn start(bench: &Bench, count: usize) -> Result<Self> {
        let disk = ScratchDisk::new()?;
        let ports = free_ports(2 * count)?;
        let (clients, peers) = ports.split_at(count);
        let peers_text = serde_json::to_string(peers)?;
        let start = |nth: usize| {
            let args = vec![
                ("id", (nth + 1).to_string()),
                ("peers", peers_text.clone()),
                ("port", clients[nth].to_string()),
                ("dir", disk.path().join(format!("n{nth}")).display().to_string()),
            ];
            let child = bench.child.start("control-node", &args)?;
            anyhow::Ok(Node { args, endpoint: format!("127.0.0.1:{}", clients[nth]), child })
        };
        let nodes = (0..count).map(start).collect::<Result<_>>()?;
        let mut ours = Self { nodes, _disk: disk };
        (0..count).try_for_each(|nth| ours.ready(nth))?;
        Ok(ours)
    }

    fn ready(&mut self, nth: usize) -> Result<()> {
        let Ready { id } = self.nodes[nth].child.line(PATIENCE)?;
        ensure!(id == nth as u64 + 1, "node {id} says that it is ready where {} was started", nth + 1);
        Ok(())
    }
}

impl Cluster for Ours {
    fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.endpoint.clone()).collect()
    }

    fn processes(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.child.id()).collect()
    }

    fn clients(&self, bench: &Bench, work: &Work) -> Result<Child> {
        let work = Work { endpoints: self.endpoints(), ..work.clone() };
        bench.child.start("control-clients", &[("work", serde_json::to_string(&work)?)])
    }

    fn kill(&mut self, nth: usize) -> Result<()> {
        self.nodes[nth].child.kill()
    }

    fn restart(&mut self, bench: &Bench, nth: usize) -> Result<()> {
        self.nodes[nth].child = bench.child.start("control-node", &self.nodes[nth].args)?;
        self.ready(nth)
    }
}
