//! What operators see of a node: its topics, the busiest first, and its subscriptions, the slowest first.
//!
//! Nothing is counted for it while records pass: it all follows from what logs know of themselves anyway. A survey
//! asks each log once, which takes as long as there are logs (some 100 ns each): whoever serves others
//! meanwhile has a thread of its own do it.
//!
//! Limits: `topics_max` and `subscriptions_max`, which whoever asks gives. Topics of the system and of sessions are left out.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_topic::{LogInfo, Losses, Pattern, ReaderInfo, Topic};

use crate::access::{Extent, Rule};
use crate::node::Node;
use crate::ownership::is_mirror;
use crate::registry::Stretches;

/// Topics that are looked up at once; others who create or delete topics wait as long.
const PAGE_TOPICS: usize = 256;

/// What topics add up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records that were appended.
    pub records: u64,
    /// Bytes that were appended in this process.
    pub bytes: u64,
    /// What became of readers that did not keep up.
    pub losses: Losses,
}

/// What is known of one topic.
#[derive(Debug, Clone)]
pub struct TopicSurvey {
    /// The topic.
    pub topic: Arc<Topic>,
    /// What all of its logs add up to.
    pub totals: Totals,
    /// Records that are held.
    pub retained_records: u64,
    /// Bytes of memory that its history takes.
    pub retained_bytes: u64,
    /// When the last record was appended, ns since the Unix epoch; 0 for never.
    pub last_append_ns: u64,
    /// Readers that have read everything.
    pub waiting: u64,
    /// What of it is stored; `None` where it is not durable.
    pub stored: Option<StoredSurvey>,
}

/// What is known of a durable topic's disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredSurvey {
    /// Bytes on disk.
    pub bytes: u64,
    /// Records that were appended and are not stored yet.
    pub unstored_records: u64,
    /// Bytes that were appended and are not stored yet.
    pub unstored_bytes: u64,
    /// The disk is full.
    pub full: bool,
    /// The disk failed.
    pub failed: bool,
}

/// A subscription that operators see.
#[derive(Debug, Clone)]
pub struct SubscriptionInfo {
    /// The topic it reads.
    pub topic: Arc<Topic>,
    /// How far it has come.
    pub reader: ReaderInfo,
}

/// The subscribers of a topic at this node, those with the most records ahead first, without mirrors at other nodes: their
/// subscribers are counted there.
pub fn readers_of(topic: &Topic) -> Vec<ReaderInfo> {
    let mut readers = topic.readers();
    readers.retain(|reader| !is_mirror(reader));
    readers
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// What all topics add up to, those that were deleted included.
    pub totals: Totals,
    /// Topics there are.
    pub topics: usize,
    /// Durable topics whose disk is full, and whose disk failed.
    pub disks_full: usize,
    /// Durable topics whose disk failed.
    pub disks_failed: usize,
    /// Those that were published to most.
    pub busiest: Vec<TopicSurvey>,
    /// Subscriptions there are that operators see.
    pub subscriptions: usize,
    /// Those with the most records ahead.
    pub slowest: Vec<SubscriptionInfo>,
}

/// What deleted topics had come to: totals never go back.
#[derive(Debug, Default)]
pub(crate) struct Departed(Mutex<Totals>);

impl Departed {
    pub(crate) fn add(&self, topic: &Topic) {
        let totals = totals(topic.logs().iter().map(|log| log.info()));
        self.lock().add(totals);
    }

    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Totals {
    fn add(&mut self, more: Totals) {
        self.records += more.records;
        self.bytes += more.bytes;
        self.losses.add(more.losses);
    }
}

fn totals(infos: impl Iterator<Item = LogInfo>) -> Totals {
    let mut totals = Totals::default();
    for info in infos {
        totals.add(Totals { records: info.next_seq - 1, bytes: info.appended_bytes, losses: info.losses });
    }
    totals
}

impl TopicSurvey {
    fn of(topic: Arc<Topic>) -> TopicSurvey {
        let infos: Vec<LogInfo> = topic.logs().iter().map(|log| log.info()).collect();
        let mut stored: Option<StoredSurvey> = None;
        for (info, of_disk) in infos.iter().filter_map(|info| Some((info, info.stored?))) {
            let all = stored.get_or_insert_default();
            all.bytes += of_disk.bytes;
            all.unstored_records += (info.next_seq - 1).saturating_sub(of_disk.synced_seq);
            all.unstored_bytes += of_disk.unstored_bytes;
            all.full |= of_disk.full;
            all.failed |= of_disk.failed;
        }
        TopicSurvey {
            totals: totals(infos.iter().copied()),
            retained_records: infos.iter().map(|info| info.next_seq - info.oldest_seq).sum(),
            retained_bytes: infos.iter().map(|info| info.bytes).sum(),
            last_append_ns: infos.iter().map(|info| info.last_append_ns).max().unwrap_or(0),
            waiting: infos.iter().map(|info| info.waiting as u64).sum(),
            stored,
            topic,
        }
    }
}

impl Node {
    /// Looks at every topic and every subscription, and keeps the busiest and the slowest.
    pub fn survey(&self, topics_max: usize, subscriptions_max: usize) -> Survey {
        let survey = Survey { totals: *self.departed().lock(), ..Survey::default() };
        self.look(survey, topics_max, subscriptions_max, &Stretches::all(), |_| true)
    }

    /// The same of the topics that lie within the bounds as a whole; those that were deleted are not counted.
    pub fn survey_within(&self, bounds: &Rule, topics_max: usize, subscriptions_max: usize) -> Survey {
        let lies_within = |topic: &Topic| {
            let pattern = Pattern::parse(topic.pattern());
            pattern.is_ok_and(|pattern| bounds.extent(&pattern) == Extent::All)
        };
        let shown = Stretches::of(&bounds.allow);
        self.look(Survey::default(), topics_max, subscriptions_max, &shown, lies_within)
    }

    fn look(
        &self,
        mut survey: Survey,
        topics_max: usize,
        subscriptions_max: usize,
        shown: &Stretches,
        wanted: impl Fn(&Topic) -> bool,
    ) -> Survey {
        let mut after = String::new();
        loop {
            let page = self.registry().page(None, &after, PAGE_TOPICS, shown, &wanted);
            let Some(last) = page.topics.last() else { break };
            after = last.name().to_owned();
            for topic in page.topics {
                survey.look_at(topic, topics_max, subscriptions_max);
            }
            if !page.more {
                break;
            }
        }
        survey.busiest.keep_first(topics_max);
        survey.slowest.keep_first(subscriptions_max);
        survey
    }
}

impl Survey {
    fn look_at(&mut self, topic: Arc<Topic>, topics_max: usize, subscriptions_max: usize) {
        for reader in readers_of(&topic) {
            self.subscriptions += 1;
            self.slowest.push(SubscriptionInfo { topic: Arc::clone(&topic), reader });
            self.slowest.keep_about(subscriptions_max);
        }
        let seen = TopicSurvey::of(topic);
        self.topics += 1;
        self.totals.add(seen.totals);
        self.disks_full += usize::from(seen.stored.is_some_and(|stored| stored.full));
        self.disks_failed += usize::from(seen.stored.is_some_and(|stored| stored.failed));
        self.busiest.push(seen);
        self.busiest.keep_about(topics_max);
    }
}

/// A list of which only the first are wanted, in an order that does not depend on when they came.
trait First {
    fn keep_first(&mut self, max: usize);

    /// [`keep_first`](First::keep_first) now and then, so that the list stays short at little cost.
    fn keep_about(&mut self, max: usize);
}

/// What says where in the list it stands.
trait Rank {
    fn rank(&self) -> impl Ord;
}

impl Rank for TopicSurvey {
    fn rank(&self) -> impl Ord {
        (Reverse(self.totals.records), self.topic.name())
    }
}

impl Rank for SubscriptionInfo {
    fn rank(&self) -> impl Ord {
        let ReaderInfo { behind, lost, name, partition, .. } = &self.reader;
        (Reverse((*behind, *lost)), name, self.topic.name(), *partition)
    }
}

impl<T: Rank> First for Vec<T> {
    fn keep_first(&mut self, max: usize) {
        self.sort_by(|a, b| a.rank().cmp(&b.rank()));
        self.truncate(max);
    }

    fn keep_about(&mut self, max: usize) {
        if self.len() > 2 * max + PAGE_TOPICS {
            self.keep_first(max);
        }
    }
}
