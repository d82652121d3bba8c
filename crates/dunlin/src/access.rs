//! Permissions decide which actions a user may take. Authentication and the quotas of users are in `server::access`.
//!
//! A [`SubjectRule`] has patterns that allow subjects and patterns that deny subjects; deny wins. A user's
//! [`Permissions`] contain the rules for the user and the rule for the subjects of the user's tenant. A [`Node`] made
//! with [`Node::with_user`] checks the permissions in every operation, so that listeners need not check them. A node
//! without a user checks nothing.
//!
//! Invariants:
//! - An action without an allowing pattern is denied, and a denying pattern overrides all allowing ones.
//! - A subscription is accepted only if one allowing pattern covers the subscription's whole pattern. The subscriber
//!   does not receive denied records, and they do not count as lost. This also applies to topics that are created
//!   later.
//! - The records of a log are checked one by one only if some of the log's subjects are denied to the subscriber or the
//!   publisher.
//! - Any user may publish to an inbox unless a pattern denies it, because only clients that have received an inbox's
//!   name can know this name.

mod keys;
mod permissions;
mod permit;
mod rule;
mod tasks;
mod waiting;

use std::sync::{Arc, Weak};

use dunlin_control::ControlQuery;
use dunlin_topic::{Filter, Log, LogName, MemoryBudget, Pattern, Subject, Topic};
use dunlin_wire::ErrorCode;
use tokio::sync::watch;

pub use keys::{KeyPattern, KeyRule};
pub use permissions::{Action, Permissions};
pub use rule::{AccessExtent, SubjectRule};
pub use tasks::{TaskRule, WorkScope};

use crate::control::KV;
use crate::error::TopicError;
use crate::node::Node;
use crate::node_topic::{NODE_TOPIC, is_node_topic_pattern};
use crate::refusal::Refused;
use crate::registry::{LogsToRead, NameRanges, filter_for, is_reserved};
use crate::tasks::{TASKS, is_tasks_pattern};

/// A user, whose permissions and limits apply to calls of a [`Node`] that was made with [`Node::with_user`].
pub trait User: std::fmt::Debug + Send + Sync {
    /// The user's name, by which [`Users`] finds the user.
    fn name(&self) -> &str;

    /// The present permissions.
    fn permissions(&self) -> Arc<Permissions>;

    /// Returns a receiver that is notified after each change of the user's permissions.
    fn changes(&self) -> watch::Receiver<()>;

    /// The budget that is charged for the memory of topics that the user creates.
    fn budget(&self) -> &Arc<MemoryBudget>;

    /// The budget that is charged for the memory that connections of the user's tenant take.
    fn connection_budget(&self) -> &Arc<MemoryBudget>;

    /// Called before a topic is created; an error prevents the creation. `is_automatic` is set if a publish or
    /// subscribe call creates the topic.
    fn reserve_topic(&self, name: &str, is_automatic: bool) -> Result<(), TopicError>;

    /// Called after the topic was created.
    fn confirm_topic(&self, topic: &Arc<Topic>);

    /// Called if the creation of the topic failed after a call of `reserve_topic`.
    fn release_topic(&self, name: &str);
}

/// Finds a node's users by name.
pub trait Users: std::fmt::Debug + Send + Sync {
    /// The user with this name, if one exists.
    fn user(&self, name: &str) -> Option<Arc<dyn User>>;
}

/// The maximum number of a tenant's groups is this factor times the number of groups that the node can still create. A
/// tenant that is alone can thus create three quarters of all groups. The same factor applies to a tenant's
/// subscriptions that wait for topics.
pub(crate) const TENANT_SHARE: usize = 3;

/// The tenant of a task that names no tenant, on a node without users.
const TENANT: &str = "default";

impl Node {
    /// Returns a handle to this node with the user `user`. The user's permissions and limits apply to calls of this
    /// handle.
    pub fn with_user(&self, user: Arc<dyn User>) -> Node {
        Node(Arc::clone(&self.0), Some(user))
    }

    /// Sets the directory of users. When a task publishes, the node finds the task's user there and checks the user's
    /// permissions. Returns `false` if a directory was set before. The node keeps only a weak reference.
    pub fn set_users(&self, users: Weak<dyn Users>) -> bool {
        self.0.users.set(users).is_ok()
    }

    /// Returns a handle for the user `name` with the user's present permissions; the user need not be connected. On a
    /// node without users, the handle may do everything. If the handle cannot be made, the error says why.
    pub(crate) fn with_current_permissions(&self, name: Option<&str>) -> Result<Node, String> {
        let Some(users) = self.0.users.get() else { return Ok(self.unguarded()) };
        let name = name.ok_or_else(|| {
            "the task was submitted without a user, but this node requires users".to_owned()
        })?;
        let user = users.upgrade().and_then(|users| users.user(name));
        user.map(|user| self.with_user(user)).ok_or_else(|| format!("user {name:?} no longer exists"))
    }

    /// Returns a handle to this node without a user. This handle may do everything.
    pub(crate) fn unguarded(&self) -> Node {
        Node(Arc::clone(&self.0), None)
    }

    pub(crate) fn user(&self) -> Option<&Arc<dyn User>> {
        self.1.as_ref()
    }

    /// The tenant of the user with this name; empty if this node does not know the user.
    pub(crate) fn tenant_of_user(&self, name: &str) -> String {
        let users = self.0.users.get().and_then(Weak::upgrade);
        let user = users.and_then(|users| users.user(name));
        user.map_or_else(String::new, |user| user.permissions().tasks.tenant.clone())
    }

    /// Whether the user may do `action` on all subjects of the pattern, or only on some. Returns an error if the user
    /// may do it on none.
    pub fn may(&self, action: Action, pattern: &Pattern) -> Result<AccessExtent, TopicError> {
        let Some(user) = self.user() else { return Ok(AccessExtent::All) };
        match user.permissions().extent(action, pattern) {
            AccessExtent::Nothing => {
                Err(TopicError::Forbidden { action, subject: pattern.as_str().to_owned() })
            }
            extent => Ok(extent),
        }
    }

    /// Checks the permission to publish to the subject that consists of `prefix`, the common prefix of the topic's
    /// subjects, and `tail`, the rest.
    pub fn may_publish_parts(&self, prefix: &str, tail: &str) -> Result<(), TopicError> {
        match self.user() {
            Some(user) if !user.permissions().allows_parts(Action::Publish, prefix, tail) => {
                Err(TopicError::Forbidden { action: Action::Publish, subject: format!("{prefix}{tail}") })
            }
            _ => Ok(()),
        }
    }

    /// Checks the user's permission for a query of keys, leases or locks.
    pub fn may_query(&self, query: &ControlQuery<'_>) -> Result<(), TopicError> {
        let Some(user) = self.user() else { return Ok(()) };
        let allowed = user.permissions().keys.query(query);
        allowed.map_err(|(action, subject)| TopicError::Forbidden { action, subject })
    }

    /// Checks the user's permission for a query of tasks.
    pub fn may_query_tasks(&self, query: &dunlin_tasks::TaskQuery<'_>) -> Result<(), TopicError> {
        let rule = self.task_rule();
        let allowed = rule.query(query, &|task| self.tenant_of_task(task));
        allowed.map_err(|subject| TopicError::Forbidden { action: Action::Tasks, subject })
    }

    /// Returns the tenants whose tasks a worker of this user receives, if the worker requests the tasks of `tenants`.
    /// An empty list means all tenants, both as the argument and as the result.
    pub fn may_work(&self, tenants: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, TopicError> {
        let forbidden = || TopicError::Forbidden { action: Action::Tasks, subject: "as a worker".to_owned() };
        self.task_rule().serve(tenants).ok_or_else(forbidden)
    }

    /// Checks the user's permission to read metrics and lists of subscriptions. These show only what the user's tenant
    /// may see.
    pub fn may_survey(&self) -> Result<(), Refused> {
        match self.user() {
            Some(user) if !user.permissions().surveys => Err(Refused::new(
                ErrorCode::Forbidden,
                "no permission for surveys: metrics and subscriptions",
            )),
            _ => Ok(()),
        }
    }

    /// Checks the user's permission to read the metrics of the whole node, which concern all tenants.
    pub fn may_survey_node(&self) -> Result<(), Refused> {
        self.may_survey()?;
        match self.user() {
            Some(user) if !user.permissions().tenant.is_everything() => Err(Refused::new(
                ErrorCode::Forbidden,
                "no permission for surveys of the whole node: the user's tenant is limited to its own topics",
            )),
            _ => Ok(()),
        }
    }

    /// The user's permissions for tasks.
    pub fn task_rule(&self) -> TaskRule {
        self.user().map_or_else(|| TaskRule::all(TENANT), |user| user.permissions().tasks.clone())
    }

    fn tenant_of_task(&self, task: u64) -> Option<Vec<u8>> {
        self.tasks_if_any()?.tenant_of_task(task)
    }

    /// Checks that the user has the permission for every subject of the pattern.
    pub(crate) fn may_all(&self, action: Action, pattern: &Pattern) -> Result<(), TopicError> {
        match self.may(action, pattern)? {
            AccessExtent::All => Ok(()),
            _ => Err(TopicError::Forbidden { action, subject: pattern.as_str().to_owned() }),
        }
    }

    /// Checks the user's permission to publish to the subject. Accepts every system subject: the caller has to refuse
    /// those.
    pub fn may_publish(&self, subject: Subject<'_>) -> Result<(), TopicError> {
        match self.user() {
            Some(_) if !subject.is_system() => self.may(Action::Publish, &subject.into()).map(drop),
            _ => Ok(()),
        }
    }

    /// Checks the user's permission to subscribe to at least some subjects of the pattern. The topics of the node's
    /// status, of keys and of tasks have permissions of their own, which apply even before these topics exist. Other
    /// system subjects are refused, because no topic can own them.
    pub(crate) fn may_subscribe(&self, pattern: &Pattern) -> Result<(), TopicError> {
        let text = pattern.as_str();
        if !is_reserved(text) {
            return self.may(Action::Subscribe, pattern).map(drop);
        }
        if !text.starts_with('$') {
            // Inboxes need no permission here: listeners have already checked that the inbox belongs to the client.
            return Ok(());
        }
        let (topic, subject_prefix) = match text {
            KV => (KV, KV.to_owned()),
            _ if is_tasks_pattern(text) => (TASKS, format!("{TASKS}.")),
            _ if is_node_topic_pattern(text) => (NODE_TOPIC, format!("{NODE_TOPIC}.")),
            _ => return Err(TopicError::Reserved(text.to_owned())),
        };
        let log = LogName { topic: topic.to_owned(), subject_prefix, partition: 0 };
        match self.user() {
            Some(user) if user.permissions().restrict(&log, None).is_none() => {
                Err(TopicError::Forbidden { action: Action::Subscribe, subject: topic.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Removes the logs that the user may not read. Adds a filter to each remaining log in which some records are
    /// denied to the user; the filter hides these records.
    pub(crate) fn restrict_to_readable(&self, logs: LogsToRead) -> LogsToRead {
        let Some(user) = self.user() else { return logs };
        let permissions = user.permissions();
        logs.into_iter()
            .filter_map(|(log, filter)| permissions.restrict(log.name(), filter).map(|filter| (log, filter)))
            .collect()
    }

    /// Returns the existing logs that a subscription to the pattern may read with the user's present permissions. A
    /// listener calls this for an existing subscription after the user's permissions have changed.
    pub fn readable_logs(&self, pattern: &Pattern) -> Result<LogsToRead, TopicError> {
        self.may_subscribe(pattern)?;
        Ok(self.restrict_to_readable(self.registry().select(pattern)))
    }

    /// Returns the filter with which a subscription to the pattern may read the log with the user's present permissions;
    /// `None` if it may read nothing. The log's topic may be deleted: its last records need the same permissions.
    pub fn readable_filter(&self, pattern: &Pattern, log: &Log) -> Option<Option<Filter>> {
        let owned = Pattern::parse(log.pattern()).ok()?;
        let filter = filter_for(pattern, &owned)?;
        match self.user() {
            Some(user) => user.permissions().restrict(log.name(), filter),
            None => Some(filter),
        }
    }

    /// Whether the user may see that the topic exists.
    pub(crate) fn is_visible(&self, topic: &Topic) -> bool {
        self.is_pattern_visible(topic.name(), topic.pattern())
    }

    /// Ranges of topic names, which limit the topics that the user can see. A topic that owns only the subject equal to
    /// its name is visible only if its name is in one of these ranges.
    pub(crate) fn visible_names(&self) -> NameRanges {
        let Some(user) = self.user() else { return NameRanges::all() };
        let Permissions { tenant, publish, subscribe, create, delete, .. } = &*user.permissions();
        let rules = [publish, subscribe, create, delete];
        NameRanges::of(&tenant.allow).and(&NameRanges::of(rules.into_iter().flat_map(|rule| &rule.allow)))
    }

    pub(crate) fn is_pattern_visible(&self, name: &str, pattern: &str) -> bool {
        let Some(user) = self.user() else { return true };
        let Ok(pattern) = Pattern::parse(pattern) else { return false };
        !is_reserved(name) && user.permissions().overlaps(&pattern)
    }
}
