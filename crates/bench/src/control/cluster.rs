//! What is the same of every cluster that is measured: its nodes are processes that can be killed, and clients are given their order.

use anyhow::Result;

use super::ours::Ours;
use super::rival::Rival;
use super::work::Work;
use crate::child::Child;
use crate::point::{Bench, target};

/// A running cluster, gone when dropped.
pub trait Cluster {
    /// Where clients reach its nodes.
    fn endpoints(&self) -> Vec<String>;

    /// The nodes' processes.
    fn processes(&self) -> Vec<u32>;

    /// Starts clients in a process of their own; they wait until the cluster is ready.
    fn clients(&self, bench: &Bench, work: &Work) -> Result<Child>;

    /// Kills a node.
    fn kill(&mut self, nth: usize) -> Result<()>;

    /// Starts it again over what it has on its disk.
    fn restart(&mut self, bench: &Bench, nth: usize) -> Result<()>;
}

/// So many nodes of this target.
pub fn start(bench: &Bench, target: &'static str, nodes: usize) -> Result<Box<dyn Cluster>> {
    match target {
        target::DUNLIN => Ok(Box::new(Ours::start(bench, nodes)?)),
        rival => Ok(Box::new(Rival::start(bench, rival, nodes)?)),
    }
}
