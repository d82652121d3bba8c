//! Tables of suite `broker`: the document's columns, then ours.

use crate::layout::Cell::{Metric, Param, Range, Share};
use crate::layout::Layout;

/// The layouts.
pub const LAYOUTS: &[Layout] = &[
    Layout {
        case: "stress",
        title: "Stress test, messages × topics × subscribers",
        columns: &[
            ("Messages", Param("messages")),
            ("Topics", Param("topics")),
            ("Subscribers", Param("subscribers")),
            ("Throughput", Metric("msgs_per_s")),
            ("Deliveries", Metric("deliveries")),
            ("Delivered", Metric("success_percent")),
            ("Rate of delivery", Metric("deliveries_per_s")),
            ("Memory grown by", Metric("rss_bytes")),
            ("Of a subscriber", Metric("subscriber_bytes")),
            ("msg/s for each MB", Metric("msgs_per_s_and_mb")),
            ("To receipt, p50", Metric("p50_ns")),
            ("p99", Metric("p99_ns")),
        ],
    },
    Layout {
        case: "doors",
        title: "Internal against door",
        columns: &[
            ("Door", Param("transport")),
            ("Pattern", Param("pattern")),
            ("Throughput", Metric("msgs_per_s")),
            ("Average", Metric("avg_ns")),
            ("P99", Metric("p99_ns")),
            ("Efficiency", Share("msgs_per_s", "dunlin", "inproc")),
        ],
    },
    Layout {
        case: "use_cases",
        title: "Use cases, open loop, from when a record was due until it was read",
        columns: &[
            ("Use case", Param("use")),
            ("Storage", Param("storage")),
            ("Door", Param("transport")),
            ("Rate", Param("rate")),
            ("Published and read", Metric("msgs_per_s")),
            ("p50", Metric("p50_ns")),
            ("P99", Metric("p99_ns")),
            ("Limit", Metric("limit_ns")),
            ("Within it, %", Metric("within_percent")),
            ("P99 least … most", Range("p99_ns")),
        ],
    },
    Layout {
        case: "connections",
        title: "NATS connections with one subscription each",
        columns: &[
            ("Connections", Param("clients")),
            ("Memory of the process", Metric("rss_bytes")),
            ("Of a connection", Metric("connection_bytes")),
            ("Peak", Metric("peak_bytes")),
            ("Set up", Metric("setup_ns")),
            ("Deliveries", Metric("deliveries_per_s")),
        ],
    },
    Layout {
        case: "isolation",
        title: "One client at its limits, and what the others see (medians of pairs, alone and beside it)",
        columns: &[
            ("Offender", Param("offender")),
            ("Pairs", Metric("pairs")),
            ("p50 alone", Metric("alone_p50_ns")),
            ("p50 beside", Metric("p50_ns")),
            ("Times", Metric("p50_times_alone")),
            ("P99 alone", Metric("alone_p99_ns")),
            ("P99 beside", Metric("p99_ns")),
            ("Times", Metric("p99_times_alone")),
        ],
    },
    Layout {
        case: "nats_door",
        title: "The NATS door beside nats-server and Redis",
        columns: &[
            ("Message size", Param("bytes")),
            ("Subscribers", Param("subscribers")),
            ("Messages", Metric("msgs_per_s")),
            ("Least … most", Range("msgs_per_s")),
            ("Deliveries", Metric("deliveries_per_s")),
            ("Least … most", Range("deliveries_per_s")),
            ("p50", Metric("p50_ns")),
            ("p99", Metric("p99_ns")),
        ],
    },
];
