//! What ends a connection.

/// How a client broke the protocol. Its text is nats-server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A verb that there is not, or something else than a line's end behind a payload.
    #[error("Unknown Protocol Operation")]
    Operation,
    /// A verb that there is, with something else behind it than belongs there.
    #[error("Parser Error")]
    Arguments,
    /// A line without an end.
    #[error("maximum control line exceeded")]
    LineTooLong,
    /// A payload that is too large.
    #[error("Maximum Payload Violation")]
    PayloadTooLarge,
}
