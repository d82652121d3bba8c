//! Removes workers when fewer of them are enough.

use std::collections::VecDeque;

use crate::decision::ScaleIn;
use crate::fleet::InstancePhase;
use crate::provider::{InstanceId, ProviderAction};
use crate::sample::SchedulerSample;

use super::Scaler;
use super::required::RequiredWorkers;

/// Finds the highest of the values that were recorded in the last period of a given length. The list contains only
/// values that can still become the highest, in falling order.
#[derive(Debug, Clone, Default)]
pub(super) struct WindowMax(VecDeque<(u64, u32)>);

impl WindowMax {
    fn record(&mut self, now_ms: u64, value: u32, within_ms: u64) -> u32 {
        while self.0.back().is_some_and(|(_, last)| *last <= value) {
            self.0.pop_back();
        }
        self.0.push_back((now_ms, value));
        while self.0.front().is_some_and(|(at_ms, _)| at_ms + within_ms < now_ms) {
            self.0.pop_front();
        }
        self.0.front().map_or(value, |(_, highest)| *highest)
    }
}

impl Scaler {
    pub(super) fn scale_in(
        &mut self,
        now_ms: u64,
        sample: &SchedulerSample,
        required: &RequiredWorkers,
        actions: &mut Vec<ProviderAction>,
    ) {
        let rules = self.policy.scale_in;
        let highest = self.required_max.record(now_ms, required.largest(), rules.cooldown_ms);
        let serving = self.fleet.serving();
        let low_enough = u64::from(required.largest()) * 100
            <= u64::from(serving) * u64::from(100 - rules.tolerance_percent.min(100));
        let is_fewer = low_enough
            && sample.cpu < self.policy.triggers.cpu_low
            && sample.startable <= self.policy.triggers.queue_max / 10
            && self.fleet.count(InstancePhase::Ready) == serving;
        let Some(low_ms) = self.fewer_since.update(is_fewer, now_ms) else { return };
        if now_ms < (low_ms + rules.cooldown_ms + rules.decide_ms).max(self.next_scale_in_ms) {
            return;
        }
        let step = (u64::from(serving) * u64::from(rules.step_percent) / 100).max(1) as u32;
        let count = serving.saturating_sub(highest).min(step);
        let victims = self.victims(sample, count);
        self.next_scale_in_ms = now_ms + rules.decide_ms;
        let grace_ms = rules.drain_ms.max(sample.grace_ms);
        for &instance in &victims {
            let cooled_ms = (low_ms + rules.cooldown_ms).max(now_ms.saturating_sub(rules.decide_ms));
            let workers = victims.len() as u32;
            let decision = ScaleIn {
                low_ms,
                cooled_ms,
                decided_ms: now_ms,
                instance,
                drained_ms: 0,
                gone_ms: 0,
                workers,
            };
            self.decisions.push_scale_in(decision, self.limits.decisions_max);
            self.fleet.set(instance, InstancePhase::Draining, now_ms);
            actions.push(ProviderAction::Drain { instance, grace_ms });
        }
    }

    /// Returns the instances to remove: those that have been idle longest. An instance whose worker has a task is never
    /// removed.
    fn victims(&self, sample: &SchedulerSample, count: u32) -> Vec<InstanceId> {
        let idle = sample.idle.iter().map(|(instance, _)| *instance);
        let idle = idle.filter(|&instance| {
            self.fleet.get(instance).is_some_and(|member| member.phase == InstancePhase::Ready)
        });
        idle.take(count as usize).collect()
    }
}
