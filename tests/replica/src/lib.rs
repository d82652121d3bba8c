//! A node that replicates the control state (keys, leases and locks), in a process of its own. It runs raft over TCP,
//! has a disk that loses unsynced data, and listens for the clients of the chaos tests.
//!
//! The code of raft, of raft's log and of the control state is the product's. All other code is written for the tests
//! and is as simple as possible.

mod disk;
mod links;
mod machine;
pub mod protocol;
mod replica_server;
pub mod seed;

pub use disk::{DiskFaults, PowerLossDisk};
pub use links::{Links, serve_peers};
pub use machine::ReplicaMachine;
pub use replica_server::serve;
