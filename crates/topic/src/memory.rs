//! Memory budgets: one for a node, and one for each of the node's tenants.
//!
//! Limit: the `limit` of each budget, in bytes. A charge that would exceed the limit is refused and changes nothing.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::segment::BufferPool;

/// A limit on memory, and the amount of memory in use. Memory that is charged to a tenant's budget is also charged to
/// the node's budget.
#[derive(Debug)]
pub struct MemoryBudget {
    used: AtomicU64,
    limit: u64,
    parent: Option<Arc<MemoryBudget>>,
    pool: Arc<BufferPool>,
    reclaimable: OnceLock<Weak<dyn ReclaimableMemory>>,
}

/// Memory that its holder releases when a budget has no room for a charge.
pub trait ReclaimableMemory: Send + Sync + Debug {
    /// Releases a part of the memory. Returns `false` if there is none left. The caller may hold the lock of a log.
    fn reclaim(&self) -> bool;
}

/// The error of a charge that would exceed the limit of a memory budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("memory budget exhausted: {used} of {limit} bytes in use, {requested} more requested")]
pub struct MemoryBudgetError {
    /// Bytes that were requested.
    pub requested: u64,
    /// Bytes that were already in use.
    pub used: u64,
    /// The budget's limit, bytes.
    pub limit: u64,
}

impl MemoryBudget {
    /// Creates a node's budget. Its pool keeps at most `idle_bytes_max` bytes of freed memory, to use them again.
    pub fn node(limit: u64, idle_bytes_max: usize) -> Arc<MemoryBudget> {
        let pool = Arc::new(BufferPool::new(idle_bytes_max));
        MemoryBudget::with(limit, None, pool)
    }

    /// Creates a child budget with this limit. Each charge to the child is also charged to its parent, `self`.
    pub fn child(self: &Arc<MemoryBudget>, limit: u64) -> Arc<MemoryBudget> {
        let parent = Some(Arc::clone(self));
        MemoryBudget::with(limit, parent, Arc::clone(&self.pool))
    }

    fn with(limit: u64, parent: Option<Arc<MemoryBudget>>, pool: Arc<BufferPool>) -> Arc<MemoryBudget> {
        let reclaimable = OnceLock::new();
        Arc::new(MemoryBudget { used: AtomicU64::new(0), limit, parent, pool, reclaimable })
    }

    /// Sets the memory to release before a charge is refused. Only the first call has an effect.
    pub fn set_reclaimable(&self, memory: Weak<dyn ReclaimableMemory>) {
        let _ = self.reclaimable.set(memory);
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The budget's limit, bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that may still be charged without exceeding the limit of this budget or of one of its parents.
    pub fn room(&self) -> u64 {
        let room = self.limit.saturating_sub(self.used());
        self.parent.as_ref().map_or(room, |parent| room.min(parent.room()))
    }

    pub(crate) fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// Charges `bytes` to this budget and to all its parents, or to none of them.
    pub fn charge(&self, bytes: u64) -> Result<(), MemoryBudgetError> {
        while let Err(spent) = self.add_within_limit(bytes) {
            if bytes > self.limit || !self.reclaim() {
                return Err(spent);
            }
        }
        if let Some(parent) = &self.parent
            && let Err(spent) = parent.charge(bytes)
        {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(spent);
        }
        Ok(())
    }

    #[cold]
    fn reclaim(&self) -> bool {
        self.reclaimable.get().and_then(Weak::upgrade).is_some_and(|memory| memory.reclaim())
    }

    fn add_within_limit(&self, bytes: u64) -> Result<(), MemoryBudgetError> {
        // The number of used bytes never exceeds the limit, not even for a moment. Otherwise, smaller charges by other
        // threads could fail in this moment.
        let within = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
            .map_err(|used| MemoryBudgetError { requested: bytes, used, limit: self.limit })?;
        Ok(())
    }

    /// Like [`charge`](MemoryBudget::charge), but avoids the atomic operations if `bytes` is 0.
    #[inline(always)]
    pub(crate) fn charge_nonzero(&self, bytes: u64) -> Result<(), MemoryBudgetError> {
        if bytes == 0 { Ok(()) } else { self.charge(bytes) }
    }

    /// Like [`release`](MemoryBudget::release), but avoids the atomic operations if `bytes` is 0.
    #[inline(always)]
    pub(crate) fn release_nonzero(&self, bytes: u64) {
        if bytes > 0 {
            self.release(bytes);
        }
    }

    /// Charges `bytes` even if this exceeds the limit. Snapshots are charged with this method, because subscribers need
    /// them to recover. Later charges fail until enough bytes are released.
    pub(crate) fn force_charge(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(parent) = &self.parent {
            parent.force_charge(bytes);
        }
    }

    /// Releases `bytes` that were charged to this budget and to all its parents.
    pub fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(parent) = &self.parent {
            parent.release(bytes);
        }
    }
}

/// Memory that is charged to a budget. When the value is dropped, the memory is released.
#[derive(Debug)]
pub struct MemoryCharge {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl MemoryCharge {
    /// Creates a charge of 0 bytes.
    pub fn none(budget: &Arc<MemoryBudget>) -> MemoryCharge {
        MemoryCharge { budget: Arc::clone(budget), bytes: 0 }
    }

    /// Creates a charge of `bytes`, if the budget has room for them.
    pub fn of(budget: &Arc<MemoryBudget>, bytes: usize) -> Result<MemoryCharge, MemoryBudgetError> {
        let mut charge = MemoryCharge::none(budget);
        charge.grow_to(bytes)?;
        Ok(charge)
    }

    /// Creates a charge of `bytes`, even if it exceeds the budget's limit.
    pub fn forced(budget: &Arc<MemoryBudget>, bytes: usize) -> MemoryCharge {
        budget.force_charge(bytes as u64);
        MemoryCharge { budget: Arc::clone(budget), bytes: bytes as u64 }
    }

    /// Increases the charge to `bytes`. If the budget has no room, returns an error, and the charge stays unchanged.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), MemoryBudgetError> {
        let missing = (bytes as u64).saturating_sub(self.bytes);
        self.budget.charge_nonzero(missing)?;
        self.bytes += missing;
        Ok(())
    }

    /// Increases the charge to `bytes`, if its budget is a child of another budget; otherwise does nothing. The child's
    /// limit applies, but the parent is charged even beyond its limit. After an error, the charge stays unchanged.
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

    /// Adds bytes that were already charged to the same budget in another way. They are released together with this
    /// charge.
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
    fn child_memory_budget_cannot_exceed_the_parent_budget() {
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
    fn charge_within_a_share_ignores_the_whole_budget() {
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
