//! Runs a scaler and a simulated provider together, second by second, for the tests.

use dunlin_scale::{
    InstanceId, InstancePhase, Policy, Provider, ProviderAction, ProviderDelays, ProviderEvent, Scaler,
    ScalerLimits, SchedulerSample, SimulatedProvider,
};

/// A scaler and its simulated provider, which have the same clock.
pub struct ScalerSimulation {
    pub scaler: Scaler,
    pub provider: SimulatedProvider,
    pub now_ms: u64,
    /// All actions of the scaler, each with its time in ms.
    pub actions: Vec<(u64, ProviderAction)>,
    /// All events of the provider, each with its time in ms.
    pub events: Vec<(u64, ProviderEvent)>,
}

/// Returns the delays of a provider that never fails.
pub fn reliable_delays() -> ProviderDelays {
    ProviderDelays { cold_failures_permille: 0.0, warm_failures_permille: 0.0, ..ProviderDelays::cloud() }
}

impl ScalerSimulation {
    pub fn new(policy: Policy, delays: ProviderDelays, seed: u64) -> ScalerSimulation {
        let scaler = Scaler::new(policy, ScalerLimits::default()).unwrap();
        ScalerSimulation {
            scaler,
            provider: SimulatedProvider::new(delays, seed),
            now_ms: 0,
            actions: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Creates a simulation, and runs it until the minimum number of workers is ready.
    pub fn settled(policy: Policy) -> ScalerSimulation {
        let mut simulation = ScalerSimulation::new(policy, reliable_delays(), 1);
        simulation.run(60, |_| calm());
        assert_eq!(simulation.ready(), simulation.scaler.policy().workers_min);
        simulation
    }

    pub fn step(&mut self, sample: &SchedulerSample) {
        self.now_ms += 1_000;
        self.poll();
        let mut actions = Vec::new();
        self.scaler.tick(self.now_ms, self.now_ms, sample, &mut actions);
        self.run_actions(actions);
    }

    /// Runs `seconds` seconds. In each second, the scaler gets the sample that `sample_of` returns for the number of
    /// ready workers.
    pub fn run(&mut self, seconds: u64, sample_of: impl Fn(u32) -> SchedulerSample) {
        for _ in 0..seconds {
            let sample = sample_of(self.ready());
            self.step(&sample);
        }
    }

    fn poll(&mut self) {
        let mut events = Vec::new();
        self.provider.events(self.now_ms, &mut events);
        for event in events {
            self.events.push((self.now_ms, event));
            let mut actions = Vec::new();
            self.scaler.on_event(self.now_ms, &event, &mut actions);
            self.run_actions(actions);
        }
    }

    fn run_actions(&mut self, actions: Vec<ProviderAction>) {
        for action in actions {
            self.provider.act(self.now_ms, &action);
            self.actions.push((self.now_ms, action));
        }
    }

    pub fn ready(&self) -> u32 {
        self.scaler.fleet().count(InstancePhase::Ready)
    }

    pub fn instances(&self, phase: InstancePhase) -> Vec<InstanceId> {
        let members = self.scaler.fleet().iter().filter(|(_, member)| member.phase == phase);
        members.map(|(instance, _)| instance).collect()
    }

    pub fn drained(&self) -> Vec<(InstanceId, u64)> {
        let actions = self.actions.iter().filter_map(|(_, action)| match action {
            ProviderAction::Drain { instance, grace_ms } => Some((*instance, *grace_ms)),
            _ => None,
        });
        actions.collect()
    }
}

/// Returns a sample because of which no worker is added or removed.
pub fn calm() -> SchedulerSample {
    SchedulerSample {
        cpu: 0.65,
        workers: 10.0,
        done_per_s: 100.0,
        arrived_per_s: 100.0,
        ..SchedulerSample::default()
    }
}

/// Returns the sample for a load of `per_s` tasks per second, if each worker completes 10 tasks per second.
pub fn load_sample(per_s: f64, ready: u32) -> SchedulerSample {
    let capacity_per_s = f64::from(ready) * 10.0;
    let cpu = (per_s / capacity_per_s.max(1e-9)).min(1.0);
    SchedulerSample {
        cpu,
        workers: f64::from(ready),
        done_per_s: per_s.min(capacity_per_s),
        arrived_per_s: per_s,
        ..SchedulerSample::default()
    }
}
