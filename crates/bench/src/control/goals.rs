//! Dunlin's goals for keys, leases and locks. Also the figures for consensus, network and storage from the Grey
//! document, which is another system's documentation.
//!
//! The document's "Election Time" is taken as the time from candidacy to leadership. Its "Commit Latency" is taken as
//! the time from proposal to response at the leader, at half of the highest rate. All nodes and clients are on one
//! machine.

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

const OPS: &str = "ops_per_s";
const P50: &str = "p50_ns";
const P99: &str = "p99_ns";
const AVG: &str = "avg_ns";
const MS: f64 = 1e6;

const ONE: Pairs = &[("nodes", "1"), ("in_flight", "256"), ("load", "full")];
const THREE: Pairs = &[("nodes", "3"), ("in_flight", "256"), ("load", "full"), ("via", "leader")];
const FIVE: Pairs = &[("nodes", "5"), ("in_flight", "256"), ("load", "full")];
const SEVEN: Pairs = &[("nodes", "7"), ("in_flight", "256"), ("load", "full")];
const ALONE: Pairs = &[("nodes", "3"), ("in_flight", "1")];
const RIVAL_ONE: Pairs = &[("nodes", "1"), ("in_flight", "256")];
const RIVAL_THREE: Pairs = &[("nodes", "3"), ("in_flight", "256")];
const BATCH_ONE: Pairs = &[("nodes", "1"), ("load", "full")];
const BATCH_THREE: Pairs = &[("nodes", "3"), ("load", "full")];
const HALF: Pairs = &[("nodes", "3"), ("load", "half")];
const HALF_FIVE: Pairs = &[("nodes", "5"), ("load", "half")];
const HALF_SEVEN: Pairs = &[("nodes", "7"), ("load", "half")];

const N3: Pairs = &[("nodes", "3")];
const N5: Pairs = &[("nodes", "5")];
const N7: Pairs = &[("nodes", "7")];

/// Two goals for the latency at half of the highest rate: one for the average, one for the 99th percentile.
macro_rules! half {
    ($case:literal, $avg_ms:literal, $p99_ms:literal) => {
        [
            goal(
                concat!($case, ", 3 nodes, half of peak, average"),
                ours($case, HALF, AVG),
                AtMost($avg_ms * MS),
            ),
            goal(
                concat!($case, ", 3 nodes, half of peak, p99"),
                ours($case, HALF, P99),
                AtMost($p99_ms * MS),
            ),
        ]
    };
}

const HALF_GOALS: [[Goal; 2]; 5] = [
    half!("put", 0.8, 3.2),
    half!("get", 0.4, 1.8),
    half!("batch", 6.5, 22.0),
    half!("range", 28.0, 95.0),
    half!("cas", 1.5, 5.8),
];

/// The goals of suite `control`.
pub const GOALS: &[Goal] = &[
    goal("puts, 3 nodes", ours("put", THREE, OPS), AtLeast(85_000.0)),
    goal("puts, 5 nodes", ours("put", FIVE, OPS), AtLeast(55_000.0)),
    goal("puts, 7 nodes", ours("put", SEVEN, OPS), AtLeast(42_000.0)),
    goal(
        "puts, 3 nodes, beside etcd",
        ours("put", THREE, OPS),
        TimesAtLeast(7.0, row("etcd", "put", RIVAL_THREE, OPS)),
    ),
    goal(
        "puts, 3 nodes, p99",
        ours("put", THREE, P99),
        TimesAtMost(0.25, row("etcd", "put", RIVAL_THREE, P99)),
    ),
    goal(
        "puts, 1 node, beside etcd",
        ours("put", ONE, OPS),
        TimesAtLeast(8.0, row("etcd", "put", RIVAL_ONE, OPS)),
    ),
    goal(
        "one put in flight, 3 nodes, p50",
        ours("put", ALONE, P50),
        TimesAtMost(0.5, row("etcd", "put", ALONE, P50)),
    ),
    goal("linearizable gets, 3 nodes", ours("get", THREE, OPS), AtLeast(125_000.0)),
    goal(
        "linearizable gets, beside etcd",
        ours("get", THREE, OPS),
        TimesAtLeast(6.0, row("etcd", "get", RIVAL_THREE, OPS)),
    ),
    goal("compare-and-swap, 3 nodes", ours("cas", THREE, OPS), AtLeast(75_000.0)),
    goal(
        "compare-and-swap, beside etcd",
        ours("cas", THREE, OPS),
        TimesAtLeast(8.0, row("etcd", "cas", RIVAL_THREE, OPS)),
    ),
    goal("batches of 100 puts, 1 node", ours("batch", BATCH_ONE, OPS), AtLeast(8_000.0)),
    goal("batches of 100 puts, 3 nodes", ours("batch", BATCH_THREE, OPS), AtLeast(2_500.0)),
    goal("ranges of 1,000 keys", ours("range", BATCH_THREE, OPS), AtLeast(5_000.0)),
    goal(
        "ranges, beside etcd",
        ours("range", BATCH_THREE, OPS),
        TimesAtLeast(6.0, row("etcd", "range", N3, OPS)),
    ),
    HALF_GOALS[0][0],
    HALF_GOALS[0][1],
    HALF_GOALS[1][0],
    HALF_GOALS[1][1],
    HALF_GOALS[2][0],
    HALF_GOALS[2][1],
    HALF_GOALS[3][0],
    HALF_GOALS[3][1],
    HALF_GOALS[4][0],
    HALF_GOALS[4][1],
    goal("commit at half of peak, 3 nodes, average", ours("put", HALF, "commit_avg_ns"), AtMost(2.1 * MS)),
    goal(
        "commit at half of peak, 5 nodes, average",
        ours("put", HALF_FIVE, "commit_avg_ns"),
        AtMost(3.4 * MS),
    ),
    goal(
        "commit at half of peak, 7 nodes, average",
        ours("put", HALF_SEVEN, "commit_avg_ns"),
        AtMost(4.8 * MS),
    ),
    goal("candidacy → leader, 3 nodes, average", ours("failover", N3, "election_avg_ns"), AtMost(25.0 * MS)),
    goal("candidacy → leader, 3 nodes, p99", ours("failover", N3, "election_p99_ns"), AtMost(100.0 * MS)),
    goal("candidacy → leader, 5 nodes, average", ours("failover", N5, "election_avg_ns"), AtMost(25.0 * MS)),
    goal("candidacy → leader, 5 nodes, p99", ours("failover", N5, "election_p99_ns"), AtMost(100.0 * MS)),
    goal("candidacy → leader, 7 nodes, average", ours("failover", N7, "election_avg_ns"), AtMost(25.0 * MS)),
    goal("candidacy → leader, 7 nodes, p99", ours("failover", N7, "election_p99_ns"), AtMost(100.0 * MS)),
    goal("leader killed → first write, 3 nodes, median", ours("failover", N3, P50), AtMost(300.0 * MS)),
    goal("leader killed → first write, 3 nodes, p99", ours("failover", N3, P99), AtMost(520.0 * MS)),
    goal("leader killed → first write, 5 nodes, median", ours("failover", N5, P50), AtMost(400.0 * MS)),
    goal("leader killed → first write, 5 nodes, p99", ours("failover", N5, P99), AtMost(780.0 * MS)),
    goal("leader killed → first write, 7 nodes, median", ours("failover", N7, P50), AtMost(400.0 * MS)),
    goal("leader killed → first write, 7 nodes, p99", ours("failover", N7, P99), AtMost(780.0 * MS)),
    goal(
        "requests on one gRPC connection",
        ours("network", &[("transport", "grpc")], OPS),
        AtLeast(100_000.0),
    ),
    goal("writes beside 1,000 watchers, of 2,000/s", ours("watch", &[], "rate_held"), AtLeast(0.9)),
    goal(
        "restart with 10 M keys, until it answers",
        ours("restart", &[], "serving_ns"),
        AtMost(15_000.0 * MS),
    ),
    goal("snapshot of 1 M keys while writing", ours("snapshot", &[], "snapshot_ns"), AtMost(3_000.0 * MS)),
    goal("encode and decode one put", ours("network", &[("of", "serialisation")], AVG), AtMost(2_000.0)),
    goal("node ↔ node, two round trips, average", ours("network", &[("of", "nodes")], AVG), AtMost(0.3 * MS)),
    goal("node ↔ node, two round trips, p99", ours("network", &[("of", "nodes")], P99), AtMost(1.2 * MS)),
    goal(
        "share of requests between nodes that used an open connection, 3 nodes",
        ours("put", THREE, "link_reuse_share"),
        AtLeast(0.94),
    ),
    goal("elections at full load", ours("soak", &[], "elections"), AtMost(0.0)),
];

const fn claim(title: &'static str, figure: f64, ours: RowPattern) -> PeerClaim {
    PeerClaim { title, figure, ours }
}

/// The figures in the Grey document's tables for consensus, network and storage.
pub const CLAIMS: &[PeerClaim] = &[
    claim("Election Time (avg), 3 Nodes", 125.0 * MS, ours("failover", N3, "election_avg_ns")),
    claim("Election Time (avg), 5 Nodes", 180.0 * MS, ours("failover", N5, "election_avg_ns")),
    claim("Election Time (avg), 7 Nodes", 245.0 * MS, ours("failover", N7, "election_avg_ns")),
    claim("Election Time (P99), 3 Nodes", 340.0 * MS, ours("failover", N3, "election_p99_ns")),
    claim("Election Time (P99), 5 Nodes", 520.0 * MS, ours("failover", N5, "election_p99_ns")),
    claim("Election Time (P99), 7 Nodes", 780.0 * MS, ours("failover", N7, "election_p99_ns")),
    claim("Log Replication Rate, 3 Nodes", 50_000.0, ours("put", THREE, OPS)),
    claim("Log Replication Rate, 5 Nodes", 42_000.0, ours("put", FIVE, OPS)),
    claim("Log Replication Rate, 7 Nodes", 35_000.0, ours("put", SEVEN, OPS)),
    claim("Commit Latency (avg), 3 Nodes", 2.1 * MS, ours("put", HALF, "commit_avg_ns")),
    claim("Commit Latency (avg), 5 Nodes", 3.4 * MS, ours("put", HALF_FIVE, "commit_avg_ns")),
    claim("Commit Latency (avg), 7 Nodes", 4.8 * MS, ours("put", HALF_SEVEN, "commit_avg_ns")),
    claim("Snapshot Duration, 3 Nodes", 12_000.0 * MS, ours("snapshot", &[], "snapshot_ns")),
    claim("Inter-node Latency (avg), two round trips", 0.3 * MS, ours("network", &[("of", "nodes")], AVG)),
    claim("Inter-node Latency (P99), two round trips", 1.2 * MS, ours("network", &[("of", "nodes")], P99)),
    claim("Connection Pool Efficiency", 0.94, ours("put", THREE, "link_reuse_share")),
    claim("gRPC Throughput, req/s per connection", 12_500.0, ours("network", &[("transport", "grpc")], OPS)),
    claim("Message Serialization", 45_000.0, ours("network", &[("of", "serialisation")], AVG)),
    claim("Write (single key), throughput", 85_000.0, ours("put", THREE, OPS)),
    claim("Write (single key), latency (avg)", 0.8 * MS, ours("put", HALF, AVG)),
    claim("Write (single key), latency (P99)", 3.2 * MS, ours("put", HALF, P99)),
    claim("Read (single key), throughput", 125_000.0, ours("get", THREE, OPS)),
    claim("Read (single key), latency (avg)", 0.4 * MS, ours("get", HALF, AVG)),
    claim("Read (single key), latency (P99)", 1.8 * MS, ours("get", HALF, P99)),
    claim("Batch Write (100 keys), throughput", 12_500.0, ours("batch", BATCH_ONE, OPS)),
    claim("Batch Write (100 keys), latency (avg)", 6.5 * MS, ours("batch", HALF, AVG)),
    claim("Batch Write (100 keys), latency (P99)", 22.0 * MS, ours("batch", HALF, P99)),
    claim("Range Query (1000 keys), throughput", 2_800.0, ours("range", BATCH_THREE, OPS)),
    claim("Range Query (1000 keys), latency (avg)", 28.0 * MS, ours("range", HALF, AVG)),
    claim("Range Query (1000 keys), latency (P99)", 95.0 * MS, ours("range", HALF, P99)),
    claim("CAS (compare-and-swap), throughput", 42_000.0, ours("cas", THREE, OPS)),
    claim("CAS (compare-and-swap), latency (avg)", 1.5 * MS, ours("cas", HALF, AVG)),
    claim("CAS (compare-and-swap), latency (P99)", 5.8 * MS, ours("cas", HALF, P99)),
];
