//! Charges the memory of connections: subscriptions, large requests and large results.
//!
//! The memory of a connection of a tenant with `memory_bytes` is charged to the tenant's share
//! ([`Node::connection_budget`]). Before the login it is charged to the login share ([`login_budget`]), so that clients
//! without credentials cannot use up the memory of others. Both shares count in the node's budget.

use std::sync::Arc;

use bytes::Bytes;
use dunlin::topic::{MemoryBudget, MemoryBudgetError, MemoryCharge, SubscribeError};
use dunlin::wire::ErrorCode;
use dunlin::{Node, Refused};

/// Maximum size of a result, or of a session's requests without a response, that is not charged, bytes. Leases are thus
/// kept alive also while the budget is used up.
pub(crate) const UNCHARGED_MESSAGE_BYTES_MAX: usize = 64 << 10;

/// The part of the node's memory budget that connections without a login, and request heads, may take together, as a
/// divisor.
const LOGIN_SHARE: u64 = 16;
/// Number of unread bytes of a connection that are not charged. Most clients never have more.
pub(crate) const UNCHARGED_UNREAD_BYTES_MAX: usize = 8 << 10;
/// Memory that is charged for each subscription and for each log that it reads, bytes: cursor, waiter and statistics.
/// The client's texts are charged in addition.
const SUBSCRIPTION_BYTES: usize = 1 << 10;

/// Creates the budget for connections before their login, and for request heads.
pub(crate) fn login_budget(node: &Node) -> Arc<MemoryBudget> {
    node.budget().child(node.budget().limit() / LOGIN_SHARE)
}

/// Charges the client for `subscribers` subscriptions or logs, and for `texts` bytes of text. `node` has the client's
/// permissions.
pub(crate) fn charge_subscriptions(
    node: &Node,
    subscribers: usize,
    texts: usize,
) -> Result<MemoryCharge, SubscribeError> {
    MemoryCharge::of(node.connection_budget(), subscribers * SUBSCRIPTION_BYTES + texts)
        .map_err(|spent| SubscribeError::Limit { limit: node.memory_limit_name(&spent), value: spent.limit })
}

/// Charges a message of `bytes` bytes, unless it and earlier messages, of `earlier_bytes` bytes, together have at most
/// [`UNCHARGED_MESSAGE_BYTES_MAX`] bytes.
pub(crate) fn charge_if_large(
    budget: &Arc<MemoryBudget>,
    bytes: usize,
    earlier_bytes: usize,
) -> Result<Option<MemoryCharge>, MemoryBudgetError> {
    if earlier_bytes + bytes <= UNCHARGED_MESSAGE_BYTES_MAX {
        Ok(None)
    } else {
        MemoryCharge::of(budget, bytes).map(Some)
    }
}

/// The refusal of a command that was executed, but whose result has no room in the memory budget.
pub(crate) fn result_dropped(spent: MemoryBudgetError) -> Refused {
    let text = format!("the command was executed, but the node has no memory for its result: {spent}");
    Refused::new(ErrorCode::CommandUnknown, text)
}

/// Wraps the bytes of a message, so that the charge for the message is held until the bytes are sent.
pub(crate) fn charged_bytes(bytes: impl AsRef<[u8]> + Send + 'static, charge: impl Send + 'static) -> Bytes {
    Bytes::from_owner(ChargedBytes { bytes, _charge: charge })
}

struct ChargedBytes<B, C> {
    bytes: B,
    _charge: C,
}

impl<B: AsRef<[u8]>, C> AsRef<[u8]> for ChargedBytes<B, C> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}
