//! The performance goals for a node's listeners.

use crate::goal::{Goal, Threshold};
use crate::row::RowPattern;

use Threshold::{AtLeast, AtMost, TimesAtLeast, TimesAtMost};

type Pairs = &'static [(&'static str, &'static str)];

const fn row(target: &'static str, case: &'static str, params: Pairs, metric: &'static str) -> RowPattern {
    RowPattern { target, case, params, metric }
}

const fn listener(target: &'static str, params: Pairs, metric: &'static str) -> RowPattern {
    row(target, "nats_listener", params, metric)
}

const fn goal(title: &'static str, ours: RowPattern, threshold: Threshold) -> Goal {
    Goal { title, ours, threshold }
}

/// A goal: Dunlin's figure is at least `times` times the figure of nats-server with the same parameters.
const fn times_nats(title: &'static str, params: Pairs, metric: &'static str, times: f64) -> Goal {
    goal(title, listener("dunlin", params, metric), TimesAtLeast(times, listener("nats", params, metric)))
}

const fn times_redis(title: &'static str, params: Pairs, metric: &'static str) -> Goal {
    goal(title, listener("dunlin", params, metric), TimesAtLeast(1.2, listener("redis", params, metric)))
}

const ULTIMATE: Pairs = &[("topics", "1000"), ("subscribers", "100000")];
const LARGE: Pairs = &[("topics", "1000"), ("subscribers", "1000")];
const STREAM_64: Pairs = &[("pattern", "stream"), ("driver", "raw"), ("bytes", "64")];
const STREAM_1K: Pairs = &[("pattern", "stream"), ("driver", "raw"), ("bytes", "1024")];
const STREAM_8K: Pairs = &[("pattern", "stream"), ("driver", "raw"), ("bytes", "8192")];
const STREAM_64K: Pairs = &[("pattern", "stream"), ("driver", "raw"), ("bytes", "65536")];
const TEN: Pairs = &[("pattern", "fanout"), ("driver", "raw"), ("subscribers", "10")];
const HUNDRED: Pairs = &[("pattern", "fanout"), ("driver", "raw"), ("subscribers", "100")];
const REQUEST_SPIN: Pairs = &[("pattern", "request"), ("wait", "spin"), ("in_flight", "1")];
const REQUEST_PARKED: Pairs = &[("pattern", "request"), ("wait", "parked"), ("in_flight", "1")];
const REQUEST_PIPELINED: Pairs = &[("pattern", "request"), ("wait", "parked"), ("in_flight", "256")];

const CROWD: &[(&str, &str)] = &[("clients", "10000")];

/// A goal for a use case over one protocol: an upper limit for the 99th percentile of the latency.
macro_rules! use_case {
    ($name:literal, $storage:literal, $protocol:literal, $limit_ns:expr) => {
        goal(
            concat!("use case ", $name, ", ", $storage, ", ", $protocol),
            row(
                "dunlin",
                "use_cases",
                &[("use", $name), ("storage", $storage), ("transport", $protocol)],
                "p99_ns",
            ),
            AtMost($limit_ns),
        )
    };
}

/// A goal for the clients that do nothing wrong while another client overloads the node. The goal is an upper limit for
/// one figure of these clients.
macro_rules! isolation {
    ($offender:literal, $quantile:literal, $times:expr) => {
        goal(
            concat!(
                $quantile,
                " latency of other clients: with one misbehaving client (",
                $offender,
                ") ÷ without it"
            ),
            row("dunlin", "isolation", &[("offender", $offender)], concat!($quantile, "_times_alone")),
            AtMost($times),
        )
    };
}

const MIB: f64 = 1_048_576.0;

/// The goals of suite `broker`.
pub const GOALS: &[Goal] = &[
    goal(
        "1M × 1,000 × 100,000 in process, all 100 M received and checked",
        row("dunlin", "stress", ULTIMATE, "deliveries_per_s"),
        AtLeast(100e6),
    ),
    goal(
        "1M × 1,000 × 100,000 in process, memory",
        row("dunlin", "stress", ULTIMATE, "rss_bytes"),
        AtMost(300.0 * MIB),
    ),
    goal("1M × 1,000 × 1,000 in process", row("dunlin", "stress", LARGE, "msgs_per_s"), AtLeast(10e6)),
    times_nats("NATS listener 1→1, 64 B, raw client", STREAM_64, "msgs_per_s", 1.5),
    times_nats("NATS listener 1→1, 1 KB, raw client", STREAM_1K, "msgs_per_s", 1.5),
    times_nats("NATS listener 1→1, 8 KB, raw client", STREAM_8K, "msgs_per_s", 1.5),
    times_nats("NATS listener 1→1, 64 KB, raw client", STREAM_64K, "msgs_per_s", 1.5),
    times_nats("NATS listener 1→10, 64 B", TEN, "deliveries_per_s", 1.5),
    times_nats("NATS listener 1→100, 64 B", HUNDRED, "deliveries_per_s", 1.5),
    times_redis("NATS listener 1→10, 64 B", TEN, "deliveries_per_s"),
    times_redis("NATS listener 1→100, 64 B", HUNDRED, "deliveries_per_s"),
    goal(
        "NATS request/reply, one in flight, the node spinning",
        listener("dunlin", REQUEST_SPIN, "p50_ns"),
        TimesAtMost(0.7, listener("nats", REQUEST_PARKED, "p50_ns")),
    ),
    goal(
        "NATS request/reply, one in flight, all parked",
        listener("dunlin", REQUEST_PARKED, "p50_ns"),
        TimesAtMost(1.05, listener("nats", REQUEST_PARKED, "p50_ns")),
    ),
    times_nats("NATS request/reply, 256 in flight", REQUEST_PIPELINED, "msgs_per_s", 1.2),
    goal(
        "10,000 NATS connections with one subscription each",
        row("dunlin", "connections", CROWD, "rss_bytes"),
        TimesAtMost(0.25, row("nats", "connections", CROWD, "rss_bytes")),
    ),
    isolation!("flood", "p50", 1.2),
    isolation!("flood", "p99", 2.0),
    isolation!("never_reads", "p50", 1.2),
    isolation!("never_reads", "p99", 2.0),
    isolation!("slow_loris", "p50", 1.2),
    isolation!("slow_loris", "p99", 2.0),
    use_case!("chat", "memory", "inproc", 5e6),
    use_case!("chat", "memory", "tcp", 5e6),
    use_case!("chat", "memory", "nats", 5e6),
    use_case!("chat", "memory", "http", 5e6),
    use_case!("chat", "memory", "grpc", 5e6),
    use_case!("iot", "memory", "inproc", 10e6),
    use_case!("iot", "memory", "tcp", 10e6),
    use_case!("iot", "memory", "nats", 10e6),
    use_case!("iot", "memory", "http", 10e6),
    use_case!("iot", "memory", "grpc", 10e6),
    use_case!("financial", "memory", "inproc", 1e6),
    use_case!("financial", "memory", "tcp", 1e6),
    use_case!("financial", "memory", "nats", 1e6),
    use_case!("financial", "memory", "http", 1e6),
    use_case!("financial", "memory", "grpc", 1e6),
    use_case!("financial", "synced", "tcp", 1e6),
    use_case!("financial", "synced", "nats", 1e6),
    use_case!("financial", "synced", "http", 1e6),
    use_case!("financial", "synced", "grpc", 1e6),
    use_case!("high_frequency", "memory", "inproc", 0.5e6),
    use_case!("high_frequency", "memory", "tcp", 0.5e6),
    use_case!("high_frequency", "memory", "nats", 0.5e6),
    use_case!("high_frequency", "memory", "http", 0.5e6),
    use_case!("high_frequency", "memory", "grpc", 0.5e6),
    use_case!("enterprise", "memory", "inproc", 1e6),
    use_case!("enterprise", "memory", "tcp", 1e6),
    use_case!("enterprise", "memory", "nats", 1e6),
    use_case!("enterprise", "memory", "http", 1e6),
    use_case!("enterprise", "memory", "grpc", 1e6),
    use_case!("ultimate", "memory", "inproc", 1e6),
    use_case!("ultimate", "memory", "tcp", 1e6),
    use_case!("ultimate", "memory", "nats", 1e6),
    use_case!("ultimate", "memory", "http", 1e6),
    use_case!("ultimate", "memory", "grpc", 1e6),
];
