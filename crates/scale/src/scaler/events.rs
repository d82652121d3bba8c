//! Applies the provider's events to the scaler's fleet.

use crate::fleet::{FleetMember, InstancePhase};
use crate::provider::{InstanceId, InstanceMarket, ProviderAction, ProviderEvent};

use super::Scaler;

impl Scaler {
    /// Handles an event of the provider, and appends the resulting actions to `actions`. Ignores events of unknown
    /// instances.
    pub fn on_event(&mut self, now_ms: u64, event: &ProviderEvent, actions: &mut Vec<ProviderAction>) {
        let instance = event.instance();
        let Some(&member) = self.fleet.get(instance) else { return };
        match *event {
            ProviderEvent::Ready { .. } => self.on_ready(now_ms, instance, member),
            ProviderEvent::Prepared { .. } if member.phase == InstancePhase::Preparing => {
                self.fleet.set(instance, InstancePhase::Warm, now_ms);
                self.on_gone(now_ms, instance);
            }
            ProviderEvent::Prepared { .. } => {}
            ProviderEvent::Failed { is_capacity, .. } => {
                self.fleet.remove(instance);
                if is_capacity && member.market == InstanceMarket::Spot {
                    self.record_spot_failure(now_ms);
                }
                self.on_failed(now_ms, instance, member, actions);
            }
            ProviderEvent::Interrupted { notice_ms, .. } => {
                self.on_interrupted(now_ms, instance, member, notice_ms, actions)
            }
            ProviderEvent::Drained { .. } => self.on_drained(now_ms, instance, member, actions),
            ProviderEvent::Gone { .. } => {
                self.fleet.remove(instance);
                self.on_gone(now_ms, instance);
                match member.phase {
                    // The instance has ended although the scaler did not request it, so the scaler starts another one.
                    InstancePhase::Ready => self.replace(now_ms, None, actions),
                    InstancePhase::Starting
                    | InstancePhase::Waking
                    | InstancePhase::Preparing
                    | InstancePhase::Warm => {
                        self.on_failed(now_ms, instance, member, actions);
                    }
                    InstancePhase::Draining | InstancePhase::Stopping => {}
                }
            }
        }
    }

    fn on_ready(&mut self, now_ms: u64, instance: InstanceId, member: FleetMember) {
        if !matches!(member.phase, InstancePhase::Starting | InstancePhase::Waking) {
            return;
        }
        self.failures = 0;
        self.fleet.set(instance, InstancePhase::Ready, now_ms);
        if let Some(decision) = member.decision.and_then(|number| self.decisions.scale_out_mut(number)) {
            decision.missing = decision.missing.saturating_sub(1);
            decision.ready_ms = now_ms;
        }
    }

    /// Launches another instance in place of a failed one. After too many failed launches in a row, the launch waits
    /// for the end of a pause.
    fn on_failed(
        &mut self,
        now_ms: u64,
        instance: InstanceId,
        member: FleetMember,
        actions: &mut Vec<ProviderAction>,
    ) {
        self.failures += 1;
        if self.failures >= self.limits.failures_max {
            self.failures = 0;
            self.paused_until_ms = now_ms + self.limits.failure_pause_ms;
        }
        match member.phase {
            InstancePhase::Starting | InstancePhase::Waking => {
                if let Some(decision) =
                    member.decision.and_then(|number| self.decisions.scale_out_mut(number))
                {
                    decision.failed += 1;
                }
                self.replace(now_ms, member.decision, actions);
            }
            // At the next tick, the scaler launches another instance for the warm pool.
            _ => self.on_gone(now_ms, instance),
        }
    }

    fn replace(&mut self, now_ms: u64, decision: Option<u64>, actions: &mut Vec<ProviderAction>) {
        if now_ms < self.paused_until_ms {
            self.postponed.push(decision);
        } else if self.fleet.serving() < self.policy.workers_max {
            self.launch(now_ms, 1, decision, actions);
        }
    }

    /// Drains an instance that will be interrupted, in the time that is left. Launches another instance at once.
    fn on_interrupted(
        &mut self,
        now_ms: u64,
        instance: InstanceId,
        member: FleetMember,
        notice_ms: u64,
        actions: &mut Vec<ProviderAction>,
    ) {
        self.record_spot_failure(now_ms);
        let was_serving =
            matches!(member.phase, InstancePhase::Ready | InstancePhase::Starting | InstancePhase::Waking);
        if !was_serving && member.phase != InstancePhase::Draining {
            return;
        }
        if let Some(member) = self.fleet.set(instance, InstancePhase::Draining, now_ms) {
            member.is_lost = true;
        }
        actions.push(ProviderAction::Drain { instance, grace_ms: notice_ms });
        if was_serving {
            self.replace(now_ms, member.decision.filter(|_| member.phase != InstancePhase::Ready), actions);
        }
    }

    fn record_spot_failure(&mut self, now_ms: u64) {
        let spot = self.policy.spot;
        self.spot_failures.push_back(now_ms);
        while self.spot_failures.front().is_some_and(|at_ms| at_ms + spot.fallback_ms < now_ms) {
            self.spot_failures.pop_front();
        }
        if spot.fallback_after > 0 && self.spot_failures.len() >= spot.fallback_after as usize {
            self.on_demand_until_ms = now_ms + spot.fallback_ms;
            self.spot_failures.clear();
        }
    }

    fn on_drained(
        &mut self,
        now_ms: u64,
        instance: InstanceId,
        member: FleetMember,
        actions: &mut Vec<ProviderAction>,
    ) {
        if member.phase != InstancePhase::Draining {
            return;
        }
        if let Some(decision) =
            self.decisions.scale_in_mut(instance).filter(|decision| decision.drained_ms == 0)
        {
            decision.drained_ms = now_ms;
        }
        let (warm, pool) = (
            self.fleet.count(InstancePhase::Warm) + self.fleet.count(InstancePhase::Preparing),
            self.policy.warm,
        );
        if pool.takes_drained
            && warm < pool.size
            && !member.is_lost
            && member.market == InstanceMarket::OnDemand
        {
            self.fleet.set(instance, InstancePhase::Preparing, now_ms);
            actions.push(ProviderAction::Park { instance });
        } else {
            self.fleet.set(instance, InstancePhase::Stopping, now_ms);
            actions.push(ProviderAction::Terminate { instance });
        }
    }

    fn on_gone(&mut self, now_ms: u64, instance: InstanceId) {
        if let Some(decision) = self.decisions.scale_in_mut(instance).filter(|decision| decision.gone_ms == 0)
        {
            decision.gone_ms = now_ms;
        }
    }
}
