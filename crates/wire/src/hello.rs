//! Getting in, staying alive, and parting.

use crate::code::Refusal;
use crate::layout::{Added, layout};

/// Stands for the cluster of a node that is of none.
pub const NO_CLUSTER: &str = "-";

layout! {
    /// The client's first message. Its layout never changes; fields may be added at its end.
    pub struct Hello<'a> {
        /// Whose topics; empty for the default tenant.
        pub tenant: &'a str,
        /// What proves it; the node says which kinds it takes. Empty on loopback.
        pub credentials: &'a [u8],
        /// A name that operators see.
        pub client: &'a str,
    }
}

layout! {
    /// The node's answer. Its layout never changes; fields may be added at its end.
    pub struct Welcome<'a> {
        /// The node's number, which a restart changes.
        pub node: u64,
        /// This connection's number, which no other connection of the node ever had.
        pub session: u64,
        /// The node's name.
        pub node_name: &'a str,
        /// Subjects below this belong to this connection: `_INBOX.<something>.`.
        pub inbox_prefix: &'a str,
        /// The node sends something at least this often, ms.
        pub heartbeat_ms: u32,
        /// The largest message with records that the node takes, bytes.
        pub run_bytes_max: u32,
        /// The largest other message that the node takes, bytes.
        pub control_bytes_max: u32,
        /// How many subscriptions and memberships the connection may have.
        pub subscriptions_max: u32,
        /// How many publishers the connection may have.
        pub publishers_max: u32,
        /// How many bytes of PUBLISH a publisher may have unanswered.
        pub in_flight_bytes_max: u32,
        /// The id of the node's cluster, [`NO_CLUSTER`] where it is of none; empty from older nodes, which do not say.
        pub cluster: Added<'a>,
    }
}

layout! {
    /// A number to be sent back.
    pub struct Ping {
        /// The number.
        pub token: u64,
    }
}

/// The first number of a [`Goodbye`]'s reason where the node has answered every CONTROL and TASKS request that it took before: it has not
/// done what it did not answer, which may be asked again.
pub const ALL_ANSWERED: u64 = 1;

layout! {
    /// The node closes the connection.
    pub struct Goodbye<'a> {
        /// How long to wait before connecting again, ms.
        pub reconnect_after_ms: u32,
        /// Why.
        pub reason: Refusal<'a>,
    }
}
