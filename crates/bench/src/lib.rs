//! The benchmarks of Dunlin and of other systems: the code of the commands `dunlin bench` and `dunlin report`.
//!
//! A suite is a list of *measurements*. A measurement has a target (Dunlin, or another system, called a peer) and
//! parameters. The measurements of a *group* run alternately. The runner turns their samples into *rows*. The rows are
//! compared with goals, with the claims of a *benchmark document* and with known figures of peers. A benchmark document
//! states the figures of one of the systems SPOT, Ratatoskr, MDD-Sim, Grey and Luciferase. The suites repeat the
//! measurements of these documents with Dunlin. The rows are printed and stored in a file, from which `dunlin report`
//! makes its page.
//!
//! Invariants: a measurement fails unless all counted deliveries were checked. Throughput is measured without loss. A
//! ratio compares figures of one run. No ratio is computed with a peer whose figure is below its known figure. All
//! child processes end with the measurement. All traffic stays on this machine.
//!
//! The command `cargo xtask peers` builds the peers from the sources in `peers/`. The crate `dunlin-bench-cli` defines
//! the names of the commands' options.

mod against;
mod broker;
pub mod child;
mod clock;
mod command;
mod control;
mod cores;
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
mod protocols;
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

pub use command::{BenchRequest, run};
pub use options::{RawFeedOptions, RawOptions};
pub use role::child_main;
pub use row::{FigureRow, RowSet};
pub use store::StoredRun;
