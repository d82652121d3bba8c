//! A node of the control state in its own process. The process has raft over TCP, a disk that loses unsynced
//! data, and a listener for the clients of the chaos tests.
//!
//! Raft, its log and the state are the product's code. All other code is written for the tests and is as simple as
//! possible.

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
