//! The points of suite `control`.

use super::work::Work;
use super::{disk, failover, load};
use crate::cores::Pin;
use crate::options::Options;
use crate::params::Params;
use crate::point::{Group, Point, target};
use crate::raw::ping_pong::{self, PingPong, Wait};
use crate::sockets::Transport;

/// As etcd was measured: 256 B values, 100,000 keys, 256 requests on their way over eight connections.
const BYTES: usize = 256;
const CLIENTS: usize = 8;
const IN_FLIGHT: usize = 256;
/// Puts of one batch.
const BATCH: usize = 100;
/// Keys of one range; eight ranges are on their way at a time.
const RANGE: usize = 1_000;
const RANGES_IN_FLIGHT: usize = 8;
/// Batches on their way at a time.
const BATCHES_IN_FLIGHT: usize = 64;
/// What is asked of a few nodes; shown by who answers how fast.
const NODES: [usize; 4] = [1, 3, 5, 7];

/// One kind of requests to a cluster of so many nodes.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The case.
    pub case: &'static str,
    /// Nodes.
    pub nodes: usize,
    /// Requests on their way.
    pub in_flight: usize,
    /// Keys of one request; 1 where each has one.
    pub batch: usize,
}

impl Load {
    const fn of(case: &'static str, nodes: usize) -> Self {
        Self { case, nodes, in_flight: IN_FLIGHT, batch: 1 }
    }

    fn params(self) -> Params {
        let params = Params::new()
            .with("bytes", BYTES)
            .with("clients", self.clients())
            .with("in_flight", self.in_flight)
            .with("nodes", self.nodes);
        if self.batch > 1 { params.with("batch", self.batch) } else { params }
    }

    fn clients(self) -> usize {
        CLIENTS.min(self.in_flight)
    }

    fn work(self, options: &Options) -> Work {
        let time_ns = options.time.as_nanos() as u64;
        Work {
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
            rate: 0.0,
        }
    }
}

/// What is asked, and who is asked beside ours.
fn loads() -> Vec<(Load, &'static [&'static str])> {
    const BOTH: &[&str] = &[target::ETCD, target::JETSTREAM];
    const ETCD: &[&str] = &[target::ETCD];
    let put = |nodes: usize| (Load::of("put", nodes), if nodes > 5 { &[] } else { BOTH });
    let mut loads: Vec<_> = NODES.map(put).into();
    loads.extend([
        (Load { in_flight: 1, ..Load::of("put", 3) }, BOTH),
        (Load::of("get", 3), BOTH),
        (Load::of("cas", 3), BOTH),
    ]);
    let batch =
        |nodes| (Load { in_flight: BATCHES_IN_FLIGHT, batch: BATCH, ..Load::of("batch", nodes) }, ETCD);
    loads.extend([batch(1), batch(3)]);
    loads.push((Load { in_flight: RANGES_IN_FLIGHT, batch: RANGE, ..Load::of("range", 3) }, ETCD));
    loads
}

/// The groups.
pub fn groups(options: &Options, with_peers: bool) -> Vec<Group> {
    let mut groups = vec![floors(options)];
    for (load, rivals) in loads() {
        let rivals = if with_peers { rivals } else { &[] };
        groups.push(rivals.iter().map(|rival| loaded(rival, load, options)).collect());
    }
    if with_peers {
        groups.push(vec![failover(target::ETCD, 3, options.count(10, 1))]);
    }
    groups
}

/// What the disk and the sockets give at most.
fn floors(options: &Options) -> Group {
    let round_trips = options.count(20_000, 200);
    let link = PingPong { transport: Transport::Tcp, wait: Wait::Parked, pin: Pin::Free, bytes: BYTES };
    let link_params = Params::new().with("transport", "tcp").with("wait", "parked").with("bytes", BYTES);
    let disk = |bytes: usize| {
        Point::new("disk", target::RAW, Params::new().with("bytes", bytes), move |bench| {
            disk::measure(bytes, bench.options.time)
        })
    };
    let link = Point::new("network", target::RAW, link_params, move |bench| {
        Ok(ping_pong::measure(bench, link, round_trips)?.sample())
    });
    vec![disk(disk::LARGE_BYTES), disk(disk::SMALL_BYTES), link]
}

fn loaded(target: &'static str, load: Load, options: &Options) -> Point {
    let work = load.work(options);
    Point::new(load.case, target, load.params(), move |bench| load::measure(bench, target, load.nodes, &work))
}

fn failover(target: &'static str, nodes: usize, kills: u64) -> Point {
    let params = Params::new().with("nodes", nodes);
    Point::new("failover", target, params, move |bench| failover::measure(bench, target, nodes, kills))
}
