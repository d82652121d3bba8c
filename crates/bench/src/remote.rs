//! Dunlin over sockets: a node with listeners, and clients in other processes.
//!
//! *Embedded*: the publisher or responder is inside the node, one hop from its client, as with libzmq.
//! *Brokered*: both are clients of the node, two hops, as with NATS.

pub mod crowd;
pub mod node;
pub mod round_trip;
pub mod stalled;
pub mod throughput;
