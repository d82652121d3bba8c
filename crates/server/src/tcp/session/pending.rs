//! Defines requests for keys or tasks that have no response yet, and a queue of outcomes from which their responses are
//! sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin::Refused;
use dunlin::topic::{MemoryBudget, MemoryCharge, Waiter};

use crate::charging::charge_if_large;

#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) number: u32,
    pub(super) bytes: usize,
    /// The charge for the memory of the request. It is held until the response is sent. If the session ends earlier, it
    /// is held until the cluster has handled the request.
    _charge: Option<MemoryCharge>,
}

impl PendingRequest {
    /// Creates a pending request of `bytes` bytes. The other pending requests have `pending_bytes` bytes. If the
    /// pending requests including this one are small together, this request is not charged to the memory budget.
    pub(super) fn new(
        number: u32,
        bytes: usize,
        pending_bytes: usize,
        budget: &Arc<MemoryBudget>,
    ) -> Result<PendingRequest, Refused> {
        let charge = charge_if_large(budget, bytes, pending_bytes)?;
        Ok(PendingRequest { number, bytes, _charge: charge })
    }
}

/// A request together with its outcome: the content of the response, or a refusal.
#[derive(Debug)]
pub(super) struct RequestOutcome<C>(pub(super) PendingRequest, pub(super) Result<C, Refused>);

pub(super) type OutcomeQueue<C> = Arc<Mutex<VecDeque<RequestOutcome<C>>>>;

pub(super) fn lock<C>(outcomes: &OutcomeQueue<C>) -> MutexGuard<'_, VecDeque<RequestOutcome<C>>> {
    outcomes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds outcomes to the queue, and notifies the session's waiter with this token.
pub(super) fn push_outcomes<C>(
    outcomes: &OutcomeQueue<C>,
    waiter: &Waiter,
    token: u32,
    new: impl IntoIterator<Item = RequestOutcome<C>>,
) {
    lock(outcomes).extend(new);
    waiter.notify(token);
}
