//! Violations of the NATS protocol, which end the connection.

/// A violation of the NATS protocol by a client, with nats-server's error text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An unknown verb, or a missing line end after a payload.
    #[error("Unknown Protocol Operation")]
    Operation,
    /// A known verb with invalid arguments.
    #[error("Parser Error")]
    Arguments,
    /// A line that is longer than allowed.
    #[error("maximum control line exceeded")]
    LineTooLong,
    /// A payload that is too large.
    #[error("Maximum Payload Violation")]
    PayloadTooLarge,
}
