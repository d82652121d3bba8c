//! Runs a scaler together with its provider. The caller passes the time and the state of the task scheduler.
//!
//! Invariants: provider events are applied before the scaler decides. Without the state of a scheduler, no instance is
//! started or ended. After `stop`, no instance is launched.

use std::collections::BTreeSet;

use dunlin_tasks::Signals;

use crate::fleet::{FleetMember, InstancePhase};
use crate::limits::ScalerLimits;
use crate::meter::{LoadMeter, SchedulerTotals};
use crate::policy::{Policy, PolicyError};
use crate::provider::{InstanceId, Provider, ProviderAction, ProviderEvent};
use crate::sample::SchedulerSample;
use crate::scaler::Scaler;

/// Starts and ends workers: lets a [`Scaler`] decide, and passes the resulting actions to a provider.
#[derive(Debug)]
pub struct Autoscaler<P> {
    scaler: Scaler,
    provider: P,
    meter: LoadMeter,
    /// The time between two decisions of the scaler, in ms.
    sample_ms: u64,
    next_ms: u64,
    /// `None` until `stop` is called. After this call, the instances that have not ended yet; the scaler then makes no
    /// more decisions.
    remaining: Option<BTreeSet<InstanceId>>,
    actions: Vec<ProviderAction>,
    events: Vec<ProviderEvent>,
}

/// The state of a task scheduler at one moment: its signals, which describe the waiting tasks and the workers, and its
/// counters.
#[derive(Debug, Clone, Default)]
pub struct SchedulerSnapshot {
    /// The numbers of waiting tasks and of workers, and how long tasks wait.
    pub signals: Signals,
    /// The number of tasks submitted so far, and the number of attempts that have ended so far.
    pub totals: SchedulerTotals,
}

impl<P: Provider> Autoscaler<P> {
    /// Creates an autoscaler without instances. `sample_ms` is the time between two decisions of the scaler.
    ///
    /// # Errors
    /// [`PolicyError`] if the policy is invalid.
    pub fn new(
        policy: Policy,
        limits: ScalerLimits,
        provider: P,
        sample_ms: u64,
    ) -> Result<Autoscaler<P>, PolicyError> {
        let scaler = Scaler::new(policy, limits)?;
        let (actions, events) = (Vec::new(), Vec::new());
        let (sample_ms, meter) = (sample_ms.max(1), LoadMeter::default());
        Ok(Autoscaler { scaler, provider, meter, sample_ms, next_ms: 0, remaining: None, actions, events })
    }

    /// Handles the provider's events that have happened up to `now_ms`.
    pub fn poll(&mut self, now_ms: u64) {
        loop {
            let mut events = std::mem::take(&mut self.events);
            self.provider.events(now_ms, &mut events);
            let is_empty = events.is_empty();
            events.drain(..).for_each(|event| self.handle_event(now_ms, &event));
            self.events = events;
            if is_empty {
                return;
            }
        }
    }

    fn handle_event(&mut self, now_ms: u64, event: &ProviderEvent) {
        let Some(remaining) = &mut self.remaining else {
            self.scaler.on_event(now_ms, event, &mut self.actions);
            return self.run_actions(now_ms);
        };
        match *event {
            ProviderEvent::Drained { instance } => {
                self.provider.act(now_ms, &ProviderAction::Terminate { instance })
            }
            ProviderEvent::Gone { instance } | ProviderEvent::Failed { instance, .. } => {
                remaining.remove(&instance);
            }
            ProviderEvent::Ready { .. }
            | ProviderEvent::Prepared { .. }
            | ProviderEvent::Interrupted { .. } => {}
        }
    }

    /// Adds the scheduler's state to the measurements. If `sample_ms` have passed since the last decision, lets the
    /// scaler decide. `unix_ms` is the time in ms since 1970, for schedules. `instance_of` returns the instance on
    /// which a worker runs.
    pub fn tick(
        &mut self,
        now_ms: u64,
        unix_ms: u64,
        snapshot: &SchedulerSnapshot,
        instance_of: impl Fn(u64) -> Option<InstanceId>,
    ) {
        self.poll(now_ms);
        self.meter.record(&snapshot.signals, self.scaler.fleet().count(InstancePhase::Ready));
        if now_ms < self.next_ms || self.remaining.is_some() {
            return;
        }
        self.next_ms = now_ms + self.sample_ms;
        let measured = self.meter.measure(now_ms, snapshot.totals);
        let sample = SchedulerSample::new(&snapshot.signals, measured, instance_of);
        self.scaler.tick(now_ms, unix_ms, &sample, &mut self.actions);
        self.run_actions(now_ms);
    }

    /// Begins to end the fleet: launches no more instances, and drains the existing ones, each for at most `grace_ms`.
    /// Afterwards, call `poll` until [`Autoscaler::is_stopped`] returns `true`.
    pub fn stop(&mut self, now_ms: u64, grace_ms: u64) {
        let members: BTreeSet<InstanceId> =
            self.scaler.fleet().iter().map(|(instance, _)| instance).collect();
        for &instance in &members {
            self.provider.act(now_ms, &ProviderAction::Drain { instance, grace_ms });
        }
        self.remaining = Some(members);
    }

    /// Whether `stop` was called and all instances have ended.
    pub fn is_stopped(&self) -> bool {
        self.remaining.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// Iterates over the instances of the fleet.
    pub fn members(&self) -> impl Iterator<Item = (InstanceId, &FleetMember)> {
        self.scaler.fleet().iter()
    }

    /// Returns the scaler, which contains the decisions.
    pub fn scaler(&self) -> &Scaler {
        &self.scaler
    }

    /// Returns the provider, which starts and ends the instances.
    pub fn provider(&mut self) -> &mut P {
        &mut self.provider
    }

    fn run_actions(&mut self, now_ms: u64) {
        for action in std::mem::take(&mut self.actions) {
            self.provider.act(now_ms, &action);
        }
    }
}
