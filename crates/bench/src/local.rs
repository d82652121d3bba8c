//! Measures Dunlin in process: publisher and subscribers run in one process, without sockets.

pub mod fanout;
pub mod memory;
pub mod multi_topic;
pub mod node;
pub mod parked;
pub mod registry;
pub mod round_trip;
pub mod throughput;
pub mod watch;
