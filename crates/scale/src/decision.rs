//! Records the decisions of the scaler: the reason for each, and the time of each step from the reason to the result.

use std::collections::VecDeque;

use crate::provider::InstanceId;
use crate::trigger::ScaleOutTrigger;

/// A decision to add workers: the reason, the number of workers, and the time of each step until they are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleOut {
    /// The reason for the decision.
    pub trigger: ScaleOutTrigger,
    /// When a measurement began to exceed its threshold, in ms. For a forecast: when the forecast load began to exceed
    /// the workers' capacity.
    pub passed_ms: u64,
    /// When the measurement had exceeded its threshold for so long that the scaler detected the trigger, in ms.
    pub detected_ms: u64,
    /// When the scaler decided, in ms.
    pub decided_ms: u64,
    /// The number of workers to add.
    pub workers: u32,
    /// How many of these workers come from the warm pool.
    pub woken: u32,
    /// How many of these workers are not ready yet.
    pub missing: u32,
    /// How many of these workers failed to start.
    pub failed: u32,
    /// When one of these workers last became ready, in ms; 0 until the first one is ready. Workers that were launched
    /// in place of failed ones count, too.
    pub ready_ms: u64,
}

/// A decision to remove one worker, and the time of each step until the worker is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleIn {
    /// When fewer workers began to be enough, in ms.
    pub low_ms: u64,
    /// When fewer workers had been enough during the whole cooldown, in ms.
    pub cooled_ms: u64,
    /// When the scaler decided, in ms.
    pub decided_ms: u64,
    /// The instance to remove.
    pub instance: InstanceId,
    /// When the instance's last task ended, in ms; 0 if it has not ended yet.
    pub drained_ms: u64,
    /// When the instance had ended, or had returned to the warm pool, in ms; 0 if this has not happened yet.
    pub gone_ms: u64,
    /// How many instances the scaler decided to remove at the same time, including this one.
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
    /// Iterates over the decisions to add workers, from the oldest to the newest.
    pub fn scale_outs(&self) -> impl Iterator<Item = &ScaleOut> {
        self.scale_outs.iter()
    }

    /// Iterates over the decisions to remove workers, from the oldest to the newest. Each removed instance has a
    /// decision of its own.
    pub fn scale_ins(&self) -> impl Iterator<Item = &ScaleIn> {
        self.scale_ins.iter()
    }

    /// Adds a decision to add workers, and returns the decision's number. If `most` decisions are stored already, drops
    /// the oldest one.
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
