//! Defines the measurements of suite `tasks`. Some of them repeat rows of the tables in the Grey document, which is
//! another system's documentation.

use std::rc::Rc;

use crate::options::BenchOptions;
use crate::params::Params;
use crate::point::{Measurement, MeasurementGroup, target};

use super::forecast::{self, ArrivalPattern};
use super::{local, scheduler, simulated, through};

/// The numbers of workers in the Grey document, and higher numbers.
const WORKERS: [u32; 10] = [10, 25, 50, 75, 100, 150, 200, 1_000, 10_000, 100_000];
/// The measurements of the scheduler alone: for each, the number of tenants and the number of waiting tasks.
const BACKLOGS: [(usize, usize); 7] = [
    (1, 1_000),
    (1, 100_000),
    (1, 1_000_000),
    (1, 10_000_000),
    (100, 10_000),
    (1_000, 10_000),
    (10_000, 10_000),
];
/// The targets of processor use, in percent. The first is the one in the Grey document.
const TARGETS: [u64; 4] = [70, 80, 85, 90];

/// Returns the groups of measurements of suite `tasks`.
pub fn groups(options: &BenchOptions, with_peers: bool) -> Vec<MeasurementGroup> {
    let mut groups = through::groups(options, with_peers);
    groups.extend([scaling(options), phases(), local_phases(options), tenants(options)]);
    groups.extend(forecast_points(options));
    groups.push(backlog_points(options));
    groups.push(vec![large_point(options)]);
    groups
}

fn simulator_params() -> Params {
    Params::new().with("via", "simulator")
}

fn point(
    case: &'static str,
    params: Params,
    mut measure: impl FnMut(u64) -> anyhow::Result<crate::point::RunSample> + 'static,
) -> Measurement {
    let mut seed = 0;
    Measurement::new(case, target::DUNLIN, params, move |_| {
        seed += 1;
        measure(seed)
    })
}

fn scaling(options: &BenchOptions) -> MeasurementGroup {
    let tasks = options.count(200_000, 5_000);
    let workers = WORKERS.into_iter().filter(|workers| !options.quick || *workers <= 50);
    let of = |workers: u32| {
        // The Grey document's number of tasks is too small for more workers than in the document. The number is raised,
        // so that each worker gets enough tasks.
        let tasks = tasks.max(if options.quick { 0 } else { u64::from(workers) * 20 });
        let params = simulator_params().with("workers", u64::from(workers));
        point("scaling", params, move |seed| simulated::scaling(seed, workers, tasks))
    };
    workers.map(of).collect()
}

fn phases() -> MeasurementGroup {
    let of = |phase: &'static str| {
        point("phases", simulator_params().with("phase", phase), move |seed| simulated::phase(seed, phase))
    };
    simulated::PHASES.map(of).into()
}

/// Returns the measurements of case `phases` with real processes. Learning a forecast takes half a minute, so quick
/// runs omit the phase `predictive`.
fn local_phases(options: &BenchOptions) -> MeasurementGroup {
    let phases = local::PHASES.iter().filter(|phase| !options.quick || **phase != "predictive");
    let of = |phase: &'static str| {
        let params = Params::new().with("via", "local").with("phase", phase);
        Measurement::new("phases", target::DUNLIN, params, move |bench| local::measure(bench, phase))
    };
    phases.map(|phase| of(phase)).collect()
}

fn tenants(options: &BenchOptions) -> MeasurementGroup {
    let mut group = vec![point("tenants", simulator_params(), simulated::tenants)];
    for load in simulated::LOADS {
        let params = simulator_params().with("load", load);
        group.push(point("noisy", params, move |seed| simulated::noisy(seed, load)));
    }
    let costs = Rc::new(simulated::SimulatedCosts::default());
    let strategies = if options.quick { &simulated::STRATEGIES[..0] } else { &simulated::STRATEGIES };
    group.extend(strategies.iter().map(|strategy| {
        let costs = Rc::clone(&costs);
        point("cost", simulator_params().with("strategy", *strategy), move |seed| costs.of(seed, strategy))
    }));
    group
}

fn forecast_points(options: &BenchOptions) -> Vec<MeasurementGroup> {
    let targets = if options.quick { &TARGETS[2..3] } else { &TARGETS };
    let arrivals = if options.quick { &ArrivalPattern::ALL[..1] } else { &ArrivalPattern::ALL };
    let peak = options.count(200, 20) as u32;
    let of = |arrivals: ArrivalPattern, cpu_target: u64| {
        let params = simulator_params()
            .with("arrivals", arrivals.name())
            .with("cpu_target", cpu_target)
            .with("workers", u64::from(peak));
        point("forecast", params, move |seed| forecast::measure(seed, arrivals, cpu_target, peak))
    };
    arrivals.iter().map(|arrivals| targets.iter().map(|target| of(*arrivals, *target)).collect()).collect()
}

fn backlog_points(options: &BenchOptions) -> MeasurementGroup {
    let backlogs = BACKLOGS.into_iter().filter(|(_, queued)| !options.quick || *queued <= 10_000);
    let dispatches = options.count(300_000, 5_000);
    let of = |(tenants, queued): (usize, usize)| {
        let case = if tenants == 1 { "backlog" } else { "dispatch" };
        let params = Params::new().with("tenants", tenants).with("queued", queued).with("of", "scheduler");
        Measurement::new(case, target::DUNLIN, params, move |bench| {
            scheduler::measure(bench, tenants, queued, dispatches)
        })
    };
    backlogs.map(of).collect()
}

fn large_point(options: &BenchOptions) -> Measurement {
    let (workers, tasks) = (options.count(100_000, 1_000) as u32, options.count(10_000_000, 20_000));
    let params = simulator_params().with("workers", u64::from(workers)).with("tasks", tasks);
    point("simulator", params, move |seed| simulated::large(seed, workers, tasks))
}
