//! Charges large requests and large results to the memory budget.

use std::sync::Arc;

use bytes::Bytes;
use dunlin::Refused;
use dunlin::topic::{MemoryBudget, MemoryBudgetError, MemoryCharge};
use dunlin::wire::ErrorCode;

/// Maximum size of a result, or of a session's requests without a response, that is not charged, bytes. Leases are thus
/// kept alive also while the budget is used up.
pub(crate) const UNCHARGED_MESSAGE_BYTES_MAX: usize = 64 << 10;

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

/// The refusal of a command's result that has no room in the memory budget. The command was executed.
pub(crate) fn result_dropped(spent: MemoryBudgetError) -> Refused {
    let text = format!("the command was executed, but the node has no memory for its result: {spent}");
    Refused::new(ErrorCode::CommandUnknown, text)
}

/// The bytes of a message, which hold its charge until they are sent.
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
