//! Tests of costs, and of how the cheapest machine type is chosen.

use dunlin_scale::sim::{Workload, savings};
use dunlin_scale::{PRICES_TOML, Policy, Prices, WorkerNeed};

#[test]
fn edited_price_table_is_read_and_checked() {
    let dearer = PRICES_TOML.replace("per_hour = 0.096", "per_hour = 0.5");
    assert_eq!(Prices::parse(&dearer).unwrap().machine("m6i.large").unwrap().per_hour, 0.5);
    let refused = |text: &str| Prices::parse(text).unwrap_err().to_string();
    assert!(refused(&PRICES_TOML.replace("cpus = 2", "cpu = 2")).contains("unknown field `cpu`"));
    assert!(
        refused(&PRICES_TOML.replace("per_hour = 0.096", "per_hour = -1.0")).contains("m6i.large's price")
    );
    assert!(refused(&PRICES_TOML.replace("m6i.xlarge", "m6i.large")).contains("each only once"));
    assert!(refused("currency = 'EUR'").contains("missing field"));
}

#[test]
fn cheapest_machine_that_fits_a_worker_is_chosen() {
    let prices = Prices::default();
    let fit = WorkerNeed { cpus: 1.4, memory_gib: 4.6 }.cheapest(&prices).unwrap();
    assert!(f64::from(fit.machine.cpus) >= 1.4 * 1.15 * f64::from(fit.workers));
    assert!(fit.machine.memory_gib >= 4.6 * 1.15 * f64::from(fit.workers));
    assert!(fit.per_worker_hour <= prices.machine("m6i.large").unwrap().per_hour);
    assert!(WorkerNeed { cpus: 500.0, memory_gib: 1.0 }.cheapest(&prices).is_none());
}

#[test]
fn cost_of_workers_is_that_of_the_machines_they_need() {
    let prices = Prices::default();
    let need = WorkerNeed { cpus: 1.4, memory_gib: 4.6 };
    let large = need.fit(prices.machine("m6i.8xlarge").unwrap()).unwrap();
    assert!(large.workers > 1);
    assert_eq!(large.per_hour(1.0, 0.0), large.machine.per_hour);
    let more = f64::from(large.workers) + 1.0;
    assert_eq!(large.per_hour(more, 0.0), 2.0 * large.machine.per_hour);
    assert_eq!(large.per_hour(1.0, 1.0), large.machine.per_hour + large.machine.spot_per_hour);
    assert!(need.memory_gib * f64::from(large.workers) < large.machine.memory_gib * 0.95);
    // For a single worker, the cheapest machine is the smallest one into which the worker fits.
    let one = need.cheapest_for(&prices, 1.0, 0.0).unwrap();
    let fits = prices.machines.iter().filter_map(|machine| need.fit(machine));
    let least = fits.map(|fit| fit.machine.per_hour).fold(f64::MAX, f64::min);
    assert_eq!(one.machine.per_hour, least);
}

#[test]
fn needed_worker_size_is_p95_of_cpu_and_p99_of_memory_use() {
    let cpus: Vec<f64> = (1..=100).map(|at| f64::from(at) / 100.0).collect();
    let need = WorkerNeed::from_measurements(&cpus, &cpus).unwrap();
    assert_eq!((need.cpus, need.memory_gib), (0.95, 0.99));
    assert_eq!(WorkerNeed::from_measurements(&cpus[..10], &cpus), None, "ten measurements are too few");
    assert_eq!(WorkerNeed::from_measurements(&[f64::NAN; 50], &cpus), None);
}

#[test]
fn cost_saving_strategies_lower_the_simulated_monthly_cost() {
    let workload = Workload::Diurnal { low_per_s: 2.0, high_per_s: 14.0, day_ms: 3_600_000, differ: 0.05 };
    let policy = Policy::cloud(4, 60).with_forecast(75_000, vec![48]);
    let need = WorkerNeed { cpus: 1.4, memory_gib: 4.6 };
    let rows = savings(1, &workload, &policy, 2_000_000.0, &Prices::default(), (need, "m6i.large")).unwrap();
    let monthly_savings: Vec<f64> = rows.iter().map(dunlin_scale::sim::CostRow::savings_per_month).collect();
    assert_eq!(rows.len(), 5, "the four required strategies, and all of them together");
    assert!(monthly_savings[0] > 0.0 && monthly_savings[2] > 0.0 && monthly_savings[3] > 0.0, "{rows:?}");
    assert!(rows[4].after < rows[0].after.min(rows[1].after).min(rows[2].after), "{rows:?}");
    // 70 % of the workers beyond the base are spot instances. They cost 40 % of the normal price.
    assert!(
        monthly_savings[0] / rows[0].before > 0.15 && monthly_savings[0] / rows[0].before < 0.5,
        "{rows:?}"
    );
    assert!(savings(1, &workload, &policy, 2e6, &Prices::default(), (need, "none")).is_none());
}
