//! A scaler and its provider, brought together: whoever has a clock and a scheduler to look at asks it now and then.
//!
//! Invariants: what the provider says is taken in before the scaler looks; a scheduler that cannot be seen changes nothing, for what is not known is no
//! reason to send anybody away; after `stop` nobody is launched any more.

use std::collections::BTreeSet;

use dunlin_tasks::Signals;

use crate::fleet::{Member, Phase};
use crate::limits::Limits;
use crate::meter::{Meter, Totals};
use crate::policy::{Policy, PolicyError};
use crate::provider::{Action, Event, Instance, Provider};
use crate::sample::Sample;
use crate::scaler::Scaler;

/// Scales with a provider.
#[derive(Debug)]
pub struct Conductor<P> {
    scaler: Scaler,
    provider: P,
    meter: Meter,
    /// The scaler looks so often.
    sample_ms: u64,
    next_ms: u64,
    /// Those that are still there, once all are to go: the scaler has no say any more.
    leaving: Option<BTreeSet<Instance>>,
    actions: Vec<Action>,
    events: Vec<Event>,
}

/// A scheduler at a moment.
#[derive(Debug, Clone, Default)]
pub struct Looked {
    /// What it says itself.
    pub signals: Signals,
    /// What it has counted.
    pub totals: Totals,
}

impl<P: Provider> Conductor<P> {
    /// With nobody yet.
    pub fn new(
        policy: Policy,
        limits: Limits,
        provider: P,
        sample_ms: u64,
    ) -> Result<Conductor<P>, PolicyError> {
        let scaler = Scaler::new(policy, limits)?;
        let (actions, events) = (Vec::new(), Vec::new());
        let (sample_ms, meter) = (sample_ms.max(1), Meter::default());
        Ok(Conductor { scaler, provider, meter, sample_ms, next_ms: 0, leaving: None, actions, events })
    }

    /// Takes in what happened to instances until now.
    pub fn poll(&mut self, now_ms: u64) {
        loop {
            let mut events = std::mem::take(&mut self.events);
            self.provider.events(now_ms, &mut events);
            let is_over = events.is_empty();
            events.drain(..).for_each(|event| self.take(now_ms, &event));
            self.events = events;
            if is_over {
                return;
            }
        }
    }

    fn take(&mut self, now_ms: u64, event: &Event) {
        let Some(leaving) = &mut self.leaving else {
            self.scaler.on_event(now_ms, event, &mut self.actions);
            return self.act(now_ms);
        };
        match *event {
            Event::Drained { instance } => self.provider.act(now_ms, &Action::Terminate { instance }),
            Event::Gone { instance } | Event::Failed { instance, .. } => {
                leaving.remove(&instance);
            }
            Event::Ready { .. } | Event::Prepared { .. } | Event::Interrupted { .. } => {}
        }
    }

    /// Looks at the scheduler; `unix_ms` is for schedules alone, `instance_of` says which instance a worker is.
    pub fn look(
        &mut self,
        now_ms: u64,
        unix_ms: u64,
        looked: &Looked,
        instance_of: impl Fn(u64) -> Option<Instance>,
    ) {
        self.poll(now_ms);
        self.meter.note(&looked.signals, self.scaler.fleet().count(Phase::Ready));
        if now_ms < self.next_ms || self.leaving.is_some() {
            return;
        }
        self.next_ms = now_ms + self.sample_ms;
        let measured = self.meter.measure(now_ms, looked.totals);
        let sample = Sample::new(&looked.signals, measured, instance_of);
        self.scaler.tick(now_ms, unix_ms, &sample, &mut self.actions);
        self.act(now_ms);
    }

    /// Nobody new; all that there are do what they hold, for `grace_ms` at most, and end. To be polled until [`Conductor::is_over`].
    pub fn stop(&mut self, now_ms: u64, grace_ms: u64) {
        let members: BTreeSet<Instance> = self.scaler.fleet().iter().map(|(instance, _)| instance).collect();
        for &instance in &members {
            self.provider.act(now_ms, &Action::Drain { instance, grace_ms });
        }
        self.leaving = Some(members);
    }

    /// Whether nobody is left of those that were to go.
    pub fn is_over(&self) -> bool {
        self.leaving.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// The instances.
    pub fn members(&self) -> impl Iterator<Item = (Instance, &Member)> {
        self.scaler.fleet().iter()
    }

    /// The scaler, to see what it decided.
    pub fn scaler(&self) -> &Scaler {
        &self.scaler
    }

    /// The provider, to tell it what it cannot see by itself.
    pub fn provider(&mut self) -> &mut P {
        &mut self.provider
    }

    fn act(&mut self, now_ms: u64) {
        for action in std::mem::take(&mut self.actions) {
            self.provider.act(now_ms, &action);
        }
    }
}
