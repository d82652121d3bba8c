//! Door `grpc`: topics over gRPC, as `dunlin.v1.Dunlin`, and as Ratatoskr's `MessageBroker`; keys and values as `dunlin.v1.Kv`, tasks as
//! `dunlin.v1.Tasks`; with health and reflection.
//!
//! `connection` is one HTTP/2 connection, `dispatch` finds who answers a call, `intake` bounds what a call may send;
//! `service` has the calls that answer once, `requests` those that wait for a reply, `publish_stream` and `groups` the streams
//! both ways; `kv` has all about keys, `tasks` about tasks. What subscribers are
//! sent goes its own way: a `reader` walks the logs, a `writer` puts what it finds into protobuf bytes, and
//! `delivery` is the response they make.
//!
//! Invariants:
//! - Records are copied once, from the segment into the bytes that HTTP/2 sends.
//! - A stream that is not read holds its place in the logs, one batch that waits in the connection, and no segment.
//! - A connection and its calls live on one thread.
//!
//! Limits: those of [`GrpcLimits`](crate::GrpcLimits).
//!
//! Not here: TLS; compression, which is refused.

mod append;
mod connection;
mod delivery;
mod dispatch;
mod groups;
mod intake;
mod kv;
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

/// The messages, made from the files in `proto` by `cargo xtask fix`.
#[allow(missing_docs, clippy::all, reason = "generated")]
pub mod proto {
    /// `dunlin.v1`.
    pub mod dunlin {
        include!("grpc/generated/dunlin.v1.rs");
    }
    /// `ratatoskr`.
    pub mod ratatoskr {
        include!("grpc/generated/ratatoskr.rs");
    }
    /// All files, as reflection gives them out.
    pub const DESCRIPTORS: &[u8] = include_bytes!("grpc/generated/descriptors.bin");
}
