//! One node of the control state as a process of its own: raft over TCP, a disk that loses what it did not sync when the
//! process is killed, and a door for the clients of the chaos tests.
//!
//! Raft, its log and the state are the product's. Only what carries them here is the tests' own: it is as plain as it
//! can be, and every fault of it is ordered.

mod disk;
mod door;
mod links;
mod machine;
pub mod protocol;
pub mod seed;

pub use disk::{Orders, PowerDisk};
pub use door::serve;
pub use links::{Links, answer_peers};
pub use machine::Replica;
