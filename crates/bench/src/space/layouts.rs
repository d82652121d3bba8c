//! The layouts of the tables that suite `space` prints.

use crate::layout::{CaseLayout, ColumnValue};

use ColumnValue::{Metric, Param, Range};

const HANDOVERS: &[(&str, ColumnValue)] = &[
    ("Entities", Param("entities")),
    ("Standbys", Param("standbys")),
    ("Border crossings offered", Metric("offered_per_s")),
    ("Handovers", Metric("handovers_per_s")),
    ("Per node", Metric("node_handovers_per_s")),
    ("Handovers ÷ crossings offered", Metric("offered_share")),
    ("Lost", Metric("lost")),
    ("Prepare → taken, p50", Metric("p50_ns")),
    ("p99", Metric("p99_ns")),
    ("Tick, p99", Metric("tick_p99_ns")),
    ("Lowest … highest", Range("handovers_per_s")),
];

/// The columns of cases that measure ticks. The columns for durations, processor use and resident memory show the
/// highest value over all processes.
const fn ticks(entities: &'static str) -> [(&'static str, ColumnValue); 13] {
    [
        (entities, Param("entities")),
        ("Standbys", Param("standbys")),
        ("Ticks", Metric("ticks_per_s")),
        ("Tick, p50", Metric("p50_ns")),
        ("p95", Metric("p95_ns")),
        ("p99", Metric("p99_ns")),
        ("Longest", Metric("max_ns")),
        ("Longest delay", Metric("stall_ns")),
        ("Ticks that waited for a standby", Metric("behind")),
        ("Processor use", Metric("cpu_share")),
        ("Resident memory per process", Metric("rss_bytes")),
        ("Memory growth of all processes per entity", Metric("process_entity_bytes")),
        ("Memory of the columns per entity", Metric("entity_bytes")),
    ]
}

const TICKS: &[(&str, ColumnValue)] = &ticks("Entities a region");
const BUCKET: &[(&str, ColumnValue)] = &ticks("Entities of both regions");

const fn of(
    case: &'static str,
    title: &'static str,
    columns: &'static [(&'static str, ColumnValue)],
) -> CaseLayout {
    CaseLayout { case, title, columns }
}

/// One table layout for each case of suite `space`.
pub const LAYOUTS: &[CaseLayout] = &[
    of("handover", "Migration throughput", HANDOVERS),
    of("latency", "One handover over a link with a delay", HANDOVERS),
    of(
        "handover_saturating",
        "Every entity crosses the border in every tick, without pauses between ticks",
        &[
            ("Entities", Param("entities")),
            ("Handovers", Metric("handovers_per_s")),
            ("Per node", Metric("node_handovers_per_s")),
            ("Ticks", Metric("ticks_per_s")),
            ("Bandwidth", Metric("bytes_per_s")),
            ("Share of entities that crossed", Metric("crossed_share")),
            ("Lost", Metric("lost")),
            ("Lowest … highest", Range("handovers_per_s")),
        ],
    ),
    of(
        "concurrent",
        "All entities cross the border in one tick",
        &[
            ("Entities", Param("entities")),
            ("Ticks until all were handed over", Metric("ticks_taken")),
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
            ("Delay after the tick, p99", Metric("late_p99_ns")),
            ("Ticks", Metric("ticks_per_s")),
        ],
    ),
    of(
        "flock",
        "Flocking, 30 neighbours",
        &[
            ("Entities", Param("entities")),
            ("Geometry", Param("geometry")),
            ("Processes", Param("nodes")),
            ("Ticks", Metric("ticks_per_s")),
            ("Tick, p99", Metric("tick_p99_ns")),
            ("Handovers", Metric("handovers_per_s")),
            ("Lost", Metric("lost")),
        ],
    ),
    of(
        "crowd",
        "Flash crowd",
        &[
            ("Entities", Param("entities")),
            ("Ticks until balanced", Metric("uneven_ticks")),
            ("Load of the busiest region at the end, × mean", Metric("unevenness")),
            ("Cuts", Metric("cuts")),
            ("Handovers", Metric("handovers")),
            ("Longest tick", Metric("max_ns")),
            ("Lost", Metric("lost")),
        ],
    ),
    of(
        "index",
        "All points move; the ten nearest points of each are found",
        &[
            ("Entities", Param("entities")),
            ("Time per tick", Metric("tick_ns")),
            ("Queries", Metric("queries_per_s")),
            ("Correct results", Metric("recall")),
            ("Lowest … highest", Range("tick_ns")),
        ],
    ),
];
