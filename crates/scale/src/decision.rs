//! What was decided, why, and when each phase of it was over.

use std::collections::VecDeque;

use crate::provider::Instance;
use crate::trigger::Trigger;

/// There are to be more workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleOut {
    /// Why.
    pub trigger: Trigger,
    /// When the threshold was passed; for forecasts, when it was seen that it would be.
    pub passed_ms: u64,
    /// When that had lasted long enough.
    pub detected_ms: u64,
    /// When it was decided.
    pub decided_ms: u64,
    /// So many more.
    pub workers: u32,
    /// Of those, from the warm pool.
    pub woken: u32,
    /// Those that are not ready yet.
    pub missing: u32,
    /// Of those that failed on the way.
    pub failed: u32,
    /// When the last of them, or of those in their place, was ready.
    pub ready_ms: u64,
}

/// There are to be fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleIn {
    /// Since when fewer would have done.
    pub low_ms: u64,
    /// When that had lasted long enough.
    pub cooled_ms: u64,
    /// When it was decided.
    pub decided_ms: u64,
    /// The instance.
    pub instance: Instance,
    /// When it held nothing any more; 0 as long as it does.
    pub drained_ms: u64,
    /// When it was gone, or in the warm pool; 0 before.
    pub gone_ms: u64,
    /// How many of what was decided with it.
    pub workers: u32,
}

/// The last decisions of each kind.
#[derive(Debug, Clone, Default)]
pub struct Decisions {
    out: VecDeque<ScaleOut>,
    out_first: u64,
    inward: VecDeque<ScaleIn>,
}

impl Decisions {
    /// Those for more, the oldest first.
    pub fn out(&self) -> impl Iterator<Item = &ScaleOut> {
        self.out.iter()
    }

    /// Those for fewer, one for each instance, the oldest first.
    pub fn inward(&self) -> impl Iterator<Item = &ScaleIn> {
        self.inward.iter()
    }

    /// The number of the decision.
    pub(crate) fn push_out(&mut self, decision: ScaleOut, most: usize) -> u64 {
        if self.out.len() >= most.max(1) {
            self.out.pop_front();
            self.out_first += 1;
        }
        self.out.push_back(decision);
        self.out_first + self.out.len() as u64 - 1
    }

    pub(crate) fn out_mut(&mut self, number: u64) -> Option<&mut ScaleOut> {
        self.out.get_mut(number.checked_sub(self.out_first)? as usize)
    }

    pub(crate) fn push_in(&mut self, decision: ScaleIn, most: usize) {
        if self.inward.len() >= most.max(1) {
            self.inward.pop_front();
        }
        self.inward.push_back(decision);
    }

    pub(crate) fn in_mut(&mut self, instance: Instance) -> Option<&mut ScaleIn> {
        self.inward.iter_mut().rev().find(|decision| decision.instance == instance)
    }
}
