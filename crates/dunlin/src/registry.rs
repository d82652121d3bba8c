//! The registry of a node: its topics, the owners of subjects, and the subscriptions that wait for new topics.
//!
//! Invariants:
//! - No two topics share a subject. A [reply inbox](crate::reply) owns no subject.
//! - Every change is made under the lock of `state`. During a change, `names` may still have the old content. Locks are
//!   taken in this order: `state`, then a shard of `names`.
//! - A subscription that waits for new topics receives each topic once: among the existing ones, or later as a new one.
//!
//! Limits: `topics_max`, which does not apply to the node's own topics (`$kv`, `$tasks`, `$node`). While a topic is in
//! the registry, the memory budget is charged for its fixed memory ([`cost_of`]).

mod name_ranges;
mod names;
mod watchers;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use dunlin_topic::{
    Filter, Log, LossReports, MemoryCharge, NewLogs, Pattern, PatternIndex, SERVICES, Selection, Subject,
    Topic, TopicLiveness,
};

use crate::access::User;
use crate::config::NodeLimits;
use crate::error::TopicError;
use crate::reply::ReplySubjects;
pub(crate) use name_ranges::NameRanges;
use names::TopicNameIndex;
use watchers::Watchers;

/// The topics of a node.
#[derive(Debug)]
pub(crate) struct Registry {
    topics_max: usize,
    names: TopicNameIndex,
    /// The lost records of all topics, except those with reserved names.
    losses: Arc<LossReports>,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    by_name: BTreeMap<String, Arc<Entry>>,
    /// The topics that own a subject other than their name, by name.
    with_other_subjects: BTreeMap<String, Arc<Entry>>,
    owners: PatternIndex<Arc<Entry>>,
    /// The reply inboxes, by the pattern of the subscriptions that read them.
    reply_inboxes: PatternIndex<Arc<Entry>>,
    watchers: Watchers,
    /// The topics whose retention has a limit on the records' age.
    aging: Vec<Weak<Topic>>,
    removed: RemovedTopics,
    /// Number of topics that were added so far.
    added: u64,
}

/// The removed topics that may still have subscribers, by name. Names without such a topic are dropped whenever the
/// number of names has doubled.
#[derive(Debug, Default)]
struct RemovedTopics {
    by_name: HashMap<String, Vec<TopicLiveness>>,
    sweep_at: usize,
}

/// The number of removed topics' names at which names are dropped for the first time.
const SWEEP_REMOVED_AT_LEAST: usize = 64;

impl RemovedTopics {
    fn add(&mut self, topic: &Topic) {
        if self.by_name.len() >= self.sweep_at {
            self.by_name.retain(|_, topics| {
                topics.retain(TopicLiveness::is_alive);
                !topics.is_empty()
            });
            self.sweep_at = SWEEP_REMOVED_AT_LEAST.max(2 * self.by_name.len());
        }
        if let Some(log) = topic.logs().first() {
            let topics = self.by_name.entry(topic.name().to_owned()).or_default();
            topics.retain(TopicLiveness::is_alive);
            topics.push(log.liveness());
        }
    }

    /// Whether an earlier topic with this name may still have subscribers.
    fn contains(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|topics| topics.iter().any(TopicLiveness::is_alive))
    }
}

#[derive(Debug)]
struct Entry {
    topic: Arc<Topic>,
    /// The number of topics that had been added when this topic was added, including it.
    number: u64,
    pattern: Pattern,
    /// For a reply inbox: the subjects to which it accepts replies. `None` for other topics.
    replies: Option<ReplySubjects>,
    /// The memory budget's charge for the topic's fixed memory.
    _charge: MemoryCharge,
}

/// The memory of a topic with one partition, in bytes, without the topic's name and the segments of records. A
/// measurement found 955 bytes, and 510 more after the first record. Each further partition takes half a KiB. The name
/// is stored six times.
const TOPIC_BYTES: usize = 1_536;
const PARTITION_BYTES: usize = 512;
const NAMES: usize = 6;

/// The approximate memory of a topic with this name, without its records, bytes.
pub(crate) fn cost_of(name: &str, partitions: u16) -> usize {
    TOPIC_BYTES + usize::from(partitions.saturating_sub(1)) * PARTITION_BYTES + NAMES * name.len()
}

/// One page of a list of topics, sorted by name.
#[derive(Debug)]
pub struct TopicPage {
    /// The topics of this page.
    pub topics: Vec<Arc<Topic>>,
    /// Whether more topics follow.
    pub more: bool,
    /// If more topics may follow, the name after which the next page begins.
    pub next: Option<String>,
}

/// The user of a subscription; `None` on a node without users. The user's permissions decide which new topics the
/// subscription reads.
type ForUser<'a> = Option<&'a Arc<dyn User>>;

/// The logs that a subscription reads. A filter, if there is one, selects the records of its log.
pub type LogsToRead = Vec<(Arc<Log>, Option<Filter>)>;

/// An unfinished search for the logs that a subscription reads. It finds the logs of the topics that existed when it
/// began; logs of later topics are added to the subscription's [`NewLogs`].
#[derive(Debug)]
pub struct LogSearch {
    pattern: Pattern,
    /// The name of the last topic that was examined; empty at the beginning.
    after: String,
    /// The number of the newest topic that existed when the search began.
    through: u64,
}

/// A search for logs that visits more nodes of the index than this number is continued by the topics' names, in parts.
const NODES_AT_ONCE_MAX: usize = 1_024;

impl Registry {
    pub(crate) fn new(limits: &NodeLimits) -> Registry {
        let state = State {
            by_name: BTreeMap::new(),
            with_other_subjects: BTreeMap::new(),
            owners: PatternIndex::new(),
            reply_inboxes: PatternIndex::new(),
            watchers: Watchers::new(limits.watchers_max),
            aging: Vec::new(),
            removed: RemovedTopics::default(),
            added: 0,
        };
        Registry {
            topics_max: limits.topics_max,
            names: TopicNameIndex::new(),
            losses: Arc::default(),
            state: RwLock::new(state),
        }
    }

    /// The lost records of the topics.
    pub(crate) fn losses(&self) -> &LossReports {
        &self.losses
    }

    /// Calls `read` with the topic that has this name, and returns the result. Does not increase the topic's reference
    /// count.
    #[inline]
    pub(crate) fn with<R>(&self, name: &str, read: impl FnOnce(&Arc<Topic>) -> R) -> Option<R> {
        self.names.with(name, |topic, _| read(topic))
    }

    /// Number of topics.
    pub(crate) fn topic_count(&self) -> usize {
        self.read().by_name.len()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Topic>> {
        self.with(name, Arc::clone)
    }

    /// The topic that owns the subject. `None` for system subjects, because only the node itself publishes to them.
    pub(crate) fn owner(&self, subject: Subject<'_>) -> Option<Arc<Topic>> {
        if subject.is_system() {
            return None;
        }
        let by_name = self.names.with(subject.as_str(), |topic, owns_only_its_name| {
            owns_only_its_name.then(|| Arc::clone(topic))
        });
        by_name.flatten().or_else(|| self.read().owners.owner(subject).map(|entry| Arc::clone(&entry.topic)))
    }

    /// The topic whose pattern equals `pattern`.
    pub(crate) fn of_pattern(&self, pattern: &Pattern) -> Option<Arc<Topic>> {
        let state = self.read();
        let entry = state.owners.find_overlapping(pattern).filter(|entry| entry.pattern == *pattern)?;
        Some(Arc::clone(&entry.topic))
    }

    /// Like [`of_pattern`](Registry::of_pattern), but for the text of a pattern.
    pub(crate) fn get_pattern(&self, pattern: &str) -> Option<Arc<Topic>> {
        self.of_pattern(&Pattern::parse(pattern).ok()?)
    }

    /// The name of a topic whose pattern overlaps `pattern`; `None` if there is none. Leaves out the topic `name`, and
    /// topics with reserved names.
    pub(crate) fn find_overlapping(&self, name: &str, pattern: &Pattern) -> Option<String> {
        let mut found = None;
        self.read().owners.for_each_overlapping(pattern, |entry| {
            let other = entry.topic.name();
            if found.is_none() && other != name && !is_reserved(other) {
                found = Some(other.to_owned());
            }
        });
        found
    }

    /// Calls `read` with each reply inbox whose pattern matches the subject, one after another, until `read` returns a
    /// value.
    pub(crate) fn find_reply_inbox<R>(
        &self,
        subject: Subject<'_>,
        read: impl Fn(&Arc<Topic>, &ReplySubjects) -> Option<R>,
    ) -> Option<R> {
        let state = self.read();
        let mut found = None;
        if !state.reply_inboxes.is_empty() {
            state.reply_inboxes.for_each_overlapping(&Pattern::from(subject), |entry| {
                if let (None, Some(replies)) = (&found, &entry.replies) {
                    found = read(&entry.topic, replies);
                }
            });
        }
        found
    }

    /// Calls `read` with the reply inbox that has this name, and returns the result.
    pub(crate) fn with_reply_inbox<R>(
        &self,
        name: &str,
        read: impl FnOnce(&Arc<Topic>, &ReplySubjects) -> R,
    ) -> Option<R> {
        let state = self.read();
        let entry = state.by_name.get(name)?;
        Some(read(&entry.topic, entry.replies.as_ref()?))
    }

    /// Adds the topic and the memory charge that `create` returns. Returns an error if a topic with this name exists,
    /// or if the pattern overlaps another topic's pattern.
    pub(crate) fn add<T: Into<Arc<Topic>>>(
        &self,
        name: &str,
        pattern: Pattern,
        create: impl FnOnce() -> Result<(T, MemoryCharge), TopicError>,
    ) -> Result<Arc<Topic>, TopicError> {
        let mut state = self.write();
        state.check(name, &pattern, self.topics_max)?;
        let (topic, charge) = create()?;
        Ok(self.insert(&mut state, pattern, topic.into(), charge, None))
    }

    /// Adds a reply inbox, which owns no subject. It is read by the subscriptions whose pattern overlaps the inbox's
    /// pattern.
    pub(crate) fn add_reply_inbox(
        &self,
        name: &str,
        pattern: Pattern,
        replies: ReplySubjects,
        create: impl FnOnce() -> Result<(Topic, MemoryCharge), TopicError>,
    ) -> Result<Arc<Topic>, TopicError> {
        let mut state = self.write();
        state.check_name(name)?;
        state.check_count(name, self.topics_max)?;
        if state.reply_inboxes.get_mut(&pattern).is_some() {
            return Err(TopicError::Exists(pattern.as_str().to_owned()));
        }
        let (topic, charge) = create()?;
        Ok(self.insert(&mut state, pattern, Arc::new(topic), charge, Some(replies)))
    }

    fn insert(
        &self,
        state: &mut State,
        pattern: Pattern,
        topic: Arc<Topic>,
        charge: MemoryCharge,
        replies: Option<ReplySubjects>,
    ) -> Arc<Topic> {
        let name = topic.name();
        if !is_reserved(name) {
            topic.report_losses_to(&self.losses);
        }
        let owns_only_its_name = replies.is_none() && pattern.as_str() == name;
        if topic.config().retention.age.is_some() {
            state.aging.push(Arc::downgrade(&topic));
        }
        if state.removed.contains(name) {
            topic.logs().iter().for_each(|log| log.set_follows_deleted());
        }
        self.names.add(Arc::clone(&topic), owns_only_its_name);
        state.added += 1;
        let number = state.added;
        let entry = Arc::new(Entry { topic: Arc::clone(&topic), number, pattern, replies, _charge: charge });
        state.by_name.insert(name.to_owned(), Arc::clone(&entry));
        if !entry.owns_only_its_name() {
            state.with_other_subjects.insert(name.to_owned(), Arc::clone(&entry));
        }
        let index = if entry.replies.is_some() { &mut state.reply_inboxes } else { &mut state.owners };
        index.insert(&entry.pattern, Arc::clone(&entry));
        state.notify_watchers(&entry);
        topic
    }

    /// Returns an error if a topic with this name and pattern cannot be added now.
    pub(crate) fn check(&self, name: &str, pattern: &Pattern) -> Result<(), TopicError> {
        self.read().check(name, pattern, self.topics_max)
    }

    /// Removes the topic. The caller has to close it.
    pub(crate) fn remove(&self, name: &str) -> Option<Arc<Topic>> {
        let mut state = self.write();
        let entry = state.remove(name)?;
        self.names.remove(name);
        state.removed.add(&entry.topic);
        Some(Arc::clone(&entry.topic))
    }

    /// Removes the topic if it has never had a record and nothing but the registry and the caller refers to it. Returns
    /// whether the topic was removed.
    pub(crate) fn remove_unused(&self, topic: &Arc<Topic>) -> bool {
        let mut state = self.write();
        let name = topic.name();
        let is_unused = |holders: usize| {
            Arc::strong_count(topic) == holders
                && topic.logs().iter().all(|log| Arc::strong_count(log) == 1 && log.info().next_seq == 1)
        };
        // The topic is unused if it has three references: the registry's in `state` and in `names`, and the caller's. A
        // lookup by name uses only `names`. Therefore remove the topic from `names` first, and then count the
        // references again.
        let Some(entry) = state.by_name.get(name) else { return false };
        if !Arc::ptr_eq(&entry.topic, topic) || !is_unused(3) {
            return false;
        }
        self.names.remove(name);
        if !is_unused(2) {
            self.names.add(Arc::clone(topic), entry.owns_only_its_name());
            return false;
        }
        state.remove(name);
        true
    }

    /// Returns the logs with subjects that the pattern matches, each with a filter if the pattern matches only some of
    /// the log's subjects.
    pub(crate) fn select(&self, pattern: &Pattern) -> LogsToRead {
        self.read().overlapping(pattern)
    }

    /// Like [`select`](Registry::select). Logs of topics that are created later are added to `newcomers` if the user may
    /// read them, until the caller drops `newcomers`. If there is much to search, returns no logs, but a search that the
    /// caller must continue with [`search`](Registry::search).
    pub(crate) fn begin_select(
        &self,
        pattern: &Pattern,
        newcomers: &Arc<NewLogs>,
        user: ForUser<'_>,
    ) -> Result<(LogsToRead, Option<LogSearch>), TopicError> {
        let mut state = self.write();
        state.watchers.add(pattern, newcomers, user.cloned())?;
        Ok(match state.overlapping_within(pattern, NODES_AT_ONCE_MAX) {
            Some(logs) => (logs, None),
            None => {
                let (pattern, after, through) = (pattern.clone(), String::new(), state.added);
                (Vec::new(), Some(LogSearch { pattern, after, through }))
            }
        })
    }

    /// Continues a search: examines at most `topics_max` topics, and returns the logs that it found. Returns `None` if
    /// all topics have been examined.
    pub(crate) fn search(&self, search: &mut LogSearch, topics_max: usize) -> Option<LogsToRead> {
        let state = self.read();
        let LogSearch { pattern, after, through } = search;
        let (mut found, mut last) = (Vec::new(), None::<String>);
        let (named, all) = (NameRanges::of([&*pattern]), NameRanges::all());
        for (name, entry) in state.in_order(&named, &all, after).take(topics_max) {
            if entry.number <= *through {
                entry.for_each_selected(pattern, |log, filter| found.push((log, filter)));
            }
            last.get_or_insert_default().clone_from(name);
        }
        *after = last?;
        Some(found)
    }

    /// Whether a subscription waits for new topics and its pattern matches the subject.
    pub(crate) fn is_watched(&self, subject: Subject<'_>) -> bool {
        self.is_pattern_watched(&Pattern::from(subject))
    }

    /// Whether a subscription waits for new topics and its pattern overlaps `pattern`. Subscriptions that other nodes
    /// make for their mirrors do not count.
    pub(crate) fn is_pattern_watched(&self, pattern: &Pattern) -> bool {
        let reserved = is_reserved(pattern.as_str());
        let mut watched = false;
        self.read().watchers.for_each(pattern, |watcher_pattern, newcomers, _| {
            let may_match =
                !reserved || first_token(watcher_pattern.as_str()) == first_token(pattern.as_str());
            watched |= may_match && !newcomers.is_for_node();
        });
        watched
    }

    /// Returns at most `topics_max` topics, sorted by name, whose names come after `after` and match the pattern, and
    /// for which `is_visible` is true. Looks only at names in the ranges `visible`, and at no more than `examined_max`.
    pub(crate) fn page(
        &self,
        pattern: Option<&Pattern>,
        after: &str,
        topics_max: usize,
        examined_max: usize,
        visible: &NameRanges,
        is_visible: impl Fn(&Topic) -> bool,
    ) -> TopicPage {
        let state = self.read();
        let pattern_ranges = pattern.map_or_else(NameRanges::all, |pattern| NameRanges::of([pattern]));
        let matching = |name: &str| match pattern {
            Some(pattern) => Subject::parse_existing(name).is_ok_and(|name| pattern_matches(pattern, name)),
            None => !is_reserved(name),
        };
        let visited = pattern_ranges.and(visible);
        let in_order = state.in_order(&visited, &pattern_ranges, after);
        let (mut topics, mut more, mut last) = (Vec::new(), false, after);
        for (examined, (name, entry)) in in_order.enumerate() {
            let is_listed = examined < examined_max && matching(name) && is_visible(&entry.topic);
            more = examined == examined_max || is_listed && topics.len() == topics_max;
            if more {
                break;
            }
            topics.extend(is_listed.then(|| Arc::clone(&entry.topic)));
            last = name;
        }
        TopicPage { topics, more, next: more.then(|| last.to_owned()) }
    }

    /// The topics whose retention has a limit on the records' age.
    pub(crate) fn aging(&self) -> Vec<Arc<Topic>> {
        let mut state = self.write();
        let mut topics = Vec::with_capacity(state.aging.len());
        state.aging.retain(|topic| topic.upgrade().map(|topic| topics.push(topic)).is_some());
        topics
    }

    /// Removes and returns all topics.
    pub(crate) fn drain(&self) -> Vec<Arc<Topic>> {
        let mut state = self.write();
        state.owners = PatternIndex::new();
        state.reply_inboxes = PatternIndex::new();
        state.with_other_subjects.clear();
        let entries = std::mem::take(&mut state.by_name);
        entries.keys().for_each(|name| self.names.remove(name));
        entries.into_values().map(|entry| Arc::clone(&entry.topic)).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove(&mut self, name: &str) -> Option<Arc<Entry>> {
        let entry = self.by_name.remove(name)?;
        self.with_other_subjects.remove(name);
        let index = if entry.replies.is_some() { &mut self.reply_inboxes } else { &mut self.owners };
        index.remove(&entry.pattern);
        Some(entry)
    }

    fn check(&self, name: &str, pattern: &Pattern, topics_max: usize) -> Result<(), TopicError> {
        self.check_name(name)?;
        if let Some(other) = self.owners.find_overlapping(pattern) {
            return Err(TopicError::Overlaps(other.topic.name().to_owned()));
        }
        self.check_count(name, topics_max)
    }

    fn check_name(&self, name: &str) -> Result<(), TopicError> {
        let is_free = !self.by_name.contains_key(name);
        is_free.then_some(()).ok_or_else(|| TopicError::Exists(name.to_owned()))
    }

    /// Returns an error if the registry already has `topics_max` topics. The node's own topics can always be added:
    /// they are created at the first use of keys or tasks, and clients' topics must not prevent that.
    fn check_count(&self, name: &str, topics_max: usize) -> Result<(), TopicError> {
        if self.by_name.len() >= topics_max && !is_of_system(name) {
            return Err(TopicError::Limit { limit: "topics_max", value: topics_max as u64 });
        }
        Ok(())
    }

    /// Returns the topics whose names come after `after`, sorted by name. Topics that own only the subject equal to their
    /// name are returned if the name is in the ranges `of_own_name`, and other topics if it is in the ranges `others`,
    /// which must contain the ranges `of_own_name`. Each step looks at no more than two names.
    fn in_order<'a>(
        &'a self,
        of_own_name: &'a NameRanges,
        others: &'a NameRanges,
        after: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a Arc<Entry>)> {
        let by_name = of_own_name.ranges(after).flat_map(move |range| self.by_name.range::<str, _>(range));
        let mut by_name = by_name.peekable();
        let others =
            others.ranges(after).flat_map(move |range| self.with_other_subjects.range::<str, _>(range));
        let mut others = others.peekable();
        std::iter::from_fn(move || match (by_name.peek(), others.peek()) {
            (Some(named), Some(other)) if other.0 < named.0 => others.next(),
            (Some(named), Some(other)) if other.0 == named.0 => {
                by_name.next();
                others.next()
            }
            (None, _) => others.next(),
            _ => by_name.next(),
        })
    }

    /// Like [`overlapping`](State::overlapping), but visits at most `nodes_max` nodes of each index. Returns `None` if
    /// there are more.
    fn overlapping_within(&self, pattern: &Pattern, nodes_max: usize) -> Option<LogsToRead> {
        let mut found = Vec::new();
        for index in [&self.owners, &self.reply_inboxes] {
            let is_complete = index.for_each_overlapping_within(pattern, nodes_max, |entry| {
                entry.for_each_selected(pattern, |log, filter| found.push((log, filter)));
            });
            if !is_complete {
                return None;
            }
        }
        Some(found)
    }

    fn overlapping(&self, pattern: &Pattern) -> LogsToRead {
        let mut found = Vec::new();
        for index in [&self.owners, &self.reply_inboxes] {
            index.for_each_overlapping(pattern, |entry| {
                entry.for_each_selected(pattern, |log, filter| found.push((log, filter)));
            });
        }
        found
    }

    fn notify_watchers(&self, entry: &Entry) {
        self.watchers.for_each(&entry.pattern, |watcher_pattern, newcomers, user| {
            let permissions = user.map(|user| user.permissions());
            entry.for_each_selected(watcher_pattern, |log, filter| match &permissions {
                None => newcomers.add(log, filter),
                Some(permissions) => {
                    if let Some(filter) = permissions.restrict(log.name(), filter) {
                        newcomers.add(log, filter);
                    }
                }
            });
        });
    }
}

impl Entry {
    fn owns_only_its_name(&self) -> bool {
        self.replies.is_none() && self.pattern.as_str() == self.topic.name()
    }

    /// Calls `each` with every log of this topic that a subscription to `pattern` reads, and with the filter for the
    /// log.
    fn for_each_selected(&self, pattern: &Pattern, mut each: impl FnMut(Arc<Log>, Option<Filter>)) {
        let Some(filter) = filter_for(pattern, &self.pattern) else { return };
        self.topic.logs().iter().for_each(|log| each(Arc::clone(log), filter.clone()));
    }
}

/// The filter with which a subscription to `pattern` reads a topic that owns the subjects of `owned`. `None` if the
/// subscription reads nothing of the topic.
pub(crate) fn filter_for(pattern: &Pattern, owned: &Pattern) -> Option<Option<Filter>> {
    if is_reserved(owned.as_str()) && first_token(pattern.as_str()) != first_token(owned.as_str()) {
        return None;
    }
    match pattern.select(owned) {
        Selection::Nothing => None,
        Selection::Everything => Some(None),
        Selection::Tails(tails) => Some(Some(Filter::of_tails(tails))),
    }
}

/// Whether the pattern matches the subject. A reserved subject matches only if the pattern begins with the subject's
/// first token.
fn pattern_matches(pattern: &Pattern, subject: Subject<'_>) -> bool {
    let same_first = first_token(pattern.as_str()) == first_token(subject.as_str());
    (same_first || !is_reserved(subject.as_str())) && pattern.matches(subject)
}

/// Whether the name or pattern is reserved for the system or for sessions.
pub(crate) fn is_reserved(name: &str) -> bool {
    is_of_system(name) || first_token(name) == crate::inbox::FIRST_TOKEN
}

/// Whether the subject belongs to the topic of NATS services. Publishing creates this topic even without `auto_create`.
pub(crate) fn is_service_subject(subject: Subject<'_>) -> bool {
    subject.as_str().strip_prefix(SERVICES).is_some_and(|rest| rest.starts_with('.'))
}

/// Whether the name or pattern is reserved for the node itself. Clients cannot create topics with such names.
pub(crate) fn is_of_system(name: &str) -> bool {
    let first = first_token(name);
    first.starts_with('$') && first != SERVICES
}

fn first_token(text: &str) -> &str {
    text.split('.').next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use dunlin_topic::{NewLogArrivals, TopicConfig, Waiter};

    use super::*;
    use crate::config::Config;
    use crate::node::Node;

    #[test]
    fn new_log_is_announced_only_to_subscribers_of_its_pattern() {
        let node = Node::start(Config::default()).unwrap();
        let arrivals = Arc::new(NewLogArrivals::default());
        let listed = |text: &str, number: u32| {
            let list = NewLogs::with_arrivals(Waiter::new(), Arc::clone(&arrivals), number);
            node.watch(&Pattern::parse(text).unwrap(), &list).unwrap();
            list
        };
        let (of_a, of_b) = (listed("a.*", 1), listed("b.*", 2));
        let create = |name: &str| drop(node.create_topic(name, TopicConfig::default(), false).unwrap());
        ["a.one", "a.two"].into_iter().for_each(create);
        assert_eq!(arrivals.take(), [1]);
        assert_eq!((of_a.take().len(), of_b.take().len()), (2, 0));
        ["c.one", "a.three"].into_iter().for_each(create);
        assert_eq!(arrivals.take(), [1]);
        assert_eq!(of_a.take().len(), 1);
        assert_eq!(arrivals.take(), [0; 0]);
    }

    #[test]
    fn stepwise_topic_search_finds_each_topic_once() {
        let node = Node::start(Config::default()).unwrap();
        // Every third topic owns other subjects than its name.
        let created = Cell::new(0);
        let create = |name: &str| {
            created.set(created.get() + 1);
            let pattern = (created.get() % 3 == 0).then(|| name.replace('.', "-") + ".*");
            drop(node.create_topic(name, TopicConfig { pattern, ..TopicConfig::default() }, false).unwrap());
        };
        let old: Vec<String> = (0..2 * NODES_AT_ONCE_MAX).map(|number| format!("t.{number:05}")).collect();
        old.iter().for_each(|name| create(name));
        let list = NewLogs::new();
        let (logs, search) = node.watch_in_parts(&Pattern::parse("*.*").unwrap(), &list).unwrap();
        let mut search = search.expect("there are too many topics for one part");
        let mut found: Vec<String> = Vec::new();
        let mut parts = 0;
        while let Some(part) = node.search_logs(&mut search, 100) {
            assert!(part.len() <= 100);
            found.extend(part.iter().map(|(log, _)| log.name().topic.clone()));
            // A topic that is created during the search is found only once, as a new one.
            create(&format!("u.{parts}"));
            parts += 1;
        }
        assert!(logs.is_empty() && parts > old.len() / 100);
        assert_eq!(found, old);
        assert_eq!(list.take().len(), parts);
    }

    #[test]
    fn paging_by_pattern_visits_only_topic_names_that_may_match() {
        let node = Node::start(Config::default()).unwrap();
        for name in (0..300).map(|number| format!("big.{number}")).chain(["a.x".to_owned(), "z.x".to_owned()])
        {
            node.publisher(&name).unwrap();
        }
        let (of_big, of_z) = (Pattern::parse("big.1").unwrap(), Pattern::parse("z.*").unwrap());
        let visited_count = Cell::new(0);
        let names = |pattern: Option<&Pattern>, visible: &NameRanges| {
            visited_count.set(0);
            let page = node.registry().page(pattern, "", 10, usize::MAX, visible, |_| {
                visited_count.set(visited_count.get() + 1);
                true
            });
            page.topics.iter().map(|topic| topic.name().to_owned()).collect::<Vec<_>>()
        };
        let visible = NameRanges::of([&of_z]);
        for (pattern, visible, found) in [
            (None, &visible, "z.x"),
            (Some(&of_z), &NameRanges::all(), "z.x"),
            (Some(&of_big), &NameRanges::all(), "big.1"),
        ] {
            assert_eq!(names(pattern, visible), [found]);
            assert_eq!(visited_count.get(), 1, "for {found}");
        }
        assert_eq!(names(None, &NameRanges::all()).len(), 10);
        assert_eq!(visited_count.get(), 11, "a page, and one more for `more`");
        // A page that examines few names is continued after the last of them.
        let of_rare = Pattern::parse("*.x").unwrap();
        let (mut next, mut found, mut pages) = (String::new(), Vec::new(), 0);
        loop {
            let page = node.topics_within(Some(&of_rare), &next, 10, 50);
            found.extend(page.topics.iter().map(|topic| topic.name().to_owned()));
            pages += 1;
            let Some(after) = page.next else { break };
            next = after;
        }
        assert_eq!((found, pages), (vec!["a.x".to_owned(), "z.x".to_owned()], 7));
    }
}
