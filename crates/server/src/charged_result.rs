//! Results of requests that are charged to the memory budget until they are sent.
//!
//! Limit: a result of at most [`UNCHARGED_RESULT_BYTES_MAX`] bytes is free.

use std::sync::Arc;

use bytes::Bytes;
use dunlin::Refused;
use dunlin::topic::{MemoryBudget, MemoryBudgetError, MemoryCharge, PublishError};
use dunlin::wire::ErrorCode;

/// Maximum size of a result that is not charged, bytes.
const UNCHARGED_RESULT_BYTES_MAX: usize = 64 << 10;

/// Charges a result of this size if it is large. The charge is to be held until the result is sent.
pub(crate) fn charge_result(
    budget: &Arc<MemoryBudget>,
    bytes: usize,
) -> Result<Option<MemoryCharge>, MemoryBudgetError> {
    if bytes <= UNCHARGED_RESULT_BYTES_MAX { Ok(None) } else { MemoryCharge::of(budget, bytes).map(Some) }
}

/// The refusal of a query whose result has no room in the memory budget.
pub(crate) fn query_refused(spent: MemoryBudgetError) -> Refused {
    Refused::from(&PublishError::from(spent))
}

/// The refusal of a command's result that has no room in the memory budget. The command was executed.
pub(crate) fn result_dropped(spent: MemoryBudgetError) -> Refused {
    let text = format!("the command was executed, but the node has no memory for its result: {spent}");
    Refused::new(ErrorCode::CommandUnknown, text)
}

/// The bytes of a result, which hold its charge until they are sent.
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
