//! The doors of a node: sockets on one side, a [`Node`](dunlin::Node) on the other.
//!
//! A door only translates. Door `tcp` speaks Dunlin's own protocol (`docs/protocol.md`) over TCP and
//! Unix sockets.
//!
//! Each core has a thread with a current-thread runtime; a session is one task on one of them and
//! never moves. All sessions of a thread share its read and write buffers, so that a session that
//! waits owns next to nothing.
//!
//! Not here: topics and who may use them (`dunlin`), the bytes of messages (`wire`).

mod config;
mod error;
mod housekeeping;
mod responders;
mod runtime;
mod server;
mod shared;
mod tcp;

pub use config::{Limits, ServerConfig};
pub use error::StartError;
pub use server::Server;
