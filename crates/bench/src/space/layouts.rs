//! Tables of suite `space`.

use crate::layout::{Cell, Layout};

use Cell::{Metric, Param, Range};

const HANDOVERS: &[(&str, Cell)] = &[
    ("Entities", Param("entities")),
    ("Standbys", Param("standbys")),
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

/// Columns of cases with ticks; values of one process are those of the largest.
const fn ticks(entities: &'static str) -> [(&'static str, Cell); 13] {
    [
        (entities, Param("entities")),
        ("Standbys", Param("standbys")),
        ("Ticks", Metric("ticks_per_s")),
        ("Tick, p50", Metric("p50_ns")),
        ("p95", Metric("p95_ns")),
        ("p99", Metric("p99_ns")),
        ("Longest", Metric("max_ns")),
        ("Latest", Metric("stall_ns")),
        ("Ticks that waited for a standby", Metric("behind")),
        ("Processor", Metric("cpu_share")),
        ("Resident memory of a process", Metric("rss_bytes")),
        ("Growth of the processes, an entity", Metric("process_entity_bytes")),
        ("Columns alone, an entity", Metric("entity_bytes")),
    ]
}

const TICKS: &[(&str, Cell)] = &ticks("Entities a region");
const BUCKET: &[(&str, Cell)] = &ticks("Entities of both regions");

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
    of("bucket", "Bucket processing", BUCKET),
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
