//! Fault tests of keys, leases and locks (the control state), and of topics ([`topics`]).
//!
//! A run of the control state starts 3 or 5 replica processes, with toxiproxy between the processes and their clients.
//! Clients write, read, lock and watch keys while faults happen. The run's seed determines the faults.
//!
//! Afterwards the run checks the clients' histories. The histories must be linearizable (the program porcupine checks
//! this), revisions must grow, each lock must have at most one holder at a time, and watches must be complete. All
//! replicas must have equal states. A run also fails if no fault happened during an operation, because such a run tests
//! nothing.
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
