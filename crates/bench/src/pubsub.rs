//! Brokers that speak a protocol of lines, driven by one raw client: nats-server, Redis, and a node's NATS door.
//!
//! The client writes and reads bytes and no more, so that no client library holds a broker back, and it is the same
//! for all, but for the bytes themselves ([`Dialect`]).

mod client;
mod dialect;
pub mod fanout;
pub mod go;
mod lane;
pub mod request;
mod served;
pub mod throughput;

pub use client::RawClient;
pub use lane::Lane;
pub use served::{Broker, CROWD, Served};
