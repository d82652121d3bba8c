//! Defines the messages that begin a connection, keep it alive and end it.

use crate::code::Refusal;
use crate::layout::{OptionalText, layout};

/// The cluster id in the WELCOME of a node that belongs to no cluster.
pub const NO_CLUSTER: &str = "-";

layout! {
    /// Message HELLO: the client's first message. Later versions of the protocol may only add fields at its end.
    pub struct Hello<'a> {
        /// The client's tenant. If this is empty, the tenant of the user counts, or the default tenant if the node has
        /// no users.
        pub tenant: &'a str,
        /// The credentials; empty if the node requires none.
        pub credentials: &'a [u8],
        /// The client's name, which operators see.
        pub client: &'a str,
    }
}

layout! {
    /// Message WELCOME: the reply to HELLO. Later versions of the protocol may only add fields at its end.
    pub struct Welcome<'a> {
        /// The node's number. Each start of the node has a new number.
        pub node: u64,
        /// The connection's number, which no other connection of this node has.
        pub session: u64,
        /// The node's name.
        pub node_name: &'a str,
        /// The beginning of this connection's inbox subjects: `_INBOX.<something>.`.
        pub inbox_prefix: &'a str,
        /// The longest time for which the node sends nothing, ms.
        pub heartbeat_ms: u32,
        /// Maximum size of a message with records that the node accepts, bytes.
        pub run_bytes_max: u32,
        /// Maximum size of any other message that the node accepts, bytes.
        pub control_bytes_max: u32,
        /// Maximum number of subscriptions and group memberships of one connection.
        pub subscriptions_max: u32,
        /// Maximum number of publishers of one connection.
        pub publishers_max: u32,
        /// Maximum size in bytes of all PUBLISH messages of a publisher that have no response yet.
        pub in_flight_bytes_max: u32,
        /// The id of the node's cluster, or [`NO_CLUSTER`] for a node that belongs to no cluster. Empty if the node has
        /// an older version, whose WELCOME lacks this field.
        pub cluster: OptionalText<'a>,
    }
}

layout! {
    /// Message PING with a number, or message PONG, which repeats the number of a PING.
    pub struct Ping {
        /// The number.
        pub token: u64,
    }
}

/// The value of the first number in [`Goodbye::reason`] if the node has replied to every CONTROL and TASKS request that
/// it has accepted. Requests without a reply were then not executed, and the client may repeat them.
pub const ALL_ANSWERED: u64 = 1;

layout! {
    /// Message GOODBYE: the node closes the connection, and the client should reconnect.
    pub struct Goodbye<'a> {
        /// The time for which the client should wait before it reconnects, ms.
        pub reconnect_after_ms: u32,
        /// The reason why the node closes the connection.
        pub reason: Refusal<'a>,
    }
}
