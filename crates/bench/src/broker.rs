//! The suite `broker`: measures every listener of a node, and nats-server and Redis for comparison. The suite prints
//! its results in the form of the tables in Ratatoskr's benchmark document, and judges the performance goals for
//! listeners.

pub mod claims;
mod connections;
pub mod goals;
mod isolation;
mod layouts;
mod nats_listener;
mod payload;
mod protocols;
pub mod reference;
mod stress;
mod use_cases;

use crate::options::BenchOptions;
use crate::point::{MeasurementGroup, Suite};

pub use isolation::run_offender as offender_child;
pub use stress::run_child as stress_child;

/// The suite `broker`, which measures a node's listeners.
pub const SUITE: Suite = Suite {
    name: "broker",
    cases: &["stress", "protocols", "use_cases", "nats_listener", "connections", "isolation"],
    groups,
    layouts: layouts::LAYOUTS,
    goals: goals::GOALS,
    claims: claims::CLAIMS,
    peer_figures: reference::PEER_FIGURES,
    blocks: |_| String::new(),
};

fn groups(options: &BenchOptions, with_peers: bool) -> Vec<MeasurementGroup> {
    let mut groups = stress::groups(options);
    groups.extend(protocols::groups(options));
    groups.extend(use_cases::groups(options, with_peers));
    groups.extend(nats_listener::groups(options, with_peers));
    groups.extend(connections::groups(options, with_peers));
    groups.extend(isolation::groups(options));
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
    fn no_broker_measurement_is_listed_twice() {
        let mut unique = HashSet::new();
        for point in points() {
            assert!(
                unique.insert((point.case, point.target, point.params.to_string())),
                "{point:?} comes twice"
            );
        }
    }

    #[test]
    fn each_compared_broker_and_baseline_has_one_measurement() {
        for peer_figure in reference::PEER_FIGURES {
            assert_eq!(matching(&peer_figure.peer), 1, "{:?}", peer_figure.peer);
            assert_eq!(matching(&peer_figure.floor), 1, "{:?}", peer_figure.floor);
        }
    }

    #[test]
    fn broker_goals_and_figures_have_one_measurement_each() {
        let goals = goals::GOALS.iter().flat_map(|goal| [Some(&goal.ours), goal.threshold.reference()]);
        let claims = claims::CLAIMS.iter().map(|claim| Some(&claim.ours));
        for pattern in goals.chain(claims).flatten() {
            assert_eq!(matching(pattern), 1, "{pattern:?}");
        }
    }
}
