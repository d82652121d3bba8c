//! The topics of a node, the owners of subjects, and subscriptions that wait for new topics.
//!
//! Invariants:
//! - No two topics share a subject. A [reply inbox](crate::reply) owns no subject.
//! - Every change holds the lock of `state`. During a change, `names` may still have the old content. Lock order:
//!   `state`, then a shard of `names`.
//! - A watching subscription receives each topic once: among the existing ones, or later as a newcomer.
//!
//! Limits: `topics_max`; the node's own topics (`$kv`, `$tasks`, `$node`) are always admitted. The budget is charged
//! for a topic's fixed memory while the topic is in the registry ([`cost_of`]).

mod name_ranges;
mod names;
mod watchers;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use dunlin_topic::{
    Filter, Log, MemoryCharge, NewLogs, Pattern, PatternIndex, SERVICES, Selection, Subject, Topic,
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
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    by_name: BTreeMap<String, Arc<Entry>>,
    /// Topics that own subjects other than their own name, by name.
    with_other_subjects: BTreeMap<String, Arc<Entry>>,
    owners: PatternIndex<Arc<Entry>>,
    /// Reply inboxes, each by the pattern of the subscriptions that read it.
    reply_inboxes: PatternIndex<Arc<Entry>>,
    watchers: Watchers,
    /// Topics with a retention by age.
    aging: Vec<Weak<Topic>>,
}

#[derive(Debug)]
struct Entry {
    topic: Arc<Topic>,
    pattern: Pattern,
    /// The subjects for which a reply inbox accepts records; `None` for a topic.
    replies: Option<ReplySubjects>,
    /// The charge of the topic's fixed memory to the node's memory budget.
    _charge: MemoryCharge,
}

/// The memory of a topic with one partition, in bytes, besides its name and its records' segments. A measurement found
/// 955 bytes, and 510 more after the first record. Each further partition takes half a KiB. The name is stored six
/// times.
const TOPIC_BYTES: usize = 1_536;
const PARTITION_BYTES: usize = 512;
const NAMES: usize = 6;

/// Approximate memory of a topic of this name besides its history, bytes.
pub(crate) fn cost_of(name: &str, partitions: u16) -> usize {
    TOPIC_BYTES + usize::from(partitions.saturating_sub(1)) * PARTITION_BYTES + NAMES * name.len()
}

/// One page of a list of topics, in the order of their names.
#[derive(Debug)]
pub struct TopicPage {
    /// The topics of this page.
    pub topics: Vec<Arc<Topic>>,
    /// Whether more topics follow.
    pub more: bool,
}

/// The user whose permissions filter new topics; `None` on a node without users.
type ForUser<'a> = Option<&'a Arc<dyn User>>;

/// The logs that a subscription reads, each with a filter that selects records.
pub type LogsToRead = Vec<(Arc<Log>, Option<Filter>)>;

impl Registry {
    pub(crate) fn new(limits: &NodeLimits) -> Registry {
        let state = State {
            by_name: BTreeMap::new(),
            with_other_subjects: BTreeMap::new(),
            owners: PatternIndex::new(),
            reply_inboxes: PatternIndex::new(),
            watchers: Watchers::new(limits.watchers_max),
            aging: Vec::new(),
        };
        Registry { topics_max: limits.topics_max, names: TopicNameIndex::new(), state: RwLock::new(state) }
    }

    /// Calls `read` with the topic of this name, without counting a reference to it.
    #[inline]
    pub(crate) fn with<R>(&self, name: &str, read: impl FnOnce(&Arc<Topic>) -> R) -> Option<R> {
        self.names.with(name, |topic, _| read(topic))
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Topic>> {
        self.with(name, Arc::clone)
    }

    /// The topic that owns the subject. `None` for system subjects, to which only the system publishes.
    pub(crate) fn owner(&self, subject: Subject<'_>) -> Option<Arc<Topic>> {
        if subject.is_system() {
            return None;
        }
        let by_name = self.names.with(subject.as_str(), |topic, owns_only_its_name| {
            owns_only_its_name.then(|| Arc::clone(topic))
        });
        by_name.flatten().or_else(|| self.read().owners.owner(subject).map(|entry| Arc::clone(&entry.topic)))
    }

    /// The topic whose pattern is exactly this one.
    pub(crate) fn of_pattern(&self, pattern: &Pattern) -> Option<Arc<Topic>> {
        let state = self.read();
        let entry = state.owners.find_overlapping(pattern).filter(|entry| entry.pattern == *pattern)?;
        Some(Arc::clone(&entry.topic))
    }

    /// Like [`of_pattern`](Registry::of_pattern), but for a text.
    pub(crate) fn get_pattern(&self, pattern: &str) -> Option<Arc<Topic>> {
        self.of_pattern(&Pattern::parse(pattern).ok()?)
    }

    /// Calls `read` with each reply inbox whose pattern matches the subject, until `read` returns a value.
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

    /// Calls `read` with the reply inbox of this name, and returns the result.
    pub(crate) fn with_reply_inbox<R>(
        &self,
        name: &str,
        read: impl FnOnce(&Arc<Topic>, &ReplySubjects) -> R,
    ) -> Option<R> {
        let state = self.read();
        let entry = state.by_name.get(name)?;
        Some(read(&entry.topic, entry.replies.as_ref()?))
    }

    /// Adds the topic that `create` creates, and its memory charge. Fails if a topic of this name exists, or if the
    /// pattern overlaps another topic's pattern.
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

    /// Adds a reply inbox, which owns no subject. Subscriptions whose pattern overlaps the inbox's pattern read the
    /// inbox.
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
        let owns_only_its_name = replies.is_none() && pattern.as_str() == name;
        if topic.config().retention.age.is_some() {
            state.aging.push(Arc::downgrade(&topic));
        }
        self.names.add(Arc::clone(&topic), owns_only_its_name);
        let entry = Arc::new(Entry { topic: Arc::clone(&topic), pattern, replies, _charge: charge });
        state.by_name.insert(name.to_owned(), Arc::clone(&entry));
        if !entry.owns_only_its_name() {
            state.with_other_subjects.insert(name.to_owned(), Arc::clone(&entry));
        }
        let index = if entry.replies.is_some() { &mut state.reply_inboxes } else { &mut state.owners };
        index.insert(&entry.pattern, Arc::clone(&entry));
        state.notify_watchers(&entry);
        topic
    }

    /// Whether a topic of this name and pattern could be added now.
    pub(crate) fn check(&self, name: &str, pattern: &Pattern) -> Result<(), TopicError> {
        self.read().check(name, pattern, self.topics_max)
    }

    /// Removes the topic; the caller closes it.
    pub(crate) fn remove(&self, name: &str) -> Option<Arc<Topic>> {
        let mut state = self.write();
        let entry = state.remove(name)?;
        self.names.remove(name);
        Some(Arc::clone(&entry.topic))
    }

    /// Removes the topic if it never had a record and only the registry and the caller refer to it. Returns whether the
    /// topic was removed.
    pub(crate) fn remove_unused(&self, topic: &Arc<Topic>) -> bool {
        let mut state = self.write();
        let name = topic.name();
        let is_unused = |holders: usize| {
            Arc::strong_count(topic) == holders
                && topic.logs().iter().all(|log| Arc::strong_count(log) == 1 && log.info().next_seq == 1)
        };
        // The registry holds two references, in `state` and in `names`, and the caller holds one. Lookups by name use
        // only `names`. The topic is therefore removed from `names` first.
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

    /// The logs with subjects of the pattern, each with a filter. Logs that are created later and that the user may
    /// read are added to `newcomers`, until the caller drops it.
    pub(crate) fn select(
        &self,
        pattern: &Pattern,
        newcomers: Option<(&Arc<NewLogs>, ForUser<'_>)>,
    ) -> Result<LogsToRead, TopicError> {
        let Some((newcomers, user)) = newcomers else { return Ok(self.read().overlapping(pattern)) };
        let mut state = self.write();
        state.watchers.add(pattern, newcomers, user.cloned())?;
        Ok(state.overlapping(pattern))
    }

    /// Whether a subscription waits for topics that own the subject.
    pub(crate) fn is_watched(&self, subject: Subject<'_>) -> bool {
        self.is_pattern_watched(&Pattern::from(subject))
    }

    /// Whether a subscription waits for topics that own a subject of the pattern. The feeds of other nodes' mirrors do
    /// not count.
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

    /// Returns the visible topics whose names come after `after` and match the pattern, at most `topics_max`. Only
    /// names in the ranges `visible` are visited.
    pub(crate) fn page(
        &self,
        pattern: Option<&Pattern>,
        after: &str,
        topics_max: usize,
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
        let of_own_name = visited.ranges(after).flat_map(|range| state.by_name.range::<str, _>(range));
        let mut of_own_name = of_own_name.filter(|(_, entry)| entry.owns_only_its_name()).peekable();
        let others =
            pattern_ranges.ranges(after).flat_map(|range| state.with_other_subjects.range::<str, _>(range));
        let mut others = others.peekable();
        let in_order = std::iter::from_fn(|| match (of_own_name.peek(), others.peek()) {
            (Some(own), Some(other)) if other.0 < own.0 => others.next(),
            (None, _) => others.next(),
            _ => of_own_name.next(),
        });
        let mut found = in_order.filter(|(name, entry)| matching(name) && is_visible(&entry.topic));
        let topics = found.by_ref().take(topics_max).map(|(_, entry)| Arc::clone(&entry.topic)).collect();
        TopicPage { topics, more: found.next().is_some() }
    }

    /// The topics with a retention by age.
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

    /// Refuses a topic over `topics_max`. The node's own topics are always admitted: clients' topics must not stop keys
    /// and tasks, whose topics are created at their first use.
    fn check_count(&self, name: &str, topics_max: usize) -> Result<(), TopicError> {
        if self.by_name.len() >= topics_max && !is_of_system(name) {
            return Err(TopicError::Limit { limit: "topics_max", value: topics_max as u64 });
        }
        Ok(())
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

    /// Calls `each` with every log that a subscription to the pattern reads, and its filter.
    fn for_each_selected(&self, pattern: &Pattern, mut each: impl FnMut(Arc<Log>, Option<Filter>)) {
        let reserved = is_reserved(self.pattern.as_str());
        if reserved && first_token(pattern.as_str()) != first_token(self.pattern.as_str()) {
            return;
        }
        let selection = pattern.select(&self.pattern);
        for log in self.topic.logs() {
            let filter = match selection.clone() {
                Selection::Nothing => return,
                Selection::Everything => None,
                Selection::Tails(tails) => Some(Filter::of_tails(tails)),
            };
            each(Arc::clone(log), filter);
        }
    }
}

/// Whether the pattern matches the subject. A reserved subject matches only if the pattern begins with the same first
/// token.
fn pattern_matches(pattern: &Pattern, subject: Subject<'_>) -> bool {
    let same_first = first_token(pattern.as_str()) == first_token(subject.as_str());
    (same_first || !is_reserved(subject.as_str())) && pattern.matches(subject)
}

/// Whether the name or pattern is reserved for the system or for sessions.
pub(crate) fn is_reserved(name: &str) -> bool {
    is_of_system(name) || first_token(name) == crate::inbox::FIRST_TOKEN
}

/// Whether the subject belongs to the topic of NATS services. A publish call creates this topic even without
/// `auto_create`.
pub(crate) fn is_service_subject(subject: Subject<'_>) -> bool {
    subject.as_str().strip_prefix(SERVICES).is_some_and(|rest| rest.starts_with('.'))
}

/// Whether the name or pattern belongs to the node itself. Clients cannot create topics of these names.
fn is_of_system(name: &str) -> bool {
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
    fn topic_page_visits_only_names_that_its_pattern_may_match() {
        let node = Node::start(Config::default()).unwrap();
        for name in (0..300).map(|number| format!("big.{number}")).chain(["a.x".to_owned(), "z.x".to_owned()])
        {
            node.publisher(&name).unwrap();
        }
        let (of_big, of_z) = (Pattern::parse("big.1").unwrap(), Pattern::parse("z.*").unwrap());
        let visited_count = Cell::new(0);
        let names = |pattern: Option<&Pattern>, visible: &NameRanges| {
            visited_count.set(0);
            let page = node.registry().page(pattern, "", 10, visible, |_| {
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
    }
}
