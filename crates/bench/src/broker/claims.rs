//! The figures that Ratatoskr's benchmark document states for Ratatoskr, measured on a MacBook Air M4. MB means 10⁶
//! bytes. In the document's benchmark, the publisher and all subscribers run in the same virtual machine, and the
//! publisher fills one topic after another. The document contains no latencies.

use crate::goal::PeerClaim;
use crate::row::RowPattern;

type Pairs = &'static [(&'static str, &'static str)];

const fn claim(title: &'static str, figure: f64, params: Pairs, metric: &'static str) -> PeerClaim {
    PeerClaim { title, figure, ours: RowPattern { target: "dunlin", case: "stress", params, metric } }
}

const SMALL: Pairs = &[("messages", "100000"), ("topics", "100"), ("subscribers", "10")];
const MEDIUM: Pairs = &[("messages", "1000000"), ("topics", "100"), ("subscribers", "10")];
const LARGE: Pairs = &[("messages", "1000000"), ("topics", "1000"), ("subscribers", "1000")];
const MASSIVE: Pairs = &[("messages", "1000000"), ("topics", "1000"), ("subscribers", "10000")];
const ULTIMATE: Pairs = &[("messages", "1000000"), ("topics", "1000"), ("subscribers", "100000")];
const BASELINE: Pairs = &[("topics", "1"), ("subscribers", "50")];
const REALISTIC: Pairs = &[("topics", "10"), ("subscribers", "2000")];

const fn internal(title: &'static str, figure: f64, metric: &'static str) -> PeerClaim {
    PeerClaim {
        title,
        figure,
        ours: RowPattern { target: "dunlin", case: "protocols", params: INTERNAL, metric },
    }
}

const INTERNAL: Pairs = &[("transport", "inproc"), ("pattern", "one_in_flight")];

/// The figures that Ratatoskr's benchmark document states.
pub const CLAIMS: &[PeerClaim] = &[
    claim("small scale, 100K × 100 × 10", 196_850.0, SMALL, "msgs_per_s"),
    claim("small scale, memory", 71e6, SMALL, "rss_bytes"),
    claim("medium scale, 1M × 100 × 10", 198_531.0, MEDIUM, "msgs_per_s"),
    claim("medium scale, memory", 482e6, MEDIUM, "rss_bytes"),
    claim("large scale, 1M × 1,000 × 1,000", 184_843.0, LARGE, "msgs_per_s"),
    claim("large scale, memory", 712e6, LARGE, "rss_bytes"),
    claim("massive scale, 1M × 1,000 × 10,000", 75_850.0, MASSIVE, "msgs_per_s"),
    claim("massive scale, memory", 777e6, MASSIVE, "rss_bytes"),
    claim("ultimate scale, 1M × 1,000 × 100,000", 10_908.0, ULTIMATE, "msgs_per_s"),
    claim("ultimate scale, deliveries (by its own figures)", 1_090_800.0, ULTIMATE, "deliveries_per_s"),
    claim("ultimate scale, memory", 2e9, ULTIMATE, "rss_bytes"),
    claim("ultimate scale, memory of each subscriber", 20e3, ULTIMATE, "subscriber_bytes"),
    claim("real_benchmark, 1 topic × 50 subscribers", 30_769.0, BASELINE, "msgs_per_s"),
    claim("real_benchmark, msg/s for each MB", 15_385.0, BASELINE, "msgs_per_s_and_mb"),
    claim("realistic_1gb_test, 10 topics × 200 subscribers", 3_293.0, REALISTIC, "msgs_per_s"),
    claim("realistic_1gb_test, msg/s for each MB", 209.0, REALISTIC, "msgs_per_s_and_mb"),
    internal("internal API, throughput", 311_000.0, "msgs_per_s"),
    internal("internal API, average", 2_000.0, "avg_ns"),
    internal("internal API, P99", 7_000.0, "p99_ns"),
];
