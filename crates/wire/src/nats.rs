//! The NATS client protocol: lines of text, with payloads of a stated size between them. [`next`] reads a client's
//! operations; `encode` writes a server's operations.
//!
//! Invariants:
//! - Reading copies and allocates nothing: an operation refers to the bytes from which it was read.
//! - A line has at most [`NatsDecoderLimits::line_bytes_max`] bytes, and a payload with its headers at most
//!   [`NatsDecoderLimits::payload_bytes_max`]; longer input is never buffered.
//! - Reading any bytes returns an operation, [`DecodeOutcome::Need`](crate::DecodeOutcome::Need), or a [`Violation`]
//!   with the error text of nats-server.
//!
//! The crate `topic` has the rules of subjects. The crate `server` has the sockets and executes the operations.

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

/// The longest line and the largest payload that a NATS client may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatsDecoderLimits {
    /// Longest line, bytes.
    pub line_bytes_max: usize,
    /// Largest payload with its headers, bytes.
    pub payload_bytes_max: usize,
}

impl NatsDecoderLimits {
    /// The length of the longest line that nats-server accepts, bytes.
    pub const LINE_BYTES_MAX: usize = 4096;
}
