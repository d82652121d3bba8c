//! nats-server, spoken to in raw bytes, so that no client library holds it back.

pub mod client;
pub mod request;
pub mod server;
pub mod throughput;
