//! Defines the measurements of other systems (peers) and of the machine's floors in suite `spot`.

use crate::cores::CorePinning;
use crate::options::BenchOptions;
use crate::params::Params;
use crate::point::{Measurement, MeasurementGroup, target};
use crate::pubsub::{self, Broker};
use crate::raw;
use crate::raw::ping_pong::{PingPong, WaitMethod};
use crate::sockets::SocketKind;
use crate::spot::{LOOKUPS, ROUND_TRIPS};
use crate::timed;
use crate::zmq::{self, ZmqPattern};

/// Returns the measurements of the peers' throughput over one transport, with messages of `bytes` bytes.
pub fn throughput(transport: &'static str, bytes: usize) -> MeasurementGroup {
    match transport {
        "inproc" => {
            let mut group = zmq_throughput(transport, bytes);
            if bytes == 64 {
                group.extend(ring(1));
                group.extend(ring(64));
            }
            group
        }
        "tcp" => {
            let mut group = zmq_throughput(transport, bytes);
            group.extend(nats_throughput(bytes));
            group.extend(raw_throughput(SocketKind::Tcp, bytes));
            group
        }
        _ => raw_throughput(SocketKind::Uds, bytes).into(),
    }
}

fn zmq_throughput(transport: &'static str, bytes: usize) -> MeasurementGroup {
    let patterns = [ZmqPattern::Pub, ZmqPattern::Router];
    let points = patterns.map(|pattern| {
        let setup = zmq::ZmqSetup { pattern, transport, bytes, pin: CorePinning::Free };
        let params = Params::new()
            .with("transport", transport)
            .with("topology", "embedded")
            .with("pattern", pattern.name());
        timed::points(target::LIBZMQ, params, bytes, move |bench, count| zmq::throughput(bench, setup, count))
    });
    points.into_iter().flatten().collect()
}

fn nats_throughput(bytes: usize) -> [Measurement; 2] {
    let params = Params::new().with("transport", "tcp").with("topology", "brokered").with("driver", "raw");
    timed::points(target::NATS, params, bytes, move |bench, count| {
        pubsub::throughput::measure(Broker::start(bench, target::NATS, CorePinning::Free)?, bytes, count)
    })
}

fn raw_throughput(transport: SocketKind, bytes: usize) -> [Measurement; 2] {
    let params = Params::new().with("transport", transport.name());
    timed::points(target::RAW, params, bytes, move |bench, count| {
        raw::stream::measure(bench, transport, bytes, count)
    })
}

fn ring(batch: usize) -> [Measurement; 2] {
    let params = Params::new().with("transport", "inproc").with("batch", batch);
    timed::points(target::RTRB, params, 64, move |_, count| raw::ring::measure(count, batch))
}

/// Returns the measurements of the peers' latency over one transport, with messages of `bytes` bytes.
pub fn latency(transport: &'static str, bytes: usize, options: &BenchOptions) -> MeasurementGroup {
    let iterations = options.count(ROUND_TRIPS.0, ROUND_TRIPS.1);
    match transport {
        "inproc" => zmq_latency(transport, bytes, iterations, &[CorePinning::Apart, CorePinning::Free]),
        "tcp" => {
            let mut group = raw_latency(SocketKind::Tcp, bytes, iterations);
            group.extend(zmq_latency(transport, bytes, iterations, &[CorePinning::Free]));
            for pin in [CorePinning::Apart, CorePinning::Free] {
                group.push(raw_relay(pin, bytes, iterations));
                group.push(nats_latency(pin, bytes, iterations));
            }
            group
        }
        _ => raw_latency(SocketKind::Uds, bytes, iterations),
    }
}

fn raw_latency(transport: SocketKind, bytes: usize, iterations: u64) -> MeasurementGroup {
    let variants = [
        (WaitMethod::Spin, CorePinning::Apart),
        (WaitMethod::Parked, CorePinning::Apart),
        (WaitMethod::Parked, CorePinning::Free),
    ];
    let point = |(wait, pin): (WaitMethod, CorePinning)| {
        let setup = PingPong { transport, wait, pin, bytes };
        let params = round_trip(transport.name(), wait.name(), bytes)
            .with("topology", "embedded")
            .with("pin", pin.name());
        Measurement::new("latency", target::RAW, params, move |bench| {
            Ok(raw::ping_pong::measure(bench, setup, iterations)?.sample())
        })
    };
    variants.map(point).into()
}

fn zmq_latency(
    transport: &'static str,
    bytes: usize,
    iterations: u64,
    pins: &[CorePinning],
) -> MeasurementGroup {
    let mut group = MeasurementGroup::new();
    for &pin in pins {
        for pattern in [ZmqPattern::Pair, ZmqPattern::Router] {
            let setup = zmq::ZmqSetup { pattern, transport, bytes, pin };
            let params = round_trip(transport, "parked", bytes)
                .with("topology", "embedded")
                .with("pattern", pattern.name())
                .with("pin", pin.name());
            group.push(Measurement::new("latency", target::LIBZMQ, params, move |bench| {
                zmq::latency(bench, setup, iterations)
            }));
        }
    }
    group
}

fn raw_relay(pin: CorePinning, bytes: usize, iterations: u64) -> Measurement {
    let params = round_trip("tcp", "parked", bytes).with("topology", "brokered").with("pin", pin.name());
    Measurement::new("latency", target::RAW, params, move |bench| {
        Ok(raw::relay::measure(bench, SocketKind::Tcp, pin, bytes, iterations)?.sample())
    })
}

fn nats_latency(pin: CorePinning, bytes: usize, iterations: u64) -> Measurement {
    let params = round_trip("tcp", "parked", bytes)
        .with("topology", "brokered")
        .with("driver", "raw")
        .with("pin", pin.name());
    Measurement::new("latency", target::NATS, params, move |bench| {
        let broker = Broker::start(bench, target::NATS, pin)?;
        Ok(pubsub::request::measure(broker, pin, bytes, iterations, 1)?.latencies.sample())
    })
}

fn round_trip(transport: &str, wait: &str, bytes: usize) -> Params {
    Params::new().with("transport", transport).with("wait", wait).with("bytes", bytes).with("in_flight", 1u64)
}

/// Returns the measurements of look-ups in the map of the standard library, which holds `topics` names.
pub fn topics(topics: usize) -> MeasurementGroup {
    let params = Params::new().with("transport", "inproc").with("topics", topics);
    vec![Measurement::new("topics", target::STD, params, move |_| raw::lookup::measure(topics, LOOKUPS))]
}
