//! Memory budgets of a node and of each of the node's tenants.
//!
//! Limit: a budget's `limit` bytes. A charge that would exceed the limit is refused and changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::segment::BufferPool;

/// A limit on memory, and the amount of memory in use. A tenant's budget also counts in the node's budget.
#[derive(Debug)]
pub struct MemoryBudget {
    used: AtomicU64,
    limit: u64,
    parent: Option<Arc<MemoryBudget>>,
    pool: Arc<BufferPool>,
}

/// The error for an allocation that a memory budget has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("memory budget exhausted: {used} of {limit} bytes in use, {requested} more requested")]
pub struct MemoryBudgetError {
    /// Bytes requested.
    pub requested: u64,
    /// Bytes in use.
    pub used: u64,
    /// The limit, bytes.
    pub limit: u64,
}

impl MemoryBudget {
    /// Creates a node's budget with a pool that keeps at most `idle_bytes_max` bytes of freed memory for reuse.
    pub fn node(limit: u64, idle_bytes_max: usize) -> Arc<MemoryBudget> {
        let pool = Arc::new(BufferPool::new(idle_bytes_max));
        Arc::new(MemoryBudget { used: AtomicU64::new(0), limit, parent: None, pool })
    }

    /// Creates a budget whose charges also count in this budget.
    pub fn child(self: &Arc<MemoryBudget>, limit: u64) -> Arc<MemoryBudget> {
        let parent = Some(Arc::clone(self));
        Arc::new(MemoryBudget { used: AtomicU64::new(0), limit, parent, pool: Arc::clone(&self.pool) })
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit, bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that may still be charged to this budget and all its parents.
    pub fn room(&self) -> u64 {
        let room = self.limit.saturating_sub(self.used());
        self.parent.as_ref().map_or(room, |parent| room.min(parent.room()))
    }

    pub(crate) fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// Charges `bytes` to this budget and to all its parents, or to none.
    pub fn charge(&self, bytes: u64) -> Result<(), MemoryBudgetError> {
        self.add_within_limit(bytes)?;
        if let Some(parent) = &self.parent
            && let Err(spent) = parent.charge(bytes)
        {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(spent);
        }
        Ok(())
    }

    fn add_within_limit(&self, bytes: u64) -> Result<(), MemoryBudgetError> {
        // Usage never exceeds the limit even for a moment, because concurrent charges would then fail.
        let within = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
            .map_err(|used| MemoryBudgetError { requested: bytes, used, limit: self.limit })?;
        Ok(())
    }

    /// Like [`charge`](MemoryBudget::charge), but skips the atomics for 0 bytes.
    #[inline(always)]
    pub(crate) fn charge_nonzero(&self, bytes: u64) -> Result<(), MemoryBudgetError> {
        if bytes == 0 { Ok(()) } else { self.charge(bytes) }
    }

    /// Like [`release`](MemoryBudget::release), but skips the atomics for 0 bytes.
    #[inline(always)]
    pub(crate) fn release_nonzero(&self, bytes: u64) {
        if bytes > 0 {
            self.release(bytes);
        }
    }

    /// Charges `bytes` even beyond the limit. Snapshots use this method, because subscribers need snapshots to recover.
    /// Later charges fail until enough bytes are released.
    pub(crate) fn force_charge(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(parent) = &self.parent {
            parent.force_charge(bytes);
        }
    }

    /// Releases charged bytes.
    pub fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(parent) = &self.parent {
            parent.release(bytes);
        }
    }
}

/// An amount of memory charged to a budget. Dropping the value releases the amount.
#[derive(Debug)]
pub struct MemoryCharge {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl MemoryCharge {
    /// Creates an empty charge.
    pub fn none(budget: &Arc<MemoryBudget>) -> MemoryCharge {
        MemoryCharge { budget: Arc::clone(budget), bytes: 0 }
    }

    /// Charges `bytes`, if the budget allows.
    pub fn of(budget: &Arc<MemoryBudget>, bytes: usize) -> Result<MemoryCharge, MemoryBudgetError> {
        let mut charge = MemoryCharge::none(budget);
        charge.grow_to(bytes)?;
        Ok(charge)
    }

    /// Charges `bytes` even beyond the limit.
    pub fn forced(budget: &Arc<MemoryBudget>, bytes: usize) -> MemoryCharge {
        budget.force_charge(bytes as u64);
        MemoryCharge { budget: Arc::clone(budget), bytes: bytes as u64 }
    }

    /// Increases the charge to `bytes`. If the budget refuses this, the charge stays unchanged.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), MemoryBudgetError> {
        let missing = (bytes as u64).saturating_sub(self.bytes);
        self.budget.charge_nonzero(missing)?;
        self.bytes += missing;
        Ok(())
    }

    /// Grows the charge to `bytes` if its budget is a share of another budget. The share's own limit applies. The other
    /// budget is charged even beyond its limit. On failure the charge stays unchanged.
    pub fn grow_share_to(&mut self, bytes: usize) -> Result<(), MemoryBudgetError> {
        let missing = (bytes as u64).saturating_sub(self.bytes);
        if let (1.., Some(parent)) = (missing, &self.budget.parent) {
            self.budget.add_within_limit(missing)?;
            parent.force_charge(missing);
            self.bytes += missing;
        }
        Ok(())
    }

    /// Releases the whole charge.
    pub fn release(&mut self) {
        self.budget.release_nonzero(std::mem::take(&mut self.bytes));
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds bytes that were already charged separately. They are released together with this charge.
    pub(crate) fn add_charged(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_memory_budget_cannot_exceed_its_parents_budget() {
        let node = MemoryBudget::node(10_000, 0);
        let tenant = node.child(100_000);
        assert!(tenant.charge(8_000).is_ok());
        assert_eq!(
            tenant.charge(4_000),
            Err(MemoryBudgetError { requested: 4_000, used: 8_000, limit: 10_000 })
        );
        assert_eq!((node.used(), tenant.used()), (8_000, 8_000));
    }

    #[test]
    fn charge_to_a_budget_share_is_limited_only_by_that_share() {
        let node = MemoryBudget::node(10_000, 0);
        node.charge(10_000).unwrap();
        let mut whole = MemoryCharge::none(&node);
        whole.grow_share_to(1).unwrap();
        assert_eq!(node.used(), 10_000, "the node's budget is no share");
        let share = node.child(1_000);
        let mut charge = MemoryCharge::none(&share);
        charge.grow_share_to(1_000).unwrap();
        assert_eq!((node.used(), share.used()), (11_000, 1_000));
        let spent = MemoryBudgetError { requested: 1, used: 1_000, limit: 1_000 };
        assert_eq!(charge.grow_share_to(1_001), Err(spent));
        drop(charge);
        assert_eq!((node.used(), share.used()), (10_000, 0));
    }
}
