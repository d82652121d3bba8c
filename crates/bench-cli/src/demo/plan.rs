//! The fixed plan of the demo: its subscribers, the topics that they read, and when each subscriber starts or is
//! killed.

use std::time::Duration;

/// The settings of one subscriber in the demo: its topics, its pause after each record, and when it is started or
/// killed.
#[derive(Debug, Clone, Copy)]
pub struct SubscriberPlan {
    pub name: &'static str,
    pub about: &'static str,
    pub location: SubscriberLocation,
    pub topic_choice: TopicChoice,
    /// The pause after each record; `None` for no pauses.
    pub sleep: Option<Duration>,
    /// The steps of the subscriber. The number before each step is the share of all lines that must have been published
    /// before the step.
    pub steps: &'static [(f64, PlanStep)],
}

/// Whether a subscriber of the demo runs in the node's process or in a separate process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriberLocation {
    /// In the node's process.
    InProcess,
    /// In a separate process, which connects over TCP.
    Process,
}

/// The topics that a subscriber of the demo reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopicChoice {
    /// The topics of all markets. Each topic retains all records of its market.
    Markets,
    /// The topic [`SHORT_TOPIC`], which has a short retention. One market's lines are published both to this topic and
    /// to the market's own topic.
    Short,
}

/// A planned action of the demo on a subscriber: start it, or kill it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanStep {
    /// The subscriber starts. A subscriber that ran before continues after the last position that it reported.
    Join,
    /// The subscriber's process is killed with SIGKILL.
    Kill,
}

/// The market whose lines are published to [`SHORT_TOPIC`] in addition to its own topic. No other market has more lines
/// per second.
pub const SHORT_OF: &str = "market.bitstamp.btcusd";
pub const SHORT_TOPIC: &str = "short.market.bitstamp.btcusd";
/// The retention of [`SHORT_TOPIC`] in bytes: about two seconds of lines at the default speed. The market begins with
/// 6,500 lines for the initial order book. The topic has room for all of these lines, so that a fast reader misses none
/// of them.
pub const SHORT_BYTES: u64 = 1 << 20;
pub const MARKETS: &str = "market.>";

pub const PLANS: [SubscriberPlan; 6] = [
    SubscriberPlan {
        name: "in process",
        about: "in the node's own process",
        location: SubscriberLocation::InProcess,
        topic_choice: TopicChoice::Markets,
        sleep: None,
        steps: &[(0.0, PlanStep::Join)],
    },
    SubscriberPlan {
        name: "over TCP",
        about: "in a process of its own",
        location: SubscriberLocation::Process,
        topic_choice: TopicChoice::Markets,
        sleep: None,
        steps: &[(0.0, PlanStep::Join)],
    },
    SubscriberPlan {
        name: "late",
        about: "joins halfway and reads from the first record",
        location: SubscriberLocation::Process,
        topic_choice: TopicChoice::Markets,
        sleep: None,
        steps: &[(0.5, PlanStep::Join)],
    },
    SubscriberPlan {
        name: "killed",
        about: "is killed with SIGKILL; a new process continues after the last reported position",
        location: SubscriberLocation::Process,
        topic_choice: TopicChoice::Markets,
        sleep: None,
        steps: &[(0.0, PlanStep::Join), (0.3, PlanStep::Kill), (0.45, PlanStep::Join)],
    },
    SubscriberPlan {
        name: "brisk",
        about: "keeps up with a topic whose history is short",
        location: SubscriberLocation::Process,
        topic_choice: TopicChoice::Short,
        sleep: None,
        steps: &[(0.0, PlanStep::Join)],
    },
    SubscriberPlan {
        name: "slow",
        about: "reads the same topic, sleeps 1 ms after each record, and cannot keep up",
        location: SubscriberLocation::Process,
        topic_choice: TopicChoice::Short,
        sleep: Some(Duration::from_millis(1)),
        steps: &[(0.0, PlanStep::Join)],
    },
];

impl SubscriberPlan {
    /// Returns the steps with a share above `after` and at most `through`. Steps with share 0 happen before the first
    /// line is published.
    pub fn due(&self, after: f64, through: f64) -> impl Iterator<Item = PlanStep> {
        self.steps.iter().filter(move |step| after < step.0 && step.0 <= through).map(|step| step.1)
    }

    /// Returns those of the topics `all` that the subscriber reads.
    pub fn topics<'a>(&self, all: impl Iterator<Item = &'a str>) -> Vec<String> {
        let short = self.topic_choice == TopicChoice::Short;
        all.filter(|topic| (*topic == SHORT_TOPIC) == short).map(str::to_owned).collect()
    }

    /// Returns the pattern that the subscriber subscribes to.
    pub fn pattern(&self) -> &'static str {
        match self.topic_choice {
            TopicChoice::Markets => MARKETS,
            TopicChoice::Short => SHORT_TOPIC,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_of_a_demo_plan_happens_once() {
        for plan in &PLANS {
            let mut happened: Vec<PlanStep> = plan.due(-1.0, 0.0).collect();
            for step in 0..100 {
                happened.extend(plan.due(f64::from(step) / 100.0, f64::from(step + 1) / 100.0));
            }
            let all: Vec<PlanStep> = plan.steps.iter().map(|step| step.1).collect();
            assert_eq!(happened, all, "{}", plan.name);
        }
    }

    #[test]
    fn demo_plans_cover_every_topic_and_include_a_slow_reader() {
        let all = ["market.a", SHORT_OF, SHORT_TOPIC];
        let readers = |topic: &str| {
            PLANS.iter().filter(|plan| plan.topics(all.into_iter()).iter().any(|t| t == topic)).count()
        };
        assert_eq!(all.map(readers), [4, 4, 2]);
        assert!(PLANS.iter().any(|plan| plan.topic_choice == TopicChoice::Short && plan.sleep.is_some()));
    }
}
