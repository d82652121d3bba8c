//! Measures Dunlin over sockets: a node with listeners, and clients in other processes.
//!
//! *Embedded*: the publisher or the responder is in the node's process, so each message is transferred once, as with
//! libzmq. *Brokered*: both sides are clients of the node, so each message is transferred twice, as with NATS.

pub mod crowd;
pub mod node;
pub mod round_trip;
pub mod stalled;
pub mod throughput;
