//! Measures nats-server, Redis and a node's listener `nats`, all with the same raw client. The client only writes and
//! reads bytes, so that no client library reduces the measured throughput. Only the bytes of the protocol ([`Dialect`])
//! differ from broker to broker.

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
