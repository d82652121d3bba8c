//! Messages that open, keep and close a connection.

use crate::code::Refusal;
use crate::layout::{OptionalText, layout};

/// The cluster id that a node without a cluster sends.
pub const NO_CLUSTER: &str = "-";

layout! {
    /// Message HELLO: the client's first message. The layout of HELLO never changes, except for fields added at the
    /// end.
    pub struct Hello<'a> {
        /// The tenant. If empty, the tenant of the authenticated user is used, or the default tenant if the node has no
        /// users.
        pub tenant: &'a str,
        /// The credentials; empty if the node requires none.
        pub credentials: &'a [u8],
        /// The client's name, for operators.
        pub client: &'a str,
    }
}

layout! {
    /// Message WELCOME: the reply to HELLO. The layout of WELCOME never changes, except for fields added at the end.
    pub struct Welcome<'a> {
        /// The node's number, which changes with each start.
        pub node: u64,
        /// The connection's number, which is unique at the node.
        pub session: u64,
        /// The node's name.
        pub node_name: &'a str,
        /// Prefix of the inbox subjects of this connection: `_INBOX.<something>.`.
        pub inbox_prefix: &'a str,
        /// Longest pause between two messages that the node sends, ms.
        pub heartbeat_ms: u32,
        /// Largest message with records that the node accepts, bytes.
        pub run_bytes_max: u32,
        /// Largest other message that the node accepts, bytes.
        pub control_bytes_max: u32,
        /// Maximum number of subscriptions and memberships of a connection.
        pub subscriptions_max: u32,
        /// Maximum number of publishers of a connection.
        pub publishers_max: u32,
        /// Maximum number of bytes that a publisher may send in PUBLISH messages before it receives responses.
        pub in_flight_bytes_max: u32,
        /// The id of the node's cluster, or [`NO_CLUSTER`] for a node without a cluster. Empty if the node's version
        /// does not have this field yet.
        pub cluster: OptionalText<'a>,
    }
}

layout! {
    /// Message PING with a number, or message PONG, which repeats the number.
    pub struct Ping {
        /// The number to repeat.
        pub token: u64,
    }
}

/// The first number in a [`Goodbye`]'s reason has this value if the node has replied to every CONTROL and TASKS request
/// that it accepted. Requests without a reply were not executed, and may then be repeated.
pub const ALL_ANSWERED: u64 = 1;

layout! {
    /// Message GOODBYE: the node closes the connection, and the client should reconnect.
    pub struct Goodbye<'a> {
        /// Delay before the client should reconnect, ms.
        pub reconnect_after_ms: u32,
        /// The reason why the node closes the connection.
        pub reason: Refusal<'a>,
    }
}
