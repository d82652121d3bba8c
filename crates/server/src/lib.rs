//! The listeners of a node: they serve a [`Node`](dunlin::Node) to clients over sockets.
//!
//! A listener only translates a protocol into calls of the node. `tcp` serves Dunlin's own protocol
//! (`docs/protocol.md`) over TCP and Unix sockets. `nats`, `http` and `grpc` serve the protocols of these names
//! (`docs/listeners.md`). WebSockets are served at the addresses of `http`.
//!
//! `listener` accepts connections and starts their sessions, `stream` unifies TCP, Unix and TLS sockets, and
//! `tls` does the handshake. `session` has the common parts of the sessions of all protocols.
//!
//! Each core has one thread with a current-thread runtime. A session is one task on one of these threads and never
//! moves. All sessions of a thread share its read and write buffers, so that an idle session needs little memory.
//!
//! Topics and permissions are in `dunlin`, the bytes of messages in `wire`.

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
