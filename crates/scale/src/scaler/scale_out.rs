//! Adds workers when a threshold is exceeded.

use crate::decision::ScaleOut;
use crate::fleet::{FleetMember, InstancePhase};
use crate::provider::{InstanceMarket, ProviderAction};
use crate::sample::SchedulerSample;
use crate::trigger::ScaleOutTrigger;

use super::Scaler;
use super::required::RequiredWorkers;

impl Scaler {
    pub(super) fn scale_out(
        &mut self,
        now_ms: u64,
        sample: &SchedulerSample,
        required: &RequiredWorkers,
        actions: &mut Vec<ProviderAction>,
    ) {
        let serving = self.fleet.serving();
        if serving < required.floor {
            let trigger = match self.policy.workers_min {
                least if required.scheduled > least => ScaleOutTrigger::Scheduled,
                least if required.floor > least => ScaleOutTrigger::Queue,
                _ => ScaleOutTrigger::Bounds,
            };
            self.launch_for(trigger, (now_ms, now_ms, now_ms), required.floor - serving, 0, actions);
        }
        let triggers = self.policy.triggers;
        let ready = self.fleet.count(InstancePhase::Ready);
        let is_late = sample.oldest_ms.max(sample.latency_ms.unwrap_or(0)) > triggers.latency_ms_max;
        let reactive = required.cpu.max(required.backlog);
        let is_rising = u64::from(required.forecast) * 100
            >= u64::from(serving) * u64::from(100 + self.rise_percent())
            && required.forecast > serving;
        let one_more = reactive.max(ready + 1).min(self.policy.workers_max);
        let reasons = [
            (ScaleOutTrigger::Cpu, sample.cpu > triggers.cpu_target, required.cpu),
            (ScaleOutTrigger::Queue, sample.startable > triggers.queue_max, one_more),
            (ScaleOutTrigger::Latency, is_late && sample.startable > 0, one_more),
            (ScaleOutTrigger::Predictive, is_rising, required.forecast),
        ];
        for (at, (trigger, is_exceeded, workers)) in reasons.into_iter().enumerate() {
            if let Some(passed_ms) = self.exceeded_since[at].update(is_exceeded, now_ms) {
                self.launch_if_due(now_ms, trigger, passed_ms, workers, actions);
            }
        }
    }

    fn rise_percent(&self) -> u32 {
        self.policy.predictive.as_ref().map_or(0, |config| config.rise_percent)
    }

    /// Adds workers if the threshold of `trigger` has been exceeded for long enough.
    fn launch_if_due(
        &mut self,
        now_ms: u64,
        trigger: ScaleOutTrigger,
        passed_ms: u64,
        workers: u32,
        actions: &mut Vec<ProviderAction>,
    ) {
        let detect_ms =
            if trigger == ScaleOutTrigger::Predictive { 0 } else { self.policy.scale_out.detect_ms };
        let decide_ms = self.policy.decide_ms(trigger);
        let more = workers.saturating_sub(self.fleet.serving()).min(self.step_left(now_ms));
        let warm = self.fleet.count(InstancePhase::Warm);
        let warm_detect_ms = detect_ms.min(self.policy.warm.detect_ms);
        if now_ms >= passed_ms + detect_ms + decide_ms {
            let times = (passed_ms, passed_ms + detect_ms, now_ms);
            self.launch_for(trigger, times, more, warm, actions);
        } else if warm > 0 && now_ms >= passed_ms + warm_detect_ms + decide_ms {
            // Takes workers from the warm pool before a launch is due, because an unnecessary worker from the pool
            // costs little.
            let times = (passed_ms, passed_ms + warm_detect_ms, now_ms);
            self.launch_for(trigger, times, more.min(warm), warm, actions);
        }
    }

    /// Returns how many workers may still be added now, given those that were added in the last `step_ms`.
    fn step_left(&mut self, now_ms: u64) -> u32 {
        let rules = self.policy.scale_out;
        while self.added.front().is_some_and(|(at_ms, _)| at_ms + rules.step_ms <= now_ms) {
            self.added.pop_front();
        }
        let added: u32 = self.added.iter().map(|(_, count)| *count).sum();
        let before = u64::from(self.fleet.serving().saturating_sub(added));
        let percent = (before * u64::from(rules.step_percent) / 100).min(u64::from(u32::MAX));
        (percent as u32).max(rules.step_workers).max(1).saturating_sub(added)
    }

    fn launch_for(
        &mut self,
        trigger: ScaleOutTrigger,
        (passed_ms, detected_ms, decided_ms): (u64, u64, u64),
        workers: u32,
        warm: u32,
        actions: &mut Vec<ProviderAction>,
    ) {
        let workers = workers.min(self.policy.workers_max.saturating_sub(self.fleet.serving()));
        if workers == 0 || decided_ms < self.paused_until_ms {
            return;
        }
        self.added.push_back((decided_ms, workers));
        let woken = workers.min(warm);
        let (missing, failed, ready_ms) = (workers, 0, 0);
        let decision = ScaleOut {
            trigger,
            passed_ms,
            detected_ms,
            decided_ms,
            workers,
            woken,
            missing,
            failed,
            ready_ms,
        };
        let number = self.decisions.push_scale_out(decision, self.limits.decisions_max);
        self.wake(decided_ms, woken, number, actions);
        self.launch(decided_ms, workers - woken, Some(number), actions);
        // Workers were added, so the cooldown before the next removal starts again.
        self.fewer_since.clear();
    }

    fn wake(&mut self, now_ms: u64, count: u32, number: u64, actions: &mut Vec<ProviderAction>) {
        let warm = self.fleet.iter().filter(|(_, member)| member.phase == InstancePhase::Warm);
        let warm: Vec<_> = warm.take(count as usize).map(|(instance, _)| instance).collect();
        for instance in warm {
            if let Some(member) = self.fleet.set(instance, InstancePhase::Waking, now_ms) {
                member.decision = Some(number);
            }
            actions.push(ProviderAction::Wake { instance });
        }
    }

    /// Launches `count` instances, which run tasks as soon as they are ready.
    pub(super) fn launch(
        &mut self,
        now_ms: u64,
        count: u32,
        decision: Option<u64>,
        actions: &mut Vec<ProviderAction>,
    ) {
        if count == 0 {
            return;
        }
        let serves = |member: &&FleetMember| {
            matches!(member.phase, InstancePhase::Ready | InstancePhase::Starting | InstancePhase::Waking)
        };
        let members = || self.fleet.iter().map(|(_, member)| member).filter(serves);
        let mut spot = members().filter(|member| member.market == InstanceMarket::Spot).count() as u64;
        let mut all = members().count() as u64;
        for _ in 0..count {
            all += 1;
            let beyond = all.saturating_sub(u64::from(self.policy.spot.base));
            let is_spot = !self.is_without_spot(now_ms)
                && (spot + 1) * 100 <= beyond * u64::from(self.policy.spot.percent);
            spot += u64::from(is_spot);
            let market = if is_spot { InstanceMarket::Spot } else { InstanceMarket::OnDemand };
            self.start(now_ms, InstancePhase::Starting, market, decision, actions);
        }
    }

    fn start(
        &mut self,
        now_ms: u64,
        phase: InstancePhase,
        market: InstanceMarket,
        decision: Option<u64>,
        actions: &mut Vec<ProviderAction>,
    ) {
        let member = FleetMember { phase, market, since_ms: now_ms, decision, is_lost: false };
        let instance = self.fleet.add(member);
        actions.push(ProviderAction::Launch { instance, market, is_warm: phase == InstancePhase::Preparing });
    }

    pub(super) fn refill_warm_pool(&mut self, now_ms: u64, actions: &mut Vec<ProviderAction>) {
        let pooled = self.fleet.count(InstancePhase::Warm) + self.fleet.count(InstancePhase::Preparing);
        if now_ms >= self.paused_until_ms {
            for _ in pooled..self.policy.warm.size {
                self.start(now_ms, InstancePhase::Preparing, InstanceMarket::OnDemand, None, actions);
            }
        }
    }

    pub(super) fn launch_postponed(&mut self, now_ms: u64, actions: &mut Vec<ProviderAction>) {
        if now_ms < self.paused_until_ms {
            return;
        }
        for decision in std::mem::take(&mut self.postponed) {
            if self.fleet.serving() < self.policy.workers_max {
                self.launch(now_ms, 1, decision, actions);
            }
        }
    }
}
