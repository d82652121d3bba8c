//! Serves a [`Node`](dunlin::Node) to clients over sockets. For each protocol, the node has a listener.
//!
//! A listener only translates its protocol into calls of the node. The module `tcp` serves Dunlin's own protocol
//! (`docs/protocol.md`) over TCP and Unix sockets. `nats`, `http` and `grpc` serve the protocols with these names
//! (`docs/listeners.md`). WebSocket clients connect to the addresses of `http`.
//!
//! The module `listener` accepts connections and starts their sessions. `stream` gives TCP, Unix and TLS sockets one
//! interface, and `tls` does TLS handshakes. `session` contains the parts that the sessions of all protocols have in
//! common.
//!
//! Each core has one thread with a single-threaded async runtime. A session is one task, which stays on its thread. The
//! sessions of a thread share buffers for reading and writing, so that an idle session needs little memory.
//!
//! Topics and permissions are in the crate `dunlin`, and the encoding of messages is in the crate `wire`.

mod accept_failures;
pub mod access;
mod append;
mod charging;
pub mod cluster;
mod config;
mod departures;
mod error;
mod figures;
pub mod grpc;
mod housekeeping;
mod http;
mod listener;
mod loss_log;
mod nats;
mod node_connections;
mod node_report;
mod opening;
pub mod peers;
mod protocol;
mod publishes;
mod reload;
mod reserved;
mod responders;
mod runtime;
mod server;
mod session;
mod session_trace;
mod shared;
pub mod space;
pub mod spans;
mod stream;
mod submitting;
mod tcp;
mod tls;
mod traffic;
mod watchdog;
mod whole_file;
pub mod workers;

pub use config::{GrpcLimits, HttpLimits, NatsLimits, ServerConfig, ServerLimits, WsLimits};
pub use error::StartError;
pub use opening::StartupListeners;
pub use protocol::Protocol;
pub use reserved::ReservedAddress;
pub use server::Server;
pub use tls::{TlsConfig, TlsFilesError};
pub use whole_file::{read_file_up_to, read_input, read_text};
