//! Measures Dunlin over sockets: a node with listeners, and clients in other processes.
//!
//! *Embedded* means that the publisher or the responder is in the node's process. Each message is then transferred
//! once, as with libzmq. *Brokered* means that both sides are clients of the node. Each message is then transferred
//! twice, as with NATS.

pub mod crowd;
pub mod node;
pub mod round_trip;
pub mod stalled;
pub mod throughput;
