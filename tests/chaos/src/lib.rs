//! Faults against the control state, and whether its clients saw it break a promise; and the same of topics ([`topics`]).
//!
//! A run starts 3 or 5 replicas as processes, puts toxiproxy between them and between them and their clients, and lets clients
//! write, read, lock and watch while it breaks what its seed says. Then the histories of the clients are checked: whether
//! they are linearizable (porcupine), whether revisions grow, whether a lock had one holder, whether watchers were told every
//! revision, and whether all replicas hold the same. A run in which no fault fell between some call and its return proves
//! nothing, and fails.
//!
//! Faults that are injected, and those that deliberately are not: `docs/faults.md`.

pub mod audit;
pub mod clocks;
pub mod cluster;
pub mod door;
pub mod going;
pub mod history;
pub mod keys;
pub mod linear;
pub mod locks;
pub mod nemesis;
pub mod network;
pub mod plan;
pub mod port;
pub mod process;
pub mod run;
pub mod terms;
pub mod topics;
pub mod toxiproxy;
pub mod watches;
