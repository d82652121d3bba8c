//! Defines the measurements and the goals of suite `grpc`.

use super::callee::Callee;
use super::stream;
use super::unary::{self, CallLoad};
use crate::cores::CorePinning;
use crate::goal::{Goal, Threshold};
use crate::layout::{CaseLayout, ColumnValue};
use crate::options::BenchOptions;
use crate::params::Params;
use crate::point::{Measurement, MeasurementGroup, Suite, target};
use crate::row::RowPattern;

/// The numbers of records per call, as in the table of Ratatoskr's benchmark document.
const BATCHES: [usize; 5] = [1, 5, 10, 20, 50];
/// For each measurement with many calls in flight: the number of connections, and the number of calls in flight on each
/// of them.
const CONCURRENT: [(usize, usize); 3] = [(1, 64), (16, 1), (64, 1)];

/// Returns the groups of suite `grpc`. Each group has a measurement of Dunlin and, if `with_peers` is set, one of the
/// echo server.
pub fn groups(options: &BenchOptions, with_peers: bool) -> Vec<MeasurementGroup> {
    let callees = || Callee::ALL.into_iter().filter(move |callee| with_peers || *callee == Callee::Node);
    let mut groups = Vec::new();
    for batch in BATCHES {
        groups.push(callees().map(|callee| unary_point(callee, batch, options)).collect());
    }
    for (clients, in_flight) in CONCURRENT {
        groups.push(callees().map(|callee| concurrent_point(callee, clients, in_flight, options)).collect());
    }
    groups.push(callees().map(|callee| connect_point(callee, options)).collect());
    groups.push(callees().map(|callee| stream_point(callee, options)).collect());
    groups
}

fn unary_point(callee: Callee, batch: usize, options: &BenchOptions) -> Measurement {
    let calls = options.count(10_000, 100);
    let load = CallLoad { clients: 1, in_flight: 1, batch, bytes: 64, calls, pin: CorePinning::Apart };
    let params = Params::new().with("transport", "grpc").with("bytes", 64usize).with("batch", batch);
    Measurement::new("grpc_unary", callee.target(), params, move |bench| unary::measure(bench, callee, load))
}

fn concurrent_point(callee: Callee, clients: usize, in_flight: usize, options: &BenchOptions) -> Measurement {
    let calls = options.count(100_000, 640);
    let load = CallLoad { clients, in_flight, batch: 1, bytes: 64, calls, pin: CorePinning::Apart };
    let params = Params::new()
        .with("transport", "grpc")
        .with("bytes", 64usize)
        .with("clients", clients)
        .with("in_flight", in_flight);
    Measurement::new("grpc_concurrent", callee.target(), params, move |bench| {
        unary::measure(bench, callee, load)
    })
}

fn connect_point(callee: Callee, options: &BenchOptions) -> Measurement {
    let connections = options.count(1_000, 20);
    let params = Params::new().with("transport", "grpc");
    Measurement::new("grpc_connect", callee.target(), params, move |bench| {
        unary::measure_connect(bench, callee, connections)
    })
}

/// The expected number of streamed records per second. The measurement sends this number of records for each second of
/// `--time`.
const STREAMED_PER_S: f64 = 5e6;

fn stream_point(callee: Callee, options: &BenchOptions) -> Measurement {
    let sustained = (options.time.as_secs_f64() * STREAMED_PER_S) as u64;
    let records = options.count(sustained, 10_000);
    let params = Params::new().with("transport", "grpc").with("bytes", 64usize);
    Measurement::new("grpc_stream", callee.target(), params, move |bench| {
        Ok(stream::measure(bench, callee, 64, records)?.sample())
    })
}

/// The layouts of the tables that suite `grpc` prints.
pub const LAYOUTS: &[CaseLayout] = &[
    CaseLayout {
        case: "grpc_unary",
        title: "gRPC: publishing, one call in flight",
        columns: &[
            ("Records per call", ColumnValue::Param("batch")),
            ("Average", ColumnValue::Metric("avg_ns")),
            ("p50", ColumnValue::Metric("p50_ns")),
            ("p95", ColumnValue::Metric("p95_ns")),
            ("p99", ColumnValue::Metric("p99_ns")),
            ("Records", ColumnValue::Metric("msgs_per_s")),
        ],
    },
    CaseLayout {
        case: "grpc_concurrent",
        title: "gRPC: publishing, many concurrent calls",
        columns: &[
            ("Connections", ColumnValue::Param("clients")),
            ("Calls in flight per connection", ColumnValue::Param("in_flight")),
            ("p50", ColumnValue::Metric("p50_ns")),
            ("p99", ColumnValue::Metric("p99_ns")),
            ("Records", ColumnValue::Metric("msgs_per_s")),
            ("Lowest … highest", ColumnValue::Range("msgs_per_s")),
        ],
    },
    CaseLayout {
        case: "grpc_connect",
        title: "gRPC: from connecting to the first response",
        columns: &[
            ("Average", ColumnValue::Metric("avg_ns")),
            ("p50", ColumnValue::Metric("p50_ns")),
            ("p99", ColumnValue::Metric("p99_ns")),
        ],
    },
    CaseLayout {
        case: "grpc_stream",
        title: "gRPC: streamed delivery",
        columns: &[
            ("Message size", ColumnValue::Param("bytes")),
            ("Message count", ColumnValue::Metric("messages")),
            ("Time", ColumnValue::Metric("elapsed_ns")),
            ("Throughput", ColumnValue::Metric("msgs_per_s")),
            ("Lowest … highest", ColumnValue::Range("msgs_per_s")),
        ],
    },
];

type Pairs = &'static [(&'static str, &'static str)];

const fn row(target: &'static str, case: &'static str, params: Pairs, metric: &'static str) -> RowPattern {
    RowPattern { target, case, params, metric }
}

const ONE: Pairs = &[("transport", "grpc"), ("batch", "1")];
const PIPELINED: Pairs = &[("transport", "grpc"), ("clients", "1"), ("in_flight", "64")];
const SIXTEEN: Pairs = &[("transport", "grpc"), ("clients", "16"), ("in_flight", "1")];
const SIXTY_FOUR: Pairs = &[("transport", "grpc"), ("clients", "64"), ("in_flight", "1")];
const STREAM: Pairs = &[("transport", "grpc"), ("bytes", "64")];

const fn one_in_flight(title: &'static str, metric: &'static str) -> Goal {
    let (ours, echo) =
        (row(target::DUNLIN, "grpc_unary", ONE, metric), row(target::TONIC, "grpc_unary", ONE, metric));
    Goal { title, ours, threshold: Threshold::TimesAtMost(1.25, echo) }
}

const fn concurrent(title: &'static str, params: Pairs) -> Goal {
    let metric = "msgs_per_s";
    let (ours, echo) = (
        row(target::DUNLIN, "grpc_concurrent", params, metric),
        row(target::TONIC, "grpc_concurrent", params, metric),
    );
    Goal { title, ours, threshold: Threshold::TimesAtLeast(0.8, echo) }
}

/// The goals for listener `grpc`.
pub const GOALS: &[Goal] = &[
    one_in_flight("gRPC publish, one in flight, p50", "p50_ns"),
    one_in_flight("gRPC publish, one in flight, p99", "p99_ns"),
    concurrent("gRPC publish, one connection, 64 in flight", PIPELINED),
    concurrent("gRPC publish, 16 connections", SIXTEEN),
    concurrent("gRPC publish, 64 connections", SIXTY_FOUR),
    Goal {
        title: "gRPC streamed delivery, 64 B, subscriber in another process",
        ours: row(target::DUNLIN, "grpc_stream", STREAM, "msgs_per_s"),
        threshold: Threshold::AtLeast(6e6),
    },
];

/// The suite `grpc`, which measures listener `grpc`.
pub const SUITE: Suite = Suite {
    name: "grpc",
    cases: &["grpc_unary", "grpc_concurrent", "grpc_connect", "grpc_stream"],
    groups,
    layouts: LAYOUTS,
    goals: GOALS,
    claims: &[],
    peer_figures: &[],
    blocks: |_| String::new(),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::RawOptions;

    #[test]
    fn each_grpc_goal_matches_exactly_one_measurement() {
        let options = RawOptions::default().validate(|_| None).unwrap();
        let points: MeasurementGroup = groups(&options, true).into_iter().flatten().collect();
        for pattern in GOALS.iter().flat_map(|goal| [Some(&goal.ours), goal.threshold.reference()]).flatten()
        {
            let matching =
                points.iter().filter(|point| pattern.matches_point(point.case, point.target, &point.params));
            assert_eq!(matching.count(), 1, "{pattern:?}");
        }
    }
}
