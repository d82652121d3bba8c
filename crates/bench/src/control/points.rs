//! Defines the measurements of suite `control`.

use super::work::ControlWorkload;
use super::{disk, failover, large, load, network};
use crate::cores::CorePinning;
use crate::options::BenchOptions;
use crate::params::Params;
use crate::point::{Measurement, MeasurementGroup, target};
use crate::raw::ping_pong::{self, PingPong, WaitMethod};
use crate::sockets::SocketKind;

/// The size of a value in bytes, as in etcd's own benchmarks.
const BYTES: usize = 256;
/// The number of connections, as in etcd's own benchmarks.
const CLIENTS: usize = 8;
/// The number of requests in flight, over all connections, as in etcd's own benchmarks.
const IN_FLIGHT: usize = 256;
const BATCH: usize = 100;
/// The number of keys that one range request reads.
const RANGE: usize = 1_000;
const RANGES_IN_FLIGHT: usize = 8;
const BATCHES_IN_FLIGHT: usize = 64;
/// The sizes of the measured clusters, as numbers of nodes.
const NODES: [usize; 4] = [1, 3, 5, 7];

/// The settings of one measurement of a key-value cluster: number of nodes, requests in flight, and batch size.
#[derive(Clone, Copy, Debug)]
pub struct ControlLoad {
    /// The name of the benchmark case.
    pub case: &'static str,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of requests in flight.
    pub in_flight: usize,
    /// The number of keys in one request; 1 if the request has a single key.
    pub batch: usize,
    /// Whether requests are sent at half of the highest rate.
    pub half: bool,
    /// The nodes to which Dunlin's clients connect: the `leader`, or `all` nodes.
    pub via: &'static str,
}

impl ControlLoad {
    const fn of(case: &'static str, nodes: usize) -> Self {
        Self { case, nodes, in_flight: IN_FLIGHT, batch: 1, half: false, via: "leader" }
    }

    fn params(self, target: &str) -> Params {
        let params = Params::new()
            .with("bytes", BYTES)
            .with("clients", self.clients())
            .with("in_flight", self.in_flight)
            .with("nodes", self.nodes)
            .with("load", if self.half { "half" } else { "full" });
        let params = if self.batch > 1 { params.with("batch", self.batch) } else { params };
        params.with("via", if target == target::DUNLIN { self.via } else { "all" })
    }

    fn clients(self) -> usize {
        CLIENTS.min(self.in_flight)
    }

    fn work(self, options: &BenchOptions) -> ControlWorkload {
        let time_ns = options.time.as_nanos() as u64;
        ControlWorkload {
            store: String::new(),
            endpoints: Vec::new(),
            case: self.case.to_owned(),
            clients: self.clients(),
            in_flight: self.in_flight,
            keys: options.count(100_000, 8_000) as usize,
            bytes: BYTES,
            batch: self.batch,
            warmup_ns: time_ns / 2,
            time_ns,
            via: self.via.to_owned(),
            half: self.half,
            ..ControlWorkload::default()
        }
    }
}

/// Returns the loads to measure. Each load comes with the peers that are measured with the same load.
fn loads() -> Vec<(ControlLoad, &'static [&'static str])> {
    const BOTH: &[&str] = &[target::ETCD, target::JETSTREAM];
    const ETCD: &[&str] = &[target::ETCD];
    let put = |nodes: usize| (ControlLoad::of("put", nodes), if nodes > 5 { &[] } else { BOTH });
    let half = |load: ControlLoad| (ControlLoad { half: true, ..load }, &[] as &[_]);
    let mut loads: Vec<_> = NODES.map(put).into();
    loads.extend([
        (ControlLoad { in_flight: 1, ..ControlLoad::of("put", 3) }, BOTH),
        (ControlLoad::of("get", 3), BOTH),
        (ControlLoad::of("cas", 3), BOTH),
    ]);
    let batch = |nodes| {
        (ControlLoad { in_flight: BATCHES_IN_FLIGHT, batch: BATCH, ..ControlLoad::of("batch", nodes) }, ETCD)
    };
    loads.extend([batch(1), batch(3)]);
    let range = ControlLoad { in_flight: RANGES_IN_FLIGHT, batch: RANGE, ..ControlLoad::of("range", 3) };
    loads.push((range, ETCD));
    loads.push((ControlLoad { via: "all", ..ControlLoad::of("put", 3) }, &[]));
    let halves = [ControlLoad::of("get", 3), ControlLoad::of("cas", 3), batch(3).0, range];
    loads.extend([3, 5, 7].map(|nodes| ControlLoad::of("put", nodes)).into_iter().chain(halves).map(half));
    loads
}

/// Returns the groups of measurements of suite `control`.
pub fn groups(options: &BenchOptions, with_peers: bool) -> Vec<MeasurementGroup> {
    let mut groups = vec![floor_points(options)];
    // A quick run leaves out clusters of more than three nodes.
    let is_chosen = |nodes: usize| nodes <= 3 || !options.quick;
    for (load, peers) in loads().into_iter().filter(|(load, _)| is_chosen(load.nodes)) {
        let peers = if with_peers { peers } else { &[] };
        let targets = [target::DUNLIN].iter().chain(peers);
        groups.push(targets.map(|target| load_point(target, load, options)).collect());
    }
    groups.extend(failover_points(options, with_peers));
    groups.push(vec![network::grpc(options), network::serialisation(options), round_trip_point(options)]);
    groups.push(vec![
        watch_point(options),
        restart_point(options),
        snapshot_point(options),
        soak_point(options),
    ]);
    groups
}

fn floor_points(options: &BenchOptions) -> MeasurementGroup {
    let round_trips = options.count(20_000, 200);
    let link = PingPong {
        transport: SocketKind::Tcp,
        wait: WaitMethod::Parked,
        pin: CorePinning::Free,
        bytes: BYTES,
    };
    let link_params = Params::new().with("transport", "tcp").with("wait", "parked").with("bytes", BYTES);
    let disk = |bytes: usize| {
        Measurement::new("disk", target::RAW, Params::new().with("bytes", bytes), move |bench| {
            disk::measure(bytes, bench.options.time)
        })
    };
    let link = Measurement::new("network", target::RAW, link_params, move |bench| {
        Ok(ping_pong::measure(bench, link, round_trips)?.sample())
    });
    vec![disk(disk::LARGE_BYTES), disk(disk::SMALL_BYTES), link]
}

fn load_point(target: &'static str, load: ControlLoad, options: &BenchOptions) -> Measurement {
    let work = load.work(options);
    Measurement::new(load.case, target, load.params(target), move |bench| {
        load::measure(bench, target, load.nodes, &work)
    })
}

/// Returns the measurements of failovers. Dunlin's leaders are killed often enough for a 99th percentile. Leaders of
/// etcd are killed less often, because each failover of etcd takes a second.
fn failover_points(options: &BenchOptions, with_peers: bool) -> Vec<MeasurementGroup> {
    let ours = |nodes: usize| failover_point(target::DUNLIN, nodes, options.count(100, 2));
    let counts = if options.quick { &NODES[1..2] } else { &NODES[1..] };
    let mut groups: Vec<MeasurementGroup> = counts.iter().map(|nodes| vec![ours(*nodes)]).collect();
    if with_peers {
        groups[0].push(failover_point(target::ETCD, 3, options.count(10, 1)));
    }
    groups
}

fn failover_point(target: &'static str, nodes: usize, kills: u64) -> Measurement {
    let params = Params::new().with("nodes", nodes);
    Measurement::new("failover", target, params, move |bench| failover::measure(bench, target, nodes, kills))
}

/// Returns the measurement of writes while many watchers read every event.
fn watch_point(options: &BenchOptions) -> Measurement {
    let watchers = options.count(1_000, 20) as usize;
    let rate = 2_000.0;
    let base = ControlLoad { in_flight: 64, ..ControlLoad::of("watch", 3) };
    let mut work = ControlWorkload { watchers, rate, ..base.work(options) };
    work.time_ns = work.time_ns.max(options.count(10_000_000_000, 50_000_000));
    work.warmup_ns = work.time_ns / 2;
    let params = base.params(target::DUNLIN).with("subscribers", watchers).with("rate", rate as u64);
    Measurement::new("watch", target::DUNLIN, params, move |bench| {
        load::measure_watch(bench, base.nodes, &work)
    })
}

/// Returns the measurement that counts elections under full load. This measurement runs for the whole time that the
/// user requested, because elections are rare as long as no node is killed.
fn soak_point(options: &BenchOptions) -> Measurement {
    let base = ControlLoad::of("soak", 3);
    let work = base.work(options);
    let params = base.params(target::DUNLIN);
    Measurement::new("soak", target::DUNLIN, params, move |bench| {
        load::measure_soak(bench, base.nodes, &work)
    })
}

fn round_trip_point(options: &BenchOptions) -> Measurement {
    let base = ControlLoad { in_flight: 1, ..ControlLoad::of("round_trip", 3) };
    let work = ControlWorkload { keys: options.count(5_000, 50) as usize, ..base.work(options) };
    let params = Params::new().with("of", "nodes").with("nodes", 3_usize);
    Measurement::new("network", target::DUNLIN, params, move |bench| {
        load::measure_round_trips(bench, base.nodes, &work)
    })
}

fn restart_point(options: &BenchOptions) -> Measurement {
    let keys = options.count(10_000_000, 10_000) as usize;
    let work = ControlWorkload { keys, ..ControlLoad::of("restart", 1).work(options) };
    let params = Params::new().with("bytes", BYTES).with("nodes", 1_usize).with("keys", keys);
    Measurement::new("restart", target::DUNLIN, params, move |bench| large::restart(bench, &work))
}

fn snapshot_point(options: &BenchOptions) -> Measurement {
    let keys = options.count(1_000_000, 10_000) as usize;
    let base = ControlLoad { in_flight: 64, ..ControlLoad::of("snapshot", 3) };
    let mut work = ControlWorkload { keys, ..base.work(options) };
    work.time_ns = work.time_ns.max(options.count(4_000_000_000, 50_000_000));
    let params = Params::new().with("bytes", BYTES).with("nodes", 3_usize).with("keys", keys);
    Measurement::new("snapshot", target::DUNLIN, params, move |bench| large::snapshot(bench, 3, &work))
}
