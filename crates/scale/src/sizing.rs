//! Vertical right-sizing: which machine a worker needs, by what workers were measured to use.

use crate::prices::{Machine, Prices};

/// What is kept free above what was measured, a share.
const ROOM: f64 = 0.15;
/// What a machine keeps of its memory for the system: GiB at least, and a share.
const SYSTEM_GIB: f64 = 0.5;
const SYSTEM_SHARE: f64 = 0.05;
/// Fewer measurements say too little.
const MEASURED_MIN: usize = 20;

/// What a worker uses at most, nearly always.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Need {
    /// Processors: 95 in a hundred of what was measured are below.
    pub cpus: f64,
    /// In GiB: 99 in a hundred are below. Who has too little memory dies, who has too few processors is slow.
    pub memory_gib: f64,
}

/// How workers fit onto machines.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The kind of machine.
    pub machine: Machine,
    /// So many workers on one.
    pub workers: u32,
    /// What a worker costs in an hour.
    pub per_worker_hour: f64,
    /// And on the spot market.
    pub spot_per_worker_hour: f64,
}

impl Machine {
    /// GiB that workers may have of it.
    pub fn usable_gib(&self) -> f64 {
        (self.memory_gib - SYSTEM_GIB.max(self.memory_gib * SYSTEM_SHARE)).max(0.0)
    }
}

impl Fit {
    /// So many workers on one of these.
    pub(crate) fn new(machine: &Machine, workers: u32) -> Fit {
        Fit {
            machine: machine.clone(),
            workers,
            per_worker_hour: machine.per_hour / f64::from(workers),
            spot_per_worker_hour: machine.spot_per_hour / f64::from(workers),
        }
    }

    /// What so many workers cost in an hour, on demand and on the spot market: whole machines are paid for.
    pub fn per_hour(&self, on_demand: f64, on_spot: f64) -> f64 {
        let machines = |workers: f64| (workers / f64::from(self.workers) - 1e-9).ceil().max(0.0);
        machines(on_demand) * self.machine.per_hour + machines(on_spot) * self.machine.spot_per_hour
    }
}

impl Need {
    /// Of measurements of workers: processors used, and GiB. None if there are too few to say anything.
    pub fn of(cpus: &[f64], memory_gib: &[f64]) -> Option<Need> {
        Some(Need { cpus: quantile(cpus, 0.95)?, memory_gib: quantile(memory_gib, 0.99)? })
    }

    /// How many workers fit onto a machine, with room to spare; none if not one does.
    pub fn fit(&self, machine: &Machine) -> Option<Fit> {
        let most =
            |has: f64, need: f64| if need > 0.0 { has / (need * (1.0 + ROOM)) } else { f64::from(u32::MAX) };
        let workers =
            most(f64::from(machine.cpus), self.cpus).min(most(machine.usable_gib(), self.memory_gib));
        let workers = workers.min(1_000_000.0) as u32;
        (workers > 0).then(|| Fit::new(machine, workers))
    }

    /// The machine on which so many workers cost least, on demand and on the spot market; of several the smallest.
    pub fn cheapest_for(&self, prices: &Prices, on_demand: f64, on_spot: f64) -> Option<Fit> {
        let fits = prices.machines.iter().filter_map(|machine| self.fit(machine));
        fits.min_by(|a, b| {
            let price = |fit: &Fit| fit.per_hour(on_demand, on_spot);
            price(a).total_cmp(&price(b)).then(a.machine.cpus.cmp(&b.machine.cpus))
        })
    }

    /// The machine on which a worker costs least where there are many; of several the smallest.
    pub fn cheapest(&self, prices: &Prices) -> Option<Fit> {
        let fits = prices.machines.iter().filter_map(|machine| self.fit(machine));
        fits.min_by(|a, b| {
            let by_price = a.per_worker_hour.total_cmp(&b.per_worker_hour);
            by_price.then(a.machine.cpus.cmp(&b.machine.cpus))
        })
    }
}

fn quantile(values: &[f64], quantile: f64) -> Option<f64> {
    if values.len() < MEASURED_MIN || values.iter().any(|value| !(value.is_finite() && *value >= 0.0)) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied()
}
