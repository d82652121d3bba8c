//! Finds the machine type that suits the measured use of a worker (right-sizing).

use crate::prices::{MachineType, Prices};

/// The share by which a machine must be larger than the measured use of its workers.
const HEADROOM: f64 = 0.15;
/// The minimum memory that is reserved for a machine's operating system, in GiB.
const SYSTEM_GIB: f64 = 0.5;
/// The share of a machine's memory that is reserved for the machine's operating system. If this share is less than
/// `SYSTEM_GIB`, `SYSTEM_GIB` is reserved instead.
const SYSTEM_SHARE: f64 = 0.05;
/// The smallest number of measurements from which a worker's need is computed.
const MEASURED_MIN: usize = 20;

/// The number of processors and the memory that were enough for a worker in nearly all measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkerNeed {
    /// The number of processors that was enough in 95 % of the measurements.
    pub cpus: f64,
    /// The memory that was enough in 99 % of the measurements, in GiB. The percentage is higher than for processors,
    /// because a worker that lacks memory fails.
    pub memory_gib: f64,
}

/// How many workers run on one machine of a given type, and what each worker costs.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineFit {
    /// The machine type.
    pub machine: MachineType,
    /// The number of workers on each machine.
    pub workers: u32,
    /// The price of a worker on an on-demand machine, per hour.
    pub per_worker_hour: f64,
    /// The price of a worker on a spot machine, per hour.
    pub spot_per_worker_hour: f64,
}

impl MachineType {
    /// Returns the memory that the workers may use, in GiB.
    pub fn usable_gib(&self) -> f64 {
        (self.memory_gib - SYSTEM_GIB.max(self.memory_gib * SYSTEM_SHARE)).max(0.0)
    }
}

impl MachineFit {
    pub(crate) fn new(machine: &MachineType, workers: u32) -> MachineFit {
        MachineFit {
            machine: machine.clone(),
            workers,
            per_worker_hour: machine.per_hour / f64::from(workers),
            spot_per_worker_hour: machine.spot_per_hour / f64::from(workers),
        }
    }

    /// Returns the cost per hour of `on_demand` workers on on-demand machines and `on_spot` workers on spot machines. A
    /// machine that is not fully used still costs its full price.
    pub fn per_hour(&self, on_demand: f64, on_spot: f64) -> f64 {
        let machines = |workers: f64| (workers / f64::from(self.workers) - 1e-9).ceil().max(0.0);
        machines(on_demand) * self.machine.per_hour + machines(on_spot) * self.machine.spot_per_hour
    }
}

impl WorkerNeed {
    /// Computes a worker's need from measurements of its processors and of its memory in GiB. Returns `None` if there
    /// are too few measurements, or if one is negative or not a number.
    pub fn from_measurements(cpus: &[f64], memory_gib: &[f64]) -> Option<WorkerNeed> {
        Some(WorkerNeed { cpus: quantile(cpus, 0.95)?, memory_gib: quantile(memory_gib, 0.99)? })
    }

    /// Returns how many workers with this need run on one machine, with some reserve; `None` if the machine is too
    /// small for even one.
    pub fn fit(&self, machine: &MachineType) -> Option<MachineFit> {
        let workers_for = |has: f64, need: f64| {
            if need > 0.0 { has / (need * (1.0 + HEADROOM)) } else { f64::from(u32::MAX) }
        };
        let workers = workers_for(f64::from(machine.cpus), self.cpus)
            .min(workers_for(machine.usable_gib(), self.memory_gib));
        let workers = workers.min(1_000_000.0) as u32;
        (workers > 0).then(|| MachineFit::new(machine, workers))
    }

    /// Returns the machine type with which `on_demand` on-demand workers and `on_spot` spot workers cost least. Among
    /// equally cheap types, returns the one with the fewest processors. Returns `None` if every machine type is too
    /// small for a worker.
    pub fn cheapest_for(&self, prices: &Prices, on_demand: f64, on_spot: f64) -> Option<MachineFit> {
        let fits = prices.machines.iter().filter_map(|machine| self.fit(machine));
        fits.min_by(|a, b| {
            let price = |fit: &MachineFit| fit.per_hour(on_demand, on_spot);
            price(a).total_cmp(&price(b)).then(a.machine.cpus.cmp(&b.machine.cpus))
        })
    }

    /// Returns the machine type with the lowest price per worker if all machines are fully used. Among equally cheap
    /// types, returns the one with the fewest processors. Returns `None` if every machine type is too small for a
    /// worker.
    pub fn cheapest(&self, prices: &Prices) -> Option<MachineFit> {
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
