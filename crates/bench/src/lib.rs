//! Workloads, targets and peers measured side by side: all of `dunlin bench` and `dunlin report`.
//!
//! A suite is a list of *points* (one target under one set of parameters) in *groups* that run
//! alternately; the runner turns their samples into *rows*; the rows of a run are held against
//! goals, a document's claims and what peers are known to do, printed, and kept as a file from which
//! the report is made.
//!
//! Invariants: what is counted was checked, or the point fails; throughput is lossless; a ratio is
//! taken within one run and never against a peer that runs below what it is known to do; no process
//! outlives a measurement; everything stays on this machine.
//!
//! Elsewhere: what the peers are and how they are built is `cargo xtask peers`, their sources
//! are in `peers/`; the options' flags are the CLI's.

mod against;
mod broker;
pub mod child;
mod clock;
mod command;
mod control;
mod cores;
mod doors;
mod feed;
mod goal;
mod grpc;
mod layout;
mod local;
mod machine;
mod metric;
mod names;
mod options;
mod params;
mod payload;
pub mod peers;
mod point;
mod preflight;
mod pubsub;
mod raw;
mod remote;
pub mod report;
mod role;
mod row;
mod runner;
mod scratch_disk;
mod sockets;
mod space;
mod spot;
mod stats;
mod store;
mod suites;
mod table;
mod tasks;
mod timed;
mod workload;
mod zmq;

pub use command::{Request, run};
pub use options::{RawFeedOptions, RawOptions};
pub use role::child_main;
pub use row::{Row, RowSet};
pub use store::KeptRun;
