//! The gRPC listener: topics as `dunlin.v1.Dunlin` and as Ratatoskr's `MessageBroker`, keys and values as
//! `dunlin.v1.Kv`, tasks as `dunlin.v1.Tasks`, with health and reflection.
//!
//! `connection` serves one HTTP/2 connection, and `limited_reads` limits the bytes that it reads at a time. `dispatch`
//! routes its calls, and `intake` limits the size, elements and time of a call's messages; `elements` counts the
//! elements. `service` has the unary calls, `requests` the calls that
//! wait for a reply, and `publish_stream` and `groups` the bidirectional streams. A subscriber's response comes from
//! `reader` (walks the logs), `writer` (encodes protobuf) and `delivery` (the body).
//!
//! Invariants:
//! - Records are copied once, from the segment into the bytes that HTTP/2 sends.
//! - A stream whose client does not read holds its cursors and one batch in memory, but no segment of a log.
//! - A connection and its calls stay on one thread.
//!
//! Limits: those of [`GrpcLimits`](crate::GrpcLimits).
//!
//! Compressed messages are refused.

mod append;
mod calls;
mod connection;
mod delivery;
mod dispatch;
mod elements;
mod groups;
mod intake;
mod kv;
mod limited_reads;
mod outgoing;
mod publish_stream;
mod ratatoskr;
mod reader;
mod records;
mod requests;
mod service;
mod services;
mod status;
mod subscribe;
mod tasks;
mod topics;
mod translate;
mod unfold;
mod writer;

pub(crate) use connection::{refusal, serve};
pub(crate) use services::Services;

/// The messages, generated from `proto` by `cargo xtask fix`.
#[allow(missing_docs, clippy::all, reason = "generated")]
pub mod proto {
    /// The messages of package `dunlin.v1`.
    pub mod dunlin {
        include!("grpc/generated/dunlin.v1.rs");
    }
    /// The messages of package `ratatoskr`.
    pub mod ratatoskr {
        include!("grpc/generated/ratatoskr.rs");
    }
    /// The descriptors of all files, for reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!("grpc/generated/descriptors.bin");
}
