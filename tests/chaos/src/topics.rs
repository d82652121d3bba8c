//! Faults against topics of a cluster, and whether readers saw the promise broken.
//!
//! A run starts `dunlin serve` as three processes that are one cluster, each in a network namespace of its own, and kills, stops
//! and cuts off nodes while publishers publish numbered records and readers read them, each through a node. Then what the
//! publishers were answered is held against what the readers were told, and never against what a node says of itself:
//! - a reader is told every record in order, or what it missed: a gap, or that the epoch changed after its last;
//! - all readers of a topic were told the same of the same position;
//! - of a durable topic every reader has every record, once and in the order of publishing, over all epochs;
//! - of a volatile one nothing acknowledged is missing but what a gap or an epoch's end accounts for.
//!
//! A run in which no fault fell between some publish and its answer, or in which no reader was told of an epoch's end, proves
//! nothing, and fails.

mod audit;
mod network;
mod nodes;
mod plan;
mod publisher;
mod reader;
mod run;

pub use run::{Stage, run};

/// Whether the network that a run needs can be made here; why not.
pub fn probe() -> anyhow::Result<()> {
    network::Network::make(1).map(drop)
}

/// The topics of a run, and whether each is durable.
const TOPICS: [(&str, bool); 4] =
    [("durable.a", true), ("durable.b", true), ("volatile.a", false), ("volatile.b", false)];
/// How many nodes there are.
const NODES: usize = 3;
