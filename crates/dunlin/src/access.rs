//! Who may do what: the decision, without knowing who anybody is or how they proved it.
//!
//! A [`Rule`] is patterns that allow and patterns that deny; deny wins. [`Permissions`] are a user's rules within the
//! bounds of a tenant's. A [`Node`] that was made [`of a user`](Node::used_by) asks them whenever something is done
//! through it, so that a door has nothing to decide. Without a user nothing is asked.
//!
//! Invariants:
//! - What is not allowed is denied, and what one pattern denies no other allows.
//! - A subscription lies within one allowed pattern; what is denied of it is left out record by record, of topics that
//!   are created later too, and its reader takes the holes for what they are: not lost.
//! - Nothing is asked while records pass, unless some of a log's subjects are denied to the reader, or of a pattern's to
//!   the publisher.
//! - Whoever was given an inbox's name may answer there: names of inboxes cannot be guessed. They can be denied.
//!
//! Not here: users, what proves that it is they, and how much they may do (`server::access`).

mod keys;
mod permissions;
mod permit;
mod rule;
mod tasks;
mod waiting;

use std::sync::{Arc, Weak};

use dunlin_control::Query;
use dunlin_topic::{Budget, Pattern, Subject, Topic};
use dunlin_wire::ErrorCode;
use tokio::sync::watch;

pub use keys::{KeyPattern, KeyRule};
pub use permissions::{Action, Permissions};
pub use rule::{Extent, Rule};
pub use tasks::{TaskRule, Work};

use crate::control::KV;
use crate::error::TopicError;
use crate::itself::{ITSELF, is_of_itself};
use crate::node::Node;
use crate::refusal::Refused;
use crate::registry::{LogsToRead, Stretches, is_reserved};
use crate::tasks::{TASKS, is_of_tasks};

/// Whom a node is used by.
pub trait User: std::fmt::Debug + Send + Sync {
    /// The name, by which [`Users`] finds the user later.
    fn name(&self) -> &str;

    /// What they may do now.
    fn permissions(&self) -> Arc<Permissions>;

    /// Notified after each change of what users may do.
    fn changes(&self) -> watch::Receiver<()>;

    /// What the topics that they create are charged to.
    fn budget(&self) -> &Arc<Budget>;

    /// They are about to create a topic; `by_itself` when it comes into being because it is used.
    fn begin_topic(&self, name: &str, by_itself: bool) -> Result<(), TopicError>;

    /// The topic was created.
    fn made_topic(&self, topic: &Arc<Topic>);

    /// The topic was not created.
    fn no_topic(&self, name: &str);
}

/// All who may use a node.
pub trait Users: std::fmt::Debug + Send + Sync {
    /// The user of this name, if there is one now.
    fn user(&self, name: &str) -> Option<Arc<dyn User>>;
}

/// The tenant of tasks of those that name none, where nobody asks who they are.
const TENANT: &str = "default";

impl Node {
    /// The node as this user may use it.
    pub fn used_by(&self, user: Arc<dyn User>) -> Node {
        Node(Arc::clone(&self.0), Some(user))
    }

    /// Whoever takes tasks in is one of these users; `false` where that was said before. They end with whoever holds them.
    pub fn set_users(&self, users: Weak<dyn Users>) -> bool {
        self.0.users.set(users).is_ok()
    }

    /// The node with what this user, who is not connected any more perhaps, may do now; without users, with all. Else why not.
    pub(crate) fn used_later_by(&self, name: Option<&str>) -> Result<Node, String> {
        let Some(users) = self.0.users.get() else { return Ok(self.unguarded()) };
        let name =
            name.ok_or_else(|| "no user submitted the task, and this node has users now".to_owned())?;
        let user = users.upgrade().and_then(|users| users.user(name));
        user.map(|user| self.used_by(user)).ok_or_else(|| format!("there is no user {name:?} any more"))
    }

    /// The node as whoever embeds it uses it.
    pub(crate) fn unguarded(&self) -> Node {
        Node(Arc::clone(&self.0), None)
    }

    pub(crate) fn user(&self) -> Option<&Arc<dyn User>> {
        self.1.as_ref()
    }

    /// How much of the pattern the user may do this with; refused where it is nothing.
    pub fn may(&self, action: Action, pattern: &Pattern) -> Result<Extent, TopicError> {
        let Some(user) = self.user() else { return Ok(Extent::All) };
        match user.permissions().extent(action, pattern) {
            Extent::Nothing => Err(TopicError::Forbidden { action, subject: pattern.as_str().to_owned() }),
            extent => Ok(extent),
        }
    }

    /// Whether the user may publish to a subject whose record carries this tail.
    pub fn may_publish_parts(&self, prefix: &str, tail: &str) -> Result<(), TopicError> {
        match self.user() {
            Some(user) if !user.permissions().allows_parts(Action::Publish, prefix, tail) => {
                Err(TopicError::Forbidden { action: Action::Publish, subject: format!("{prefix}{tail}") })
            }
            _ => Ok(()),
        }
    }

    /// Whether the user may ask this.
    pub fn may_query(&self, query: &Query<'_>) -> Result<(), TopicError> {
        let Some(user) = self.user() else { return Ok(()) };
        let allowed = user.permissions().keys.query(query);
        allowed.map_err(|subject| TopicError::Forbidden { action: Action::Keys, subject })
    }

    /// Whether the user may ask this about tasks.
    pub fn may_ask_of_tasks(&self, query: &dunlin_tasks::Query<'_>) -> Result<(), TopicError> {
        let rule = self.task_rule();
        let allowed = rule.query(query, &|task| self.tenant_of_task(task));
        allowed.map_err(|subject| TopicError::Forbidden { action: Action::Tasks, subject })
    }

    /// Whether the user may be a worker for these tenants, or for all where none is named; those for which it is one then.
    pub fn may_work(&self, tenants: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, TopicError> {
        let forbidden = || TopicError::Forbidden { action: Action::Tasks, subject: "as a worker".to_owned() };
        self.task_rule().serve(tenants).ok_or_else(forbidden)
    }

    /// Whether the user may be told what the node's topics add up to, and who reads what, within its tenant's bounds.
    pub fn may_survey(&self) -> Result<(), Refused> {
        match self.user() {
            Some(user) if !user.permissions().surveys => Err(Refused::new(
                ErrorCode::Forbidden,
                "no permission for surveys: metrics and subscriptions",
            )),
            _ => Ok(()),
        }
    }

    /// Whether the user may be told of the node as a whole, of all tenants.
    pub fn may_survey_node(&self) -> Result<(), Refused> {
        self.may_survey()?;
        match self.user() {
            Some(user) if !user.permissions().tenant.is_everything() => Err(Refused::new(
                ErrorCode::Forbidden,
                "of the whole node, to a user whose tenant has bounds",
            )),
            _ => Ok(()),
        }
    }

    /// What the user may do with tasks.
    pub fn task_rule(&self) -> TaskRule {
        self.user().map_or_else(|| TaskRule::all(TENANT), |user| user.permissions().tasks.clone())
    }

    fn tenant_of_task(&self, task: u64) -> Option<Vec<u8>> {
        self.tasks_if_any()?.tenant_of_task(task)
    }

    /// Whether the user may use the whole of what the pattern stands for.
    pub(crate) fn may_all(&self, action: Action, pattern: &Pattern) -> Result<(), TopicError> {
        match self.may(action, pattern)? {
            Extent::All => Ok(()),
            _ => Err(TopicError::Forbidden { action, subject: pattern.as_str().to_owned() }),
        }
    }

    /// Whether the user may publish to the subject. The system's subjects lead nowhere, for anybody.
    pub fn may_publish(&self, subject: Subject<'_>) -> Result<(), TopicError> {
        match self.user() {
            Some(_) if !subject.is_system() => self.may(Action::Publish, &subject.into()).map(drop),
            _ => Ok(()),
        }
    }

    /// What of the logs the user may read.
    pub(crate) fn readable(&self, logs: LogsToRead) -> LogsToRead {
        let Some(user) = self.user() else { return logs };
        let permissions = user.permissions();
        logs.into_iter()
            .filter_map(|(log, filter)| permissions.restrict(log.name(), filter).map(|filter| (log, filter)))
            .collect()
    }

    /// What a subscription to the pattern reads by what the user may do now, topics to come aside: for one that was
    /// begun when they might do something else.
    pub fn readable_now(&self, pattern: &Pattern) -> Result<LogsToRead, TopicError> {
        if !is_reserved(pattern.as_str()) {
            self.may(Action::Subscribe, pattern)?;
        }
        let logs = self.readable(self.registry().select(pattern, None)?);
        if logs.is_empty() && pattern.as_str() == KV {
            return Err(TopicError::Forbidden { action: Action::Keys, subject: KV.to_owned() });
        }
        if logs.is_empty() && is_of_tasks(pattern.as_str()) {
            return Err(TopicError::Forbidden { action: Action::Tasks, subject: TASKS.to_owned() });
        }
        if logs.is_empty() && is_of_itself(pattern.as_str()) {
            return Err(TopicError::Forbidden { action: Action::Subscribe, subject: ITSELF.to_owned() });
        }
        Ok(logs)
    }

    /// Whether the user is shown that there is such a topic.
    pub(crate) fn shows(&self, topic: &Topic) -> bool {
        self.shows_pattern(topic.name(), topic.pattern())
    }

    /// Where names of topics lie that the user is shown, of those that own just their name.
    pub(crate) fn shown_names(&self) -> Stretches {
        let Some(user) = self.user() else { return Stretches::all() };
        let Permissions { tenant, publish, subscribe, create, delete, .. } = &*user.permissions();
        let rules = [publish, subscribe, create, delete];
        Stretches::of(&tenant.allow).and(&Stretches::of(rules.into_iter().flat_map(|rule| &rule.allow)))
    }

    pub(crate) fn shows_pattern(&self, name: &str, pattern: &str) -> bool {
        let Some(user) = self.user() else { return true };
        let Ok(pattern) = Pattern::parse(pattern) else { return false };
        !is_reserved(name) && user.permissions().touches(&pattern)
    }
}
