//! Charges connections for memory: the subscriptions, large requests and large results of a connection take their
//! memory from a memory budget.
//!
//! A connection before its login is charged to the login share ([`login_budget`]), so that clients without credentials
//! cannot use up the memory of others. After the login, the connection of a user is charged to the share of the
//! user's tenant ([`Node::connection_budget`]). If all users belong to one tenant without `memory_bytes`, this is the
//! whole memory budget.

use std::sync::Arc;

use bytes::Bytes;
use dunlin::topic::{MemoryBudget, MemoryBudgetError, MemoryCharge, SubscribeError};
use dunlin::wire::ErrorCode;
use dunlin::{Node, Refused};

/// A result of at most this many bytes is not charged. The requests of a session that have no response yet are not
/// charged either, while all of them together have at most this many bytes. Renewals of leases therefore succeed even
/// when the memory budget is used up.
pub(crate) const UNCHARGED_MESSAGE_BYTES_MAX: usize = 64 << 10;

/// The login share is the node's memory budget divided by this number. Request heads, and connections before their
/// login, take their memory from the login share.
const LOGIN_SHARE: u64 = 16;
/// The bytes that a connection has received, but not processed yet, are not charged while there are at most this many.
/// Most clients never have more.
pub(crate) const UNCHARGED_UNREAD_BYTES_MAX: usize = 8 << 10;
/// Memory that is charged for each subscription, and again for each log that the subscription reads, bytes. It covers
/// the cursor, the waiter and statistics. Texts from the client, such as names and patterns, are charged in addition.
const SUBSCRIPTION_BYTES: usize = 1 << 10;

/// Creates the login share: the memory budget for request heads, and for connections before their login.
pub(crate) fn login_budget(node: &Node) -> Arc<MemoryBudget> {
    node.budget().child(node.budget().limit() / LOGIN_SHARE)
}

/// Charges the memory of `subscribers` subscriptions or logs, and of `texts` bytes of text. They are charged to the
/// connection budget of `node`, which has the client's permissions.
pub(crate) fn charge_subscriptions(
    node: &Node,
    subscribers: usize,
    texts: usize,
) -> Result<MemoryCharge, SubscribeError> {
    MemoryCharge::of(node.connection_budget(), subscribers * SUBSCRIPTION_BYTES + texts)
        .map_err(|spent| SubscribeError::Limit { limit: node.memory_limit_name(&spent), value: spent.limit })
}

/// Charges a message of `bytes` bytes. Charges nothing if the message and the `earlier_bytes` bytes of earlier messages
/// together have at most [`UNCHARGED_MESSAGE_BYTES_MAX`] bytes.
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

/// The refusal that a client receives if its command was executed, but the memory budget has no room for the command's
/// result.
pub(crate) fn result_dropped(spent: MemoryBudgetError) -> Refused {
    let text = format!("the command was executed, but the node has no memory for its result: {spent}");
    Refused::new(ErrorCode::CommandUnknown, text)
}

/// Wraps the bytes of a message together with its charge, which is dropped when the bytes have been sent.
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
