//! Simulates a provider of machines. Delays, failures and interruptions happen in virtual time, and follow from a seed.

use std::collections::{BTreeMap, BTreeSet};

use crate::provider::{InstanceId, InstanceMarket, Provider, ProviderAction, ProviderEvent};
use crate::random::Random;

/// The delays of a simulated provider, and how often starts fail and spot instances are interrupted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProviderDelays {
    /// The time from the launch of an instance until it is ready, in ms.
    pub ready_ms: u64,
    /// The time from when an instance is taken from the warm pool until it is ready, in ms.
    pub wake_ms: u64,
    /// The time from the request to end an instance until it has ended, in ms.
    pub terminate_ms: u64,
    /// How many of 1,000 cold starts fail. A failure is reported at the time when the instance should have been ready.
    pub cold_failures_permille: f64,
    /// How many of 1,000 starts from the warm pool fail.
    pub warm_failures_permille: f64,
    /// How often a spot instance is interrupted per hour, on average.
    pub interruptions_per_hour: f64,
    /// The time from the notice until the spot instance is interrupted, in ms.
    pub notice_ms: u64,
    /// The largest number of spot instances at the same time; `None` for no limit.
    pub spot_max: Option<u32>,
}

impl ProviderDelays {
    /// Returns the delays of Dunlin's requirements: a worker starts in 45 s and ends in 30 s, and 2.3 % of cold starts
    /// and 0.8 % of starts from the warm pool fail. A start from the warm pool takes 20 s, so that detection, decision
    /// and start together can take the 55 s that the requirements allow. With the usual times, detection and decision
    /// alone would take 75 s. A policy with a warm pool therefore needs a shorter detection.
    pub fn cloud() -> ProviderDelays {
        ProviderDelays {
            ready_ms: 45_000,
            wake_ms: 20_000,
            terminate_ms: 30_000,
            cold_failures_permille: 23.0,
            warm_failures_permille: 8.0,
            interruptions_per_hour: 0.0,
            notice_ms: 120_000,
            spot_max: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Starting { is_warm: bool },
    Warm,
    Ready,
    Draining,
    Ending,
}

#[derive(Debug, Clone, Copy)]
struct Machine {
    state: State,
    market: InstanceMarket,
    has_notice: bool,
}

/// An event of an instance that is due at a later time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Started,
    InterruptionNotice,
    Interruption,
    DrainTimeout,
    Gone,
}

/// A provider that starts and ends simulated machines.
#[derive(Debug, Clone)]
pub struct SimulatedProvider {
    delays: ProviderDelays,
    random: Random,
    machines: BTreeMap<InstanceId, Machine>,
    due: BTreeSet<(u64, InstanceId, Due)>,
    queued: Vec<ProviderEvent>,
    launches: (u64, u64),
    failures: (u64, u64),
    interruptions: u64,
}

impl SimulatedProvider {
    /// Creates a provider. The same calls at the same times give the same events if the seed is the same.
    pub fn new(delays: ProviderDelays, seed: u64) -> SimulatedProvider {
        SimulatedProvider {
            delays,
            random: Random::new(seed),
            machines: BTreeMap::new(),
            due: BTreeSet::new(),
            queued: Vec::new(),
            launches: (0, 0),
            failures: (0, 0),
            interruptions: 0,
        }
    }

    /// Returns the provider's delays.
    pub fn delays(&self) -> &ProviderDelays {
        &self.delays
    }

    /// Adds an instance that is ready already, as if it had been launched earlier.
    pub(crate) fn insert_running(&mut self, instance: InstanceId, launch: &ProviderAction) {
        if let ProviderAction::Launch { market, is_warm, .. } = *launch {
            let state = if is_warm { State::Warm } else { State::Ready };
            self.machines.insert(instance, Machine { state, market, has_notice: false });
            self.schedule_interruption(0, instance, market);
        }
    }

    /// Reports to the provider that the last task of a draining instance has ended.
    pub fn report_drained(&mut self, instance: InstanceId) {
        if self.machines.get(&instance).is_some_and(|machine| machine.state == State::Draining) {
            self.queued.push(ProviderEvent::Drained { instance });
        }
    }

    /// Ends an instance without a notice.
    pub fn kill(&mut self, instance: InstanceId) {
        if self.machines.remove(&instance).is_some() {
            self.queued.push(ProviderEvent::Gone { instance });
        }
    }

    /// Returns the number of cold starts, and the number of starts from the warm pool.
    pub fn launches(&self) -> (u64, u64) {
        self.launches
    }

    /// Returns how many of the cold starts, and how many of the starts from the warm pool, failed.
    pub fn failures(&self) -> (u64, u64) {
        self.failures
    }

    /// Returns the number of spot instances that have been interrupted.
    pub fn interruptions(&self) -> u64 {
        self.interruptions
    }

    fn launch(&mut self, now_ms: u64, instance: InstanceId, market: InstanceMarket, is_warm: bool) {
        let spot = || self.machines.values().filter(|machine| machine.market == InstanceMarket::Spot).count();
        if market == InstanceMarket::Spot && self.delays.spot_max.is_some_and(|most| spot() >= most as usize)
        {
            self.queued.push(ProviderEvent::Failed { instance, is_capacity: true });
            return;
        }
        self.machines
            .insert(instance, Machine { state: State::Starting { is_warm }, market, has_notice: false });
        self.due.insert((now_ms + self.delays.ready_ms, instance, Due::Started));
        self.schedule_interruption(now_ms, instance, market);
    }

    fn schedule_interruption(&mut self, now_ms: u64, instance: InstanceId, market: InstanceMarket) {
        if market == InstanceMarket::Spot && self.delays.interruptions_per_hour > 0.0 {
            let after_ms = self.random.exponential() * 3_600_000.0 / self.delays.interruptions_per_hour;
            self.due.insert((now_ms.saturating_add(after_ms as u64), instance, Due::InterruptionNotice));
        }
    }

    fn apply_due(&mut self, at_ms: u64, instance: InstanceId, due: Due, events: &mut Vec<ProviderEvent>) {
        let Some(machine) = self.machines.get_mut(&instance) else { return };
        match (due, machine.state) {
            (Due::Started, State::Starting { is_warm }) => {
                self.finish_start(instance, is_warm, false, events)
            }
            (Due::Started, State::Warm) => self.finish_start(instance, false, true, events),
            (Due::InterruptionNotice, _) if !machine.has_notice => {
                machine.has_notice = true;
                self.interruptions += 1;
                self.due.insert((at_ms + self.delays.notice_ms, instance, Due::Interruption));
                events.push(ProviderEvent::Interrupted { instance, notice_ms: self.delays.notice_ms });
            }
            (Due::DrainTimeout, State::Draining) => events.push(ProviderEvent::Drained { instance }),
            (Due::Interruption | Due::Gone, _) => {
                self.machines.remove(&instance);
                events.push(ProviderEvent::Gone { instance });
            }
            _ => {}
        }
    }

    fn finish_start(
        &mut self,
        instance: InstanceId,
        is_for_pool: bool,
        was_warm: bool,
        events: &mut Vec<ProviderEvent>,
    ) {
        let ProviderDelays { cold_failures_permille, warm_failures_permille, .. } = self.delays;
        let permille = if was_warm { warm_failures_permille } else { cold_failures_permille };
        let has_failed = self.random.unit() * 1_000.0 < permille;
        if !is_for_pool {
            let (launches, failures) = match was_warm {
                true => (&mut self.launches.1, &mut self.failures.1),
                false => (&mut self.launches.0, &mut self.failures.0),
            };
            *launches += 1;
            *failures += u64::from(has_failed);
        }
        if has_failed {
            self.machines.remove(&instance);
            events.push(ProviderEvent::Failed { instance, is_capacity: false });
            return;
        }
        if let Some(machine) = self.machines.get_mut(&instance) {
            machine.state = if is_for_pool { State::Warm } else { State::Ready };
        }
        events.push(if is_for_pool {
            ProviderEvent::Prepared { instance }
        } else {
            ProviderEvent::Ready { instance }
        });
    }
}

impl Provider for SimulatedProvider {
    fn act(&mut self, now_ms: u64, action: &ProviderAction) {
        if let ProviderAction::Launch { instance, market, is_warm } = *action {
            return self.launch(now_ms, instance, market, is_warm);
        }
        let (ProviderAction::Wake { instance }
        | ProviderAction::Drain { instance, .. }
        | ProviderAction::Terminate { instance }
        | ProviderAction::Park { instance }
        | ProviderAction::Launch { instance, .. }) = *action;
        let Some(machine) = self.machines.get_mut(&instance) else {
            // The instance does not exist any more; for example, it was interrupted before this action.
            self.queued.push(ProviderEvent::Gone { instance });
            return;
        };
        match *action {
            ProviderAction::Wake { .. } => {
                self.due.insert((now_ms + self.delays.wake_ms, instance, Due::Started));
            }
            ProviderAction::Drain { grace_ms, .. } => {
                machine.state = State::Draining;
                self.due.insert((now_ms.saturating_add(grace_ms), instance, Due::DrainTimeout));
            }
            ProviderAction::Terminate { .. } => {
                machine.state = State::Ending;
                self.due.insert((now_ms + self.delays.terminate_ms, instance, Due::Gone));
            }
            ProviderAction::Park { .. } => {
                machine.state = State::Starting { is_warm: true };
                self.due.insert((now_ms + self.delays.terminate_ms, instance, Due::Started));
            }
            ProviderAction::Launch { .. } => {}
        }
    }

    fn events(&mut self, now_ms: u64, events: &mut Vec<ProviderEvent>) {
        events.append(&mut self.queued);
        while let Some(&(at_ms, instance, due)) = self.due.first().filter(|due| due.0 <= now_ms) {
            self.due.pop_first();
            self.apply_due(at_ms, instance, due, events);
        }
    }

    fn next_due_ms(&self) -> Option<u64> {
        match self.queued.is_empty() {
            true => self.due.first().map(|due| due.0),
            false => Some(0),
        }
    }
}
