//! Compares listener `nats` with nats-server and Redis. All three are measured with the same raw client, and Dunlin and
//! nats-server also with the client library nats.go.

use crate::cores::CorePinning;
use crate::options::BenchOptions;
use crate::params::Params;
use crate::point::{BenchContext, Measurement, MeasurementGroup, RunSample, target};
use crate::pubsub::{Broker, fanout, go, request, throughput};
use crate::raw;
use crate::sockets::SocketKind;
use crate::timed::{TimedTransfer, document_count, sustained};

const CASE: &str = "nats_listener";
const STREAM_BYTES: [usize; 4] = [64, 1024, 8192, 65536];
const FANOUT: [usize; 2] = [10, 100];
/// The measurements with nats.go: the message size in bytes, and the number of subscribers.
const NATS_GO_SHAPES: [(usize, usize); 3] = [(64, 1), (1024, 1), (64, 10)];
const IN_FLIGHT: u64 = 256;
/// The size in bytes of each write when the floor is measured. The floor is the throughput of a raw TCP stream, which
/// is the highest throughput that the machine allows.
const FLOOR_BYTES: usize = 65536;

/// Returns the groups of measurements of case `nats_listener`.
pub fn groups(options: &BenchOptions, with_peers: bool) -> Vec<MeasurementGroup> {
    let targets: &[&'static str] =
        if with_peers { &[target::DUNLIN, target::NATS, target::REDIS] } else { &[target::DUNLIN] };
    let mut groups: Vec<MeasurementGroup> = STREAM_BYTES.map(|bytes| stream_group(bytes, targets)).into();
    if with_peers {
        groups[STREAM_BYTES.len() - 1].push(floor_point());
    }
    groups.extend(FANOUT.map(|subscribers| fanout_group(subscribers, targets)));
    if with_peers {
        groups.extend(NATS_GO_SHAPES.map(|(bytes, subscribers)| nats_go_group(bytes, subscribers)));
    }
    let mut requesters = vec![("spin", target::DUNLIN), ("parked", target::DUNLIN)];
    if with_peers {
        requesters.push(("parked", target::NATS));
    }
    let requests = options.count(10_000, 100);
    groups.push(requesters.iter().map(|(wait, target)| request_point(wait, target, requests)).collect());
    let pipelined_requests = options.count(500_000, 2_000);
    groups.push(
        requesters[1..]
            .iter()
            .map(|(_, target)| pipelined_request_point(target, pipelined_requests))
            .collect(),
    );
    groups
}

fn params(pattern: &str, driver: &str, bytes: usize) -> Params {
    Params::new()
        .with("transport", "nats")
        .with("pattern", pattern)
        .with("driver", driver)
        .with("bytes", bytes)
}

fn stream_group(bytes: usize, targets: &[&'static str]) -> MeasurementGroup {
    let point = |target: &'static str| {
        let mut measure = sustained(
            move |bench| document_count(bytes, bench.options.quick),
            move |bench, count| {
                throughput::measure(Broker::start(bench, target, CorePinning::Free)?, bytes, count)
            },
        );
        let params = params("stream", "raw", bytes).with("subscribers", 1u64);
        Measurement::new(CASE, target, params, move |bench: &BenchContext| Ok(measure(bench)?.sample()))
    };
    targets.iter().map(|target| point(target)).collect()
}

fn fanout_group(subscribers: usize, targets: &[&'static str]) -> MeasurementGroup {
    let bytes = 64;
    let point = |target: &'static str| {
        let mut measure = sustained(
            move |bench| bench.options.count(100_000, 2_000) / subscribers as u64,
            move |bench, count| {
                fanout::measure(Broker::start(bench, target, CorePinning::Free)?, subscribers, bytes, count)
            },
        );
        let params = params("fanout", "raw", bytes).with("subscribers", subscribers);
        Measurement::new(CASE, target, params, move |bench: &BenchContext| {
            Ok(delivery_sample(&measure(bench)?))
        })
    };
    targets.iter().map(|target| point(target)).collect()
}

fn nats_go_group(bytes: usize, subscribers: usize) -> MeasurementGroup {
    let point = |target: &'static str| {
        let mut measure = sustained(
            move |bench| bench.options.count(100_000, 2_000) / subscribers as u64,
            move |bench, count| {
                go::measure(
                    bench,
                    &Broker::start(bench, target, CorePinning::Free)?,
                    subscribers,
                    bytes,
                    count,
                )
            },
        );
        let pattern = if subscribers == 1 { "stream" } else { "fanout" };
        let params = params(pattern, "nats.go", bytes).with("subscribers", subscribers);
        Measurement::new(CASE, target, params, move |bench: &BenchContext| {
            Ok(delivery_sample(&measure(bench)?))
        })
    };
    [target::DUNLIN, target::NATS].map(point).into()
}

/// Converts a timed transfer to a sample. The transfer counts deliveries, so the sample has the metric
/// `deliveries_per_s` instead of `msgs_per_s`.
fn delivery_sample(timed: &TimedTransfer) -> RunSample {
    let mut sample = timed.sample();
    sample.figures.retain(|(metric, _)| *metric != "msgs_per_s");
    sample.with("deliveries_per_s", timed.rate())
}

fn request_point(wait: &'static str, target: &'static str, requests: u64) -> Measurement {
    let params = params("request", "raw", 64)
        .with("wait", wait)
        .with("in_flight", 1u64)
        .with("pin", CorePinning::Apart.name());
    Measurement::new(CASE, target, params, move |bench: &BenchContext| {
        let times = request::measure(
            start_broker(bench, target, wait, CorePinning::Apart)?,
            CorePinning::Apart,
            64,
            requests,
            1,
        )?;
        Ok(request_sample(&times))
    })
}

fn pipelined_request_point(target: &'static str, requests: u64) -> Measurement {
    let params = params("request", "raw", 64)
        .with("wait", "parked")
        .with("in_flight", IN_FLIGHT)
        .with("pin", CorePinning::Free.name());
    Measurement::new(CASE, target, params, move |bench: &BenchContext| {
        let broker = Broker::start(bench, target, CorePinning::Free)?;
        Ok(request_sample(&request::measure(broker, CorePinning::Free, 64, requests, IN_FLIGHT)?))
    })
}

fn start_broker(bench: &BenchContext, target: &str, wait: &str, pin: CorePinning) -> anyhow::Result<Broker> {
    if wait != "spin" {
        return Broker::start(bench, target, pin);
    }
    let _pinned = pin.side(1)?;
    Broker::node(bench, true)
}

fn request_sample(times: &request::RequestTimes) -> RunSample {
    let rate = times.requests as f64 * 1e9 / times.elapsed_ns.max(1) as f64;
    RunSample::new().with("msgs_per_s", rate).and(times.latencies.sample())
}

/// Measures the floor: the throughput of a raw TCP stream. The figures of peers are checked against the floor.
fn floor_point() -> Measurement {
    let mut measure = sustained(
        |bench| document_count(FLOOR_BYTES, bench.options.quick),
        |bench, count| raw::stream::measure(bench, SocketKind::Tcp, FLOOR_BYTES, count),
    );
    let params = Params::new().with("transport", "tcp").with("bytes", FLOOR_BYTES);
    Measurement::new(CASE, target::RAW, params, move |bench: &BenchContext| Ok(measure(bench)?.sample()))
}
