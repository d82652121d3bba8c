//! Operations that wait (for agreement, for a disk, for another node), for code that must not.
//!
//! A thread that serves listeners serves many connections, and one that waits on it stops all of them. Such a thread says so
//! ([`forbid_waiting`]); whatever waits checks that in debug builds ([`check`]). The thread uses the operations here
//! instead: each is a future that is ready at once where nothing has to be waited for, and else runs on a thread of the node's.
//!
//! Limits: [`THREADS_MAX`] threads, which end after [`IDLE`] without work; what is asked beyond them waits its turn.

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use dunlin_topic::{
    Consumption, Cursor, Filter, Log, Pattern, Position, Start, Subject, SubscribeError, SubscribeOptions,
    Topic, TopicConfig,
};
use tokio::sync::oneshot;

use crate::access::Action;
use crate::control::{Control, ControlError, KV, block_on};
use crate::error::TopicError;
use crate::groups::WorkOptions;
use crate::node::Node;
use crate::owner::Owner;
use crate::ownership::Ownership;
use crate::registry::is_reserved;
use crate::select::Missing;
use crate::tasks::{Tasks, TasksError, is_of_tasks};

/// Threads that wait at most; more would wait for the same cluster or the same disk.
const THREADS_MAX: usize = 64;
/// Threads that wait for one owner's mirrors.
const PLACING_MAX: usize = 16;
/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(true) };
}

/// Whether this thread may wait.
pub(crate) fn is_allowed() -> bool {
    MAY_WAIT.get()
}

/// From now on this thread must not wait for anything but its own poll.
pub fn forbid_waiting() {
    MAY_WAIT.set(false);
}

/// Panics in debug builds on a thread that must not wait.
#[track_caller]
pub(crate) fn check() {
    debug_assert!(
        MAY_WAIT.get(),
        "a thread that serves connections must not wait: use the operations that return a future"
    );
}

type Job = Box<dyn FnOnce() + Send>;

/// The threads that wait.
#[derive(Debug)]
pub(crate) struct Waiters {
    work: Arc<Work>,
    threads_max: usize,
}

impl Default for Waiters {
    fn default() -> Waiters {
        Waiters::of(THREADS_MAX)
    }
}

#[derive(Default)]
struct Work {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    ended: bool,
}

impl Waiters {
    /// So many threads at most.
    pub(crate) fn of(threads_max: usize) -> Waiters {
        Waiters { work: Arc::default(), threads_max }
    }

    /// Runs it on a thread that may wait. Where no thread can be started it is dropped.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.work.lock();
        state.jobs.push_back(Box::new(job));
        if state.jobs.len() <= state.idle || state.threads >= self.threads_max {
            drop(state);
            return self.work.more.notify_one();
        }
        state.threads += 1;
        drop(state);
        let work = Arc::clone(&self.work);
        let started = thread::Builder::new().name("dunlin-waits".to_owned()).spawn(move || work.serve());
        if started.is_err() {
            let mut state = self.work.lock();
            state.threads -= 1;
            if state.threads == 0 {
                let jobs = std::mem::take(&mut state.jobs);
                drop(state);
                drop(jobs);
            }
        }
    }

    /// What `run` returns; nothing where it could not be run.
    pub(crate) fn outcome<T: Send + 'static>(
        &self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (send, receive) = oneshot::channel();
        self.run(move || drop(send.send(run())));
        receive
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        self.work.lock().ended = true;
        self.work.more.notify_all();
    }
}

impl Work {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let _serving = Serving(self);
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
                continue;
            }
            if state.ended {
                return;
            }
            state.idle += 1;
            let waited = self.more.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            state.idle -= 1;
            if waited.1.timed_out() && state.jobs.is_empty() {
                return;
            }
        }
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Work")
    }
}

/// Counts a thread for as long as it serves, be it that a job panics.
struct Serving<'a>(&'a Work);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
    }
}

/// The outcome of an operation that may have to wait.
#[derive(Debug)]
#[must_use = "it is done when it is awaited"]
pub struct Later<T, E>(Outcome<T, E>);

/// The outcome of an operation on topics.
pub type TopicFuture<T> = Later<T, TopicError>;
/// A cursor, once its log stands where its owner's does.
pub type CursorFuture = Later<Cursor, SubscribeError>;

#[derive(Debug)]
enum Outcome<T, E> {
    Ready(Option<Result<T, E>>),
    Waiting(oneshot::Receiver<Result<T, E>>),
}

impl<T, E> Later<T, E> {
    pub(crate) fn ready(outcome: Result<T, E>) -> Later<T, E> {
        Later(Outcome::Ready(Some(outcome)))
    }

    /// What somebody sends.
    pub(crate) fn waiting(outcome: oneshot::Receiver<Result<T, E>>) -> Later<T, E> {
        Later(Outcome::Waiting(outcome))
    }

    /// The outcome, where it is there without waiting.
    pub fn take_now(&mut self) -> Option<Result<T, E>> {
        match &mut self.0 {
            Outcome::Ready(outcome) => outcome.take(),
            Outcome::Waiting(_) => None,
        }
    }

    /// The future, where there is something to wait for.
    pub fn if_waiting(self) -> Option<Later<T, E>> {
        matches!(self.0, Outcome::Waiting(_)).then_some(self)
    }
}

impl<T, E> Unpin for Later<T, E> {}

impl<T, E: From<TopicError>> Future for Later<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let why = "this node could not start a thread for it";
        let not_run = || Err(TopicError::Cluster(why.to_owned()).into());
        match &mut self.0 {
            Outcome::Ready(outcome) => Poll::Ready(outcome.take().unwrap_or_else(not_run)),
            Outcome::Waiting(receive) => {
                Pin::new(receive).poll(cx).map(|outcome| outcome.unwrap_or_else(|_| not_run()))
            }
        }
    }
}

impl Ownership {
    /// Whoever waits for one owner waits for no other: one that is gone costs the readers of its own topics alone.
    fn open_cursor(
        &self,
        log: Arc<Log>,
        open: impl FnOnce(Arc<Log>) -> Result<Cursor, SubscribeError> + Send + 'static,
    ) -> CursorFuture {
        let owner = self.way_owner(&log.name().topic);
        let mut placing = self.placing();
        let waiters = placing.entry(owner).or_insert_with(|| Waiters::of(PLACING_MAX));
        Later(Outcome::Waiting(waiters.outcome(move || open(log))))
    }
}

impl Node {
    /// Does what may wait on a thread that may.
    fn wait_for<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Node) -> Result<T, TopicError> + Send + 'static,
    ) -> TopicFuture<T> {
        let node = self.clone();
        Later(Outcome::Waiting(self.0.waiters.outcome(move || run(&node))))
    }

    /// Whether the topic that owns the subject is found, made or refused without waiting.
    pub fn finds_at_once(&self, subject: Subject<'_>, missing: Missing) -> bool {
        if is_reserved(subject.as_str()) || self.has_owner(subject) {
            return true;
        }
        match missing {
            Missing::Refuse => self.ownership().is_none(),
            Missing::Create | Missing::Await => self.creates_at_once(),
        }
    }

    /// Whether the destination of a record, which may be a reply, is found, made or refused without waiting.
    fn finds_to_publish_at_once(&self, subject: Subject<'_>, missing: Missing) -> bool {
        match missing {
            Missing::Refuse => self.finds_at_once(subject, missing),
            Missing::Create | Missing::Await => {
                let is_known = || self.reply_inbox(subject).is_some() || self.finds_at_once(subject, missing);
                self.has_owner(subject) || !self.queries_reply_inbox(subject) && is_known()
            }
        }
    }

    /// Whether there is a topic that owns the subject.
    pub fn has_owner(&self, subject: Subject<'_>) -> bool {
        self.registry().owner(subject).is_some()
    }

    /// Whether the topics that are created for what is published are made without waiting.
    pub(crate) fn creates_at_once(&self) -> bool {
        !self.config().auto_create || self.makes_at_once(&self.config().topic)
    }

    /// Whether a topic of this configuration is made without asking a cluster or a disk.
    pub fn makes_at_once(&self, config: &TopicConfig) -> bool {
        self.ownership().is_none() && config.durable.is_none()
    }

    /// [`Node::owner_for`] for code that must not wait.
    pub fn owner_for_async(&self, subject: Subject<'_>, payload_bytes: usize) -> TopicFuture<Owner> {
        if self.finds_to_publish_at_once(subject, Missing::Create) {
            return TopicFuture::ready(self.owner_for(subject, payload_bytes));
        }
        let subject = subject.as_str().to_owned();
        self.wait_for(move |node| node.owner_for(Subject::parse(&subject)?, payload_bytes))
    }

    /// [`Node::owner_for_no_reply`] for code that must not wait.
    pub fn owner_for_no_reply_async(&self, subject: Subject<'_>, payload_bytes: usize) -> TopicFuture<Owner> {
        if self.finds_at_once(subject, Missing::Create) {
            return TopicFuture::ready(self.owner_for_no_reply(subject, payload_bytes));
        }
        let subject = subject.as_str().to_owned();
        self.wait_for(move |node| node.owner_for_no_reply(Subject::parse(&subject)?, payload_bytes))
    }

    /// For code that must not wait: [`Node::owner_for_async`] of these subjects, with the bytes of the records' payloads, is likely not to wait
    /// afterwards. The cluster is asked once for all topics that are to be made, in this order.
    pub fn make_ahead_async(&self, subjects: Vec<(String, usize)>) -> TopicFuture<()> {
        match subjects.is_empty() || self.ownership().is_none() {
            true => TopicFuture::ready(Ok(())),
            false => self.wait_for(move |node| {
                node.make_ahead(subjects);
                Ok(())
            }),
        }
    }

    /// [`Node::existing_owner`] for code that must not wait.
    pub fn existing_owner_async(&self, subject: Subject<'_>) -> TopicFuture<Owner> {
        if self.finds_at_once(subject, Missing::Refuse) {
            return TopicFuture::ready(self.existing_owner(subject));
        }
        let subject = subject.as_str().to_owned();
        self.wait_for(move |node| node.existing_owner(Subject::parse(&subject)?))
    }

    /// Has the topic of what is to be published found or made, for code that must not wait: as long as nobody deletes it,
    /// [`Node::owner_or_pattern`] does not wait then.
    pub fn prepare_publish(&self, pattern: &Pattern, missing: Missing) -> TopicFuture<()> {
        let subject = Subject::parse(pattern.as_str()).ok().filter(|_| pattern.is_literal());
        match subject.filter(|subject| self.may_publish(*subject).is_ok()) {
            Some(subject) if missing == Missing::Refuse => self.prepare_topic(subject, missing),
            Some(subject) if self.finds_to_publish_at_once(subject, missing) => TopicFuture::ready(Ok(())),
            Some(subject) => {
                let subject = subject.as_str().to_owned();
                self.wait_for(move |node| {
                    let subject = Subject::parse(&subject)?;
                    // The node remembers the inbox.
                    if node.finds_reply_inbox(subject) { Ok(()) } else { node.find_owner(subject).map(drop) }
                })
            }
            // Publishing refuses a user without the permission.
            None => TopicFuture::ready(Ok(())),
        }
    }

    /// Has what joining a `share` group would wait for done, for code that must not wait.
    pub fn prepare_share(&self, topic: &str, group: &str) -> TopicFuture<()> {
        self.prepare_group(topic, group, None)
    }

    /// Has what joining a `work` group would wait for done, for code that must not wait.
    pub fn prepare_work(&self, topic: &str, group: &str, options: &WorkOptions) -> TopicFuture<()> {
        self.prepare_group(topic, group, options.dead_letters_of(topic))
    }

    fn prepare_group(&self, topic: &str, group: &str, dead_letters: Option<String>) -> TopicFuture<()> {
        let parsed = |name| Subject::parse(name).ok();
        let is_there = |name| parsed(name).is_none_or(|name| self.registry().owner(name).is_some());
        // A topic's name need not be one of its subjects.
        let is_known = self.registry().get(topic).is_some();
        let topic_at_once =
            is_known || parsed(topic).is_none_or(|topic| self.finds_at_once(topic, Missing::Create));
        let letters_at_once = || {
            let is_there = dead_letters.as_deref().is_none_or(is_there);
            is_there || self.makes_at_once(&self.config().topic) || self.has_group(topic, group)
        };
        if topic_at_once && letters_at_once() {
            return TopicFuture::ready(Ok(()));
        }
        let (topic, group) = (topic.to_owned(), group.to_owned());
        self.wait_for(move |node| node.prepare_join(&topic, &group, dead_letters.as_deref()))
    }

    fn prepare_topic(&self, subject: Subject<'_>, missing: Missing) -> TopicFuture<()> {
        if self.finds_at_once(subject, missing) {
            return TopicFuture::ready(Ok(()));
        }
        let subject = subject.as_str().to_owned();
        self.wait_for(move |node| {
            let subject = Subject::parse(&subject)?;
            let found = match missing {
                Missing::Refuse | Missing::Await => node.agreed_owner(subject),
                Missing::Create => node.find_owner(subject),
            };
            match (found, missing) {
                (Err(_), Missing::Await) => Ok(()),
                (found, _) => found.map(drop),
            }
        })
    }

    /// Whether [`Node::select`] waits for nothing.
    pub fn selects_at_once(&self, pattern: &Pattern, missing: Missing) -> bool {
        if pattern.as_str() == KV {
            return self.control_if_any().is_some();
        }
        if is_of_tasks(pattern.as_str()) {
            return self.tasks_if_any().is_some();
        }
        let subject = Subject::parse(pattern.as_str()).ok().filter(|_| pattern.is_literal());
        subject.is_none_or(|subject| self.finds_at_once(subject, missing))
    }

    /// Has what [`Node::select`] would wait for done, for code that must not wait.
    pub fn prepare_select(&self, pattern: &Pattern, missing: Missing) -> TopicFuture<()> {
        let is_denied = !is_reserved(pattern.as_str()) && self.may(Action::Subscribe, pattern).is_err();
        if self.selects_at_once(pattern, missing) || is_denied {
            // Selecting refuses what is denied. Keys and tasks have permissions of their own.
            return TopicFuture::ready(Ok(()));
        }
        let (pattern, refused) = (pattern.clone(), |why: String| TopicError::Cluster(why));
        if pattern.as_str() == KV {
            return self
                .wait_for(move |node| node.control().map(drop).map_err(|why| refused(why.to_string())));
        }
        if is_of_tasks(pattern.as_str()) {
            return self.wait_for(move |node| node.tasks().map(drop).map_err(|why| refused(why.to_string())));
        }
        match Subject::parse(pattern.as_str()) {
            Ok(subject) => self.prepare_topic(subject, missing),
            Err(error) => TopicFuture::ready(Err(error.into())),
        }
    }

    /// [`Cursor::starting`] for code that must not wait: where another node owns the log, its mirror here is to stand where the
    /// owner does before a reader begins.
    pub fn open_cursor(
        &self,
        log: Arc<Log>,
        options: &SubscribeOptions,
        start: Start,
        filter: Option<Filter>,
        consumption: Consumption,
    ) -> CursorFuture {
        let has_own = options.registered && log.config().reliable.is_some();
        let is_elsewhere = match start {
            Start::Earliest | Start::Time(_) => true,
            Start::Latest | Start::Snapshot | Start::After(_) => has_own || !log.is_placed(),
        };
        let ownership = self.ownership().filter(|_| !options.here && is_elsewhere && log.is_mirror());
        let Some(ownership) = ownership else {
            return match start {
                Start::After(asked) if log.awaits(asked) => {
                    self.open_ahead(log, options, asked, filter, consumption)
                }
                _ => Later::ready(Cursor::starting(log, options, start, filter, consumption)),
            };
        };
        let options = options.clone();
        ownership.open_cursor(log, move |log| Cursor::starting(log, &options, start, filter, consumption))
    }

    /// A reader names a position to which this node has not come.
    fn open_ahead(
        &self,
        log: Arc<Log>,
        options: &SubscribeOptions,
        asked: Position,
        filter: Option<Filter>,
        consumption: Consumption,
    ) -> CursorFuture {
        let (node, options) = (self.clone(), options.clone());
        Later(Outcome::Waiting(self.0.waiters.outcome(move || {
            block_on(node.check_handed_out(&log, asked))?;
            Cursor::starting(log, &options, Start::After(asked), filter, consumption)
        })))
    }

    /// [`Node::create_topic`] for code that must not wait.
    pub fn create_topic_async(
        &self,
        name: &str,
        config: TopicConfig,
        or_same: bool,
    ) -> TopicFuture<Arc<Topic>> {
        if self.makes_at_once(&config) {
            return TopicFuture::ready(self.create_topic(name, config, or_same));
        }
        let name = name.to_owned();
        self.wait_for(move |node| node.create_topic(&name, config, or_same))
    }

    /// Whether the topic is deleted without asking a cluster or a disk.
    pub fn deletes_at_once(&self, name: &str) -> bool {
        let is_durable = self.with_topic(name, |topic| topic.config().durable.is_some());
        self.ownership().is_none() && is_durable != Some(true) && !self.has_refused(name)
    }

    /// [`Node::delete_topic`] for code that must not wait.
    pub fn delete_topic_async(&self, name: &str) -> TopicFuture<()> {
        if self.deletes_at_once(name) {
            return TopicFuture::ready(self.delete_topic(name));
        }
        let name = name.to_owned();
        self.wait_for(move |node| node.delete_topic(&name))
    }

    /// Runs what may wait on a thread of the node's; `None` where it could not be run.
    pub async fn unblock<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Option<T> {
        let node = self.clone();
        self.0.waiters.outcome(move || run(&node)).await.ok()
    }

    /// [`Node::control`] for code that must not wait: the first use may open a log.
    pub async fn control_async(&self) -> Result<Arc<Control>, ControlError> {
        if let Some(control) = self.control_if_any() {
            return Ok(Arc::clone(control));
        }
        let not_run = || Err(ControlError::Start("no thread could be started".to_owned()));
        self.unblock(|node| node.control().map(Arc::clone)).await.unwrap_or_else(not_run)
    }

    /// [`Node::tasks`] for code that must not wait: the first use may open a log.
    pub async fn tasks_async(&self) -> Result<Arc<Tasks>, TasksError> {
        if let Some(tasks) = self.tasks_if_any() {
            return Ok(Arc::clone(tasks));
        }
        let not_run = || Err(ControlError::Start("no thread could be started".to_owned()).into());
        self.unblock(|node| node.tasks().map(Arc::clone)).await.unwrap_or_else(not_run)
    }

    /// Its tasks if there can be any; `None` on a node alone where none was ever submitted.
    pub async fn tasks_if_begun(&self) -> Result<Option<Arc<Tasks>>, TasksError> {
        if let Some(tasks) = self.tasks_if_any() {
            return Ok(Some(Arc::clone(tasks)));
        }
        let has_begun = |node: &Node| node.is_of_cluster() || node.has_tasks();
        match self.unblock(has_begun).await {
            Some(false) => Ok(None),
            Some(true) | None => self.tasks_async().await.map(Some),
        }
    }
}
