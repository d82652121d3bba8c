//! The doors of a node: sockets on one side, a [`Node`](dunlin::Node) on the other.
//!
//! A door only translates. Door `tcp` speaks Dunlin's own protocol (`docs/protocol.md`) over TCP and
//! Unix sockets, door `nats` the NATS client protocol, door `http` HTTP/1.1, door `ws` WebSocket at the addresses of
//! `http`, door `grpc` gRPC (`docs/listeners.md`).
//!
//! `listener` lets connections in and begins a session of its door, `stream` is what TCP and Unix sockets have in
//! common, `tls` how they begin where clients come by TLS, `session` what the sessions of all doors have in common.
//!
//! Each core has a thread with a current-thread runtime; a session is one task on one of them and
//! never moves. All sessions of a thread share its read and write buffers, so that a session that
//! waits owns next to nothing.
//!
//! Not here: topics and who may use them (`dunlin`), the bytes of messages (`wire`).

pub mod access;
mod append;
pub mod cluster;
mod config;
mod departures;
mod door;
mod error;
mod figures;
pub mod grpc;
mod housekeeping;
mod http;
mod itself;
mod listener;
mod nats;
mod opening;
pub mod peers;
mod publishes;
mod reload;
mod reserved;
mod responders;
mod runtime;
mod server;
mod session;
mod shared;
pub mod space;
pub mod spans;
mod stream;
mod submitting;
mod tcp;
mod tls;
mod traffic;
mod visit;
mod watchdog;
pub mod workers;

pub use config::{GrpcLimits, HttpLimits, Limits, NatsLimits, ServerConfig, WsLimits};
pub use door::Door;
pub use error::StartError;
pub use opening::Opening;
pub use reserved::ReservedAddress;
pub use server::Server;
pub use tls::{TlsConfig, TlsError};
