//! Tests of the whole system: nodes, publishers and subscribers are separate processes, which the tests kill, stop and
//! restart. Each publisher writes a ledger: a list of the records that it attempted to publish, with the positions of
//! the acknowledged records. Each subscriber writes a trace: a list of the events that it received.
//!
//! The audit compares traces with ledgers, and does not rely on the node's own statistics. The tested faults are
//! SIGKILL and SIGSTOP of any process, cut connections, and hostile bytes. Tests of faults of disks, networks and
//! clocks are in `tests/chaos`.

pub mod audit;
pub mod content;
pub mod ledger;
pub mod limits;
pub mod port;
pub mod proxy;
pub mod role;
pub mod trace;

pub use dunlin_chaos::process;
pub use dunlin_replica::seed;
