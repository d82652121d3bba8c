//! Tests of the whole system: a node, its publishers and its subscribers are processes of their own,
//! which the tests kill, stop and start again.
//!
//! What is true comes from the publishers' ledger alone: which records were attempted, and which
//! were acknowledged where. Subscribers write down what they were told (a trace), and the audit
//! compares the two. The node is never asked.
//!
//! Faults: SIGKILL and SIGSTOP of any process, connections that are cut, hostile bytes. Several nodes and their disks are
//! the matter of `chaos`, beside this.

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
