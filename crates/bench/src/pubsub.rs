//! Measures brokers with line protocols, all with the same raw client: nats-server, Redis, and a node's NATS listener.
//! The client only writes and reads bytes, so no client library reduces the measured throughput. For another broker,
//! only the bytes of the protocol differ ([`Dialect`]).

mod broker;
mod client;
mod dialect;
pub mod fanout;
pub mod go;
mod lane;
pub mod request;
pub mod throughput;

pub use broker::{Broker, BrokerEndpoint, CROWD};
pub use client::RawClient;
pub use lane::SubscribedConnection;
