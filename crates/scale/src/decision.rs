//! The decisions of the scaler, with the reason for each decision and the times of the decision's steps.

use std::collections::VecDeque;

use crate::provider::InstanceId;
use crate::trigger::ScaleOutTrigger;

/// A decision of the scaler to add workers: the reason, the number, and the times of its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleOut {
    /// The reason for the decision.
    pub trigger: ScaleOutTrigger,
    /// The time at which a measurement began to exceed the threshold, in ms. For a forecast, the time at which the
    /// forecast began to show the excess.
    pub passed_ms: u64,
    /// The time at which the measurement had exceeded the threshold long enough, in ms.
    pub detected_ms: u64,
    /// The time of the decision, ms.
    pub decided_ms: u64,
    /// Number of workers to add.
    pub workers: u32,
    /// Number of these workers that come from the warm pool.
    pub woken: u32,
    /// Number of these workers that are not ready yet.
    pub missing: u32,
    /// Number of these workers that failed to start.
    pub failed: u32,
    /// The time at which the last of these workers, or of their replacements, became ready, in ms; 0 until one is
    /// ready.
    pub ready_ms: u64,
}

/// A decision of the scaler to remove one worker, and the times of its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleIn {
    /// The time from which fewer workers sufficed, ms.
    pub low_ms: u64,
    /// The time at which fewer workers had sufficed long enough, in ms.
    pub cooled_ms: u64,
    /// The time of the decision, ms.
    pub decided_ms: u64,
    /// The instance that the decision removes.
    pub instance: InstanceId,
    /// The time at which the instance's last task ended, ms; 0 until then.
    pub drained_ms: u64,
    /// The time at which the instance was gone or in the warm pool, ms; 0 until then.
    pub gone_ms: u64,
    /// Number of instances that the scaler decided to remove at the same time, including this one.
    pub workers: u32,
}

/// The scaler's most recent decisions to add and to remove workers.
#[derive(Debug, Clone, Default)]
pub struct Decisions {
    scale_outs: VecDeque<ScaleOut>,
    first_number: u64,
    scale_ins: VecDeque<ScaleIn>,
}

impl Decisions {
    /// Iterates over the decisions to add workers, the oldest first.
    pub fn scale_outs(&self) -> impl Iterator<Item = &ScaleOut> {
        self.scale_outs.iter()
    }

    /// Iterates over the decisions to remove workers, the oldest first. There is one decision for each removed
    /// instance.
    pub fn scale_ins(&self) -> impl Iterator<Item = &ScaleIn> {
        self.scale_ins.iter()
    }

    /// Adds a scale-out and returns its number.
    pub(crate) fn push_scale_out(&mut self, decision: ScaleOut, most: usize) -> u64 {
        if self.scale_outs.len() >= most.max(1) {
            self.scale_outs.pop_front();
            self.first_number += 1;
        }
        self.scale_outs.push_back(decision);
        self.first_number + self.scale_outs.len() as u64 - 1
    }

    pub(crate) fn scale_out_mut(&mut self, number: u64) -> Option<&mut ScaleOut> {
        self.scale_outs.get_mut(number.checked_sub(self.first_number)? as usize)
    }

    pub(crate) fn push_scale_in(&mut self, decision: ScaleIn, most: usize) {
        if self.scale_ins.len() >= most.max(1) {
            self.scale_ins.pop_front();
        }
        self.scale_ins.push_back(decision);
    }

    pub(crate) fn scale_in_mut(&mut self, instance: InstanceId) -> Option<&mut ScaleIn> {
        self.scale_ins.iter_mut().rev().find(|decision| decision.instance == instance)
    }
}
