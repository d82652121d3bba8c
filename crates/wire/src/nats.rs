//! Reads and writes the NATS client protocol, which consists of lines of text and payloads whose sizes the lines state.
//! [`next`] reads an operation of a client; `encode` writes the operations of a server.
//!
//! Invariants:
//! - Reading copies and allocates nothing: an operation refers to the bytes from which it was read.
//! - A line has at most [`NatsDecoderLimits::line_bytes_max`] bytes, and a payload with its headers at most
//!   [`NatsDecoderLimits::payload_bytes_max`]; longer input is never buffered.
//! - Whatever the bytes are, reading them returns an operation, [`DecodeOutcome::Need`](crate::DecodeOutcome::Need), or
//!   a [`Violation`] with the text that nats-server has for it.
//!
//! The rules for subjects are in the crate `topic`. The crate `server` has the sockets and executes the operations.

mod connect;
mod encode;
mod headers;
mod info;
mod line;
mod operation;
mod violation;

pub use connect::Connect;
pub use encode::{NatsMessageHead, OK, PING, PONG, put_decimal, put_error};
pub use headers::{HEADERS_MAX, HeaderBlock, STATUS_HEADER, header_lines, put_header};
pub use info::Info;
pub use operation::{NatsOperation, PublishOperation, next};
pub use violation::Violation;

/// The sizes of the longest line and the largest payload that a NATS client may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatsDecoderLimits {
    /// Maximum length of a line, bytes.
    pub line_bytes_max: usize,
    /// Maximum size of a payload together with its headers, bytes.
    pub payload_bytes_max: usize,
}

impl NatsDecoderLimits {
    /// The maximum length of a line in nats-server, bytes.
    pub const LINE_BYTES_MAX: usize = 4096;
}
