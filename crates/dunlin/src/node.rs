//! A node holds the topics of one process. Code in this process can publish and subscribe without a network.

mod finding;
mod refused;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use dunlin_control::ControlCommand;
use dunlin_journal::Disk;
use dunlin_space::{AnyRegion, REGION};
use dunlin_topic::{
    ConfigError, ConsumeMode, Cursor, MemoryBudget, MemoryBudgetError, MemoryCharge, NewLogs, Pattern,
    PublishError, Publisher, Reducer, ReducerConfig, ReducerError, Start, Subject, SubscribeError,
    SubscribeOptions, Subscriber, Topic, TopicConfig,
};

use crate::access::{Action, User, Users};
use crate::clock::{CLOCK, now_ns, steady_ns};
use crate::config::Config;
use crate::control::{LazyControl, block_on};
use crate::deleted::DeletedLogs;
use crate::epoch::Epochs;
use crate::error::TopicError;
use crate::groups::Groups;
use crate::inbox::OpenInboxes;
use crate::ownership::Ownership;
use crate::registry::{Registry, TopicPage, cost_of, is_reserved};
use crate::respond::ResponderExecutors;
use crate::select::MissingTopicPolicy;
use crate::space::Figures;
use crate::storage::{RecoveredTopic, RefusedTopic, Storage, StorageError};
use crate::survey::DeletedTotals;
use crate::tasks;
use crate::waiting::{self, Waiters};

/// The names of the built-in reducers.
pub const STATES: [&str; 4] = [dunlin_feed::BOOK, dunlin_feed::ORDERS, dunlin_feed::LAST, REGION];

/// Creates a built-in reducer.
pub(crate) fn make_reducer(config: &ReducerConfig) -> Result<Box<dyn Reducer>, ReducerError> {
    if config.kind == REGION {
        return AnyRegion::of(&config.options).map(AnyRegion::boxed).map_err(ReducerError);
    }
    dunlin_feed::make_reducer(&config.kind, &config.options).map_err(|error| ReducerError(error.to_string()))
}

/// Whether two configurations of the topic `name` have the same meaning. A reducer's options may be left out or written
/// differently. A pattern that equals the topic's name counts as no pattern.
pub(crate) fn is_same_config(name: &str, config: &TopicConfig, other: &TopicConfig) -> bool {
    let completed = |config: &TopicConfig| {
        let pattern = config.pattern.clone().filter(|pattern| pattern != name);
        TopicConfig { pattern, reducer: config.reducer.as_ref().map(completed_reducer), ..config.clone() }
    };
    config == other || completed(config) == completed(other)
}

/// The reducer's configuration with all options written out in a uniform way.
fn completed_reducer(config: &ReducerConfig) -> ReducerConfig {
    let options = match config.kind.as_str() {
        REGION => AnyRegion::of(&config.options).map(|region| region.options()).ok(),
        kind => dunlin_feed::complete_options(kind, &config.options).ok(),
    };
    ReducerConfig { kind: config.kind.clone(), options: options.unwrap_or_else(|| config.options.clone()) }
}

/// Limits the times in a topic's configuration to 584 years. On disk and between nodes, they are 64-bit numbers of
/// nanoseconds, which cannot express longer times.
fn with_storable_times(mut config: TopicConfig) -> TopicConfig {
    let time_max = Duration::from_nanos(u64::MAX);
    config.retention.age = config.retention.age.map(|age| age.min(time_max));
    if let Some(reliable) = &mut config.reliable {
        reliable.wait_max = reliable.wait_max.min(time_max);
    }
    config
}

/// A node with its topics, groups and keys. Clones are handles to the same node. [`Node::with_user`] returns a handle
/// with the permissions of one user.
#[derive(Debug, Clone)]
pub struct Node(pub(crate) Arc<Inner>, pub(crate) Option<Arc<dyn User>>);

/// The state that all handles to a node share.
#[derive(Debug)]
pub(crate) struct Inner {
    config: Config,
    id: u64,
    budget: Arc<MemoryBudget>,
    registry: Registry,
    /// The configuration of the topic that was created last. The next topic shares this copy if its configuration is
    /// equal.
    last_config: Mutex<Arc<TopicConfig>>,
    epochs: Epochs,
    sessions: AtomicU64,
    executors: ResponderExecutors,
    groups: Groups,
    storage: Option<Storage>,
    durable_topics_lock: Mutex<()>,
    control: LazyControl,
    tasks: tasks::LazyTasks,
    deleted: DeletedLogs,
    deleted_totals: DeletedTotals,
    pub(crate) inboxes: OpenInboxes,
    pub(crate) waiters: Waiters,
    pub(crate) ownership: OnceLock<Arc<Ownership>>,
    pub(crate) users: OnceLock<Weak<dyn Users>>,
    pub(crate) figures: Figures,
}

impl Node {
    /// Starts a node without topics and without a disk.
    pub fn start(config: Config) -> Result<Node, ConfigError> {
        Node::with(config, None)
    }

    /// Starts a node that stores its durable topics in `dir`, and opens the topics that are there. Returns a report for
    /// each topic in `dir`. Before it returns, this function [waits](Node::wait_for_epoch) until any node that is
    /// started afterwards would begin later epochs.
    pub fn open(
        config: Config,
        disk: Arc<dyn Disk>,
        dir: &Path,
    ) -> Result<(Node, Vec<RecoveredTopic>), StorageError> {
        let storage = Storage::open(disk, dir, &config.limits)?;
        let unsound = |error| StorageError::Config { topic: "by default".to_owned(), error };
        let node = Node::with(config, Some(storage)).map_err(unsound)?;
        node.check_shards().map_err(|error| StorageError::Shards(error.to_string()))?;
        let found = match &node.0.storage {
            Some(storage) => storage.recover(&node.0.budget, |name| node.0.epochs.next(name, now_ns()))?,
            None => Vec::new(),
        };
        let mut recovered = Vec::with_capacity(found.len());
        for (topic, remarks) in found {
            let (name, pattern) = (topic.name().to_owned(), topic.pattern().to_owned());
            match (node.add_recovered(topic), &node.0.storage) {
                (Err(refused), Some(storage)) => {
                    storage.refuse(RefusedTopic { name, pattern, why: refused.to_string(), id: None });
                }
                _ => recovered.push(remarks),
            }
        }
        recovered.extend(node.refused_topics().iter().map(RecoveredTopic::from));
        if node.has_control() {
            // Ignore the error here: a later call of `control` returns it.
            let _ = node.control();
        }
        if node.has_tasks() {
            let _ = node.tasks();
        }
        node.wait_for_epoch();
        Ok((node, recovered))
    }

    /// Adds a topic that was found on disk to the registry.
    fn add_recovered(&self, topic: Topic) -> Result<(), TopicError> {
        let name = topic.name().to_owned();
        let pattern = Pattern::parse(topic.pattern())?;
        // A topic on disk is opened even if its charge exceeds the memory budget.
        let charge = MemoryCharge::forced(&self.0.budget, cost_of(&name, topic.config().partitions));
        self.0.registry.add(&name, pattern, || Ok((topic, charge))).map(drop)
    }

    fn with(config: Config, storage: Option<Storage>) -> Result<Node, ConfigError> {
        config.topic.check()?;
        let limits = &config.limits;
        let started_ns = now_ns();
        let inner = Arc::new(Inner {
            id: started_ns ^ u64::from(std::process::id()) << 40,
            budget: MemoryBudget::node(limits.memory_bytes_max, limits.idle_bytes_max),
            registry: Registry::new(limits),
            last_config: Mutex::default(),
            epochs: Epochs::new(started_ns),
            sessions: AtomicU64::new(0),
            executors: ResponderExecutors::default(),
            groups: Groups::new(limits),
            storage,
            durable_topics_lock: Mutex::default(),
            control: LazyControl::default(),
            tasks: tasks::LazyTasks::default(),
            deleted: DeletedLogs::new(limits.deleted_age_max),
            deleted_totals: DeletedTotals::default(),
            inboxes: OpenInboxes::default(),
            waiters: Waiters::default(),
            ownership: OnceLock::new(),
            users: OnceLock::new(),
            figures: Figures::default(),
            config,
        });
        Ok(Node(inner, None))
    }

    /// The configuration with which the node was started.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// The number of this run of the node: it changes with each start.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Waits until any node that is started afterwards would begin later epochs than this node. The wait ends at most
    /// 100 ms after this node's start. Listeners call this function before they accept connections. Even after a very
    /// fast restart, clients therefore see a new epoch.
    pub fn wait_for_epoch(&self) {
        thread::sleep(Duration::from_nanos(self.0.epochs.wait_ns(now_ns())));
    }

    /// The node's memory budget.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.0.budget
    }

    /// The budget that is charged for topics which are created through this handle.
    pub(crate) fn charge_budget(&self) -> &Arc<MemoryBudget> {
        self.user().map_or(&self.0.budget, |user| user.budget())
    }

    /// The budget that is charged for the memory of connections: requests, subscriptions, results and inboxes.
    pub fn connection_budget(&self) -> &Arc<MemoryBudget> {
        self.user().map_or(&self.0.budget, |user| user.connection_budget())
    }

    /// Returns a session number that is unique within this node.
    pub fn next_session(&self) -> u64 {
        self.0.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn next_epoch(&self, name: &str, now_ns: u64) -> u32 {
        self.0.epochs.next(name, now_ns)
    }

    /// Returns the epoch with which a topic begins at this node; `agreed` is the topic's epoch on which the cluster has
    /// agreed.
    pub(crate) fn epoch_of_agreed(&self, name: &str, agreed: u32) -> u32 {
        self.0.epochs.epoch_after_start(name, agreed, now_ns())
    }

    pub(crate) fn lazy_control(&self) -> &LazyControl {
        &self.0.control
    }

    pub(crate) fn lazy_tasks(&self) -> &tasks::LazyTasks {
        &self.0.tasks
    }

    pub(crate) fn storage(&self) -> Option<&Storage> {
        self.0.storage.as_ref()
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(crate) fn deleted_totals(&self) -> &DeletedTotals {
        &self.0.deleted_totals
    }

    pub(crate) fn executors(&self) -> &ResponderExecutors {
        &self.0.executors
    }

    pub(crate) fn groups_of_node(&self) -> &Groups {
        &self.0.groups
    }

    /// Creates a topic. If `or_same` is set and a topic with this name and configuration exists, returns the existing
    /// topic. Configurations of reducers are equal if their options have the same meaning.
    pub fn create_topic(
        &self,
        name: &str,
        config: TopicConfig,
        or_same: bool,
    ) -> Result<Arc<Topic>, TopicError> {
        if is_reserved(name) || config.pattern.as_deref().is_some_and(is_reserved) {
            return Err(TopicError::Reserved(name.to_owned()));
        }
        self.may_all(Action::Create, &Pattern::parse(name)?)?;
        if let Some(pattern) = &config.pattern {
            self.may_all(Action::Create, &Pattern::parse(pattern)?)?;
        }
        self.create_charged(name, config, or_same, false)
    }

    /// Creates a topic and counts it for the user's tenant. `is_automatic` is set if a publish or subscribe call
    /// creates the topic.
    fn create_charged(
        &self,
        name: &str,
        config: TopicConfig,
        or_same: bool,
        is_automatic: bool,
    ) -> Result<Arc<Topic>, TopicError> {
        let Some(user) = self.user() else { return self.create(name, config, or_same) };
        user.reserve_topic(name, is_automatic)?;
        let created = self.create(name, config, or_same).map_err(|error| match error {
            TopicError::Overlaps(other) if self.topic(&other).is_none() => {
                TopicError::Overlaps(String::new())
            }
            error => error,
        });
        match &created {
            Ok(topic) => user.confirm_topic(topic),
            Err(_) => user.release_topic(name),
        }
        created
    }

    pub(crate) fn create(
        &self,
        name: &str,
        config: TopicConfig,
        or_same: bool,
    ) -> Result<Arc<Topic>, TopicError> {
        self.create_in(self.charge_budget(), name, config, or_same)
    }

    /// Creates a topic. `budget` is charged for the topic unless the cluster has to agree on it.
    pub(crate) fn create_in(
        &self,
        budget: &Arc<MemoryBudget>,
        name: &str,
        config: TopicConfig,
        or_same: bool,
    ) -> Result<Arc<Topic>, TopicError> {
        Subject::parse(name)?;
        let limits = self.0.config.topic_limits(&config);
        let config = with_storable_times(TopicConfig { limits, ..config });
        config.check()?;
        if let Some(reducer) = &config.reducer {
            // Check the reducer here: otherwise the cluster could agree on a topic that no node can open.
            let refused =
                |why: ReducerError| ConfigError::Reducer { kind: reducer.kind.clone(), why: why.to_string() };
            make_reducer(reducer).map_err(refused)?;
        }
        let pattern = Pattern::parse(config.pattern.as_deref().unwrap_or(name))?;
        pattern.check_new()?;
        self.check_refused(name, &pattern)?;
        if let Some(ownership) = self.ownership().filter(|_| !is_reserved(name)) {
            if config.durable.is_some() {
                let storage = self.0.storage.as_ref().ok_or(TopicError::NoDataDir)?;
                if self.0.registry.get(name).is_none() {
                    // Check the number of open files first: otherwise the cluster could agree on a topic whose files
                    // this node may not open.
                    storage.check_open_files(config.partitions)?;
                }
            }
            return ownership.create(self, name, &pattern, &config, or_same);
        }
        let config = self.share_config(config);
        let epoch = || self.0.epochs.next(name, now_ns());
        match self.create_local_in(budget, name, pattern, Arc::clone(&config), epoch) {
            Err(TopicError::Exists(name)) if or_same => match self.0.registry.get(&name) {
                Some(topic) if is_same_config(&name, topic.config(), &config) => Ok(topic),
                _ => Err(TopicError::Exists(name)),
            },
            other => other,
        }
    }

    /// Creates a topic at this node only, without asking the cluster.
    pub(crate) fn create_local(
        &self,
        name: &str,
        pattern: Pattern,
        config: Arc<TopicConfig>,
        epoch: impl FnOnce() -> u32,
    ) -> Result<Arc<Topic>, TopicError> {
        self.create_local_in(self.charge_budget(), name, pattern, config, epoch)
    }

    fn create_local_in(
        &self,
        budget: &Arc<MemoryBudget>,
        name: &str,
        pattern: Pattern,
        config: Arc<TopicConfig>,
        epoch: impl FnOnce() -> u32,
    ) -> Result<Arc<Topic>, TopicError> {
        let charge = || {
            let charge = MemoryCharge::of(budget, cost_of(name, config.partitions));
            charge.map_err(|spent| self.memory_limit_error(&spent))
        };
        if config.durable.is_none() {
            return self.0.registry.add(name, pattern, || {
                let (charge, config) = (charge()?, Arc::clone(&config));
                Ok((Topic::stateful(name, config, budget, CLOCK, epoch(), make_reducer)?, charge))
            });
        }
        let storage = self.0.storage.as_ref().ok_or(TopicError::NoDataDir)?;
        waiting::check();
        // The registry is not locked during the disk operation, so that lookups of topics do not wait for it.
        let _one_at_a_time = self.lock_durable_topics();
        self.0.registry.check(name, &pattern)?;
        let charge = charge()?;
        let epoch = epoch();
        // If a topic is created again within 100 ms after its deletion, the new topic's epoch is ahead of the clock.
        // The new topic's first record must not reach the disk as long as a restarted node could begin an earlier
        // epoch.
        thread::sleep(Duration::from_nanos(Epochs::ahead_ns(epoch, now_ns())));
        let mut created = Some((storage.create(name, &config, budget, epoch)?, charge));
        let unused = || TopicError::Exists(name.to_owned());
        let added = self.0.registry.add(name, pattern, || created.take().ok_or_else(unused));
        if let (Err(_), Some((topic, _))) = (&added, created) {
            // The registry has refused the topic, because another topic that owns some of the same subjects was created
            // meanwhile.
            storage.delete(&topic)?;
        }
        added
    }

    /// Takes the lock that is held while a durable topic is created or deleted.
    fn lock_durable_topics(&self) -> MutexGuard<'_, ()> {
        self.0.durable_topics_lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a system topic whose first epoch is `epoch`.
    pub(crate) fn create_system_topic(
        &self,
        name: &str,
        config: TopicConfig,
        epoch: u32,
    ) -> Result<Arc<Topic>, TopicError> {
        let config = Arc::new(TopicConfig { limits: self.0.config.limits.topic, ..config });
        let pattern = Pattern::parse(config.pattern.as_deref().unwrap_or(name))?;
        self.0.registry.add(name, pattern, || {
            let charge = MemoryCharge::forced(&self.0.budget, cost_of(name, config.partitions));
            Ok((Topic::new(name, Arc::clone(&config), &self.0.budget, CLOCK, epoch)?, charge))
        })
    }

    /// Returns a shared copy of the configuration. If the topic that was created last has an equal configuration,
    /// returns that topic's copy. Most topics have equal configurations, and a configuration is a fifth of a topic's
    /// memory.
    fn share_config(&self, config: TopicConfig) -> Arc<TopicConfig> {
        let mut last = self.0.last_config.lock().unwrap_or_else(PoisonError::into_inner);
        if **last != config {
            *last = Arc::new(config);
        }
        Arc::clone(&last)
    }

    /// Deletes a topic. From then on, publishers are refused. Subscribers receive the remaining records, and then a
    /// notice.
    pub fn delete_topic(&self, name: &str) -> Result<(), TopicError> {
        if is_reserved(name) {
            return Err(TopicError::Reserved(name.to_owned()));
        }
        if self.user().is_some() {
            self.may_all(Action::Delete, &Pattern::parse(name)?)?;
        }
        if self.has_refused(name) {
            return self.delete_refused(name);
        }
        match self.ownership() {
            Some(ownership) => ownership.delete(self, name),
            None => self.delete(name),
        }
    }

    /// Returns the command that moves a topic to the node `to`. The caller proposes the command through
    /// [`Node::control`].
    pub fn command_to_move<'a>(&self, name: &'a str, to: u64) -> Result<ControlCommand<'a>, TopicError> {
        if is_reserved(name) {
            return Err(TopicError::Reserved(name.to_owned()));
        }
        let pattern = Pattern::parse(name)?;
        self.may_all(Action::Create, &pattern)?;
        self.may_all(Action::Delete, &pattern)?;
        let alone = || {
            TopicError::Cluster("this node is not a member of a cluster, so the topic cannot move".to_owned())
        };
        let epoch = self.ownership().ok_or_else(alone)?.epoch_to_move(name, to);
        Ok(ControlCommand::Move { topic: name.as_bytes(), node: to, epoch })
    }

    pub(crate) fn delete(&self, name: &str) -> Result<(), TopicError> {
        let is_durable = self.0.registry.with(name, |topic| topic.config().durable.is_some()) == Some(true);
        let _one_at_a_time = is_durable.then(|| {
            waiting::check();
            self.lock_durable_topics()
        });
        let topic = self.remove(name)?;
        topic.close();
        match &self.0.storage {
            Some(storage) => storage.delete(&topic),
            None => Ok(()),
        }
    }

    /// Removes the topic from the registry, so that another topic can have its name. Does not notify the topic's
    /// subscribers.
    pub(crate) fn remove(&self, name: &str) -> Result<Arc<Topic>, TopicError> {
        let unknown = || TopicError::Unknown(name.to_owned());
        let epoch = |topic: &Topic| topic.logs().iter().map(|log| log.last().epoch).max().unwrap_or(0);
        // Record the topic's epoch before the name can be used again, so that a new topic with this name begins in a
        // later epoch.
        let topic = self.0.registry.get(name).ok_or_else(unknown)?;
        self.0.epochs.record_deleted(name, epoch(&topic), now_ns());
        let topic = self.0.registry.remove(name).ok_or_else(unknown)?;
        if !is_reserved(name) {
            self.0.deleted_totals.add(&topic);
        }
        self.0.deleted.add(&topic);
        Ok(topic)
    }

    /// Closes a durable topic that this node must not serve. The topic's files stay on disk.
    pub(crate) fn set_aside(&self, topic: &Arc<Topic>, why: String) {
        if self.0.registry.remove(topic.name()).is_none() {
            return;
        }
        topic.close();
        self.0.deleted_totals.add(topic);
        self.0.deleted.add(topic);
        if let Some(storage) = &self.0.storage {
            storage.set_aside(topic, why);
        }
    }

    /// The topic with this name, if the user may see it.
    pub fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        self.0.registry.get(name).filter(|topic| self.is_visible(topic))
    }

    /// Calls `read` with the topic of this name, without a check of the user's permissions. Faster than
    /// [`Node::topic`], which returns a counted reference. `read` must be short, because other lookups may wait for it,
    /// and must not look up, create or delete topics.
    #[inline]
    pub fn with_topic<R>(&self, name: &str, read: impl FnOnce(&Arc<Topic>) -> R) -> Option<R> {
        self.0.registry.with(name, read)
    }

    /// Returns at most `topics_max` topics whose names come after `after`, sorted by name. Without a pattern, system
    /// topics and inboxes are left out.
    pub fn topics(&self, pattern: Option<&Pattern>, after: &str, topics_max: usize) -> TopicPage {
        let topics_max = topics_max.min(self.0.config.limits.page_topics_max);
        self.0
            .registry
            .page(pattern, after, topics_max, &self.visible_names(), |topic| self.is_visible(topic))
    }

    /// Returns the name of the setting whose memory limit was reached; `spent` is the error that reported the limit.
    pub fn memory_limit_name(&self, spent: &MemoryBudgetError) -> &'static str {
        if spent.limit == self.0.budget.limit() { "memory_bytes_max" } else { "tenants.limits.memory_bytes" }
    }

    pub(crate) fn memory_limit_error(&self, spent: &MemoryBudgetError) -> TopicError {
        TopicError::Limit { limit: self.memory_limit_name(spent), value: spent.limit }
    }

    /// Returns a publisher for the subject.
    pub fn publisher(&self, subject: &str) -> Result<Publisher, PublishError> {
        let parsed = Subject::parse(subject).map_err(|error| PublishError::Refused(error.to_string()))?;
        Ok(self.owning_topic(parsed)?.publisher(subject))
    }

    /// Returns a subscriber to every subject that the pattern matches.
    pub fn subscribe(&self, pattern: &str, options: &SubscribeOptions) -> Result<Subscriber, SubscribeError> {
        self.subscribe_all(&[pattern], options)
    }

    /// Returns a subscriber to all subjects that match at least one of the patterns. A record that matches several
    /// patterns is delivered once for each of these patterns.
    pub fn subscribe_all(
        &self,
        patterns: &[&str],
        options: &SubscribeOptions,
    ) -> Result<Subscriber, SubscribeError> {
        if let (Start::After(_), 2..) = (options.start, patterns.len()) {
            return Err(SubscribeError::ManyLogs { pattern: patterns.join(" "), logs: patterns.len() });
        }
        // With `local_only`, wait only if the subscription starts after a given position. A node of a cluster
        // subscribes to the changes of keys with `local_only` and without a position. It does so while it applies its
        // log, and must not wait here.
        let may_wait = matches!(options.start, Start::After(_)) || !options.local_only;
        let may_wait = may_wait && waiting::is_allowed();
        let (mut newcomers, mut awaits_new_logs) = (None, false);
        let mut logs = Vec::new();
        for pattern in patterns {
            let shared = || Arc::clone(newcomers.get_or_insert_with(NewLogs::new));
            let missing = MissingTopicPolicy::of(options.start, false);
            let pattern = Pattern::parse(pattern)?;
            if may_wait && !pattern.is_literal() {
                block_on(self.prepare_watch(&pattern))?;
            }
            let selected = self.select(&pattern, options.start, missing, shared)?;
            awaits_new_logs |= selected.newcomers.is_some();
            logs.extend(selected.logs);
        }
        let newcomers = newcomers.filter(|_| awaits_new_logs);
        if may_wait {
            let mut waits = logs.iter().filter(|(log, _)| self.must_wait_to_start(log, options.start));
            waits.try_for_each(|(log, _)| block_on(self.wait_for_start(log, options.start)))?;
        }
        let cursor = |(log, filter)| Cursor::new(log, options, filter, ConsumeMode::Reads);
        let mut cursors = logs.into_iter().map(cursor).collect::<Result<Vec<_>, _>>()?;
        Ok(match (cursors.len(), newcomers) {
            (1, None) => Subscriber::one(cursors.remove(0), options.wait),
            (_, newcomers) => Subscriber::many(cursors, newcomers, options.clone(), CLOCK),
        })
    }

    /// Does the housekeeping; the embedding program calls this about once a second. Removes expired records, and
    /// handles the deadlines of groups.
    pub fn tick(&self) {
        let now_ns = now_ns();
        if let Some(storage) = &self.0.storage {
            storage.tick();
        }
        self.0.registry.aging().iter().for_each(|topic| topic.expire(now_ns));
        self.0.deleted.drop_expired();
        self.ownership().into_iter().for_each(|ownership| ownership.drop_expired_topics());
        self.0.groups.tick(self, steady_ns());
        self.retry_starts();
    }

    /// Stops the node and closes all topics. Publishers are refused. Subscribers receive the remaining records, and
    /// then a notice. Records of durable topics are stored completely; at the next start, these topics continue in the
    /// same epochs.
    pub fn stop(&self) {
        self.stop_tasks();
        self.stop_control();
        let topics = self.0.registry.drain();
        topics.iter().for_each(|topic| topic.close());
        if let Some(storage) = &self.0.storage {
            storage.stop();
        }
    }
}
