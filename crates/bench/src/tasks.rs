//! The suite `tasks`: measures the task scheduler. The suite measures the rows of some tables in the Grey document,
//! which is another system's documentation: the tables about workers, tenants, autoscaling and cost.
//!
//! Some measurements run through nodes (`via=node`), which are started as in suite `control`. Some of these
//! measurements use empty tasks (`noop`), for comparison with asynq, Celery and HyperQueue. In others, each worker has
//! its own connection and lease, and sleeps during each task. A result is reported only if each submitted task was done
//! exactly once, even if the leading node or workers were killed (`failover`).
//!
//! Other measurements run without nodes. Those of cases `dispatch` and `backlog` measure the scheduler alone. Those
//! with `via=simulator` use the cluster simulator, which runs the scheduler and the autoscaler of the nodes in virtual
//! time. Simulated figures do not depend on the machine. They show what the autoscaler decides with the costs in
//! `docs/autoscaling.md`. Each run of a simulated measurement uses another seed, so minimum and maximum show the effect
//! of chance.

pub mod clients;
mod failover;
mod forecast;
mod goals;
mod layouts;
mod ledger;
mod load;
pub mod local;
mod nodes;
mod peer;
mod points;
pub mod scheduler;
mod simulated;
mod submitters;
mod tally;
mod through;
mod work;
pub mod worker_processes;
mod workers;

use crate::point::Suite;

/// The suite `tasks`, which measures the task scheduler.
pub const SUITE: Suite = Suite {
    name: "tasks",
    cases: &[
        "noop",
        "scaling",
        "phases",
        "tenants",
        "noisy",
        "failover",
        "cost",
        "forecast",
        "dispatch",
        "backlog",
        "simulator",
    ],
    groups: points::groups,
    layouts: layouts::LAYOUTS,
    goals: goals::GOALS,
    claims: goals::CLAIMS,
    peer_figures: &[],
    blocks: |_| String::new(),
};

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::options::RawOptions;
    use crate::row::RowPattern;

    fn matching(pattern: &RowPattern) -> usize {
        let options = RawOptions::default().validate(|_| None).unwrap();
        let points = points::groups(&options, true).into_iter().flatten();
        points.filter(|point| pattern.matches_point(point.case, point.target, &point.params)).count()
    }

    #[test]
    fn no_task_measurement_is_listed_twice() {
        let options = RawOptions::default().validate(|_| None).unwrap();
        let mut unique = HashSet::new();
        for point in points::groups(&options, true).into_iter().flatten() {
            assert!(SUITE.cases.contains(&point.case), "{point:?}");
            assert!(
                unique.insert((point.case, point.target, point.params.to_string())),
                "{point:?} comes twice"
            );
        }
    }

    #[test]
    fn each_goal_and_published_claim_about_tasks_is_measured_once() {
        let goals = goals::GOALS.iter().flat_map(|goal| [Some(&goal.ours), goal.threshold.reference()]);
        let claims = goals::CLAIMS.iter().map(|claim| Some(&claim.ours));
        for pattern in goals.chain(claims).flatten() {
            assert_eq!(matching(pattern), 1, "{pattern:?}");
        }
    }
}
