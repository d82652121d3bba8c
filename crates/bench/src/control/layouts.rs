//! The layouts of the tables that suite `control` prints.

use crate::layout::{CaseLayout, ColumnValue};

use ColumnValue::{Metric, Param, Range};

const LOAD: &[(&str, ColumnValue)] = &[
    ("Nodes", Param("nodes")),
    ("In flight", Param("in_flight")),
    ("Load", Param("load")),
    ("Throughput", Metric("ops_per_s")),
    ("Average", Metric("avg_ns")),
    ("p50", Metric("p50_ns")),
    ("p99", Metric("p99_ns")),
    ("Lowest … highest", Range("ops_per_s")),
    ("Log entries per second", Metric("entries_per_s")),
    ("Commit, average", Metric("commit_avg_ns")),
    ("Written to disk", Metric("disk_bytes_per_s")),
    ("Share of the disk's speed", Metric("disk_share")),
];

const fn load(case: &'static str, title: &'static str) -> CaseLayout {
    CaseLayout { case, title, columns: LOAD }
}

/// One table layout for each case of suite `control`.
pub const LAYOUTS: &[CaseLayout] = &[
    load("put", "Write (single key)"),
    load("get", "Read (single key), linearizable"),
    load("cas", "Compare-and-swap"),
    load("batch", "Batch write"),
    load("range", "Range query"),
    CaseLayout {
        case: "failover",
        title: "Time from a killed leader to the next write",
        columns: &[
            ("Nodes", Param("nodes")),
            ("Kills", Metric("kills")),
            ("Average", Metric("avg_ns")),
            ("p50", Metric("p50_ns")),
            ("p99", Metric("p99_ns")),
            ("Election, average", Metric("election_avg_ns")),
            ("p99", Metric("election_p99_ns")),
        ],
    },
    CaseLayout {
        case: "disk",
        title: "Disk: sequential writes with a sync each",
        columns: &[
            ("Bytes", Param("bytes")),
            ("Bandwidth", Metric("bytes_per_s")),
            ("Syncs", Metric("ops_per_s")),
            ("Average", Metric("avg_ns")),
            ("p50", Metric("p50_ns")),
            ("p99", Metric("p99_ns")),
        ],
    },
];
