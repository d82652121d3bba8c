//! The goals for tasks, and the figures of the Grey document, which is another system's documentation. The descriptions
//! of simulated figures contain `simulated`. Simulated throughput follows from the assumed durations of a task and of a
//! node's work.

use crate::goal::{Goal, PeerClaim, Threshold};
use crate::row::RowPattern;

use Threshold::{AtLeast, AtMost, TimesAtLeast, TimesAtMost};

type Pairs = &'static [(&'static str, &'static str)];

const fn ours(case: &'static str, params: Pairs, metric: &'static str) -> RowPattern {
    RowPattern { target: "dunlin", case, params, metric }
}

const fn peer(target: &'static str) -> RowPattern {
    RowPattern { target, case: "noop", params: &[], metric: OPS }
}

const fn goal(title: &'static str, ours: RowPattern, threshold: Threshold) -> Goal {
    Goal { title, ours, threshold }
}

const fn claim(title: &'static str, figure: f64, ours: RowPattern) -> PeerClaim {
    PeerClaim { title, figure, ours }
}

const OPS: &str = "ops_per_s";
const MS: f64 = 1e6;
const S: f64 = 1e9;

const NOOP_ONE: Pairs = &[("via", "node"), ("nodes", "1"), ("shards", "1"), ("tenants", "1")];
const NOOP_THREE: Pairs = &[("via", "node"), ("nodes", "3"), ("shards", "1"), ("tenants", "1")];
const WORKERS: Pairs = &[("via", "node"), ("workers", "200"), ("shards", "1"), ("tenants", "1")];

const LIGHT: Pairs = &[("via", "simulator"), ("load", "light")];
const SATURATED: Pairs = &[("via", "simulator"), ("load", "saturated")];
const DIURNAL: Pairs = &[("arrivals", "diurnal"), ("cpu_target", "85")];
const SERIES: Pairs = &[("arrivals", "series"), ("cpu_target", "90")];
const FEW: Pairs = &[("tenants", "1"), ("queued", "1000")];
const TEN_MILLION: Pairs = &[("tenants", "1"), ("queued", "10000000")];
const MANY_TENANTS: Pairs = &[("tenants", "10000")];

/// The goals of suite `tasks`.
pub const GOALS: &[Goal] = &[
    goal("no-op tasks, full cycle, one node, durable", ours("noop", NOOP_ONE, OPS), AtLeast(150_000.0)),
    goal("no-op tasks, full cycle, three nodes, durable", ours("noop", NOOP_THREE, OPS), AtLeast(50_000.0)),
    goal(
        "no-op tasks, one node, beside asynq",
        ours("noop", NOOP_ONE, OPS),
        TimesAtLeast(3.0, peer("asynq")),
    ),
    goal(
        "no-op tasks, one node, beside HyperQueue",
        ours("noop", NOOP_ONE, OPS),
        TimesAtLeast(5.0, peer("hyperqueue")),
    ),
    goal(
        "no-op tasks, one node, beside Celery",
        ours("noop", NOOP_ONE, OPS),
        TimesAtLeast(30.0, peer("celery")),
    ),
    goal(
        "200 workers × 85 tasks/s, saturated: throughput, relative to the same workers without a node",
        ours("scaling", WORKERS, "efficiency"),
        AtLeast(0.98),
    ),
    goal("200 workers × 85 tasks/s, saturated: tasks", ours("scaling", WORKERS, OPS), AtLeast(16_100.0)),
    goal(
        "200 workers × 85 tasks/s at 90 % load: submit to start, p99",
        ours("scaling", WORKERS, "p99_ns"),
        AtMost(3.0 * MS),
    ),
    goal(
        "Jain's index, 4 tenants, saturated",
        ours("tenants", &[("via", "node"), ("tenants", "4")], "jain"),
        AtLeast(0.99),
    ),
    goal(
        "Jain's index, 1,000 tenants, saturated",
        ours("tenants", &[("via", "node"), ("tenants", "1000")], "jain"),
        AtLeast(0.99),
    ),
    goal(
        "noisy neighbour, 8 % load: the others keep",
        ours("noisy", &[("via", "node"), ("load", "light")], "least_kept_share"),
        AtLeast(0.97),
    ),
    goal(
        "noisy neighbour, saturated: the others keep",
        ours("noisy", &[("via", "node"), ("load", "saturated")], "least_kept_share"),
        AtLeast(0.97),
    ),
    goal(
        "leader killed → tasks begin again, 3 nodes, median",
        ours("failover", &[("killed", "leader")], "p50_ns"),
        AtMost(300.0 * MS),
    ),
    goal(
        "leader killed → tasks begin again, 3 nodes, p99",
        ours("failover", &[("killed", "leader")], "p99_ns"),
        AtMost(520.0 * MS),
    ),
    goal(
        "worker killed → its tasks begin with others, p99",
        ours("failover", &[("killed", "worker")], "p99_ns"),
        AtMost(2.0 * S),
    ),
    goal(
        "200 workers × 85 tasks/s, saturated, simulated: efficiency",
        ours("scaling", &[("via", "simulator"), ("workers", "200")], "efficiency"),
        AtLeast(0.98),
    ),
    goal(
        "10 M queued tasks, the scheduler's own: each",
        ours("backlog", TEN_MILLION, "task_bytes"),
        AtMost(400.0),
    ),
    goal(
        "10 M queued tasks, the scheduler's own: a dispatch, against 1,000 queued",
        ours("backlog", TEN_MILLION, "dispatch_ns"),
        TimesAtMost(1.5, ours("backlog", FEW, "dispatch_ns")),
    ),
    goal(
        "10,000 tenants: a dispatch, against one tenant",
        ours("dispatch", MANY_TENANTS, "dispatch_ns"),
        TimesAtMost(1.5, ours("backlog", FEW, "dispatch_ns")),
    ),
    goal(
        "local provider: CPU is high → worker ready",
        ours("phases", &[("via", "local"), ("phase", "cpu")], "total_ns"),
        AtMost(5.0 * S),
    ),
    goal(
        "local provider: much waits → worker ready",
        ours("phases", &[("via", "local"), ("phase", "queue")], "total_ns"),
        AtMost(5.0 * S),
    ),
    goal(
        "local provider: waits are long → worker ready",
        ours("phases", &[("via", "local"), ("phase", "latency")], "total_ns"),
        AtMost(5.0 * S),
    ),
    goal(
        "local provider, workers that load for 2 s: a warm pool, against none",
        ours("phases", &[("via", "local"), ("phase", "warm")], "total_ns"),
        TimesAtMost(0.5, ours("phases", &[("via", "local"), ("phase", "cold")], "total_ns")),
    ),
    goal(
        "local provider, predictive: seconds by which workers are ready before they are needed",
        ours("phases", &[("via", "local"), ("phase", "predictive")], "ahead_s"),
        AtLeast(0.0),
    ),
    goal(
        "Jain's index, 4 tenants, saturated, simulated",
        ours("tenants", &[("via", "simulator")], "jain"),
        AtLeast(0.99),
    ),
    goal(
        "noisy neighbour, 8 % load, simulated: the others keep",
        ours("noisy", LIGHT, "least_kept_share"),
        AtLeast(0.99),
    ),
    goal(
        "noisy neighbour, saturated, simulated: the others keep",
        ours("noisy", SATURATED, "least_kept_share"),
        AtLeast(0.99),
    ),
    goal(
        "simulator: 100,000 workers, 10 M tasks",
        ours("simulator", &[("workers", "100000")], "elapsed_ns"),
        AtMost(60.0 * S),
    ),
    goal(
        "predictive against reactive, diurnal, target 85 %: violated minutes spared",
        ours("forecast", DIURNAL, "spared_share"),
        AtLeast(0.8),
    ),
    goal(
        "predictive against reactive, diurnal, target 85 %: hours of workers",
        ours("forecast", DIURNAL, "hours_times"),
        AtMost(1.1),
    ),
    goal(
        "predictive against reactive, real series, target 90 %: violated minutes spared",
        ours("forecast", SERIES, "spared_share"),
        AtLeast(0.8),
    ),
    goal(
        "predictive against reactive, real series, target 90 %: hours of workers",
        ours("forecast", SERIES, "hours_times"),
        AtMost(1.1),
    ),
];

macro_rules! throughput {
    ($workers:literal, $per_s:literal) => {
        claim(
            concat!("Throughput, ", $workers, " workers (simulated)"),
            $per_s,
            ours("scaling", &[("via", "simulator"), ("workers", $workers)], "ops_per_s"),
        )
    };
}

macro_rules! measured {
    ($workers:literal, $per_s:literal) => {
        claim(
            concat!("Throughput, ", $workers, " workers"),
            $per_s,
            ours(
                "scaling",
                &[("via", "node"), ("workers", $workers), ("shards", "1"), ("tenants", "1")],
                "ops_per_s",
            ),
        )
    };
}

macro_rules! phase {
    ($title:literal, $phase:literal, $seconds:literal) => {
        claim(
            concat!($title, " (simulated)"),
            $seconds * S,
            ours("phases", &[("via", "simulator"), ("phase", $phase)], "total_ns"),
        )
    };
}

macro_rules! saves {
    ($title:literal, $strategy:literal, $dollars:literal) => {
        claim(
            concat!("Monthly savings, ", $title, " (simulated)"),
            $dollars,
            ours("cost", &[("via", "simulator"), ("strategy", $strategy)], "saves_per_month"),
        )
    };
}

/// The figures in the Grey document's tables. Dunlin's figures are compared with the document's.
pub const CLAIMS: &[PeerClaim] = &[
    measured!("10", 850.0),
    measured!("25", 2_100.0),
    measured!("50", 4_250.0),
    measured!("75", 6_200.0),
    measured!("100", 8_150.0),
    measured!("150", 11_800.0),
    measured!("200", 14_950.0),
    claim("Latency P99, 200 workers (at 90 % load)", 95e6, ours("scaling", WORKERS, "p99_ns")),
    claim("Fairness Index", 0.97, ours("tenants", &[("via", "node"), ("tenants", "4")], "jain")),
    throughput!("10", 850.0),
    throughput!("25", 2_100.0),
    throughput!("50", 4_250.0),
    throughput!("75", 6_200.0),
    throughput!("100", 8_150.0),
    throughput!("150", 11_800.0),
    throughput!("200", 14_950.0),
    claim(
        "Latency P99, 200 workers (simulated, at 90 % load)",
        95e6,
        ours("scaling", &[("via", "simulator"), ("workers", "200")], "p99_ns"),
    ),
    phase!("Scale-out, CPU > 70%", "cpu", 120.0),
    phase!("Scale-out, Queue > 5000", "queue", 115.0),
    phase!("Scale-out, Latency > 2s", "latency", 125.0),
    phase!("Scale-out, Predictive", "predictive", 55.0),
    phase!("Scale-in, Total", "in", 450.0),
    phase!("Scale-out time, Without Warm Pool", "cold", 120.0),
    phase!("Scale-out time, With Warm Pool", "warm", 55.0),
    claim("Fairness Index (simulated)", 0.97, ours("tenants", &[("via", "simulator")], "jain")),
    claim("Noisy neighbour, tenant-b keeps (simulated)", 118.0 / 120.0, ours("noisy", LIGHT, "b_kept_share")),
    claim("Noisy neighbour, tenant-c keeps (simulated)", 74.0 / 75.0, ours("noisy", LIGHT, "c_kept_share")),
    claim("Noisy neighbour, tenant-d keeps (simulated)", 44.0 / 45.0, ours("noisy", LIGHT, "d_kept_share")),
    saves!("70% Spot instances", "spot", 8_500.0),
    saves!("Predictive scaling", "predictive", 2_100.0),
    saves!("Right-sizing VPA", "right_sizing", 1_800.0),
    saves!("Night/weekend scale-down", "night", 3_200.0),
    saves!("Total", "all", 15_600.0),
];
