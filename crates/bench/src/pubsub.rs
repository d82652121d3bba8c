//! Measures nats-server, Redis and a node's listener `nats`, all with the same raw client. The client uses no client
//! library, which could reduce the measured throughput: it writes and reads bytes directly. The only difference between
//! the brokers is in the bytes of their protocols ([`Dialect`]).

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
