//! Defines the measurements of suite `tasks` that run through nodes. Some of them repeat rows of the tables in the Grey
//! document, which is another system's documentation.

use super::failover::{self, KillTarget};
use super::load;
use super::nodes::ClusterSize;
use super::work::{NodeOptions, TaskWorkload, TenantWorkload};
use crate::options::BenchOptions;
use crate::params::Params;
use crate::point::{Measurement, MeasurementGroup, target};

/// How long a task in the Grey document takes, in ns: each worker does 85 tasks a second.
const TASK_NS: u64 = 11_760_000;
/// The numbers of workers in the Grey document.
const WORKERS: [usize; 7] = [10, 25, 50, 75, 100, 150, 200];
/// The size of an empty task's payload, in bytes.
const BYTES: usize = 16;
const NOOP_WORKERS: usize = 2;
const NOOP_SLOTS: u32 = 1_000;
/// The number of workers of asynq. With this number, asynq is fastest on two cores. Celery and HyperQueue run with
/// their default number, which is one process for each core.
const ASYNQ_WORKERS: usize = 64;
const CORES: usize = 2;
/// How many tasks per second each tenant of the Grey document usually submits.
const USUAL_PER_S: [f64; 4] = [85.0, 120.0, 75.0, 45.0];
/// The factor by which the noisy tenant submits more tasks than usual.
const NOISY_TIMES: f64 = 10.0;
/// The numbers of task shards (`tasks.shards`) that are compared.
const SHARDS: [u8; 3] = [1, 2, 4];
/// The number of tenants in measurements with several shards. All tasks of one tenant are in one shard, so many tenants
/// are needed.
const TENANTS_SHARDED: usize = 16;
/// The numbers of tenants that share the workers' capacity.
const TENANTS: [usize; 2] = [4, 1_000];

/// Returns the groups of measurements that run through nodes.
pub fn groups(options: &BenchOptions, with_peers: bool) -> Vec<MeasurementGroup> {
    let mut groups = vec![noop_points(options, with_peers)];
    groups.push(scaling_points(options));
    groups.push(TENANTS.into_iter().map(|tenants| tenants_point(tenants, options)).collect());
    groups.push(
        [("light", 48), ("saturated", 5)].map(|(load, workers)| noisy_point(load, workers, options)).into(),
    );
    let victims = [("leader", KillTarget::Leader), ("worker", KillTarget::Worker)];
    groups.push(victims.map(|(killed, victim)| failover_point(killed, victim, options)).into());
    groups
}

fn failover_point(killed: &'static str, victim: KillTarget, options: &BenchOptions) -> Measurement {
    let (params, kills) = (Params::new().with("via", "node").with("killed", killed), options.count(100, 2));
    Measurement::new("failover", target::DUNLIN, params.with("nodes", 3_usize), move |bench| {
        failover::measure(bench, victim, kills)
    })
}

fn params(nodes: usize, workers: usize) -> Params {
    Params::new().with("via", "node").with("nodes", nodes).with("workers", workers)
}

/// How the tasks of a measurement are divided: the number of shards, and the number of tenants.
#[derive(Clone, Copy)]
struct Spread {
    shards: u8,
    tenants: usize,
}

const ONE: Spread = Spread { shards: 1, tenants: 1 };

impl Spread {
    fn all() -> impl Iterator<Item = Spread> {
        let sharded = SHARDS.into_iter().map(|shards| Spread { shards, tenants: TENANTS_SHARDED });
        std::iter::once(ONE).chain(sharded)
    }

    fn params(self, params: Params) -> Params {
        params.with("shards", u64::from(self.shards)).with("tenants", self.tenants)
    }

    /// Divides the backlog among the tenants. A batch is at most half of a tenant's backlog, because a larger batch
    /// might never fit into the backlog.
    fn work(self, work: TaskWorkload, backlog: usize) -> TaskWorkload {
        let backlog = backlog / self.tenants;
        let tenants = match self.tenants {
            1 => Vec::new(),
            count => vec![TenantWorkload { weight: 1, per_s: 0.0 }; count],
        };
        let ours = NodeOptions { batch: work.ours.batch.min(backlog / 2), tenants, ..work.ours };
        TaskWorkload { backlog, ours, ..work }
    }
}

/// Returns the durations of the warm-up and of the measurement, in ns. Both durations are long enough for a cluster to
/// settle, and for the noise of other programs to average out.
fn times(options: &BenchOptions) -> (u64, u64) {
    let time_ns = (options.time.as_nanos() as u64).max(options.count(3_000_000_000, 1_000_000_000));
    (time_ns / 3, time_ns)
}

fn work(workers: usize, task_ns: u64, options: &BenchOptions) -> TaskWorkload {
    let (warmup_ns, time_ns) = times(options);
    TaskWorkload { workers, task_ns, bytes: BYTES, warmup_ns, time_ns, ..TaskWorkload::default() }
}

fn noop_points(options: &BenchOptions, with_peers: bool) -> MeasurementGroup {
    let backlog = options.count(20_000, 2_000) as usize;
    let mut group: MeasurementGroup = [1, 3]
        .iter()
        .flat_map(|nodes| Spread::all().map(|spread| noop_point(*nodes, spread, backlog, options)))
        .collect();
    if with_peers {
        let peer = |target: &'static str, workers: usize, backlog: usize| {
            let work = TaskWorkload { backlog, ..work(workers, 0, options) };
            let params = params(1, workers).with("bytes", BYTES).with("backlog", backlog);
            Measurement::new("noop", target, params, move |bench| {
                load::measure_cycles(bench, target, ClusterSize::of(1), &work)
            })
        };
        group.push(peer(target::ASYNQ, ASYNQ_WORKERS, backlog));
        group.push(peer(target::CELERY, CORES, 1_000));
        group.push(peer(target::HYPERQUEUE, CORES, 1_000));
    }
    group
}

fn noop_point(nodes: usize, spread: Spread, backlog: usize, options: &BenchOptions) -> Measurement {
    let ours = NodeOptions { submitters: 1, batch: 500, slots: NOOP_SLOTS, ..NodeOptions::default() };
    let work = spread.work(TaskWorkload { ours, ..work(NOOP_WORKERS, 0, options) }, backlog);
    let params = params(nodes, NOOP_WORKERS).with("bytes", BYTES).with("backlog", backlog);
    let size = ClusterSize { nodes, shards: spread.shards };
    Measurement::new("noop", target::DUNLIN, spread.params(params), move |bench| {
        load::measure_cycles(bench, target::DUNLIN, size, &work)
    })
}

/// Returns the measurements with the Grey document's numbers of workers; a quick run has only the smallest number. The
/// largest number is also measured with several shards.
fn scaling_points(options: &BenchOptions) -> MeasurementGroup {
    let workers: Vec<usize> =
        WORKERS.into_iter().filter(|workers| !options.quick || *workers <= 10).collect();
    let spread =
        workers.last().into_iter().flat_map(|most| Spread::all().skip(1).map(|spread| (*most, spread)));
    let all = workers.iter().map(|workers| (*workers, ONE)).chain(spread);
    all.map(|(workers, spread)| scaling_point(workers, spread, options)).collect()
}

fn scaling_point(workers: usize, spread: Spread, options: &BenchOptions) -> Measurement {
    let ours = NodeOptions { submitters: 1, batch: 100, slots: 1, ahead: 1, ..NodeOptions::default() };
    let work = spread.work(TaskWorkload { ours, ..work(workers, TASK_NS, options) }, 20 * workers);
    Measurement::new("scaling", target::DUNLIN, spread.params(params(1, workers)), move |bench| {
        load::measure_scaling(bench, spread.shards, &work)
    })
}

/// Returns the measurement in which the tenants have weights from one to four. Each tenant always has more waiting
/// tasks than the workers can take.
fn tenants_point(tenants: usize, options: &BenchOptions) -> Measurement {
    let loads = (0..tenants).map(|nth| TenantWorkload { weight: 1 + nth as u32 % 4, per_s: 0.0 }).collect();
    let ours = NodeOptions {
        submitters: 1,
        batch: 20,
        slots: 1,
        ahead: 1,
        tenants: loads,
        ..NodeOptions::default()
    };
    let work = TaskWorkload { backlog: 100, ours, ..work(50, 2_000_000, options) };
    let params = params(1, 50).with("tenants", tenants);
    Measurement::new("tenants", target::DUNLIN, params, move |bench| load::measure_sharing(bench, &work))
}

fn noisy_point(load: &'static str, workers: usize, options: &BenchOptions) -> Measurement {
    let loads = USUAL_PER_S.map(|per_s| TenantWorkload { weight: 1, per_s }).to_vec();
    let ours = NodeOptions { submitters: 1, batch: 100, slots: 1, tenants: loads, ..NodeOptions::default() };
    let mut work = TaskWorkload { ours, ..work(workers, TASK_NS, options) };
    // The measurement is so long that even the tenant with the fewest tasks completes over a thousand.
    work.time_ns = work.time_ns.max(options.count(20_000_000_000, 1_000_000_000));
    let params = params(1, workers).with("load", load);
    Measurement::new("noisy", target::DUNLIN, params, move |bench| {
        load::measure_noisy_tenant(bench, &work, NOISY_TIMES)
    })
}
