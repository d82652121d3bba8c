//! The suite `spot`: measures topics. The suite repeats the benchmarks in ServerLink's document about its SPOT
//! benchmarks ("the SPOT document"), and prints tables with the columns of that document. The suite also makes further
//! measurements for Dunlin's own goals. The stored runs of this suite appear in `docs/benchmarks.md`.

pub mod claims;
pub mod goals;
mod ours;
mod peers;
pub mod reference;

use crate::layout;
use crate::options::BenchOptions;
use crate::point::{MeasurementGroup, Suite};

/// The message sizes in the SPOT document's throughput table, in bytes.
pub const THROUGHPUT_BYTES: [usize; 4] = [64, 1024, 8192, 65536];
/// The message sizes in the SPOT document's latency table, in bytes.
pub const LATENCY_BYTES: [usize; 3] = [64, 1024, 8192];
/// The numbers of topics in the SPOT document's look-up table.
pub const TOPIC_COUNTS: [usize; 4] = [100, 1_000, 10_000, 100_000];
/// The number of look-ups for each of [`TOPIC_COUNTS`].
pub const LOOKUPS: usize = 10_000;
/// The number of round trips in a latency measurement: first for full runs, then for quick runs.
pub const ROUND_TRIPS: (u64, u64) = (10_000, 100);

/// The numbers of subscribers in the SPOT document's fan-out table, and higher numbers up to 100,000.
pub const FANOUT: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];
/// The numbers of topics in the SPOT document's table of concurrent publishing.
pub const MULTI_TOPIC: [usize; 3] = [10, 50, 100];

/// The suite `spot`, which measures topics.
pub const SUITE: Suite = Suite {
    name: "spot",
    cases: &[
        "throughput",
        "latency",
        "topics",
        "fanout",
        "multi_topic",
        "parked",
        "watch",
        "connections",
        "stalled",
        "memory",
    ],
    groups,
    layouts: layout::SPOT,
    goals: goals::GOALS,
    claims: claims::CLAIMS,
    peer_figures: reference::PEER_FIGURES,
    blocks: |_| String::new(),
};

const TRANSPORTS: [&str; 3] = ["inproc", "tcp", "uds"];

fn groups(options: &BenchOptions, with_peers: bool) -> Vec<MeasurementGroup> {
    let mut groups = Vec::new();
    let mut add = |mut ours: MeasurementGroup, peers: &dyn Fn() -> MeasurementGroup| {
        if with_peers {
            ours.extend(peers());
        }
        groups.push(ours);
    };
    for transport in TRANSPORTS {
        for bytes in THROUGHPUT_BYTES {
            add(ours::throughput(transport, bytes), &|| peers::throughput(transport, bytes));
        }
    }
    for transport in TRANSPORTS {
        for bytes in LATENCY_BYTES {
            add(ours::latency(transport, bytes, options), &|| peers::latency(transport, bytes, options));
        }
    }
    for topics in TOPIC_COUNTS {
        add(ours::topics(topics), &|| peers::topics(topics));
    }
    for subscribers in FANOUT {
        add(ours::fanout(subscribers), &MeasurementGroup::new);
    }
    for topics in MULTI_TOPIC {
        add(ours::multi_topic(topics, options), &MeasurementGroup::new);
    }
    add(ours::parked(options), &MeasurementGroup::new);
    add(ours::watch(options), &MeasurementGroup::new);
    add(ours::connections(options), &MeasurementGroup::new);
    add(ours::stalled(options), &MeasurementGroup::new);
    add(ours::memory(options), &MeasurementGroup::new);
    groups
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::options::RawOptions;
    use crate::row::RowPattern;

    fn points() -> MeasurementGroup {
        let options = RawOptions::default().validate(|_| None).unwrap();
        groups(&options, true).into_iter().flatten().collect()
    }

    fn matching(pattern: &RowPattern) -> usize {
        points().iter().filter(|point| pattern.matches_point(point.case, point.target, &point.params)).count()
    }

    #[test]
    fn spot_suite_lists_each_measurement_once() {
        let mut unique = HashSet::new();
        for point in points() {
            assert!(
                unique.insert((point.case, point.target, point.params.to_string())),
                "{point:?} comes twice"
            );
        }
    }

    #[test]
    fn each_system_compared_in_suite_spot_is_measured_once() {
        for peer_figure in reference::PEER_FIGURES {
            assert_eq!(matching(&peer_figure.peer), 1, "{:?}", peer_figure.peer);
            assert_eq!(matching(&peer_figure.floor), 1, "{:?}", peer_figure.floor);
        }
    }

    #[test]
    fn each_spot_goal_refers_to_exactly_one_measurement() {
        let goals = goals::GOALS.iter().flat_map(|goal| [Some(&goal.ours), goal.threshold.reference()]);
        let claims = claims::CLAIMS.iter().map(|claim| Some(&claim.ours));
        for pattern in goals.chain(claims).flatten() {
            assert_eq!(matching(pattern), 1, "{pattern:?}");
        }
    }
}
