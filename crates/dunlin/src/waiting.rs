//! Asynchronous versions of operations that may block, because they wait for the cluster, a disk or another node.
//!
//! A thread that serves connections must not block, because this would stop all of its connections. Such a thread calls
//! [`forbid_waiting`]; debug builds then panic in operations that block ([`check`]). The futures of this module are
//! ready at once if nothing has to wait; otherwise a thread of a [pool](Waiters) does the work.

mod pool;

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use dunlin_topic::{
    ConsumeMode, Cursor, DurableOptions, Filter, Log, Pattern, Start, Subject, SubscribeError,
    SubscribeOptions, Topic, TopicConfig,
};
use tokio::sync::oneshot;

use crate::clock::steady_ns;
use crate::control::{ControlError, ControlGroup, KV, block_on};
use crate::error::TopicError;
use crate::groups::WorkOptions;
use crate::node::Node;
use crate::owner::OwningTopic;
use crate::ownership::Ownership;
use crate::registry::{is_reserved, is_service_subject};
use crate::select::MissingTopicPolicy;
use crate::tasks::{Tasks, TasksError, is_tasks_pattern};

pub(crate) use pool::Waiters;

/// Maximum number of threads that wait for records from one owner to arrive in mirrors.
const MIRROR_THREADS_MAX: usize = 16;
/// How long a node waits, at most, until it knows a topic on which the cluster has agreed.
pub(crate) const ARRIVAL_MAX: Duration = Duration::from_secs(2);
/// The pause between two checks for a change.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(true) };
}

/// Whether the calling thread may block.
pub(crate) fn is_allowed() -> bool {
    MAY_WAIT.get()
}

/// Forbids the calling thread to block in operations of this crate. Only its own event loop may still block.
pub fn forbid_waiting() {
    MAY_WAIT.set(false);
}

/// In debug builds, panics if the calling thread must not block.
#[track_caller]
pub(crate) fn check() {
    debug_assert!(
        MAY_WAIT.get(),
        "a thread that serves connections must not wait: use the operations that return a future"
    );
}

/// Repeats `check_once` at short intervals until this node has learned of a change in the cluster, so that `check_once`
/// returns a value. Gives up after [`ARRIVAL_MAX`] and returns `None`.
#[track_caller]
pub(crate) fn poll_until_found<T>(check_once: impl Fn() -> Option<T>) -> Option<T> {
    check();
    let until_ns = steady_ns().saturating_add(ARRIVAL_MAX.as_nanos() as u64);
    loop {
        let found = check_once();
        if found.is_some() || steady_ns() >= until_ns {
            return found;
        }
        thread::sleep(CHECK_INTERVAL);
    }
}

/// The future of an operation of a node that may have to wait for a disk or for another node.
#[derive(Debug)]
#[must_use = "it is done when it is awaited"]
pub struct NodeFuture<T, E>(Outcome<T, E>);

/// The future of an operation that creates, finds or deletes a topic.
pub type TopicFuture<T> = NodeFuture<T, TopicError>;

/// The future of opening a cursor. If another node owns the topic, the future is ready once this node has the owner's
/// latest records.
pub type CursorFuture = NodeFuture<Cursor, SubscribeError>;

#[derive(Debug)]
enum Outcome<T, E> {
    Ready(Option<Result<T, E>>),
    Pending(oneshot::Receiver<Result<T, E>>),
}

impl<T, E> NodeFuture<T, E> {
    pub(crate) fn ready(outcome: Result<T, E>) -> NodeFuture<T, E> {
        NodeFuture(Outcome::Ready(Some(outcome)))
    }

    /// Returns a future whose outcome another thread sends through the channel.
    pub(crate) fn pending(outcome: oneshot::Receiver<Result<T, E>>) -> NodeFuture<T, E> {
        NodeFuture(Outcome::Pending(outcome))
    }

    /// Takes the outcome if the future was ready from the start.
    pub fn try_take(&mut self) -> Option<Result<T, E>> {
        match &mut self.0 {
            Outcome::Ready(outcome) => outcome.take(),
            Outcome::Pending(_) => None,
        }
    }

    /// Returns the future if another thread still has to send its outcome.
    pub fn into_pending(self) -> Option<NodeFuture<T, E>> {
        matches!(self.0, Outcome::Pending(_)).then_some(self)
    }
}

impl<T, E> Unpin for NodeFuture<T, E> {}

impl<T, E: From<TopicError>> Future for NodeFuture<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let why = "this node could not start a thread for the operation";
        let not_run = || Err(TopicError::Cluster(why.to_owned()).into());
        match &mut self.0 {
            Outcome::Ready(outcome) => Poll::Ready(outcome.take().unwrap_or_else(not_run)),
            Outcome::Pending(receive) => {
                Pin::new(receive).poll(cx).map(|outcome| outcome.unwrap_or_else(|_| not_run()))
            }
        }
    }
}

impl Ownership {
    /// Opens a cursor on a thread that only opens cursors for topics of the same owner. If an owner is unreachable,
    /// only subscribers of this owner's topics therefore have to wait.
    fn open_cursor(
        &self,
        log: Arc<Log>,
        open: impl FnOnce(Arc<Log>) -> Result<Cursor, SubscribeError> + Send + 'static,
    ) -> CursorFuture {
        let owner = self.route_owner(&log.name().topic);
        let mut mirror_waiters = self.mirror_waiters();
        let waiters = mirror_waiters.entry(owner).or_insert_with(|| Waiters::of(MIRROR_THREADS_MAX));
        NodeFuture(Outcome::Pending(waiters.run_with_result(move || open(log))))
    }
}

impl Node {
    /// Runs `run` on a thread that may block.
    fn run_waiting<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Node) -> Result<T, TopicError> + Send + 'static,
    ) -> TopicFuture<T> {
        let node = self.clone();
        NodeFuture(Outcome::Pending(self.0.waiters.run_with_result(move || run(&node))))
    }

    /// Whether this node can find or create the topic that owns the subject, or refuse to create it, without blocking.
    pub fn finds_at_once(&self, subject: Subject<'_>, missing: MissingTopicPolicy) -> bool {
        if is_reserved(subject.as_str()) || self.has_owner(subject) {
            return true;
        }
        match missing {
            MissingTopicPolicy::Refuse => self.ownership().is_none(),
            MissingTopicPolicy::Create | MissingTopicPolicy::Await => {
                let is_created_by_cluster = self.ownership().is_some() && is_service_subject(subject);
                self.auto_creates_at_once() && !is_created_by_cluster
            }
        }
    }

    /// Whether this node can find or create the destination of a record with this subject, or refuse the record,
    /// without blocking. The record may be a reply.
    fn finds_to_publish_at_once(&self, subject: Subject<'_>, missing: MissingTopicPolicy) -> bool {
        match missing {
            MissingTopicPolicy::Refuse => self.finds_at_once(subject, missing),
            MissingTopicPolicy::Create | MissingTopicPolicy::Await => {
                let is_known = || self.reply_inbox(subject).is_some() || self.finds_at_once(subject, missing);
                self.has_owner(subject) || !self.needs_reply_query(subject) && is_known()
            }
        }
    }

    /// Whether a topic owns the subject.
    pub fn has_owner(&self, subject: Subject<'_>) -> bool {
        self.registry().owner(subject).is_some()
    }

    /// Whether a publish call to a subject without a topic does not block: it creates a topic at once, or creates none.
    pub(crate) fn auto_creates_at_once(&self) -> bool {
        !self.config().auto_create || self.creates_at_once(&self.config().topic)
    }

    /// Whether this node can create or refuse a topic for dead letters without blocking. `durable` is the durability of
    /// the group's topic.
    pub(crate) fn creates_letter_topic_at_once(
        &self,
        subject: Subject<'_>,
        durable: Option<DurableOptions>,
    ) -> bool {
        let creates_at_once = || durable.is_none() && self.creates_at_once(&self.config().topic);
        let is_refused = !self.config().auto_create && !is_service_subject(subject);
        is_reserved(subject.as_str()) || is_refused || creates_at_once()
    }

    /// Whether a topic with this configuration can be created without the cluster and without a disk.
    pub fn creates_at_once(&self, config: &TopicConfig) -> bool {
        self.ownership().is_none() && config.durable.is_none()
    }

    /// Like [`Node::owning_topic_for`], but does not block.
    pub fn owning_topic_for_async(
        &self,
        subject: Subject<'_>,
        payload_bytes: usize,
    ) -> TopicFuture<OwningTopic> {
        if self.finds_to_publish_at_once(subject, MissingTopicPolicy::Create) {
            return TopicFuture::ready(self.owning_topic_for(subject, payload_bytes));
        }
        let subject = subject.as_str().to_owned();
        self.run_waiting(move |node| node.owning_topic_for(Subject::parse(&subject)?, payload_bytes))
    }

    /// Like [`Node::owning_topic_for_no_reply`], but does not block.
    pub fn owning_topic_for_no_reply_async(
        &self,
        subject: Subject<'_>,
        payload_bytes: usize,
    ) -> TopicFuture<OwningTopic> {
        if self.finds_at_once(subject, MissingTopicPolicy::Create) {
            return TopicFuture::ready(self.owning_topic_for_no_reply(subject, payload_bytes));
        }
        let subject = subject.as_str().to_owned();
        self.run_waiting(move |node| node.owning_topic_for_no_reply(Subject::parse(&subject)?, payload_bytes))
    }

    /// Creates topics for these subjects, in this order and with one request to the cluster, without blocking. The
    /// second value of each pair is the payload size of the record for the subject. Afterwards,
    /// [`Node::owning_topic_for_async`] is likely to be ready at once.
    pub fn precreate_topics_async(&self, subjects: Vec<(String, usize)>) -> TopicFuture<()> {
        match subjects.is_empty() || self.ownership().is_none() {
            true => TopicFuture::ready(Ok(())),
            false => self.run_waiting(move |node| {
                node.precreate_topics(subjects);
                Ok(())
            }),
        }
    }

    /// Like [`Node::existing_topic`], but does not block.
    pub fn existing_topic_async(&self, subject: Subject<'_>) -> TopicFuture<OwningTopic> {
        if self.finds_at_once(subject, MissingTopicPolicy::Refuse) {
            return TopicFuture::ready(self.existing_topic(subject));
        }
        let subject = subject.as_str().to_owned();
        self.run_waiting(move |node| node.existing_topic(Subject::parse(&subject)?))
    }

    /// Finds or creates the topic for a publisher, without blocking. Afterwards, [`Node::owning_topic_or_pattern`] does
    /// not block, unless the topic is deleted meanwhile.
    pub fn prepare_publish(&self, pattern: &Pattern, missing: MissingTopicPolicy) -> TopicFuture<()> {
        let subject = Subject::parse(pattern.as_str()).ok().filter(|_| pattern.is_literal());
        match subject.filter(|subject| self.may_publish(*subject).is_ok()) {
            Some(subject) if missing == MissingTopicPolicy::Refuse => self.prepare_topic(subject, missing),
            Some(subject) if self.finds_to_publish_at_once(subject, missing) => TopicFuture::ready(Ok(())),
            Some(subject) => {
                let subject = subject.as_str().to_owned();
                self.run_waiting(move |node| {
                    let subject = Subject::parse(&subject)?;
                    // If a reply inbox accepts the subject, this call makes the node remember the inbox, so that
                    // `owning_topic_or_pattern` finds the inbox later.
                    if node.resolve_reply_inbox(subject) {
                        Ok(())
                    } else {
                        node.find_owning_topic(subject).map(drop)
                    }
                })
            }
            // The pattern has wildcards, or the user lacks the permission. There is nothing to prepare: the caller's
            // later call of `owning_topic_or_pattern` does not block. It also returns the error, if there is one.
            None => TopicFuture::ready(Ok(())),
        }
    }

    /// Waits, without blocking, until this node knows a topic with this pattern. Call this when another node forwards
    /// records to the topic: the other node may have learned sooner than this node that this node owns the topic.
    pub fn prepare_forwarded(&self, pattern: &Pattern) -> TopicFuture<()> {
        let is_known = self.registry().of_pattern(pattern).is_some();
        if pattern.is_literal() || is_reserved(pattern.as_str()) || is_known {
            return self.prepare_publish(pattern, MissingTopicPolicy::Refuse);
        }
        let pattern = pattern.clone();
        self.run_waiting(move |node| {
            let _ = poll_until_found(|| node.registry().of_pattern(&pattern));
            Ok(())
        })
    }

    /// Finds or creates the topic of a `share` group, without blocking. Joining the group then does not block.
    pub fn prepare_share(&self, topic: &str, group: &str) -> TopicFuture<()> {
        self.prepare_group(topic, group, None)
    }

    /// Finds or creates the topic of a `work` group, and the topic for the group's dead letters, without blocking.
    /// Joining the group then does not block.
    pub fn prepare_work(&self, topic: &str, group: &str, options: &WorkOptions) -> TopicFuture<()> {
        self.prepare_group(topic, group, options.dead_letters_of(topic))
    }

    fn prepare_group(&self, topic: &str, group: &str, dead_letters: Option<String>) -> TopicFuture<()> {
        let parsed = |name| Subject::parse(name).ok();
        let is_owned = |name| parsed(name).is_none_or(|name| self.registry().owner(name).is_some());
        // Look the topic up by its name, which need not be one of its subjects.
        let known = self.registry().get(topic);
        let topic_at_once = known.is_some()
            || parsed(topic).is_none_or(|topic| self.finds_at_once(topic, MissingTopicPolicy::Create));
        let dead_letters_at_once = || {
            let has_topic = dead_letters.as_deref().is_none_or(is_owned);
            let is_durable = known.as_ref().is_some_and(|topic| topic.config().durable.is_some());
            let creates_at_once = || !is_durable && self.creates_at_once(&self.config().topic);
            let has_group = || known.as_ref().is_some_and(|topic| self.has_group(topic, group));
            has_topic || creates_at_once() || has_group()
        };
        if topic_at_once && dead_letters_at_once() {
            return TopicFuture::ready(Ok(()));
        }
        let (topic, group) = (topic.to_owned(), group.to_owned());
        self.run_waiting(move |node| node.prepare_join(&topic, &group, dead_letters.as_deref()))
    }

    fn prepare_topic(&self, subject: Subject<'_>, missing: MissingTopicPolicy) -> TopicFuture<()> {
        if self.finds_at_once(subject, missing) {
            return TopicFuture::ready(Ok(()));
        }
        let subject = subject.as_str().to_owned();
        self.run_waiting(move |node| {
            let subject = Subject::parse(&subject)?;
            let found = match missing {
                MissingTopicPolicy::Refuse | MissingTopicPolicy::Await => node.agreed_topic(subject),
                MissingTopicPolicy::Create => node.find_owning_topic(subject),
            };
            match (found, missing) {
                (Err(_), MissingTopicPolicy::Await) => Ok(()),
                (found, _) => found.map(drop),
            }
        })
    }

    /// Whether [`Node::select`] does not block for this pattern.
    pub fn selects_at_once(&self, pattern: &Pattern, missing: MissingTopicPolicy) -> bool {
        if pattern.as_str() == KV {
            return self.control_if_any().is_some();
        }
        if is_tasks_pattern(pattern.as_str()) {
            return self.tasks_if_any().is_some();
        }
        let subject = Subject::parse_existing(pattern.as_str()).ok().filter(|_| pattern.is_literal());
        subject.is_none_or(|subject| self.finds_at_once(subject, missing))
    }

    /// Prepares a call of [`Node::select`], so that this call does not block. The preparation does not block the caller
    /// either. If the pattern has wildcards, waits until this node knows the cluster's topics.
    pub fn prepare_select(&self, pattern: &Pattern, missing: MissingTopicPolicy) -> TopicFuture<()> {
        if self.may_subscribe(pattern).is_err() {
            // For a pattern that the user may not read, there is nothing to prepare: selecting returns the error.
            return TopicFuture::ready(Ok(()));
        }
        // Only the policy `Create` makes a difference between existing and new topics. With any other policy, a
        // subscription starts in the same way in both.
        let has_wildcards = !pattern.is_literal() && !is_reserved(pattern.as_str());
        if has_wildcards && missing == MissingTopicPolicy::Create {
            return self.prepare_watch(pattern);
        }
        if self.selects_at_once(pattern, missing) {
            return TopicFuture::ready(Ok(()));
        }
        let (pattern, refused) = (pattern.clone(), |why: String| TopicError::Cluster(why));
        if pattern.as_str() == KV {
            return self
                .run_waiting(move |node| node.control().map(drop).map_err(|why| refused(why.to_string())));
        }
        if is_tasks_pattern(pattern.as_str()) {
            return self
                .run_waiting(move |node| node.tasks().map(drop).map_err(|why| refused(why.to_string())));
        }
        match Subject::parse_existing(pattern.as_str()) {
            Ok(subject) => self.prepare_topic(subject, missing),
            Err(error) => TopicFuture::ready(Err(error.into())),
        }
    }

    /// Waits, without blocking, until this node knows the cluster's topics. Does not wait if the pattern can match only
    /// one topic, and this node knows it. [`Node::watch`] then returns the existing topics, and takes none of them for
    /// a new one.
    pub fn prepare_watch(&self, pattern: &Pattern) -> TopicFuture<()> {
        let has_owner =
            || Subject::parse_existing(pattern.as_str()).is_ok_and(|subject| self.has_owner(subject));
        let is_known = || is_reserved(pattern.as_str()) || pattern.is_literal() && has_owner();
        match self.ownership() {
            Some(ownership) if !is_known() && self.may_subscribe(pattern).is_ok() => {
                ownership.await_agreed_topics()
            }
            _ => TopicFuture::ready(Ok(())),
        }
    }

    /// Like [`Cursor::with_start`], but does not block. If another node owns the log, and the start depends on the
    /// owner's records, the future is ready only once the mirror at this node has these records.
    pub fn open_cursor(
        &self,
        log: Arc<Log>,
        options: &SubscribeOptions,
        start: Start,
        filter: Option<Filter>,
        consumption: ConsumeMode,
    ) -> CursorFuture {
        let has_registration = options.registered && log.config().reliable.is_some();
        let needs_owner_records = match start {
            Start::Earliest | Start::Time(_) => true,
            Start::Latest | Start::Snapshot | Start::After(_) => has_registration || !log.is_positioned(),
        };
        let ownership =
            self.ownership().filter(|_| !options.local_only && needs_owner_records && log.is_mirror());
        let Some(ownership) = ownership else {
            return match self.must_wait_to_start(&log, start) {
                true => self.open_later(log, options, start, filter, consumption),
                false => NodeFuture::ready(Cursor::with_start(log, options, start, filter, consumption)),
            };
        };
        let options = options.clone();
        ownership.open_cursor(log, move |log| Cursor::with_start(log, &options, start, filter, consumption))
    }

    /// Opens a cursor on a thread that may block. This thread first waits until the log contains the position at which
    /// the cursor starts.
    fn open_later(
        &self,
        log: Arc<Log>,
        options: &SubscribeOptions,
        start: Start,
        filter: Option<Filter>,
        consumption: ConsumeMode,
    ) -> CursorFuture {
        let (node, options) = (self.clone(), options.clone());
        NodeFuture(Outcome::Pending(self.0.waiters.run_with_result(move || {
            block_on(node.wait_for_start(&log, start))?;
            Cursor::with_start(log, &options, start, filter, consumption)
        })))
    }

    /// Like [`Node::create_topic`], but does not block.
    pub fn create_topic_async(
        &self,
        name: &str,
        config: TopicConfig,
        or_same: bool,
    ) -> TopicFuture<Arc<Topic>> {
        if self.creates_at_once(&config) {
            return TopicFuture::ready(self.create_topic(name, config, or_same));
        }
        let name = name.to_owned();
        self.run_waiting(move |node| node.create_topic(&name, config, or_same))
    }

    /// Whether the topic can be deleted without the cluster and without a disk.
    pub fn deletes_at_once(&self, name: &str) -> bool {
        let is_durable = self.with_topic(name, |topic| topic.config().durable.is_some());
        self.ownership().is_none() && is_durable != Some(true) && !self.has_refused(name)
    }

    /// Like [`Node::delete_topic`], but does not block.
    pub fn delete_topic_async(&self, name: &str) -> TopicFuture<()> {
        if self.deletes_at_once(name) {
            return TopicFuture::ready(self.delete_topic(name));
        }
        let name = name.to_owned();
        self.run_waiting(move |node| node.delete_topic(&name))
    }

    /// Runs `run` on a thread that may block, and returns its result. Returns `None` if no thread could run it.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Option<T> {
        let node = self.clone();
        self.0.waiters.run_with_result(move || run(&node)).await.ok()
    }

    /// Like [`Node::control`], but does not block. The first use of keys may have to open a log.
    pub async fn control_async(&self) -> Result<Arc<ControlGroup>, ControlError> {
        if let Some(control) = self.control_if_any() {
            return Ok(Arc::clone(control));
        }
        let not_run = || Err(ControlError::Start("no thread could be started".to_owned()));
        self.run_blocking(|node| node.control().map(Arc::clone)).await.unwrap_or_else(not_run)
    }

    /// Like [`Node::tasks`], but does not block. The first use of tasks may have to open logs.
    pub async fn tasks_async(&self) -> Result<Arc<Tasks>, TasksError> {
        if let Some(tasks) = self.tasks_if_any() {
            return Ok(Arc::clone(tasks));
        }
        let not_run = || Err(ControlError::Start("no thread could be started".to_owned()).into());
        self.run_blocking(|node| node.tasks().map(Arc::clone)).await.unwrap_or_else(not_run)
    }

    /// The node's membership in the shards of the task scheduler. `None` for a single node without tasks on disk or in
    /// memory.
    pub async fn tasks_if_begun(&self) -> Result<Option<Arc<Tasks>>, TasksError> {
        if let Some(tasks) = self.tasks_if_any() {
            return Ok(Some(Arc::clone(tasks)));
        }
        let has_begun = |node: &Node| node.is_cluster_member() || node.has_tasks();
        match self.run_blocking(has_begun).await {
            Some(false) => Ok(None),
            Some(true) | None => self.tasks_async().await.map(Some),
        }
    }
}
