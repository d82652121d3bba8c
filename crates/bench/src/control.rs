//! The suite `control`: measures consensus, storage and network, and compares Dunlin with etcd and with JetStream's
//! key-value buckets. The results are printed in the form of the tables in the Grey document, which is another system's
//! documentation.
//!
//! Every node is a process whose data directory is on a real disk; a directory in memory is refused. A quorum of nodes
//! syncs each write to disk before the response. All acknowledged writes are read back. The clients of Dunlin and the
//! clients of peers (other systems) get the same description of their requests (module `work`).

mod acknowledged;
pub mod clients;
pub(crate) mod cluster;
mod connection;
mod disk;
mod failover;
mod frame;
mod goals;
mod lanes;
mod large;
mod layouts;
mod load;
mod network;
pub mod node;
pub(crate) mod ours;
pub(crate) mod peer;
mod points;
mod probe;
mod reference;
mod session;
mod watch;
mod work;

use crate::point::Suite;

/// The suite `control`, which measures keys, consensus, storage and network.
pub const SUITE: Suite = Suite {
    name: "control",
    cases: &[
        "put", "get", "cas", "batch", "range", "failover", "watch", "restart", "snapshot", "soak", "disk",
        "network",
    ],
    groups: points::groups,
    layouts: layouts::LAYOUTS,
    goals: goals::GOALS,
    claims: goals::CLAIMS,
    peer_figures: reference::PEER_FIGURES,
    blocks: |_| String::new(),
};

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::options::RawOptions;
    use crate::point::MeasurementGroup;
    use crate::row::RowPattern;

    fn points() -> MeasurementGroup {
        let options = RawOptions::default().validate(|_| None).unwrap();
        points::groups(&options, true).into_iter().flatten().collect()
    }

    fn matching(pattern: &RowPattern) -> usize {
        points().iter().filter(|point| pattern.matches_point(point.case, point.target, &point.params)).count()
    }

    #[test]
    fn no_control_measurement_is_listed_twice() {
        let mut unique = HashSet::new();
        for point in points() {
            assert!(
                unique.insert((point.case, point.target, point.params.to_string())),
                "{point:?} comes twice"
            );
        }
    }

    #[test]
    fn each_etcd_result_and_each_baseline_is_measured_once() {
        for peer_figure in reference::PEER_FIGURES {
            assert_eq!(matching(&peer_figure.peer), 1, "{:?}", peer_figure.peer);
            assert_eq!(matching(&peer_figure.floor), 1, "{:?}", peer_figure.floor);
        }
    }

    #[test]
    fn control_goals_and_figures_have_one_measurement_each() {
        let goals = goals::GOALS.iter().flat_map(|goal| [Some(&goal.ours), goal.threshold.reference()]);
        let claims = goals::CLAIMS.iter().map(|claim| Some(&claim.ours));
        for pattern in goals.chain(claims).flatten() {
            assert_eq!(matching(pattern), 1, "{pattern:?}");
        }
    }
}
