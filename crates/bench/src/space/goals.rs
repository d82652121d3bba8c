//! The goals for worlds, and the figures in the benchmark document of Luciferase, another system. The document's
//! "Migrations/sec" counts each entity that is sent, even if the entity does not arrive. Dunlin's figure counts only
//! entities that have arrived.

use super::points::{CLOSE, DESCRIBED, PROGRAM};
use crate::goal::{Goal, PeerClaim, Threshold};
use crate::row::RowPattern;

use Threshold::{AtLeast, AtMost, TimesAtLeast, TimesAtMost};

type Pairs = &'static [(&'static str, &'static str)];

const fn row(target: &'static str, case: &'static str, params: Pairs, metric: &'static str) -> RowPattern {
    RowPattern { target, case, params, metric }
}

const fn ours(case: &'static str, params: Pairs, metric: &'static str) -> RowPattern {
    row("dunlin", case, params, metric)
}

const fn goal(title: &'static str, ours: RowPattern, threshold: Threshold) -> Goal {
    Goal { title, ours, threshold }
}

const RATE: &str = "handovers_per_s";
const P99: &str = "p99_ns";
const SHARE: &str = "offered_share";
const MS: f64 = 1e6;

const SPACE: Pairs = &[("geometry", "space"), ("nodes", "2")];
const PLANE: Pairs = &[("geometry", "plane")];
const SATURATED: Pairs = &[("entities", "50000")];
const AT_ONCE: Pairs = &[("entities", "10000")];
const HUNDRED: Pairs = &[("entities", "100"), ("standbys", "0")];
const THOUSAND: Pairs = &[("entities", "1000"), ("standbys", "0")];
const TEN_THOUSAND: Pairs = &[("entities", "10000"), ("standbys", "0")];
const HUNDRED_THOUSAND: Pairs = &[("entities", "100000"), ("standbys", "0")];
const ALONE: Pairs = &[("standbys", "0")];
const LOOPBACK: Pairs = &[("rtt_ms", "0"), ("standbys", "0")];
const MILLION: Pairs = &[("entities", "500000"), ("publish", "no")];

/// Two goals for one number of entities: one for the geometry `described`, one for the geometry `program`. Each time an
/// entity crosses the border, a handover is due. Both goals demand that handovers happen at nearly the rate of these
/// crossings.
macro_rules! offered {
    ($count:literal) => {
        [
            goal(
                concat!("walls at 0 and 100, ", $count, " entities, of what is offered"),
                ours("handover", &[("entities", $count), ("geometry", DESCRIBED)], SHARE),
                AtLeast(super::handover::OFFERED_SHARE_MIN),
            ),
            goal(
                concat!("walls at 26 and 74, ", $count, " entities, of what is offered"),
                ours("handover", &[("entities", $count), ("geometry", PROGRAM)], SHARE),
                AtLeast(super::handover::OFFERED_SHARE_MIN),
            ),
        ]
    };
}

const LARGEST: [Goal; 2] = offered!("200000");
const DOCUMENTS: [Goal; 2] = offered!("51200");
const PEAK: [Goal; 2] = offered!("25600");

/// The goals of suite `space`.
pub const GOALS: &[Goal] = &[
    goal(
        "handovers between two processes, as many as possible",
        ours("handover_saturating", SATURATED, RATE),
        AtLeast(200_000.0),
    ),
    goal("50 entities", ours("handover", &[("entities", "50"), ("geometry", CLOSE)], RATE), AtLeast(100.0)),
    goal("100 entities", ours("handover", &[("entities", "100"), ("geometry", CLOSE)], RATE), AtLeast(150.0)),
    goal("200 entities", ours("handover", &[("entities", "200"), ("geometry", CLOSE)], RATE), AtLeast(200.0)),
    PEAK[0],
    PEAK[1],
    DOCUMENTS[0],
    DOCUMENTS[1],
    LARGEST[0],
    LARGEST[1],
    goal("one handover, loopback, no standbys, p99", ours("latency", LOOPBACK, P99), AtMost(2.0 * MS)),
    goal(
        "one handover, 50 ms round trip, p99",
        ours("latency", &[("rtt_ms", "50")], P99),
        AtMost(102.0 * MS),
    ),
    goal(
        "10,000 at once, ticks until all were taken",
        ours("concurrent", AT_ONCE, "ticks_taken"),
        AtMost(5.0),
    ),
    goal(
        "tick, 10,000 entities, published, no standbys, p99",
        ours("capacity", TEN_THOUSAND, P99),
        AtMost(0.5 * MS),
    ),
    goal(
        "tick, 100,000 entities, published, no standbys, p99",
        ours("capacity", HUNDRED_THOUSAND, P99),
        AtMost(5.0 * MS),
    ),
    goal(
        "bucket of 10,000 entities a region, no standbys, p99",
        ours("bucket", ALONE, P99),
        AtMost(5.0 * MS),
    ),
    goal("a million on two processes, ticks", ours("capacity", MILLION, "ticks_per_s"), AtLeast(19.9)),
    goal("a million on two processes, latest tick", ours("capacity", MILLION, "stall_ns"), AtMost(10.0 * MS)),
    goal("processor, 100 entities, no standbys", ours("cpu", HUNDRED, "cpu_share"), AtMost(0.01)),
    goal("processor, 1,000 entities, no standbys", ours("cpu", THOUSAND, "cpu_share"), AtMost(0.02)),
    goal("processor, 10,000 entities, no standbys", ours("cpu", TEN_THOUSAND, "cpu_share"), AtMost(0.06)),
    goal("flock of 100,000, ticks", ours("flock", SPACE, "ticks_per_s"), AtLeast(30.0)),
    goal(
        "flock of 100,000 in a plane, beside krABMaga",
        ours("flock", PLANE, "ticks_per_s"),
        TimesAtLeast(3.0, row("krabmaga", "flock", &[], "ticks_per_s")),
    ),
    goal(
        "columns of an entity, of 100,000",
        ours("capacity", HUNDRED_THOUSAND, "entity_bytes"),
        AtMost(128.0),
    ),
    goal("ghosts", ours("ghosts", &[("entities", "300000")], "ghosts_per_s"), AtLeast(1_000_000.0)),
    goal(
        "ghosts after the tick, p99",
        ours("ghosts", &[("entities", "20000")], "late_p99_ns"),
        AtMost(2.0 * MS),
    ),
    goal("link, loopback", ours("ghosts", &[("entities", "300000")], "bytes_per_s"), AtLeast(500e6)),
    goal("link, 1 ms", ours("ghosts", &[("rtt_ms", "1")], "bytes_per_s"), AtLeast(200e6)),
    goal("link, 50 ms", ours("ghosts", &[("rtt_ms", "50")], "bytes_per_s"), AtLeast(50e6)),
    goal("flash crowd, ticks until shared out", ours("crowd", &[], "uneven_ticks"), AtMost(20.0)),
    goal("flash crowd, longest tick", ours("crowd", &[], "max_ns"), AtMost(50.0 * MS)),
    goal(
        "100,000 points move, ten nearest of each, beside rstar",
        ours("index", &[("index", "grid")], "tick_ns"),
        TimesAtMost(1.0, row("rstar", "index", &[], "tick_ns")),
    ),
    goal(
        "100,000 points move, ten nearest of each, beside kiddo",
        ours("index", &[("index", "grid")], "tick_ns"),
        TimesAtMost(1.0, row("kiddo", "index", &[], "tick_ns")),
    ),
];

const fn claim(title: &'static str, figure: f64, ours: RowPattern) -> PeerClaim {
    PeerClaim { title, figure, ours }
}

const fn scaling(title: &'static str, figure: f64, params: Pairs) -> PeerClaim {
    claim(title, figure, ours("handover", params, RATE))
}

macro_rules! at {
    ($count:literal, $figure:literal) => {
        scaling(
            concat!("Total Migrations/sec, ", $count, " entities"),
            $figure,
            &[("entities", $count), ("geometry", PROGRAM)],
        )
    };
}

/// The figures in the tables of Luciferase's benchmark document.
pub const CLAIMS: &[PeerClaim] = &[
    at!("100", 45.3),
    at!("200", 79.9),
    at!("400", 139.5),
    at!("800", 210.95),
    at!("1600", 307.85),
    at!("3200", 436.06),
    at!("6400", 613.31),
    at!("12800", 857.16),
    at!("25600", 1_193.05),
    at!("51200", 454.58),
    claim("Entity migration (2PC) < 300 ms", 300.0 * MS, ours("latency", LOOPBACK, P99)),
    claim("Bucket processing < 100 ms", 100.0 * MS, ours("bucket", ALONE, P99)),
    claim(
        "Ghost synchronization < 10 ms",
        10.0 * MS,
        ours("ghosts", &[("entities", "20000")], "late_p99_ns"),
    ),
    claim("Ghost sync updates/sec 1000+", 1_000.0, ours("ghosts", &[("entities", "300000")], "ghosts_per_s")),
    claim("10,000 entities: P99 < 100 ms", 100.0 * MS, ours("capacity", TEN_THOUSAND, P99)),
    claim("Memory per entity ~100 KB", 100_000.0, ours("capacity", HUNDRED_THOUSAND, "process_entity_bytes")),
    claim("CPU, 10,000 entities < 80 %", 0.8, ours("cpu", TEN_THOUSAND, "cpu_share")),
    claim("Bandwidth, localhost > 100 MB/s", 100e6, ours("ghosts", &[("entities", "300000")], "bytes_per_s")),
];
