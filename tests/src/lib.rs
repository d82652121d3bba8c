//! Tests of the whole system: nodes, publishers and subscribers are separate processes, which the tests kill, stop and
//! restart. Publishers write ledgers, which list the records that they attempted to publish, and the positions of the
//! acknowledged records. Subscribers write traces of the events that they receive.
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
