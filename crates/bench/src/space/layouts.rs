//! How the cases of suite `space` are shown.

use crate::layout::{Cell, Layout};

use Cell::{Metric, Param, Range};

const HANDOVERS: &[(&str, Cell)] = &[
    ("Entities", Param("entities")),
    ("Offered", Metric("offered_per_s")),
    ("Hand-overs", Metric("handovers_per_s")),
    ("Per node", Metric("node_handovers_per_s")),
    ("Of what is offered", Metric("offered_share")),
    ("Lost", Metric("lost")),
    ("Prepare → taken, p50", Metric("p50_ns")),
    ("p99", Metric("p99_ns")),
    ("Tick, p99", Metric("tick_p99_ns")),
    ("Least … most", Range("handovers_per_s")),
];

const TICKS: &[(&str, Cell)] = &[
    ("Entities a region", Param("entities")),
    ("Ticks", Metric("ticks_per_s")),
    ("Tick, p50", Metric("p50_ns")),
    ("p95", Metric("p95_ns")),
    ("p99", Metric("p99_ns")),
    ("Longest", Metric("max_ns")),
    ("Latest", Metric("stall_ns")),
    ("Processor", Metric("cpu_share")),
    ("Memory", Metric("rss_bytes")),
    ("An entity", Metric("entity_bytes")),
    ("An entity, of the process", Metric("process_entity_bytes")),
];

const fn of(case: &'static str, title: &'static str, columns: &'static [(&'static str, Cell)]) -> Layout {
    Layout { case, title, columns }
}

/// The layouts.
pub const LAYOUTS: &[Layout] = &[
    of("handover", "Migration throughput", HANDOVERS),
    of("latency", "One hand-over, over a way that takes its time", HANDOVERS),
    of(
        "handover_saturating",
        "Every entity crosses in every tick, one tick after another",
        &[
            ("Entities", Param("entities")),
            ("Hand-overs", Metric("handovers_per_s")),
            ("Per node", Metric("node_handovers_per_s")),
            ("Ticks", Metric("ticks_per_s")),
            ("Bandwidth", Metric("bytes_per_s")),
            ("Crossed", Metric("crossed_share")),
            ("Lost", Metric("lost")),
            ("Least … most", Range("handovers_per_s")),
        ],
    ),
    of(
        "concurrent",
        "All cross in one tick",
        &[
            ("Entities", Param("entities")),
            ("Ticks until all were taken", Metric("ticks_taken")),
            ("Prepare → taken, p99", Metric("p99_ns")),
            ("Longest", Metric("max_ns")),
            ("Lost", Metric("lost")),
        ],
    ),
    of("capacity", "Entity capacity", TICKS),
    of("cpu", "Processor time", TICKS),
    of("bucket", "Bucket processing", TICKS),
    of(
        "ghosts",
        "Ghost synchronisation",
        &[
            ("Entities", Param("entities")),
            ("Round trip", Param("rtt_ms")),
            ("Ghosts", Metric("ghosts_per_s")),
            ("Bandwidth", Metric("bytes_per_s")),
            ("After the tick, p99", Metric("late_p99_ns")),
            ("Ticks", Metric("ticks_per_s")),
        ],
    ),
    of(
        "flock",
        "Flocking, 30 neighbours",
        &[
            ("Entities", Param("entities")),
            ("In", Param("geometry")),
            ("Processes", Param("nodes")),
            ("Ticks", Metric("ticks_per_s")),
            ("Tick, p99", Metric("tick_p99_ns")),
            ("Hand-overs", Metric("handovers_per_s")),
            ("Lost", Metric("lost")),
        ],
    ),
    of(
        "crowd",
        "Flash crowd",
        &[
            ("Entities", Param("entities")),
            ("Uneven for", Metric("uneven_ticks")),
            ("At the end, × even", Metric("unevenness")),
            ("Cuts", Metric("cuts")),
            ("Hand-overs", Metric("handovers")),
            ("Longest tick", Metric("max_ns")),
            ("Lost", Metric("lost")),
        ],
    ),
    of(
        "index",
        "All points move, ten nearest of each",
        &[
            ("Entities", Param("entities")),
            ("A tick", Metric("tick_ns")),
            ("Queries", Metric("queries_per_s")),
            ("Recall", Metric("recall")),
            ("Least … most", Range("tick_ns")),
        ],
    ),
];
