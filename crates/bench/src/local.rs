//! Measures Dunlin without sockets: publishers and subscribers run in the process of the node.

pub mod fanout;
pub mod memory;
pub mod multi_topic;
pub mod node;
pub mod parked;
pub mod registry;
pub mod round_trip;
pub mod throughput;
pub mod watch;
