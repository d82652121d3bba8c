//! Computes how much each strategy to save costs would save per month, from the worker hours of simulated runs and a
//! table of prices.
//!
//! The strategies overlap, so their savings must not be added up. The last row is for a run with all strategies
//! together.

use crate::policy::{Policy, SpotPolicy};
use crate::prices::Prices;
use crate::sim::outcome::SimulationOutcome;
use crate::sim::scenario::{SimulationScenario, WorkerSupply};
use crate::sim::workload::Workload;
use crate::sizing::{MachineFit, WorkerNeed};

use super::compare::policy_scenario;

/// The simulated cost of a month, first without and then with one strategy to save costs.
#[derive(Debug, Clone, PartialEq)]
pub struct CostRow {
    /// The name of the strategy.
    pub strategy: String,
    /// The cost per month without the strategy.
    pub before: f64,
    /// The cost per month with the strategy.
    pub after: f64,
    /// The risk of the strategy, from `very low` to `high`.
    pub risk: &'static str,
    /// A sentence about the simulated runs, for example about the number of slow minutes.
    pub evidence: String,
}

impl CostRow {
    /// Returns how much the strategy saves per month.
    pub fn savings_per_month(&self) -> f64 {
        self.before - self.after
    }
}

/// How often a spot instance is interrupted per hour: within an hour, 5 of 100 instances are interrupted.
const INTERRUPTIONS_PER_HOUR: f64 = 0.05;
/// The target loads that are tried for reactive scaling, from the cheapest to the safest.
const TARGETS: [f64; 5] = [0.7, 0.6, 0.5, 0.4, 0.3];

struct Costs<'p> {
    prices: &'p Prices,
    /// The present machine type, with one worker on each machine. This is the case without right-sizing.
    usual: MachineFit,
}

impl Costs<'_> {
    /// Returns the cost of a month whose hours are all like an average hour of the simulated run.
    fn monthly_cost(&self, outcome: &SimulationOutcome, fit: &MachineFit) -> f64 {
        let hours = outcome.ran_ms as f64 / 3.6e6;
        let per_hour = outcome.on_demand_hours * fit.per_worker_hour
            + outcome.spot_hours * fit.spot_per_worker_hour
            + outcome.warm_hours * self.prices.warm_per_hour;
        per_hour / hours * self.prices.hours_per_month
    }
}

/// Computes how much each strategy saves with a workload. `policy` is the predictive policy, and `mean_us` the mean run
/// time of a task. `need` is the measured need of a worker, and `machine` the name of the machine type that each worker
/// has now. Returns `None` if the table lacks this machine type, or if a worker fits onto no machine.
pub fn savings(
    seed: u64,
    workload: &Workload,
    policy: &Policy,
    mean_us: f64,
    prices: &Prices,
    (need, machine): (WorkerNeed, &str),
) -> Option<Vec<CostRow>> {
    let machine = prices.machine(machine)?.clone();
    // Without right-sizing, each worker has a machine of its own.
    let usual = MachineFit {
        workers: 1,
        per_worker_hour: machine.per_hour,
        spot_per_worker_hour: machine.spot_per_hour,
        machine,
    };
    let best = need.cheapest(prices)?;
    let costs = Costs { prices, usual };
    let run = |policy: &Policy, interruptions: f64| {
        let mut scenario = policy_scenario(seed, workload.clone(), policy.clone(), false, mean_us);
        set_interruptions(&mut scenario, interruptions);
        super::super::run(&scenario)
    };
    let reactive = Policy { predictive: None, ..policy.clone() };
    let spot = SpotPolicy { percent: 70, base: policy.workers_min, fallback_after: 10, fallback_ms: 600_000 };
    let plain = run(&reactive, 0.0);
    let spotted = run(&Policy { spot, ..reactive.clone() }, INTERRUPTIONS_PER_HOUR);
    let predicted = run(policy, 0.0);
    let all = run(&Policy { spot, ..policy.clone() }, INTERRUPTIONS_PER_HOUR);
    Some(vec![
        spot_row(&costs, &plain, &spotted),
        predictive_row(&costs, &reactive, &predicted, &|policy| run(policy, 0.0)),
        sizing_row(&costs, &plain, &best, need),
        night_row(&costs, workload, policy, mean_us),
        CostRow {
            strategy: "all of them, in one run".to_owned(),
            before: peak_monthly_cost(&costs, workload, policy, mean_us),
            after: costs.monthly_cost(&all, &best),
            risk: risk(&plain, &all),
            evidence: format!(
                "compared with the workers of the peak, on demand, all month; {}",
                violations(&plain, &all)
            ),
        },
    ])
}

fn set_interruptions(scenario: &mut SimulationScenario, per_hour: f64) {
    if let WorkerSupply::ScaledFleet { delays, .. } = &mut scenario.supply {
        delays.interruptions_per_hour = per_hour;
    }
}

fn spot_row(costs: &Costs<'_>, plain: &SimulationOutcome, spotted: &SimulationOutcome) -> CostRow {
    CostRow {
        strategy: "70 % spot instances".to_owned(),
        before: costs.monthly_cost(plain, &costs.usual),
        after: costs.monthly_cost(spotted, &costs.usual),
        risk: risk(plain, spotted),
        evidence: format!(
            "spot workers that were interrupted in the run: {}; {}",
            spotted.interruptions,
            violations(plain, spotted)
        ),
    }
}

/// Compares predictive scaling with reactive scaling. For reactive scaling, tries [`TARGETS`] from the highest to the
/// lowest, until the number of slow minutes is at most that of predictive scaling.
fn predictive_row(
    costs: &Costs<'_>,
    reactive: &Policy,
    predicted: &SimulationOutcome,
    run: &dyn Fn(&Policy) -> SimulationOutcome,
) -> CostRow {
    let run_with_target = |cpu_target: f64| {
        let triggers =
            crate::policy::ScaleThresholds { cpu_target, cpu_low: cpu_target * 0.8, ..reactive.triggers };
        (cpu_target, run(&Policy { triggers, ..reactive.clone() }))
    };
    let mut tries =
        TARGETS.into_iter().filter(|target| *target <= reactive.triggers.cpu_target).map(run_with_target);
    let mut last = None;
    let equal = tries.find_map(|(target, outcome)| {
        let is_as_good = outcome.violated_minutes <= predicted.violated_minutes;
        last = Some((target, outcome.clone()));
        is_as_good.then_some((target, outcome))
    });
    let is_equal = equal.is_some();
    let (target, outcome) = equal.or(last).unwrap_or((reactive.triggers.cpu_target, predicted.clone()));
    let comparison = if is_equal { "to be as good" } else { "and is still worse" };
    CostRow {
        strategy: "predictive scaling".to_owned(),
        before: costs.monthly_cost(&outcome, &costs.usual),
        after: costs.monthly_cost(predicted, &costs.usual),
        risk: risk(&outcome, predicted),
        evidence: format!(
            "a reactive scaler needs a target of {:.0} % {comparison}; {}",
            target * 100.0,
            violations(&outcome, predicted)
        ),
    }
}

fn sizing_row(costs: &Costs<'_>, plain: &SimulationOutcome, best: &MachineFit, need: WorkerNeed) -> CostRow {
    CostRow {
        strategy: "right-sizing".to_owned(),
        before: costs.monthly_cost(plain, &costs.usual),
        after: costs.monthly_cost(plain, best).min(costs.monthly_cost(plain, &costs.usual)),
        risk: "very low",
        evidence: format!(
            "a worker uses {:.2} processors (P95) and {:.1} GiB (P99): workers on one {}: {}",
            need.cpus, need.memory_gib, best.machine.name, best.workers
        ),
    }
}

/// Compares two schedules. In the first one, the number of workers for the peak runs all day. In the second one, this
/// number runs only in the busier half of the day, and fewer workers run in the other half.
fn night_row(costs: &Costs<'_>, workload: &Workload, policy: &Policy, mean_us: f64) -> CostRow {
    const PARTS: u64 = 48;
    let need = |part: u64| {
        let (from_ms, until_ms) = (part * 3_600_000 / PARTS, (part + 1) * 3_600_000 / PARTS);
        workers_for(workload.highest(from_ms, until_ms), policy, mean_us)
    };
    let mut parts: Vec<f64> = (0..PARTS).map(need).collect();
    parts.sort_unstable_by(f64::total_cmp);
    let (quiet, busy) = (parts[PARTS as usize / 2 - 1], parts[PARTS as usize - 1]);
    let monthly_cost = |workers: f64| workers * costs.usual.per_worker_hour * costs.prices.hours_per_month;
    CostRow {
        strategy: "fewer at night".to_owned(),
        before: monthly_cost(busy),
        after: monthly_cost((busy + quiet) / 2.0),
        risk: "low",
        evidence: format!(
            "{busy:.0} workers by day and {quiet:.0} by night, instead of {busy:.0} all the time; on a \
             busier night, the other scaling triggers add workers"
        ),
    }
}

fn peak_monthly_cost(costs: &Costs<'_>, workload: &Workload, policy: &Policy, mean_us: f64) -> f64 {
    let peak = workers_for(workload.highest(0, 3_600_000), policy, mean_us);
    peak * costs.usual.per_worker_hour * costs.prices.hours_per_month
}

fn workers_for(per_s: f64, policy: &Policy, mean_us: f64) -> f64 {
    (per_s * mean_us / 1e6 / policy.triggers.cpu_target).ceil()
}

/// Returns the risk of a strategy: the more slow minutes it adds, the higher is its risk.
fn risk(before: &SimulationOutcome, after: &SimulationOutcome) -> &'static str {
    match after.violated_minutes.saturating_sub(before.violated_minutes) {
        0 => "low",
        1..=2 => "medium",
        _ => "high",
    }
}

fn violations(before: &SimulationOutcome, after: &SimulationOutcome) -> String {
    format!("{} slow minutes instead of {}", after.violated_minutes, before.violated_minutes)
}
