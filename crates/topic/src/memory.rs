//! Budgets: how much memory may be used, of a node and of each tenant in it.
//!
//! Limit: a budget's `limit` bytes; then a charge is refused, and nothing else changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::segment::Pool;

/// How much memory may be used, and how much is. A tenant's budget is a child of the node's.
#[derive(Debug)]
pub struct Budget {
    used: AtomicU64,
    limit: u64,
    parent: Option<Arc<Budget>>,
    pool: Arc<Pool>,
}

/// A charge that a budget refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("memory budget spent: {asked} more bytes on top of {used} of {limit}")]
pub struct BudgetSpent {
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes in use.
    pub used: u64,
    /// Bytes allowed.
    pub limit: u64,
}

impl Budget {
    /// The budget of a whole node, with a pool that keeps at most `idle_bytes_max` for reuse.
    pub fn node(limit: u64, idle_bytes_max: usize) -> Arc<Budget> {
        let pool = Arc::new(Pool::new(idle_bytes_max));
        Arc::new(Budget { used: AtomicU64::new(0), limit, parent: None, pool })
    }

    /// A budget within this one.
    pub fn child(self: &Arc<Budget>, limit: u64) -> Arc<Budget> {
        let parent = Some(Arc::clone(self));
        Arc::new(Budget { used: AtomicU64::new(0), limit, parent, pool: Arc::clone(&self.pool) })
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes allowed.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that this budget and all above it would still give.
    pub fn room(&self) -> u64 {
        let room = self.limit.saturating_sub(self.used());
        self.parent.as_ref().map_or(room, |parent| room.min(parent.room()))
    }

    /// Where the buffers charged to this budget come from.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Takes `bytes` of this budget and of all above it, or of none.
    pub fn charge(&self, bytes: u64) -> Result<(), BudgetSpent> {
        // Never over the limit, not even for a moment: another's charge would be refused for it.
        let within = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).map_err(|used| BudgetSpent {
            asked: bytes,
            used,
            limit: self.limit,
        })?;
        if let Some(parent) = &self.parent
            && let Err(spent) = parent.charge(bytes)
        {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(spent);
        }
        Ok(())
    }

    /// [`charge`](Budget::charge), free of cost for nothing.
    #[inline(always)]
    pub(crate) fn charge_some(&self, bytes: u64) -> Result<(), BudgetSpent> {
        if bytes == 0 { Ok(()) } else { self.charge(bytes) }
    }

    /// [`release`](Budget::release), free of cost for nothing.
    #[inline(always)]
    pub(crate) fn release_some(&self, bytes: u64) {
        if bytes > 0 {
            self.release(bytes);
        }
    }

    /// Takes `bytes` of this budget and of all above it even where that goes over the limit: for what is needed
    /// to bring readers back to a true state. Whoever charges next is refused for it.
    pub(crate) fn charge_over(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(parent) = &self.parent {
            parent.charge_over(bytes);
        }
    }

    /// Gives back what was charged.
    pub fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(parent) = &self.parent {
            parent.release(bytes);
        }
    }
}

/// Bytes that are charged until this is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Charge {
    /// Nothing yet.
    pub fn none(budget: &Arc<Budget>) -> Charge {
        Charge { budget: Arc::clone(budget), bytes: 0 }
    }

    /// So many bytes, if the budget has them.
    pub fn of(budget: &Arc<Budget>, bytes: usize) -> Result<Charge, BudgetSpent> {
        let mut charge = Charge::none(budget);
        charge.grow_to(bytes)?;
        Ok(charge)
    }

    /// So many bytes, whatever the limit is: what has to be there anyway.
    pub fn over(budget: &Arc<Budget>, bytes: usize) -> Charge {
        budget.charge_over(bytes as u64);
        Charge { budget: Arc::clone(budget), bytes: bytes as u64 }
    }

    /// Charges what is missing; keeps what it had if there is not so much.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), BudgetSpent> {
        let missing = (bytes as u64).saturating_sub(self.bytes);
        self.budget.charge(missing)?;
        self.bytes += missing;
        Ok(())
    }

    /// Gives back all of it.
    pub fn release(&mut self) {
        self.budget.release(std::mem::take(&mut self.bytes));
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// So much was charged by somebody else, and is this one's from now on.
    pub(crate) fn take_over(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_budget_cannot_exceed_its_parents_budget() {
        let node = Budget::node(10_000, 0);
        let tenant = node.child(100_000);
        assert!(tenant.charge(8_000).is_ok());
        assert_eq!(tenant.charge(4_000), Err(BudgetSpent { asked: 4_000, used: 8_000, limit: 10_000 }));
        assert_eq!((node.used(), tenant.used()), (8_000, 8_000));
    }
}
