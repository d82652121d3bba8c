//! The figures of the SPOT document, in which ServerLink describes benchmarks of its own system.
//!
//! The document's "MB" is 2²⁰ bytes: in its table, 464,411 messages of 64 B per second are 28.37 MB/s. The document's
//! rounded figures are converted with this unit too. With 10⁶ bytes, they would be lower and easier to reach. For local
//! throughput, one thread of the document's benchmark publishes all messages and then reads them. In Dunlin's
//! measurement, one thread publishes while another thread reads.

use crate::goal::PeerClaim;
use crate::row::RowPattern;

type Pairs = &'static [(&'static str, &'static str)];

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1000.0 * MIB;

const fn claim(
    title: &'static str,
    figure: f64,
    case: &'static str,
    params: Pairs,
    metric: &'static str,
) -> PeerClaim {
    PeerClaim { title, figure, ours: RowPattern { target: "dunlin", case, params, metric } }
}

const LOCAL_64: Pairs =
    &[("transport", "inproc"), ("copy", "copied"), ("batch", "1"), ("bytes", "64"), ("length", "document")];
const LOCAL_1K: Pairs =
    &[("transport", "inproc"), ("copy", "copied"), ("batch", "1"), ("bytes", "1024"), ("length", "document")];
const LOCAL_8K: Pairs =
    &[("transport", "inproc"), ("copy", "copied"), ("batch", "1"), ("bytes", "8192"), ("length", "document")];
const LOCAL_64K: Pairs = &[
    ("transport", "inproc"),
    ("copy", "copied"),
    ("batch", "1"),
    ("bytes", "65536"),
    ("length", "document"),
];
const TCP_64: Pairs = &[
    ("transport", "tcp"),
    ("topology", "embedded"),
    ("copy", "copied"),
    ("bytes", "64"),
    ("length", "document"),
];
const TCP_1K: Pairs = &[
    ("transport", "tcp"),
    ("topology", "embedded"),
    ("copy", "copied"),
    ("bytes", "1024"),
    ("length", "document"),
];
const TCP_8K: Pairs = &[
    ("transport", "tcp"),
    ("topology", "embedded"),
    ("copy", "copied"),
    ("bytes", "8192"),
    ("length", "document"),
];
const TCP_64K: Pairs = &[
    ("transport", "tcp"),
    ("topology", "embedded"),
    ("copy", "copied"),
    ("bytes", "65536"),
    ("length", "document"),
];
const ROUND_LOCAL: Pairs = &[("transport", "inproc"), ("wait", "spin"), ("bytes", "64"), ("threads", "2")];
const ROUND_TCP: Pairs =
    &[("transport", "tcp"), ("topology", "embedded"), ("wait", "parked"), ("bytes", "64"), ("pin", "apart")];

/// The figures that the SPOT document states.
pub const CLAIMS: &[PeerClaim] = &[
    claim("throughput, local, 64 B (sample)", 464_411.0, "throughput", LOCAL_64, "msgs_per_s"),
    claim("throughput, local, 64 B (expected)", 280.0 * MIB, "throughput", LOCAL_64, "bytes_per_s"),
    claim("throughput, local, 1 KB (sample)", 3_282_828.0, "throughput", LOCAL_1K, "msgs_per_s"),
    claim("throughput, local, 8 KB (expected)", 18.9 * GIB, "throughput", LOCAL_8K, "bytes_per_s"),
    claim("throughput, local, 64 KB (expected)", 11.7 * GIB, "throughput", LOCAL_64K, "bytes_per_s"),
    claim("throughput, TCP, 64 B (sample)", 441_084.0, "throughput", TCP_64, "msgs_per_s"),
    claim("throughput, TCP, 64 B (expected)", 284.0 * MIB, "throughput", TCP_64, "bytes_per_s"),
    claim("throughput, TCP, 1 KB (sample)", 637_323.0, "throughput", TCP_1K, "msgs_per_s"),
    claim("throughput, TCP, 8 KB (expected)", 785.0 * MIB, "throughput", TCP_8K, "bytes_per_s"),
    claim("throughput, TCP, 64 KB (expected)", 2.0 * GIB, "throughput", TCP_64K, "bytes_per_s"),
    claim("round trip, local, 64 B, average", 850.0, "latency", ROUND_LOCAL, "avg_ns"),
    claim("round trip, local, 64 B, p50", 800.0, "latency", ROUND_LOCAL, "p50_ns"),
    claim("round trip, local, 64 B, p95", 1_200.0, "latency", ROUND_LOCAL, "p95_ns"),
    claim("round trip, local, 64 B, p99", 1_500.0, "latency", ROUND_LOCAL, "p99_ns"),
    claim("round trip, TCP, 64 B, average", 52_340.0, "latency", ROUND_TCP, "avg_ns"),
    claim("round trip, TCP, 64 B, p50", 50_120.0, "latency", ROUND_TCP, "p50_ns"),
    claim("round trip, TCP, 64 B, p95", 65_780.0, "latency", ROUND_TCP, "p95_ns"),
    claim("round trip, TCP, 64 B, p99", 78_900.0, "latency", ROUND_TCP, "p99_ns"),
    claim("topics, 100, create", 42_735.0, "topics", &[("topics", "100")], "creates_per_s"),
    claim("topics, 1,000, create", 42_643.0, "topics", &[("topics", "1000")], "creates_per_s"),
    claim("topics, 10,000, create", 42_634.0, "topics", &[("topics", "10000")], "creates_per_s"),
    claim("registry of 100, look-up", 8_130_081.0, "topics", &[("topics", "100")], "lookups_per_s"),
    claim("registry of 1,000, look-up", 8_000_000.0, "topics", &[("topics", "1000")], "lookups_per_s"),
    claim("registry of 10,000, look-up", 8_064_516.0, "topics", &[("topics", "10000")], "lookups_per_s"),
    claim("registry of 100,000, look-up", 7_936_508.0, "topics", &[("topics", "100000")], "lookups_per_s"),
    claim("fan-out to 10, set up", 1.23e6, "fanout", &[("subscribers", "10")], "setup_ns"),
    claim("fan-out to 10, total", 145.23 * MIB, "fanout", &[("subscribers", "10")], "bytes_per_s"),
    claim("fan-out to 100, set up", 12.34e6, "fanout", &[("subscribers", "100")], "setup_ns"),
    claim("fan-out to 100, total", 143.45 * MIB, "fanout", &[("subscribers", "100")], "bytes_per_s"),
    claim("fan-out to 1,000, set up", 123.45e6, "fanout", &[("subscribers", "1000")], "setup_ns"),
    claim("fan-out to 1,000, total", 142.12 * MIB, "fanout", &[("subscribers", "1000")], "bytes_per_s"),
    claim("10 topics at once, 1 KB", 389_559.0, "multi_topic", &[("topics", "10")], "msgs_per_s"),
    claim("50 topics at once, 1 KB", 389_628.0, "multi_topic", &[("topics", "50")], "msgs_per_s"),
    claim("100 topics at once, 1 KB", 389_534.0, "multi_topic", &[("topics", "100")], "msgs_per_s"),
];
