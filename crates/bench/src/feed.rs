//! The suite `feed`: measures the five scenarios in the benchmark document of MDD-Sim, which is another system for
//! market data. The suite also makes further measurements for Dunlin's own goals.
//!
//! Each latency is measured in two ways: `sent` counts from the time when an update is published, as in the document;
//! `intended` counts from the time when the update is due. The number of drops is the number of due updates minus the
//! number of received updates. For transport `inproc`, subscribers run in the node's process, as in the document. For
//! `tcp`, the node and the source run in one process, and all subscribers in another.

mod apply;
mod block;
pub mod claims;
mod durable;
pub mod goals;
mod join;
mod limits;
pub mod node;
mod outcome;
mod points;
mod reader;
mod readers;
mod replay;
mod run;
mod running_node;
mod scenario;
mod source;
mod tally;
mod timed;

use crate::layout;
use crate::options::BenchOptions;
use crate::point::{MeasurementGroup, Suite};

/// The suite `feed`, which measures market data.
pub const SUITE: Suite = Suite {
    name: "feed",
    cases: &[
        "baseline_1x1_10k",
        "fanout_1x100_1k",
        "multi_100x10_500",
        "slow_client",
        "loss_1x10_1k",
        "custom",
        "limits",
        "apply",
        "replay",
        "durable",
        "join",
    ],
    groups,
    layouts: layout::FEED,
    goals: goals::GOALS,
    claims: claims::CLAIMS,
    peer_figures: &[],
    blocks: block::blocks,
};

fn groups(options: &BenchOptions, _with_peers: bool) -> Vec<MeasurementGroup> {
    if options.url.is_some() {
        return vec![points::running_node(options)];
    }
    let mut groups = points::scenarios(options);
    groups.push(points::limits(options));
    groups.push(points::apply());
    groups.push(points::replay(options));
    groups.push(points::durable(options));
    groups.push(points::join(options));
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

    #[test]
    fn no_feed_measurement_is_listed_twice() {
        let mut unique = HashSet::new();
        for point in points() {
            assert!(
                unique.insert((point.case, point.target, point.params.to_string())),
                "{point:?} comes twice"
            );
        }
    }

    #[test]
    fn each_feed_goal_refers_to_exactly_one_measurement() {
        let points = points();
        let matching = |pattern: &RowPattern| {
            points
                .iter()
                .filter(|point| pattern.matches_point(point.case, point.target, &point.params))
                .count()
        };
        let goals = goals::GOALS.iter().flat_map(|goal| [Some(&goal.ours), goal.threshold.reference()]);
        let claims = claims::CLAIMS.iter().map(|claim| Some(&claim.ours));
        for pattern in goals.chain(claims).flatten() {
            assert_eq!(matching(pattern), 1, "{pattern:?}");
        }
    }
}
