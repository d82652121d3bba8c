//! Who reads what, and what befalls them: the same on every run.

use std::time::Duration;

/// One subscriber of the demo.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub name: &'static str,
    pub about: &'static str,
    pub place: Place,
    pub reads: Reads,
    /// After each record.
    pub sleep: Option<Duration>,
    /// What happens to it, and when: in shares of all lines published.
    pub cues: &'static [(f64, Cue)],
}

/// Where a subscriber lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the node's own process.
    InProcess,
    /// In a process of its own, over TCP.
    Process,
}

/// Which topics it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Every market, with a history that holds all of it.
    Markets,
    /// One market once more, with a history that holds a moment of it.
    Short,
}

/// What befalls a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cue {
    /// Starts, or starts again where it was.
    Join,
    /// SIGKILL.
    Kill,
}

/// The short topic repeats this one, which has most lines and in the shortest time.
pub const SHORT_OF: &str = "market.bitstamp.btcusd";
pub const SHORT_TOPIC: &str = "short.market.bitstamp.btcusd";
/// Two seconds or so of that market at the default speed. It holds the order book's 6,500 lines, which the recording
/// begins with all at one time: so whoever keeps up misses nothing.
pub const SHORT_BYTES: u64 = 1 << 20;
pub const MARKETS: &str = "market.>";

pub const PLANS: [Plan; 6] = [
    Plan {
        name: "in process",
        about: "in the node's own process",
        place: Place::InProcess,
        reads: Reads::Markets,
        sleep: None,
        cues: &[(0.0, Cue::Join)],
    },
    Plan {
        name: "over TCP",
        about: "in a process of its own",
        place: Place::Process,
        reads: Reads::Markets,
        sleep: None,
        cues: &[(0.0, Cue::Join)],
    },
    Plan {
        name: "late",
        about: "joins half-way and wants everything from the start",
        place: Place::Process,
        reads: Reads::Markets,
        sleep: None,
        cues: &[(0.5, Cue::Join)],
    },
    Plan {
        name: "killed",
        about: "is killed with SIGKILL; a new process goes on from the last position it told",
        place: Place::Process,
        reads: Reads::Markets,
        sleep: None,
        cues: &[(0.0, Cue::Join), (0.3, Cue::Kill), (0.45, Cue::Join)],
    },
    Plan {
        name: "brisk",
        about: "keeps up with a topic whose history is short",
        place: Place::Process,
        reads: Reads::Short,
        sleep: None,
        cues: &[(0.0, Cue::Join)],
    },
    Plan {
        name: "slow",
        about: "sleeps 1 ms after each record of that topic, and cannot keep up",
        place: Place::Process,
        reads: Reads::Short,
        sleep: Some(Duration::from_millis(1)),
        cues: &[(0.0, Cue::Join)],
    },
];

impl Plan {
    /// What happened to it between two shares; those at 0 happen before the first line.
    pub fn due(&self, after: f64, through: f64) -> impl Iterator<Item = Cue> {
        self.cues.iter().filter(move |cue| after < cue.0 && cue.0 <= through).map(|cue| cue.1)
    }

    /// Of all topics, the ones it reads.
    pub fn topics<'a>(&self, all: impl Iterator<Item = &'a str>) -> Vec<String> {
        let short = self.reads == Reads::Short;
        all.filter(|topic| (*topic == SHORT_TOPIC) == short).map(str::to_owned).collect()
    }

    /// What it subscribes to.
    pub fn pattern(&self) -> &'static str {
        match self.reads {
            Reads::Markets => MARKETS,
            Reads::Short => SHORT_TOPIC,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cue_of_a_plan_is_due_once() {
        for plan in &PLANS {
            let mut happened: Vec<Cue> = plan.due(-1.0, 0.0).collect();
            for step in 0..100 {
                happened.extend(plan.due(f64::from(step) / 100.0, f64::from(step + 1) / 100.0));
            }
            let all: Vec<Cue> = plan.cues.iter().map(|cue| cue.1).collect();
            assert_eq!(happened, all, "{}", plan.name);
        }
    }

    #[test]
    fn every_topic_has_readers_and_the_short_topic_a_slow_one() {
        let all = ["market.a", SHORT_OF, SHORT_TOPIC];
        let readers = |topic: &str| {
            PLANS.iter().filter(|plan| plan.topics(all.into_iter()).iter().any(|t| t == topic)).count()
        };
        assert_eq!(all.map(readers), [4, 4, 2]);
        assert!(PLANS.iter().any(|plan| plan.reads == Reads::Short && plan.sleep.is_some()));
    }
}
