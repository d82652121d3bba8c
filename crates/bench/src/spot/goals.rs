//! The performance goals for topics.

use crate::goal::{Goal, Threshold};
use crate::row::RowPattern;

type Pairs = &'static [(&'static str, &'static str)];

const fn row(target: &'static str, case: &'static str, params: Pairs, metric: &'static str) -> RowPattern {
    RowPattern { target, case, params, metric }
}

const fn throughput(target: &'static str, params: Pairs, metric: &'static str) -> RowPattern {
    row(target, "throughput", params, metric)
}

const fn p50(target: &'static str, params: Pairs) -> RowPattern {
    row(target, "latency", params, "p50_ns")
}

const fn goal(title: &'static str, ours: RowPattern, threshold: Threshold) -> Goal {
    Goal { title, ours, threshold }
}

const D: &str = "dunlin";

const TCP_64: Pairs = &[
    ("transport", "tcp"),
    ("topology", "embedded"),
    ("copy", "copied"),
    ("bytes", "64"),
    ("length", "sustained"),
];
const TCP_1K: Pairs = &[
    ("transport", "tcp"),
    ("topology", "embedded"),
    ("copy", "copied"),
    ("bytes", "1024"),
    ("length", "sustained"),
];
const TCP_8K: Pairs = &[
    ("transport", "tcp"),
    ("topology", "embedded"),
    ("copy", "copied"),
    ("bytes", "8192"),
    ("length", "sustained"),
];
const TCP_64K: Pairs = &[
    ("transport", "tcp"),
    ("topology", "embedded"),
    ("copy", "copied"),
    ("bytes", "65536"),
    ("length", "sustained"),
];
const BROKERED_64: Pairs =
    &[("transport", "tcp"), ("topology", "brokered"), ("bytes", "64"), ("length", "sustained")];
const ZMQ_64: Pairs = &[("transport", "tcp"), ("pattern", "pub"), ("bytes", "64"), ("length", "sustained")];
const ZMQ_1K: Pairs = &[("transport", "tcp"), ("pattern", "pub"), ("bytes", "1024"), ("length", "sustained")];
const ZMQ_8K: Pairs = &[("transport", "tcp"), ("pattern", "pub"), ("bytes", "8192"), ("length", "sustained")];
const ZMQ_64K: Pairs =
    &[("transport", "tcp"), ("pattern", "pub"), ("bytes", "65536"), ("length", "sustained")];
const RAW_64K: Pairs = &[("transport", "tcp"), ("bytes", "65536"), ("length", "sustained")];
const SPIN: Pairs =
    &[("transport", "tcp"), ("topology", "embedded"), ("wait", "spin"), ("bytes", "64"), ("pin", "apart")];
const PARKED: Pairs =
    &[("transport", "tcp"), ("topology", "embedded"), ("wait", "parked"), ("bytes", "64"), ("pin", "apart")];
const FOUR_HOPS: Pairs =
    &[("transport", "tcp"), ("topology", "brokered"), ("wait", "parked"), ("bytes", "64"), ("pin", "apart")];
const FOUR_HOPS_SPIN: Pairs =
    &[("transport", "tcp"), ("topology", "brokered"), ("wait", "spin"), ("bytes", "64"), ("pin", "apart")];
const LOCAL_SPIN: Pairs = &[("transport", "inproc"), ("wait", "spin"), ("bytes", "64"), ("threads", "2")];
const LOCAL_DEFAULT: Pairs =
    &[("transport", "inproc"), ("wait", "default"), ("bytes", "64"), ("threads", "2")];
const ZMQ_LOCAL: Pairs = &[("transport", "inproc"), ("pattern", "pair"), ("bytes", "64"), ("pin", "apart")];
const ONE_BY_ONE: Pairs =
    &[("transport", "inproc"), ("copy", "copied"), ("bytes", "64"), ("batch", "1"), ("length", "sustained")];
const BATCHES: Pairs =
    &[("transport", "inproc"), ("copy", "copied"), ("bytes", "64"), ("batch", "64"), ("length", "sustained")];
const COPIED_1K: Pairs = &[
    ("transport", "inproc"),
    ("copy", "copied"),
    ("bytes", "1024"),
    ("batch", "1"),
    ("length", "sustained"),
];
const COPIED_8K: Pairs = &[
    ("transport", "inproc"),
    ("copy", "copied"),
    ("bytes", "8192"),
    ("batch", "1"),
    ("length", "sustained"),
];
const COPIED_64K: Pairs = &[
    ("transport", "inproc"),
    ("copy", "copied"),
    ("bytes", "65536"),
    ("batch", "1"),
    ("length", "sustained"),
];
const BY_REF_8K: Pairs =
    &[("transport", "inproc"), ("copy", "by_ref"), ("bytes", "8192"), ("length", "sustained")];
const BY_REF_64K: Pairs =
    &[("transport", "inproc"), ("copy", "by_ref"), ("bytes", "65536"), ("length", "sustained")];

use Threshold::{AtLeast, AtMost, TimesAtLeast, TimesAtMost};

const MIB: f64 = 1_048_576.0;

/// The goals of suite `spot`.
pub const GOALS: &[Goal] = &[
    goal(
        "TCP 64 B lossless, embedded publisher to a subscriber in another process",
        throughput(D, TCP_64, "msgs_per_s"),
        TimesAtLeast(2.5, throughput("libzmq", ZMQ_64, "msgs_per_s")),
    ),
    goal(
        "TCP 64 B lossless, brokered (two clients)",
        throughput(D, BROKERED_64, "msgs_per_s"),
        TimesAtLeast(1.5, throughput("nats", BROKERED_64, "msgs_per_s")),
    ),
    goal(
        "TCP 1 KB, embedded",
        throughput(D, TCP_1K, "msgs_per_s"),
        TimesAtLeast(2.0, throughput("libzmq", ZMQ_1K, "msgs_per_s")),
    ),
    goal(
        "TCP 8 KB, embedded",
        throughput(D, TCP_8K, "msgs_per_s"),
        TimesAtLeast(3.0, throughput("libzmq", ZMQ_8K, "msgs_per_s")),
    ),
    goal(
        "TCP 64 KB, embedded",
        throughput(D, TCP_64K, "msgs_per_s"),
        TimesAtLeast(2.0, throughput("libzmq", ZMQ_64K, "msgs_per_s")),
    ),
    goal(
        "TCP 8 KB against raw streaming",
        throughput(D, TCP_8K, "bytes_per_s"),
        TimesAtLeast(0.6, throughput("raw", RAW_64K, "bytes_per_s")),
    ),
    goal(
        "TCP 64 KB against raw streaming",
        throughput(D, TCP_64K, "bytes_per_s"),
        TimesAtLeast(0.6, throughput("raw", RAW_64K, "bytes_per_s")),
    ),
    goal(
        "TCP round trip 64 B, client and responder in the node, spinning",
        p50(D, SPIN),
        TimesAtMost(1.3, p50("raw", SPIN)),
    ),
    goal(
        "TCP round trip 64 B, client and responder in the node, parked",
        p50(D, PARKED),
        TimesAtMost(1.25, p50("raw", PARKED)),
    ),
    goal(
        "TCP round trip, two clients through the node, the node spinning",
        p50(D, FOUR_HOPS_SPIN),
        TimesAtMost(0.7, p50("nats", FOUR_HOPS)),
    ),
    goal(
        "TCP round trip, two clients through the node, all parked",
        p50(D, FOUR_HOPS),
        TimesAtMost(1.15, p50("raw", FOUR_HOPS)),
    ),
    goal("in process, two threads, 64 B one by one", throughput(D, ONE_BY_ONE, "msgs_per_s"), AtLeast(20e6)),
    goal("in process, two threads, 64 B in batches", throughput(D, BATCHES, "msgs_per_s"), AtLeast(100e6)),
    goal("in process, copied, 1 KB", throughput(D, COPIED_1K, "bytes_per_s"), AtLeast(6e9)),
    goal("in process, copied, 8 KB", throughput(D, COPIED_8K, "bytes_per_s"), AtLeast(20e9)),
    goal("in process, copied, 64 KB", throughput(D, COPIED_64K, "bytes_per_s"), AtLeast(20e9)),
    goal(
        "in process, by reference, 8 KB, first and last 8 bytes checked",
        throughput(D, BY_REF_8K, "msgs_per_s"),
        AtLeast(10e6),
    ),
    goal(
        "in process, by reference, 64 KB, first and last 8 bytes checked",
        throughput(D, BY_REF_64K, "msgs_per_s"),
        AtLeast(10e6),
    ),
    goal("in process round trip, two threads, spinning", p50(D, LOCAL_SPIN), AtMost(250.0)),
    goal(
        "in process round trip, two threads, default waiting",
        p50(D, LOCAL_DEFAULT),
        TimesAtMost(0.1, p50("libzmq", ZMQ_LOCAL)),
    ),
    goal(
        "one publisher, 100 in-process subscribers, 64 B",
        row(D, "fanout", &[("subscribers", "100")], "deliveries_per_s"),
        AtLeast(300e6),
    ),
    goal(
        "one publisher, 100,000 in-process subscribers, 64 B",
        row(D, "fanout", &[("subscribers", "100000")], "deliveries_per_s"),
        AtLeast(100e6),
    ),
    goal(
        "publish p99 with 100,000 parked subscribers, against one parked",
        row(D, "parked", &[("subscribers", "100000")], "p99_ns"),
        TimesAtMost(1.5, row(D, "parked", &[("subscribers", "1")], "p99_ns")),
    ),
    goal(
        "100,000 idle topics, one `>` subscriber: share of a core",
        row(D, "watch", &[("topics", "100000"), ("subscriber", "all")], "cpu_share"),
        AtMost(0.005),
    ),
    goal(
        "publish p99 with that subscriber, against a subscriber of that one topic",
        row(D, "watch", &[("topics", "100000"), ("subscriber", "all")], "p99_ns"),
        TimesAtMost(1.2, row(D, "watch", &[("topics", "100000"), ("subscriber", "one")], "p99_ns")),
    ),
    goal("an idle subscriber", row(D, "memory", &[("of", "subscriber")], "rss_bytes"), AtMost(256.0)),
    goal("a topic nobody published to", row(D, "memory", &[("of", "topic")], "rss_bytes"), AtMost(1024.0)),
    goal(
        "a topic with one record",
        row(D, "memory", &[("of", "topic_with_a_record")], "rss_bytes"),
        AtMost(6.0 * 1024.0),
    ),
    goal(
        "look-up at 100,000 topics, uniformly random",
        row(D, "topics", &[("topics", "100000")], "lookup_ns"),
        AtMost(50.0),
    ),
    goal(
        "look-up at 100,000 topics, uniformly random, against the standard library's map",
        row(D, "topics", &[("topics", "100000")], "lookup_ns"),
        TimesAtMost(1.3, row("std", "topics", &[("topics", "100000")], "lookup_ns")),
    ),
    goal(
        "1,000 TCP subscribers at 1,000 records/s, p99",
        row(D, "connections", &[("subscribers", "1000")], "p99_ns"),
        AtMost(20e6),
    ),
    goal(
        "1,000 TCP subscribers at 1,000 records/s, growth of the server",
        row(D, "connections", &[("subscribers", "1000")], "rss_bytes"),
        AtMost(64.0 * MIB),
    ),
    goal(
        "1,000 stalled TCP subscribers, growth of the server",
        row(D, "stalled", &[("subscribers", "1000")], "rss_bytes"),
        AtMost(32.0 * MIB),
    ),
    goal(
        "1,000 stalled TCP subscribers, throughput of the others",
        row(D, "stalled", &[("subscribers", "1000")], "msgs_per_s"),
        TimesAtLeast(0.95, row(D, "stalled", &[("subscribers", "0")], "msgs_per_s")),
    ),
];
