//! The NATS client protocol: lines of text, with payloads of a stated size between them.
//!
//! What a client sends is read by [`next`]; what a server says is written by the functions of `say`.
//!
//! Invariants:
//! - Reading borrows: an operation points into the bytes it was read from, and nothing is allocated.
//! - A line is at most [`Limits::line_bytes_max`], a payload with its headers [`Limits::payload_bytes_max`]; nothing
//!   is waited for that would be longer.
//! - Whatever bytes come, reading ends in an operation, in [`Next::Need`](crate::Next::Need) or in a [`Violation`], whose
//!   text is what nats-server says.
//!
//! Not here: subjects and their rules (`topic`), sockets, and what an operation makes a node do.

mod connect;
mod headers;
mod info;
mod line;
mod operation;
mod say;
mod violation;

pub use connect::Connect;
pub use headers::{HEADERS_MAX, HeaderBlock, STATUS_HEADER, header_lines, put_header};
pub use info::Info;
pub use operation::{Operation, Published, next};
pub use say::{Message, OK, PING, PONG, put_decimal, refuse};
pub use violation::Violation;

/// What is believed of a client's lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest line.
    pub line_bytes_max: usize,
    /// The largest payload, its headers included.
    pub payload_bytes_max: usize,
}

impl Limits {
    /// The longest line that nats-server takes.
    pub const LINE_BYTES_MAX: usize = 4096;
}
