//! Runs a scaler and a simulated provider, second by second.

use dunlin_scale::{
    Instance, Phase, Policy, Provider, ProviderAction, ProviderDelays, ProviderEvent, Scaler, ScalerLimits,
    SchedulerSample, SimulatedProvider,
};

pub struct Play {
    pub scaler: Scaler,
    pub provider: SimulatedProvider,
    pub now_ms: u64,
    /// All actions of the scaler and all events of the provider, with their times.
    pub told: Vec<(u64, ProviderAction)>,
    pub said: Vec<(u64, ProviderEvent)>,
}

/// Returns delays of a provider without failures.
pub fn sound() -> ProviderDelays {
    ProviderDelays { cold_failures_permille: 0.0, warm_failures_permille: 0.0, ..ProviderDelays::document() }
}

impl Play {
    pub fn new(policy: Policy, delays: ProviderDelays, seed: u64) -> Play {
        let scaler = Scaler::new(policy, ScalerLimits::default()).unwrap();
        Play {
            scaler,
            provider: SimulatedProvider::new(delays, seed),
            now_ms: 0,
            told: Vec::new(),
            said: Vec::new(),
        }
    }

    /// Creates a run in which the minimum of workers is ready.
    pub fn settled(policy: Policy) -> Play {
        let mut play = Play::new(policy, sound(), 1);
        play.run(60, |_| calm());
        assert_eq!(play.ready(), play.scaler.policy().workers_min);
        play
    }

    pub fn second(&mut self, sample: &SchedulerSample) {
        self.now_ms += 1_000;
        self.poll();
        let mut actions = Vec::new();
        self.scaler.tick(self.now_ms, self.now_ms, sample, &mut actions);
        self.act(actions);
    }

    /// Runs `seconds` seconds. In each second, `of` makes the sample from the ready workers.
    pub fn run(&mut self, seconds: u64, of: impl Fn(u32) -> SchedulerSample) {
        for _ in 0..seconds {
            let sample = of(self.ready());
            self.second(&sample);
        }
    }

    fn poll(&mut self) {
        let mut events = Vec::new();
        self.provider.events(self.now_ms, &mut events);
        for event in events {
            self.said.push((self.now_ms, event));
            let mut actions = Vec::new();
            self.scaler.on_event(self.now_ms, &event, &mut actions);
            self.act(actions);
        }
    }

    fn act(&mut self, actions: Vec<ProviderAction>) {
        for action in actions {
            self.provider.act(self.now_ms, &action);
            self.told.push((self.now_ms, action));
        }
    }

    pub fn ready(&self) -> u32 {
        self.scaler.fleet().count(Phase::Ready)
    }

    pub fn instances(&self, phase: Phase) -> Vec<Instance> {
        let members = self.scaler.fleet().iter().filter(|(_, member)| member.phase == phase);
        members.map(|(instance, _)| instance).collect()
    }

    pub fn drained(&self) -> Vec<(Instance, u64)> {
        let told = self.told.iter().filter_map(|(_, action)| match action {
            ProviderAction::Drain { instance, grace_ms } => Some((*instance, *grace_ms)),
            _ => None,
        });
        told.collect()
    }
}

/// Returns a sample that gives no reason to scale.
pub fn calm() -> SchedulerSample {
    SchedulerSample {
        cpu: 0.65,
        workers: 10.0,
        done_per_s: 100.0,
        arrived_per_s: 100.0,
        ..SchedulerSample::default()
    }
}

/// Returns a sample with this load, for workers that do 10 tasks per second each.
pub fn work(per_s: f64, ready: u32) -> SchedulerSample {
    let can = f64::from(ready) * 10.0;
    let cpu = (per_s / can.max(1e-9)).min(1.0);
    SchedulerSample {
        cpu,
        workers: f64::from(ready),
        done_per_s: per_s.min(can),
        arrived_per_s: per_s,
        ..SchedulerSample::default()
    }
}
