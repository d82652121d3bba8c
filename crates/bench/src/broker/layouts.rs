//! The layouts of the tables that suite `broker` prints. Each table begins with the columns of the corresponding table
//! in Ratatoskr's benchmark document. Additional columns follow.

use crate::layout::CaseLayout;
use crate::layout::ColumnValue::{Metric, Param, Range, Share};

/// One table layout for each case of suite `broker`.
pub const LAYOUTS: &[CaseLayout] = &[
    CaseLayout {
        case: "stress",
        title: "Stress test, messages × topics × subscribers",
        columns: &[
            ("Messages", Param("messages")),
            ("Topics", Param("topics")),
            ("Subscribers", Param("subscribers")),
            ("Throughput", Metric("msgs_per_s")),
            ("Deliveries", Metric("deliveries")),
            ("Delivered", Metric("success_percent")),
            ("Deliveries per second", Metric("deliveries_per_s")),
            ("Memory growth", Metric("rss_bytes")),
            ("Memory per subscriber", Metric("subscriber_bytes")),
            ("Messages/s per MB", Metric("msgs_per_s_and_mb")),
            ("Until received, p50", Metric("p50_ns")),
            ("p99", Metric("p99_ns")),
        ],
    },
    CaseLayout {
        case: "protocols",
        title: "In process, and over each protocol",
        columns: &[
            ("Protocol", Param("transport")),
            ("Pattern", Param("pattern")),
            ("Throughput", Metric("msgs_per_s")),
            ("Average", Metric("avg_ns")),
            ("P99", Metric("p99_ns")),
            ("Efficiency", Share("msgs_per_s", "dunlin", "inproc")),
        ],
    },
    CaseLayout {
        case: "use_cases",
        title: "Use cases at a fixed rate: latency from the due time of a record until it is read",
        columns: &[
            ("Use case", Param("use")),
            ("Storage", Param("storage")),
            ("Protocol", Param("transport")),
            ("Rate", Param("rate")),
            ("Records published and read", Metric("msgs_per_s")),
            ("p50", Metric("p50_ns")),
            ("P99", Metric("p99_ns")),
            ("Limit", Metric("limit_ns")),
            ("Within the limit, %", Metric("within_percent")),
            ("P99 lowest … highest", Range("p99_ns")),
        ],
    },
    CaseLayout {
        case: "connections",
        title: "NATS connections with one subscription each",
        columns: &[
            ("Connections", Param("clients")),
            ("Memory of the process", Metric("rss_bytes")),
            ("Memory per connection", Metric("connection_bytes")),
            ("Peak memory", Metric("peak_bytes")),
            ("Setup time", Metric("setup_ns")),
            ("Deliveries", Metric("deliveries_per_s")),
        ],
    },
    CaseLayout {
        case: "isolation",
        title: "Latency of other clients, alone and beside one misbehaving client (medians of pairs)",
        columns: &[
            ("Misbehaving client", Param("offender")),
            ("Pairs", Metric("pairs")),
            ("p50 alone", Metric("alone_p50_ns")),
            ("p50 beside it", Metric("p50_ns")),
            ("Times", Metric("p50_times_alone")),
            ("P99 alone", Metric("alone_p99_ns")),
            ("P99 beside it", Metric("p99_ns")),
            ("Times", Metric("p99_times_alone")),
        ],
    },
    CaseLayout {
        case: "nats_listener",
        title: "The NATS listener beside nats-server and Redis",
        columns: &[
            ("Message size", Param("bytes")),
            ("Subscribers", Param("subscribers")),
            ("Messages", Metric("msgs_per_s")),
            ("Lowest … highest", Range("msgs_per_s")),
            ("Deliveries", Metric("deliveries_per_s")),
            ("Lowest … highest", Range("deliveries_per_s")),
            ("p50", Metric("p50_ns")),
            ("p99", Metric("p99_ns")),
        ],
    },
];
