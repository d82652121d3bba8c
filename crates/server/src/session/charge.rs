//! Memory of sessions beyond what each may have anyway, charged to the node's budget.

use std::sync::Arc;

use dunlin::topic::{Budget, BudgetSpent};

/// Bytes that are charged until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Charge {
    pub(crate) fn none(budget: &Arc<Budget>) -> Charge {
        Charge { budget: Arc::clone(budget), bytes: 0 }
    }

    pub(crate) fn of(budget: &Arc<Budget>, bytes: usize) -> Result<Charge, BudgetSpent> {
        let mut charge = Charge::none(budget);
        charge.grow_to(bytes)?;
        Ok(charge)
    }

    /// Charges what is missing; keeps what it had if there is not so much.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), BudgetSpent> {
        let missing = (bytes as u64).saturating_sub(self.bytes);
        self.budget.charge(missing)?;
        self.bytes += missing;
        Ok(())
    }

    pub(crate) fn release(&mut self) {
        self.budget.release(std::mem::take(&mut self.bytes));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.release();
    }
}
