//! Finds the logs that a subscription to a pattern reads.

use std::sync::Arc;

use dunlin_topic::{Filter, Log, NewLogs, Pattern, Position, Start, Subject, SubscribeError};

use crate::access::Action;
use crate::control::KV;
use crate::error::{TopicError, forbidden};
use crate::node::Node;
use crate::node_topic::{NODE_TOPIC, is_node_topic_pattern};
use crate::refusal::Refused;
use crate::registry::{LogSearch, LogsToRead, is_reserved};
use crate::reply::is_reply_inbox_log;
use crate::tasks::{TASKS, is_tasks_pattern};

/// The policy for a subscription to a subject that no topic owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingTopicPolicy {
    /// The node creates a topic if `auto_create` is set.
    Create,
    /// The subscription waits until another caller creates a topic. Used when a subscriber resumes: the topic that this
    /// subscriber read before may have had another configuration than topics that are created automatically.
    Await,
    /// The subscription is refused unless the cluster knows a topic for the subject. Used if the topic must have
    /// existed before, and may have been deleted since.
    Refuse,
}

impl MissingTopicPolicy {
    /// The policy for a subscription that begins at `start`. `is_resumed` says that the subscriber resumes after a loss
    /// of its connection. A subscription to a state creates no topic, because the new topic would keep no state.
    pub fn of(start: Start, is_resumed: bool) -> MissingTopicPolicy {
        match start {
            _ if is_resumed => MissingTopicPolicy::Await,
            Start::Snapshot => MissingTopicPolicy::Refuse,
            _ => MissingTopicPolicy::Create,
        }
    }
}

/// The logs that a subscription reads: the existing ones, and the list of those that are created later.
#[derive(Debug)]
pub struct SelectedLogs {
    /// The existing logs, each with an optional filter.
    pub logs: LogsToRead,
    /// The list to which logs of new topics are added; `None` if no new topic can have a subject that the pattern
    /// matches.
    pub newcomers: Option<Arc<NewLogs>>,
    /// The search that finds further existing logs; `None` if `logs` has all of them.
    pub search: Option<LogSearch>,
}

impl SelectedLogs {
    /// The logs of a subscription to which no other log can be added.
    pub(crate) fn complete(logs: LogsToRead) -> SelectedLogs {
        SelectedLogs { logs, newcomers: None, search: None }
    }
}

/// Number of topics that a caller without other work examines at a time.
const SEARCHED_AT_A_TIME: usize = 1_024;

/// Finds the log to which a position applies, if a client has given neither a topic nor a partition. Returns the log's
/// topic and partition. If the subscription has a single log, the position applies to this log. If the subscription has
/// no log yet, and its only pattern is a single subject, the position applies to partition 0 of the topic with the
/// subject's name. In all other cases, returns an error.
pub fn log_of_position(
    patterns: &[Pattern],
    logs: &LogsToRead,
    awaits_more_logs: bool,
) -> Result<(String, u16), SubscribeError> {
    match (logs.as_slice(), patterns) {
        ([(log, _)], _) if !awaits_more_logs => Ok((log.name().topic.clone(), log.name().partition)),
        ([], [pattern]) if pattern.is_literal() => Ok((pattern.as_str().to_owned(), 0)),
        (many, _) => {
            let names: Vec<_> = patterns.iter().map(Pattern::as_str).collect();
            Err(SubscribeError::ManyLogs { pattern: names.join(" "), logs: many.len() })
        }
    }
}

impl Node {
    /// Returns the logs that a subscription to `pattern` reads if it begins at `start`. If `start` is a position,
    /// returns an error unless the subscription has exactly one log.
    ///
    /// Logs of new topics are added to [`SelectedLogs::newcomers`] until the last reference to this list is dropped.
    pub fn select(
        &self,
        pattern: &Pattern,
        start: Start,
        missing: MissingTopicPolicy,
        newcomers: impl FnOnce() -> Arc<NewLogs>,
    ) -> Result<SelectedLogs, SubscribeError> {
        let mut selected = self.select_in_parts(pattern, start, missing, newcomers)?;
        while let Some(search) = &mut selected.search {
            match self.search_logs(search, SEARCHED_AT_A_TIME) {
                Some(found) => selected.logs.extend(found),
                None => selected.search = None,
            }
        }
        Ok(selected)
    }

    /// Like [`select`](Node::select), but does not examine many topics at once. If there are more, the caller must
    /// continue [`SelectedLogs::search`] with [`search_logs`](Node::search_logs). Thus, a thread with other work is not
    /// kept busy for long. If `start` is a position, the search is complete.
    pub fn select_in_parts(
        &self,
        pattern: &Pattern,
        start: Start,
        missing: MissingTopicPolicy,
        newcomers: impl FnOnce() -> Arc<NewLogs>,
    ) -> Result<SelectedLogs, SubscribeError> {
        let mut selected = self.select_any(pattern, missing, newcomers)?;
        if !matches!(start, Start::After(_)) {
            return Ok(selected);
        }
        // A position never applies to the log of a reply inbox, because no subscriber resumes there.
        let may_resume = |(log, _): &(Arc<Log>, Option<Filter>)| !is_reply_inbox_log(log.name());
        selected.logs.retain(may_resume);
        // Two logs are enough to refuse the position.
        while let Some(search) = &mut selected.search {
            match self.search_logs(search, SEARCHED_AT_A_TIME) {
                Some(found) if selected.logs.len() < 2 => {
                    selected.logs.extend(found.into_iter().filter(may_resume));
                }
                _ => selected.search = None,
            }
        }
        if let [(log, _)] = selected.logs.as_slice()
            && self.owns_all_of(log, pattern)
        {
            selected.newcomers = None;
        }
        match selected {
            SelectedLogs { logs, newcomers: None, .. } if logs.len() == 1 => Ok(SelectedLogs::complete(logs)),
            SelectedLogs { logs, newcomers, .. } => {
                // If another log can be created later, a single existing log counts as two.
                let logs = logs.len() + usize::from(newcomers.is_some() && logs.len() == 1);
                Err(SubscribeError::ManyLogs { pattern: pattern.as_str().to_owned(), logs })
            }
        }
    }

    /// Whether the log's topic owns all subjects that the pattern matches. If so, no other topic can own one of these
    /// subjects while this topic exists.
    pub fn owns_all_of(&self, log: &Log, pattern: &Pattern) -> bool {
        let owned = self.topic(&log.name().topic).and_then(|topic| Pattern::parse(topic.pattern()).ok());
        owned.is_some_and(|owned| owned.covers(pattern))
    }

    /// Returns the existing logs with subjects that the pattern matches. Creates no topic. Logs of new topics are added
    /// to `newcomers`, until the last reference to this list is dropped.
    pub fn watch(&self, pattern: &Pattern, newcomers: &Arc<NewLogs>) -> Result<LogsToRead, SubscribeError> {
        let (mut logs, mut search) = self.watch_in_parts(pattern, newcomers)?;
        while let Some(found) =
            search.as_mut().and_then(|search| self.search_logs(search, SEARCHED_AT_A_TIME))
        {
            logs.extend(found);
        }
        Ok(logs)
    }

    /// Like [`watch`](Node::watch), but does not examine many topics at once. If there are more, the caller must continue
    /// the search with [`search_logs`](Node::search_logs).
    pub fn watch_in_parts(
        &self,
        pattern: &Pattern,
        newcomers: &Arc<NewLogs>,
    ) -> Result<(LogsToRead, Option<LogSearch>), SubscribeError> {
        self.may_subscribe(pattern)?;
        let (logs, search) = self.registry().begin_select(pattern, newcomers, self.user())?;
        Ok((self.restrict_to_readable(logs), search))
    }

    /// Continues a search: examines at most `topics_max` topics, and returns the logs that the subscription reads.
    /// Returns `None` at the end of the search.
    pub fn search_logs(&self, search: &mut LogSearch, topics_max: usize) -> Option<LogsToRead> {
        Some(self.restrict_to_readable(self.registry().search(search, topics_max)?))
    }

    /// Returns an error if the position in [`KV`] or [`TASKS`] is one that no subscriber can have received yet. To find
    /// out, this node first applies all entries on which the cluster has agreed. If the node does not reach a majority
    /// within seconds, this method returns no error, and the subscriber waits for the records.
    pub async fn check_position(&self, log: &Log, position: Position) -> Result<(), SubscribeError> {
        if !log.must_catch_up_to(position) {
            return Ok(());
        }
        let is_known = match log.name().topic.as_str() {
            KV => match self.control_if_any() {
                Some(control) => control.try_catch_up().await,
                None => false,
            },
            TASKS => match self.tasks_if_any() {
                Some(tasks) => tasks.try_catch_up().await,
                None => false,
            },
            _ => false,
        };
        match log.last() {
            last if is_known && position > last => Err(SubscribeError::Ahead { requested: position, last }),
            _ => Ok(()),
        }
    }

    /// Whether a subscriber has to wait before it can start in this log. The logs of [`KV`] and [`TASKS`] lack records
    /// until the node has applied the entries that existed when it started. A subscriber that did not wait would start
    /// too early, or without an epoch.
    pub(crate) fn must_wait_to_start(&self, log: &Log, start: Start) -> bool {
        match start {
            Start::After(position) => log.must_catch_up_to(position),
            Start::Earliest | Start::Latest | Start::Time(_) | Start::Snapshot => {
                log.is_replicated() && !self.has_applied_log(log)
            }
        }
    }

    fn has_applied_log(&self, log: &Log) -> bool {
        let has_applied = match log.name().topic.as_str() {
            KV => self.control_if_any().is_none_or(|control| control.has_applied_log()),
            TASKS => self.tasks_if_any().is_none_or(|tasks| tasks.has_applied_log()),
            _ => return true,
        };
        // A node that has just joined a cluster has no entries. Until it has received entries, its log is in epoch 0.
        has_applied && log.last().epoch > 0
    }

    /// Waits until a subscriber can start in this log. Returns an error for a position that no subscriber can have
    /// received yet ([`Node::check_position`]). For other starts, returns an error if the node reaches no majority
    /// within `answer_ms_max`.
    pub(crate) async fn wait_for_start(&self, log: &Log, start: Start) -> Result<(), SubscribeError> {
        if !self.must_wait_to_start(log, start) {
            return Ok(());
        }
        if let Start::After(position) = start {
            return self.check_position(log, position).await;
        }
        let caught_up = if log.name().topic == KV {
            match self.control_if_any() {
                Some(control) => control.catch_up().await.map_err(|error| Refused::from(&error)),
                None => Ok(()),
            }
        } else {
            match self.tasks_if_any() {
                Some(tasks) => tasks.catch_up().await.map_err(|error| Refused::from(&error)),
                None => Ok(()),
            }
        };
        match caught_up {
            Err(refused) if self.must_wait_to_start(log, start) => {
                Err(SubscribeError::Refused(refused.to_line()))
            }
            _ => Ok(()),
        }
    }

    /// Waits, without blocking, until a subscriber can start in this topic, or returns the error with which the
    /// subscription would fail. For callers that must not block when they subscribe. Waits only for a topic with a
    /// single log.
    pub async fn check_start(&self, topic: &str, start: Start) -> Result<(), SubscribeError> {
        let Some(topic) = self.registry().get(topic) else { return Ok(()) };
        match topic.logs() {
            [log] => self.wait_for_start(log, start).await,
            _ => Ok(()),
        }
    }

    /// Whether this node has a subscriber for the subject: one that reads the subject, or one that waits until a topic
    /// owns the subject. A durable topic always counts, because its records can be read later.
    pub(crate) fn has_local_subscriber(&self, subject: Subject<'_>) -> bool {
        let is_read = self.registry().owner(subject).is_some_and(|topic| {
            let tail = subject.as_str().strip_prefix(topic.logs()[0].name().subject_prefix.as_str());
            let is_read = |log: &Arc<Log>| log.has_local_subscriber(tail.unwrap_or(""));
            topic.config().durable.is_some() || topic.logs().iter().any(is_read)
        });
        is_read || self.registry().is_watched(subject)
    }

    fn select_any(
        &self,
        pattern: &Pattern,
        missing: MissingTopicPolicy,
        newcomers: impl FnOnce() -> Arc<NewLogs>,
    ) -> Result<SelectedLogs, SubscribeError> {
        self.may_subscribe(pattern)?;
        if pattern.as_str() == KV {
            // This call counts as a use of keys, and the first use of keys creates the topic.
            self.control().map_err(|error| SubscribeError::Refused(Refused::from(&error).to_line()))?;
            let logs = self.restrict_to_readable(self.registry().select(pattern));
            return match logs.is_empty() {
                true => Err(SubscribeError::Forbidden(forbidden(Action::Subscribe, KV))),
                false => Ok(SelectedLogs::complete(logs)),
            };
        }
        if is_tasks_pattern(pattern.as_str()) {
            self.tasks().map_err(|error| SubscribeError::Refused(Refused::from(&error).to_line()))?;
            let logs = self.restrict_to_readable(self.registry().select(pattern));
            return match logs.is_empty() {
                true => Err(SubscribeError::Forbidden(forbidden(Action::Subscribe, TASKS))),
                false => Ok(SelectedLogs::complete(logs)),
            };
        }
        if is_node_topic_pattern(pattern.as_str()) {
            // The first subscription to this topic creates it.
            self.node_topic()?;
            let logs = self.restrict_to_readable(self.registry().select(pattern));
            return match logs.is_empty() {
                true => Err(SubscribeError::Forbidden(forbidden(Action::Subscribe, NODE_TOPIC))),
                false => Ok(SelectedLogs::complete(logs)),
            };
        }
        if pattern.is_literal() {
            let subject = Subject::parse_existing(pattern.as_str())?;
            let owner = match missing {
                MissingTopicPolicy::Refuse => self.agreed_topic(subject),
                MissingTopicPolicy::Await if !is_reserved(pattern.as_str()) => {
                    let owner = self.registry().owner(subject);
                    owner.ok_or_else(|| TopicError::Unknown(pattern.as_str().to_owned()))
                }
                MissingTopicPolicy::Create | MissingTopicPolicy::Await => self.find_owning_topic(subject),
            };
            match owner {
                // The subject belongs to the inbox of another node's client. Only that client reads the inbox.
                Ok(topic) if self.registry().get(topic.name()).is_none() => {}
                Ok(_) => {
                    let mut logs = self.restrict_to_readable(self.registry().select(pattern));
                    logs.retain(|(log, _)| is_reserved(pattern.as_str()) || !is_reply_inbox_log(log.name()));
                    return Ok(SelectedLogs::complete(logs));
                }
                Err(_) if missing == MissingTopicPolicy::Await => {}
                Err(refused) => return Err(refused.into()),
            }
        }
        let newcomers = newcomers();
        let (logs, search) = self.registry().begin_select(pattern, &newcomers, self.user())?;
        let logs = self.restrict_to_readable(logs);
        Ok(SelectedLogs { logs, newcomers: Some(newcomers), search })
    }
}
