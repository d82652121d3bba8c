//! The interface of all clusters that suite `control` measures. The nodes are processes that can be killed. The clients
//! are processes too, and receive a description of the requests that they have to make.

use anyhow::Result;

use super::ours::OwnCluster;
use super::peer::PeerCluster;
use super::work::ControlWorkload;
use crate::child::Child;
use crate::point::{BenchContext, target};

/// A running cluster of Dunlin or of a peer. Dropping the value kills the nodes.
pub trait MeasuredCluster {
    /// Addresses for clients.
    fn endpoints(&self) -> Vec<String>;

    /// Process ids of the nodes.
    fn processes(&self) -> Vec<u32>;

    /// Starts a process of clients, which wait until the cluster is ready.
    fn clients(&self, bench: &BenchContext, work: &ControlWorkload) -> Result<Child>;

    /// Kills a node.
    fn kill(&mut self, nth: usize) -> Result<()>;

    /// Restarts a node with the data on its disk.
    fn restart(&mut self, bench: &BenchContext, nth: usize) -> Result<()>;
}

/// Starts a cluster of this target.
pub fn start(bench: &BenchContext, target: &'static str, nodes: usize) -> Result<Box<dyn MeasuredCluster>> {
    match target {
        target::DUNLIN => Ok(Box::new(OwnCluster::start(bench, nodes)?)),
        peer => Ok(Box::new(PeerCluster::start(bench, peer, nodes)?)),
    }
}
