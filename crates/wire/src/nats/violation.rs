//! Violations of the NATS protocol, which end the connection.

/// A violation of the NATS protocol by a client, with nats-server's error text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The verb is unknown, or the line end after a payload is missing.
    #[error("Unknown Protocol Operation")]
    Operation,
    /// The verb is known, but its arguments are invalid.
    #[error("Parser Error")]
    Arguments,
    /// A line that is longer than allowed.
    #[error("maximum control line exceeded")]
    LineTooLong,
    /// The payload is larger than the limit.
    #[error("Maximum Payload Violation")]
    PayloadTooLarge,
}
