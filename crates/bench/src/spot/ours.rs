//! Defines the measurements of Dunlin in suite `spot`.

use dunlin::topic::WaitStrategy;

use crate::cores::CorePinning;
use crate::local;
use crate::options::BenchOptions;
use crate::params::Params;
use crate::point::{BenchContext, Measurement, MeasurementGroup, target};
use crate::raw::ping_pong::WaitMethod;
use crate::remote;
use crate::sockets::SocketKind;
use crate::spot::{FANOUT, LOOKUPS, ROUND_TRIPS};
use crate::timed;
use crate::workload::PublishMode;

/// Returns the measurements of throughput over one transport, with messages of `bytes` bytes.
pub fn throughput(transport: &'static str, bytes: usize) -> MeasurementGroup {
    match transport {
        "inproc" => {
            let mut group: MeasurementGroup = local_throughput(PublishMode::OneByOne, bytes).into();
            if bytes == 64 {
                group.extend(local_throughput(PublishMode::Batches(64), bytes));
            }
            if bytes >= 8192 {
                group.extend(local_throughput(PublishMode::ByRef, bytes));
            }
            group
        }
        "tcp" => remote_throughput(SocketKind::Tcp, bytes),
        _ => remote_throughput(SocketKind::Uds, bytes),
    }
}

fn remote_throughput(transport: SocketKind, bytes: usize) -> MeasurementGroup {
    let mut group: MeasurementGroup = embedded_throughput(transport, PublishMode::OneByOne, bytes).into();
    if bytes >= 8192 {
        group.extend(embedded_throughput(transport, PublishMode::ByRef, bytes));
    }
    let params = Params::new()
        .with("transport", transport.name())
        .with("topology", "brokered")
        .with("wait", "parked")
        .with("copy", "copied")
        .with("batch", 1u64);
    group.extend(timed::points(target::DUNLIN, params, bytes, move |bench, count| {
        remote::throughput::brokered(bench, transport, bytes, count)
    }));
    group
}

fn embedded_throughput(transport: SocketKind, mode: PublishMode, bytes: usize) -> [Measurement; 2] {
    let copy = if mode == PublishMode::ByRef { "by_ref" } else { "copied" };
    let params = Params::new()
        .with("transport", transport.name())
        .with("topology", "embedded")
        .with("wait", "parked")
        .with("copy", copy)
        .with("batch", 1u64);
    timed::points(target::DUNLIN, params, bytes, move |bench, count| {
        remote::throughput::embedded(bench, transport, mode, bytes, count)
    })
}

fn local_throughput(mode: PublishMode, bytes: usize) -> [Measurement; 2] {
    let (copy, batch) = match mode {
        PublishMode::OneByOne => ("copied", 1),
        PublishMode::Batches(batch) => ("copied", batch),
        PublishMode::ByRef => ("by_ref", 1),
    };
    let params = Params::new().with("transport", "inproc").with("copy", copy).with("batch", batch);
    timed::points(target::DUNLIN, params, bytes, move |_, count| {
        local::throughput::measure(mode, bytes, count)
    })
}

/// Returns the measurements of latency over one transport, with messages of `bytes` bytes.
pub fn latency(transport: &'static str, bytes: usize, options: &BenchOptions) -> MeasurementGroup {
    let iterations = options.count(ROUND_TRIPS.0, ROUND_TRIPS.1);
    match transport {
        "inproc" => vec![
            local_one_thread(bytes, iterations),
            local_two_threads(WaitStrategy::Spin, "spin", bytes, iterations),
            local_two_threads(WaitStrategy::Default, "default", bytes, iterations),
            local_two_threads(WaitStrategy::Parked, "parked", bytes, iterations),
        ],
        "tcp" => remote_latency(SocketKind::Tcp, bytes, iterations),
        _ => remote_latency(SocketKind::Uds, bytes, iterations),
    }
}

fn remote_latency(transport: SocketKind, bytes: usize, iterations: u64) -> MeasurementGroup {
    let mut group = MeasurementGroup::new();
    for (wait_method, pin) in [
        (WaitMethod::Spin, CorePinning::Apart),
        (WaitMethod::Parked, CorePinning::Apart),
        (WaitMethod::Parked, CorePinning::Free),
    ] {
        let params = round_trip(transport.name(), bytes)
            .with("topology", "embedded")
            .with("wait", wait_method.name())
            .with("pin", pin.name());
        group.push(Measurement::new("latency", target::DUNLIN, params, move |bench| {
            let round_trips = remote::round_trip::responder_in_the_node(
                bench,
                transport,
                wait_method,
                pin,
                bytes,
                iterations,
            );
            Ok(round_trips?.sample())
        }));
    }
    for (node_wait, pin) in FOUR_HOPS {
        let params = round_trip(transport.name(), bytes)
            .with("topology", "brokered")
            .with("wait", node_wait.name())
            .with("pin", pin.name());
        group.push(Measurement::new("latency", target::DUNLIN, params, move |bench| {
            let round_trips =
                remote::round_trip::two_clients(bench, transport, node_wait, pin, bytes, iterations);
            Ok(round_trips?.sample())
        }));
    }
    group
}

const FOUR_HOPS: [(WaitMethod, CorePinning); 4] = [
    (WaitMethod::Spin, CorePinning::Apart),
    (WaitMethod::Spin, CorePinning::Free),
    (WaitMethod::Parked, CorePinning::Apart),
    (WaitMethod::Parked, CorePinning::Free),
];

fn local_one_thread(bytes: usize, iterations: u64) -> Measurement {
    let params = round_trip("inproc", bytes).with("threads", 1u64);
    Measurement::new("latency", target::DUNLIN, params, move |_| {
        Ok(local::round_trip::one_thread(bytes, iterations)?.sample())
    })
}

fn local_two_threads(wait: WaitStrategy, name: &str, bytes: usize, iterations: u64) -> Measurement {
    let params = round_trip("inproc", bytes)
        .with("wait", name)
        .with("threads", 2u64)
        .with("pin", CorePinning::Apart.name());
    Measurement::new("latency", target::DUNLIN, params, move |_| {
        Ok(local::round_trip::two_threads(wait, bytes, iterations)?.sample())
    })
}

fn round_trip(transport: &str, bytes: usize) -> Params {
    Params::new().with("transport", transport).with("bytes", bytes).with("in_flight", 1u64)
}

/// Returns the measurements of creating `topics` topics, and of finding topics among them.
pub fn topics(topics: usize) -> MeasurementGroup {
    let params = Params::new().with("transport", "inproc").with("topics", topics);
    vec![Measurement::new("topics", target::DUNLIN, params, move |_| {
        local::registry::measure(topics, LOOKUPS)
    })]
}

/// Returns the measurements of a node with many idle topics and one subscriber. The subscriber subscribes to all topics
/// or to a single one.
pub fn watch(options: &BenchOptions) -> MeasurementGroup {
    let topics = options.count(100_000, 10_000) as usize;
    let records = options.count(2_000, 50);
    let point = |subscriber: &'static str, pattern: &'static str| {
        let params = Params::new().with("transport", "inproc").with("bytes", 64u64).with("topics", topics);
        let measure =
            move |bench: &BenchContext| local::watch::measure(topics, pattern, records, bench.options.time);
        Measurement::new("watch", target::DUNLIN, params.with("subscriber", subscriber), measure)
    };
    vec![point("one", "bench.0"), point("all", ">")]
}

/// Returns the measurements of one publisher and `subscribers` subscribers in this process.
pub fn fanout(subscribers: usize) -> MeasurementGroup {
    let params =
        Params::new().with("transport", "inproc").with("bytes", 64u64).with("subscribers", subscribers);
    let measure = move |bench: &BenchContext| local::fanout::measure(subscribers, bench.options.time);
    vec![Measurement::new("fanout", target::DUNLIN, params, measure)]
}

/// Returns the measurements of publishing to `topics` topics at the same time.
pub fn multi_topic(topics: usize, options: &BenchOptions) -> MeasurementGroup {
    let messages = options.count(1_000, 100);
    let params = Params::new().with("transport", "inproc").with("bytes", 1024u64).with("topics", topics);
    let measure = move |_: &BenchContext| Ok(local::multi_topic::measure(topics, messages, 1024)?.sample());
    vec![Measurement::new("multi_topic", target::DUNLIN, params, measure)]
}

/// Returns the measurements of how long a publish takes while one subscriber sleeps, or while very many subscribers
/// sleep.
pub fn parked(options: &BenchOptions) -> MeasurementGroup {
    let point = |subscribers: usize, records: u64| {
        let params =
            Params::new().with("transport", "inproc").with("bytes", 64u64).with("subscribers", subscribers);
        Measurement::new("parked", target::DUNLIN, params, move |_| {
            local::parked::measure(subscribers, records)
        })
    };
    let records = options.count(200, 10);
    let crowd = if options.quick { FANOUT[2] } else { FANOUT[4] };
    vec![point(1, records), point(crowd, records)]
}

/// Returns the measurements of many connections with one subscriber each, and 1,000 records per second.
pub fn connections(options: &BenchOptions) -> MeasurementGroup {
    let subscribers = options.count(1_000, 50) as usize;
    let params = Params::new().with("transport", "tcp").with("bytes", 64u64).with("subscribers", subscribers);
    let measure =
        move |bench: &BenchContext| remote::crowd::measure(bench, subscribers, 1_000, bench.options.time);
    vec![Measurement::new("connections", target::DUNLIN, params, measure)]
}

/// Returns the measurements of one subscriber's throughput while further subscribers are connected but never read.
pub fn stalled(options: &BenchOptions) -> MeasurementGroup {
    let count = options.count(5_000_000, 20_000);
    let point = |stalled: usize| {
        let params = Params::new().with("transport", "tcp").with("bytes", 64u64).with("subscribers", stalled);
        let measure = move |bench: &BenchContext| remote::stalled::measure(bench, stalled, count);
        Measurement::new("stalled", target::DUNLIN, params, measure)
    };
    vec![point(0), point(options.count(1_000, 50) as usize)]
}

/// Returns the measurements of how much memory an idle subscriber or topic takes.
pub fn memory(options: &BenchOptions) -> MeasurementGroup {
    let count = options.count(100_000, 10_000);
    let point = |of: &'static str| {
        let params = Params::new().with("transport", "inproc").with("of", of);
        Measurement::new("memory", target::DUNLIN, params, move |bench| {
            local::memory::measure(bench, of, count)
        })
    };
    local::memory::KINDS.map(point).into()
}
