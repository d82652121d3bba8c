//! Compares listener `nats` with nats-server and Redis, each with the same raw client and with nats.go.

use crate::cores::Pin;
use crate::options::BenchOptions;
use crate::params::Params;
use crate::point::{Bench, MeasuringPoint, PointGroup, RunSample, target};
use crate::pubsub::{Broker, fanout, go, request, throughput};
use crate::raw;
use crate::sockets::SocketKind;
use crate::timed::{TimedTransfer, document_count, sustained};

/// Name of the case.
const CASE: &str = "nats_listener";
const STREAM_BYTES: [usize; 4] = [64, 1024, 8192, 65536];
/// The numbers of subscribers in the fan-out points.
const FANOUT: [usize; 2] = [10, 100];
/// Message size in bytes and number of subscribers of each point with nats.go.
const GO: [(usize, usize); 3] = [(64, 1), (1024, 1), (64, 10)];
const IN_FLIGHT: u64 = 256;
/// Size in bytes of a write of the raw TCP stream, which shows the most that the machine can transfer.
const FLOOR_BYTES: usize = 65536;

/// All groups.
pub fn groups(options: &BenchOptions, with_peers: bool) -> Vec<PointGroup> {
    let targets: &[&'static str] =
        if with_peers { &[target::DUNLIN, target::NATS, target::REDIS] } else { &[target::DUNLIN] };
    let mut groups: Vec<PointGroup> = STREAM_BYTES.map(|bytes| stream(bytes, targets)).into();
    if with_peers {
        groups[STREAM_BYTES.len() - 1].push(floor());
    }
    groups.extend(FANOUT.map(|subscribers| fan(subscribers, targets)));
    if with_peers {
        groups.extend(GO.map(|(bytes, subscribers)| by_nats_go(bytes, subscribers)));
    }
    let mut askers = vec![("spin", target::DUNLIN), ("parked", target::DUNLIN)];
    if with_peers {
        askers.push(("parked", target::NATS));
    }
    let one = options.count(10_000, 100);
    groups.push(askers.iter().map(|(wait, target)| ask(wait, target, one)).collect());
    let many = options.count(500_000, 2_000);
    groups.push(askers[1..].iter().map(|(_, target)| ask_many(target, many)).collect());
    groups
}

fn params(pattern: &str, driver: &str, bytes: usize) -> Params {
    Params::new()
        .with("transport", "nats")
        .with("pattern", pattern)
        .with("driver", driver)
        .with("bytes", bytes)
}

fn stream(bytes: usize, targets: &[&'static str]) -> PointGroup {
    let point = |target: &'static str| {
        let mut measure = sustained(
            move |bench| document_count(bytes, bench.options.quick),
            move |bench, count| throughput::measure(Broker::start(bench, target, Pin::Free)?, bytes, count),
        );
        let params = params("stream", "raw", bytes).with("subscribers", 1u64);
        MeasuringPoint::new(CASE, target, params, move |bench: &Bench| Ok(measure(bench)?.sample()))
    };
    targets.iter().map(|target| point(target)).collect()
}

fn fan(subscribers: usize, targets: &[&'static str]) -> PointGroup {
    let bytes = 64;
    let point = |target: &'static str| {
        let mut measure = sustained(
            move |bench| bench.options.count(100_000, 2_000) / subscribers as u64,
            move |bench, count| {
                fanout::measure(Broker::start(bench, target, Pin::Free)?, subscribers, bytes, count)
            },
        );
        let params = params("fanout", "raw", bytes).with("subscribers", subscribers);
        MeasuringPoint::new(CASE, target, params, move |bench: &Bench| Ok(deliveries(&measure(bench)?)))
    };
    targets.iter().map(|target| point(target)).collect()
}

fn by_nats_go(bytes: usize, subscribers: usize) -> PointGroup {
    let point = |target: &'static str| {
        let mut measure = sustained(
            move |bench| bench.options.count(100_000, 2_000) / subscribers as u64,
            move |bench, count| {
                go::measure(bench, &Broker::start(bench, target, Pin::Free)?, subscribers, bytes, count)
            },
        );
        let pattern = if subscribers == 1 { "stream" } else { "fanout" };
        let params = params(pattern, "nats.go", bytes).with("subscribers", subscribers);
        MeasuringPoint::new(CASE, target, params, move |bench: &Bench| Ok(deliveries(&measure(bench)?)))
    };
    [target::DUNLIN, target::NATS].map(point).into()
}

/// Converts a timed transfer to a sample, with each received message as a delivery.
fn deliveries(timed: &TimedTransfer) -> RunSample {
    let mut sample = timed.sample();
    sample.figures.retain(|(metric, _)| *metric != "msgs_per_s");
    sample.with("deliveries_per_s", timed.rate())
}

fn ask(wait: &'static str, target: &'static str, requests: u64) -> MeasuringPoint {
    let params = params("request", "raw", 64)
        .with("wait", wait)
        .with("in_flight", 1u64)
        .with("pin", Pin::Apart.name());
    MeasuringPoint::new(CASE, target, params, move |bench: &Bench| {
        let asked =
            request::measure(asked_broker(bench, target, wait, Pin::Apart)?, Pin::Apart, 64, requests, 1)?;
        Ok(rate_and_times(&asked))
    })
}

fn ask_many(target: &'static str, requests: u64) -> MeasuringPoint {
    let params = params("request", "raw", 64)
        .with("wait", "parked")
        .with("in_flight", IN_FLIGHT)
        .with("pin", Pin::Free.name());
    MeasuringPoint::new(CASE, target, params, move |bench: &Bench| {
        let broker = Broker::start(bench, target, Pin::Free)?;
        Ok(rate_and_times(&request::measure(broker, Pin::Free, 64, requests, IN_FLIGHT)?))
    })
}

fn asked_broker(bench: &Bench, target: &str, wait: &str, pin: Pin) -> anyhow::Result<Broker> {
    if wait != "spin" {
        return Broker::start(bench, target, pin);
    }
    let _pinned = pin.side(1)?;
    Broker::node(bench, true)
}

fn rate_and_times(asked: &request::RequestTimes) -> RunSample {
    let rate = asked.requests as f64 * 1e9 / asked.elapsed_ns.max(1) as f64;
    RunSample::new().with("msgs_per_s", rate).and(asked.latencies.sample())
}

/// Measures the throughput of a raw TCP stream, with which peers' figures are compared.
fn floor() -> MeasuringPoint {
    let mut measure = sustained(
        |bench| document_count(FLOOR_BYTES, bench.options.quick),
        |bench, count| raw::stream::measure(bench, SocketKind::Tcp, FLOOR_BYTES, count),
    );
    let params = Params::new().with("transport", "tcp").with("bytes", FLOOR_BYTES);
    MeasuringPoint::new(CASE, target::RAW, params, move |bench: &Bench| Ok(measure(bench)?.sample()))
}
