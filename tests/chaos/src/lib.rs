//! Fault tests of the control state, and of topics ([`topics`]).
//!
//! A run starts 3 or 5 replica processes with toxiproxy between them and their clients. Clients write, read, lock and
//! watch while the faults of a seed happen. Then the clients' histories are checked: linearizability (porcupine),
//! growing revisions, one holder of each lock, complete watches, and equal replicas. A run also fails if no fault
//! happened during an operation, because such a run tests nothing.
//!
//! `docs/faults.md` lists the faults that are tested, and those that are not.

pub mod audit;
pub mod clocks;
pub mod cluster;
pub mod history;
pub mod keys;
pub mod linear;
pub mod locks;
pub mod nemesis;
pub mod network;
pub mod plan;
pub mod port;
pub mod process;
pub mod progress;
pub mod replica_client;
pub mod run;
pub mod terms;
pub mod topics;
pub mod toxiproxy;
pub mod watches;
