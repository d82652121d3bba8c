//! The gRPC listener. It serves topics as `dunlin.v1.Dunlin` and as `MessageBroker` (the service of the message broker
//! Ratatoskr), keys and values as `dunlin.v1.Kv`, tasks as `dunlin.v1.Tasks`, and gRPC's health and reflection
//! services.
//!
//! `connection` serves one HTTP/2 connection, and `limited_reads` limits the bytes that a connection reads at a time.
//! `dispatch` routes calls to the services, and `intake` limits the size, elements and time of a call's messages;
//! `elements` counts the elements. `service` has the unary calls, `requests` the calls that wait for a reply, and
//! `publish_stream` and `groups` the bidirectional streams. For a subscriber, `reader` reads the logs, `writer` encodes
//! records as protobuf, and `delivery` has the response's body.
//!
//! Invariants:
//! - Records are copied once, from the segment into the bytes that HTTP/2 sends.
//! - If a client does not read its stream, the stream's cursors and at most two batches stay in memory, but no segment
//!   of a log.
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

/// Protobuf messages and services: Rust code that `cargo xtask fix` generates from the directory `proto`.
#[allow(missing_docs, clippy::all, reason = "generated")]
pub mod proto {
    /// The messages and services of protobuf package `dunlin.v1`.
    pub mod dunlin {
        include!("grpc/generated/dunlin.v1.rs");
    }
    /// The messages and services of protobuf package `ratatoskr`.
    pub mod ratatoskr {
        include!("grpc/generated/ratatoskr.rs");
    }
    /// The descriptors of all protobuf files, which the reflection service sends to clients.
    pub const DESCRIPTORS: &[u8] = include_bytes!("grpc/generated/descriptors.bin");
}
