//! Fault tests of a cluster's topics.
//!
//! A run starts a cluster of three `dunlin serve` processes, each in its own network namespace. Nodes are killed,
//! stopped and isolated while publishers publish numbered records and subscribers read them. Each client uses one node.
//!
//! Afterwards the run compares the responses that publishers received with the events that subscribers received. The
//! comparison does not rely on reports of the nodes. It checks that:
//! - a subscriber receives every record in order, or, in place of a record, a gap or an epoch change;
//! - all subscribers of a topic receive the same record at the same position;
//! - every subscriber of a durable topic receives every record once, in order of publishing, over all epochs;
//! - a subscriber of a volatile topic misses a record only if the record is in a reported gap or at the end of an
//!   epoch.
//!
//! A run fails if no fault happened during a publish, or if no subscriber received an epoch change, because such a run
//! tests nothing.

mod audit;
mod network;
mod nodes;
mod plan;
mod publisher;
mod reader;
mod run;

pub use run::{TopicsSetup, run};

/// Checks whether this machine allows the network namespaces that a run needs.
pub fn probe() -> anyhow::Result<()> {
    network::NamespaceNetwork::create(1).map(drop)
}

/// The topics of a run: the name of each topic, and whether it is durable.
const TOPICS: [(&str, bool); 4] =
    [("durable.a", true), ("durable.b", true), ("volatile.a", false), ("volatile.b", false)];
const NODES: usize = 3;
