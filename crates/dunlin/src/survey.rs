//! A survey lists the topics of a node, the busiest first, and its subscriptions, the slowest first.
//!
//! A survey reads the counters of every log, which takes about 100 ns for each log. It does not make publishing or
//! delivery slower. A thread that serves connections should let another thread make the survey.
//!
//! Limits: the caller sets `topics_max` and `subscriptions_max`. System topics and inboxes are left out.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_topic::{LogInfo, LossCounters, Pattern, SubscriberInfo, Topic};

use crate::access::{AccessExtent, SubjectRule};
use crate::node::Node;
use crate::ownership::is_mirror;
use crate::registry::NameRanges;

/// The number of topics that are read each time the registry is locked. Callers that create or delete topics wait
/// during this time.
const PAGE_TOPICS: usize = 256;

/// Counters of one or several topics: appended records, appended bytes, and losses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TopicTotals {
    /// The number of appended records.
    pub records: u64,
    /// The number of bytes that were appended since the process started.
    pub bytes: u64,
    /// The losses of subscribers that read more slowly than publishers published.
    pub losses: LossCounters,
}

/// The counters of one topic: appended and retained records, memory and disk.
#[derive(Debug, Clone)]
pub struct TopicSurvey {
    /// The topic.
    pub topic: Arc<Topic>,
    /// The sums of the counters of all logs of the topic.
    pub totals: TopicTotals,
    /// The number of retained records.
    pub retained_records: u64,
    /// The memory that the topic's history takes, bytes.
    pub retained_bytes: u64,
    /// The time of the last append, ns since the Unix epoch; 0 if there was none.
    pub last_append_ns: u64,
    /// The number of subscribers that have read everything and wait for records.
    pub waiting: u64,
    /// The disk use of the topic; `None` if the topic is not durable.
    pub stored: Option<TopicDiskUse>,
}

/// The disk use of a durable topic, and whether the disk is full or has failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TopicDiskUse {
    /// The size of the topic's files, bytes.
    pub bytes: u64,
    /// The number of appended records that are not synced to disk.
    pub unstored_records: u64,
    /// The number of appended bytes that are not stored on disk.
    pub unstored_bytes: u64,
    /// Whether the disk is full.
    pub full: bool,
    /// Whether the disk has failed.
    pub failed: bool,
}

/// The status of a subscription for operators: its topic and its lag.
#[derive(Debug, Clone)]
pub struct SubscriptionInfo {
    /// The topic that the subscription reads.
    pub topic: Arc<Topic>,
    /// The subscriber's name, position, lag and losses.
    pub subscriber: SubscriberInfo,
}

/// The subscribers of a topic at this node, largest lag first. Mirrors at other nodes are left out, because those nodes
/// list the mirrors' subscribers.
pub fn subscribers_of(topic: &Topic) -> Vec<SubscriberInfo> {
    let mut subscribers = topic.subscribers();
    subscribers.retain(|subscriber| !is_mirror(subscriber));
    subscribers
}

/// A survey of a node: the sums over all topics, the busiest topics, and the slowest subscriptions.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// The sums of the counters of all topics, including deleted ones.
    pub totals: TopicTotals,
    /// The number of topics.
    pub topics: usize,
    /// The number of durable topics whose disk is full.
    pub disks_full: usize,
    /// The number of durable topics whose disk has failed.
    pub disks_failed: usize,
    /// The topics with the highest numbers of appended records.
    pub busiest: Vec<TopicSurvey>,
    /// The number of subscriptions.
    pub subscriptions: usize,
    /// The subscriptions with the largest lags.
    pub slowest: Vec<SubscriptionInfo>,
}

/// The sums of the counters of deleted topics. A survey adds them to its totals, so that the totals never decrease.
#[derive(Debug, Default)]
pub(crate) struct DeletedTotals(Mutex<TopicTotals>);

impl DeletedTotals {
    pub(crate) fn add(&self, topic: &Topic) {
        let totals = totals(topic.logs().iter().map(|log| log.info()));
        self.lock().add(totals);
    }

    fn lock(&self) -> MutexGuard<'_, TopicTotals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TopicTotals {
    fn add(&mut self, other: TopicTotals) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.losses.add(other.losses);
    }
}

fn totals(infos: impl Iterator<Item = LogInfo>) -> TopicTotals {
    let mut totals = TopicTotals::default();
    for info in infos {
        totals.add(TopicTotals {
            records: info.next_seq - 1,
            bytes: info.appended_bytes,
            losses: info.losses,
        });
    }
    totals
}

impl TopicSurvey {
    fn of(topic: Arc<Topic>) -> TopicSurvey {
        let infos: Vec<LogInfo> = topic.logs().iter().map(|log| log.info()).collect();
        let mut stored: Option<TopicDiskUse> = None;
        for (info, disk_info) in infos.iter().filter_map(|info| Some((info, info.stored?))) {
            let all = stored.get_or_insert_default();
            all.bytes += disk_info.bytes;
            all.unstored_records += (info.next_seq - 1).saturating_sub(disk_info.synced_seq);
            all.unstored_bytes += disk_info.unstored_bytes;
            all.full |= disk_info.full;
            all.failed |= disk_info.failed;
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
    /// Surveys all topics and subscriptions. The result contains the busiest topics, at most `topics_max`, and the
    /// slowest subscriptions, at most `subscriptions_max`.
    pub fn survey(&self, topics_max: usize, subscriptions_max: usize) -> Survey {
        let survey = Survey { totals: *self.deleted_totals().lock(), ..Survey::default() };
        self.collect_survey(survey, topics_max, subscriptions_max, &NameRanges::all(), |_| true)
    }

    /// Like [`Node::survey`], but surveys a topic only if `bounds` allows all of the topic's subjects. Deleted topics
    /// do not count.
    pub fn survey_within(&self, bounds: &SubjectRule, topics_max: usize, subscriptions_max: usize) -> Survey {
        let is_within = |topic: &Topic| {
            let pattern = Pattern::parse(topic.pattern());
            pattern.is_ok_and(|pattern| bounds.extent(&pattern) == AccessExtent::All)
        };
        let visible = NameRanges::of(&bounds.allow);
        self.collect_survey(Survey::default(), topics_max, subscriptions_max, &visible, is_within)
    }

    fn collect_survey(
        &self,
        mut survey: Survey,
        topics_max: usize,
        subscriptions_max: usize,
        visible: &NameRanges,
        is_selected: impl Fn(&Topic) -> bool,
    ) -> Survey {
        let mut after = String::new();
        loop {
            let page = self.registry().page(None, &after, PAGE_TOPICS, usize::MAX, visible, &is_selected);
            let Some(last) = page.topics.last() else { break };
            after = last.name().to_owned();
            for topic in page.topics {
                survey.add_topic(topic, topics_max, subscriptions_max);
            }
            if !page.more {
                break;
            }
        }
        survey.busiest.truncate_to(topics_max);
        survey.slowest.truncate_to(subscriptions_max);
        survey
    }
}

impl Survey {
    fn add_topic(&mut self, topic: Arc<Topic>, topics_max: usize, subscriptions_max: usize) {
        for subscriber in subscribers_of(&topic) {
            self.subscriptions += 1;
            self.slowest.push(SubscriptionInfo { topic: Arc::clone(&topic), subscriber });
            self.slowest.truncate_if_long(subscriptions_max);
        }
        let topic_survey = TopicSurvey::of(topic);
        self.topics += 1;
        self.totals.add(topic_survey.totals);
        self.disks_full += usize::from(topic_survey.stored.is_some_and(|stored| stored.full));
        self.disks_failed += usize::from(topic_survey.stored.is_some_and(|stored| stored.failed));
        self.busiest.push(topic_survey);
        self.busiest.truncate_if_long(topics_max);
    }
}

/// A list that can be cut to its first items in the order of their ranks.
trait RankedList {
    fn truncate_to(&mut self, max: usize);

    /// If the list is much longer than `max`, cuts it to its first `max` items.
    fn truncate_if_long(&mut self, max: usize);
}

/// An item of a [`RankedList`]. The list is sorted by the ranks of its items.
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
        let SubscriberInfo { lag, missed, name, partition, .. } = &self.subscriber;
        (Reverse((*lag, *missed)), name, self.topic.name(), *partition)
    }
}

impl<T: Rank> RankedList for Vec<T> {
    fn truncate_to(&mut self, max: usize) {
        self.sort_by(|a, b| a.rank().cmp(&b.rank()));
        self.truncate(max);
    }

    fn truncate_if_long(&mut self, max: usize) {
        if self.len() > 2 * max + PAGE_TOPICS {
            self.truncate_to(max);
        }
    }
}
