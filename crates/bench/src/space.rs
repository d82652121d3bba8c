//! The suite `space`: measures worlds whose regions run in separate processes. The suite repeats the measurements in
//! the benchmark document of Luciferase, which is another system for such worlds. It also makes further measurements.
//!
//! A worker is a process that runs one region ([`node`]), and prints its results in the format of Luciferase's
//! benchmark document. This process sends commands to the workers. After the last tick, [`audit`] collects the id, the
//! generation and the state hash of every entity from all workers. It compares them with the entities of a single
//! region that this process runs. A lost, duplicated or changed entity therefore fails the run.

mod audit;
mod capacity;
mod crowd;
pub mod delay;
mod flock;
mod ghosts;
mod goals;
mod handover;
mod index;
mod layouts;
mod movement;
pub mod node;
mod points;
mod setting;
mod simultaneous;
mod workers;

use crate::point::Suite;

/// The suite `space`, which measures worlds.
pub const SUITE: Suite = Suite {
    name: "space",
    cases: &[
        "handover",
        "handover_saturating",
        "concurrent",
        "latency",
        "capacity",
        "cpu",
        "bucket",
        "ghosts",
        "flock",
        "crowd",
        "index",
    ],
    groups: points::groups,
    layouts: layouts::LAYOUTS,
    goals: goals::GOALS,
    claims: goals::CLAIMS,
    peer_figures: &[],
    blocks: capacity::fit,
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
    fn each_world_measurement_is_listed_only_once() {
        let mut unique = HashSet::new();
        for point in points() {
            let key = (point.case, point.target, point.params.to_string());
            assert!(unique.insert(key), "{point:?} comes twice");
        }
    }

    #[test]
    fn each_goal_and_published_claim_about_worlds_is_measured_once() {
        let goals = goals::GOALS.iter().flat_map(|goal| [Some(&goal.ours), goal.threshold.reference()]);
        let claims = goals::CLAIMS.iter().map(|claim| Some(&claim.ours));
        for pattern in goals.chain(claims).flatten() {
            assert_eq!(matching(pattern), 1, "{pattern:?}");
        }
    }
}
