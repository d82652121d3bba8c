//! The interface of the clusters that suite `control` measures. The nodes are processes that can be killed. The clients
//! are processes too; they receive a description of the requests to make.

use anyhow::Result;

use super::ours::OwnCluster;
use super::peer::PeerCluster;
use super::work::ControlWorkload;
use crate::child::Child;
use crate::point::{BenchContext, target};

/// A running cluster, of Dunlin or of a peer. Dropping the value kills the nodes.
pub trait MeasuredCluster {
    /// Returns the addresses at which clients connect to the nodes.
    fn endpoints(&self) -> Vec<String>;

    /// Returns the process ids of the nodes.
    fn processes(&self) -> Vec<u32>;

    /// Starts a process with clients, which first wait until the cluster is ready.
    fn clients(&self, bench: &BenchContext, work: &ControlWorkload) -> Result<Child>;

    /// Kills the node with index `nth`.
    fn kill(&mut self, nth: usize) -> Result<()>;

    /// Restarts the node with index `nth`, which still has its data on disk.
    fn restart(&mut self, bench: &BenchContext, nth: usize) -> Result<()>;
}

/// Starts a cluster of the system `target`.
pub fn start(bench: &BenchContext, target: &'static str, nodes: usize) -> Result<Box<dyn MeasuredCluster>> {
    match target {
        target::DUNLIN => Ok(Box::new(OwnCluster::start(bench, nodes)?)),
        peer => Ok(Box::new(PeerCluster::start(bench, peer, nodes)?)),
    }
}
