//! Defines the violations of the NATS protocol. After a violation, the node closes the connection.

/// A violation of the NATS protocol by a client. The error text is that of nats-server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The operation is unknown, or the line end after a payload is missing.
    #[error("Unknown Protocol Operation")]
    Operation,
    /// The operation is known, but its arguments are invalid.
    #[error("Parser Error")]
    Arguments,
    /// A line is longer than allowed.
    #[error("maximum control line exceeded")]
    LineTooLong,
    /// A payload is larger than allowed.
    #[error("Maximum Payload Violation")]
    PayloadTooLarge,
}
