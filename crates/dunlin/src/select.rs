//! From a pattern to the logs it reads.

use std::sync::Arc;

use dunlin_topic::{Log, Newcomers, Pattern, Position, Start, Subject, SubscribeError};

use crate::access::Action;
use crate::control::KV;
use crate::error::{TopicError, forbidden};
use crate::itself::{ITSELF, is_of_itself};
use crate::node::Node;
use crate::registry::{LogsToRead, is_reserved};
use crate::reply::is_of_reply_inbox;
use crate::tasks::{TASKS, is_of_tasks};

/// What becomes of a subscription to a subject that no topic owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The subject gets a topic, if the node creates them.
    Create,
    /// It waits for one, which somebody else creates: a reader that goes on does not know how the topic was configured.
    Await,
    /// It is refused, unless the cluster has agreed on one of which this node is about to hear: whoever asks knew of
    /// one, which may be deleted by now.
    Refuse,
}

impl Missing {
    /// What a subscription does that begins at `start`, or goes on after a loss. A subscription that wants a state makes no topic: the
    /// topic would keep none, in the place of one that a restarted node has lost.
    pub fn of(start: Start, goes_on: bool) -> Missing {
        match start {
            _ if goes_on => Missing::Await,
            Start::Snapshot => Missing::Refuse,
            _ => Missing::Create,
        }
    }
}

/// The logs a subscription reads.
#[derive(Debug)]
pub struct Selected {
    /// Those that exist, and what to skip of each.
    pub logs: LogsToRead,
    /// Those to come, where there can be any.
    pub newcomers: Option<Arc<Newcomers>>,
}

/// The topic and partition of a position that names none: those of the one log that the subscription reads. Where the topic of its
/// one subject is gone, those of the topic that somebody may create in its place.
pub fn log_of_position(
    patterns: &[Pattern],
    logs: &LogsToRead,
    more_may_come: bool,
) -> Result<(String, u16), SubscribeError> {
    match (logs.as_slice(), patterns) {
        ([(log, _)], _) if !more_may_come => Ok((log.name().topic.clone(), log.name().partition)),
        ([], [pattern]) if pattern.is_literal() => Ok((pattern.as_str().to_owned(), 0)),
        (many, _) => {
            let names: Vec<_> = patterns.iter().map(Pattern::as_str).collect();
            Err(SubscribeError::ManyLogs { pattern: names.join(" "), logs: many.len() })
        }
    }
}

impl Node {
    /// The logs that a subscription to `pattern` reads.
    ///
    /// `newcomers` is where topics to come are told, as long as somebody holds it.
    pub fn select(
        &self,
        pattern: &Pattern,
        start: Start,
        missing: Missing,
        newcomers: impl FnOnce() -> Arc<Newcomers>,
    ) -> Result<Selected, SubscribeError> {
        let mut selected = self.select_any(pattern, missing, newcomers)?;
        if !matches!(start, Start::After(_)) {
            return Ok(selected);
        }
        // No position is of a reply inbox.
        selected.logs.retain(|(log, _)| !is_of_reply_inbox(log.name()));
        if let [(log, _)] = selected.logs.as_slice()
            && self.owns_all_of(log, pattern)
        {
            selected.newcomers = None;
        }
        match selected {
            Selected { logs, newcomers: None } if logs.len() == 1 => Ok(Selected { logs, newcomers: None }),
            Selected { logs, newcomers } => {
                // Those to come make it many.
                let logs = logs.len() + usize::from(newcomers.is_some() && logs.len() == 1);
                Err(SubscribeError::ManyLogs { pattern: pattern.as_str().to_owned(), logs })
            }
        }
    }

    /// Whether no other topic can ever hold a subject of the pattern, as long as the log's topic lives.
    pub fn owns_all_of(&self, log: &Log, pattern: &Pattern) -> bool {
        let owned = self.topic(&log.name().topic).and_then(|topic| Pattern::parse(topic.pattern()).ok());
        owned.is_some_and(|owned| owned.covers(pattern))
    }

    /// The logs of subjects that the pattern matches; creates none. Those to come are told to `newcomers`, as long as
    /// somebody holds it.
    pub fn watch(&self, pattern: &Pattern, newcomers: &Arc<Newcomers>) -> Result<LogsToRead, SubscribeError> {
        if !is_reserved(pattern.as_str()) {
            self.may(Action::Subscribe, pattern)?;
        }
        Ok(self.readable(self.registry().select(pattern, Some((newcomers, self.user())))?))
    }

    /// Refuses a position of the cluster's history ([`KV`], [`TASKS`]) that no node can have handed out: once this node
    /// has taken in all that was agreed on, it has come as far as any other. A node without a majority finds that out
    /// within about a second and refuses nothing: the reader waits with the node.
    pub async fn check_handed_out(&self, log: &Log, asked: Position) -> Result<(), SubscribeError> {
        if !log.awaits(asked) {
            return Ok(());
        }
        let is_known = match log.name().topic.as_str() {
            KV => match self.control_if_any() {
                Some(control) => control.catch_up_if_led().await,
                None => false,
            },
            TASKS => match self.tasks_if_any() {
                Some(tasks) => tasks.catch_up_if_led().await,
                None => false,
            },
            _ => false,
        };
        match log.last() {
            last if is_known && asked > last => Err(SubscribeError::Ahead { asked, last }),
            _ => Ok(()),
        }
    }

    /// [`Node::check_handed_out`] of the one log of a pattern, before somebody subscribes who must not wait then.
    pub async fn check_start(&self, topic: &str, start: Start) -> Result<(), SubscribeError> {
        let Some(topic) = self.registry().get(topic) else { return Ok(()) };
        match (start, topic.logs()) {
            (Start::After(asked), [log]) => self.check_handed_out(log, asked).await,
            _ => Ok(()),
        }
    }

    /// Whether somebody at this node reads what is published to the subject, will be told of its topic, or, where the topic is
    /// durable, may read it at any time.
    pub(crate) fn is_heard_here(&self, subject: Subject<'_>) -> bool {
        let is_read = self.registry().owner(subject).is_some_and(|topic| {
            let tail = subject.as_str().strip_prefix(topic.logs()[0].name().subject_prefix.as_str());
            let is_read = |log: &Arc<Log>| log.has_own_listener(tail.unwrap_or(""));
            topic.config().durable.is_some() || topic.logs().iter().any(is_read)
        });
        is_read || self.registry().is_watched(subject)
    }

    fn select_any(
        &self,
        pattern: &Pattern,
        missing: Missing,
        newcomers: impl FnOnce() -> Arc<Newcomers>,
    ) -> Result<Selected, SubscribeError> {
        if !is_reserved(pattern.as_str()) {
            self.may(Action::Subscribe, pattern)?;
        }
        if pattern.as_str() == KV {
            // It comes into being with what it tells of.
            self.control().map_err(|error| SubscribeError::Refused(error.to_string()))?;
            let logs = self.readable(self.registry().select(pattern, None)?);
            return match logs.is_empty() {
                true => Err(SubscribeError::Forbidden(forbidden(Action::Subscribe, KV))),
                false => Ok(Selected { logs, newcomers: None }),
            };
        }
        if is_of_tasks(pattern.as_str()) {
            self.tasks().map_err(|error| SubscribeError::Refused(error.to_string()))?;
            let logs = self.readable(self.registry().select(pattern, None)?);
            return match logs.is_empty() {
                true => Err(SubscribeError::Forbidden(forbidden(Action::Subscribe, TASKS))),
                false => Ok(Selected { logs, newcomers: None }),
            };
        }
        if is_of_itself(pattern.as_str()) {
            // Somebody has to say something before it can be heard.
            self.own_topic().map_err(|error| SubscribeError::Refused(error.to_string()))?;
            let logs = self.readable(self.registry().select(pattern, None)?);
            return match logs.is_empty() {
                true => Err(SubscribeError::Forbidden(forbidden(Action::Subscribe, ITSELF))),
                false => Ok(Selected { logs, newcomers: None }),
            };
        }
        if pattern.is_literal() {
            let subject = Subject::parse(pattern.as_str())?;
            let owner = match missing {
                Missing::Refuse => self.agreed_owner(subject),
                Missing::Await if !is_reserved(pattern.as_str()) => {
                    let owner = self.registry().owner(subject);
                    owner.ok_or_else(|| TopicError::Unknown(pattern.as_str().to_owned()))
                }
                Missing::Create | Missing::Await => self.find_owner(subject),
            };
            match owner {
                // An inbox of another node is read by its client alone.
                Ok(topic) if self.registry().get(topic.name()).is_none() => {}
                Ok(_) => {
                    let mut logs = self.readable(self.registry().select(pattern, None)?);
                    logs.retain(|(log, _)| is_reserved(pattern.as_str()) || !is_of_reply_inbox(log.name()));
                    return Ok(Selected { logs, newcomers: None });
                }
                Err(_) if missing == Missing::Await => {}
                Err(refused) => return Err(refused.into()),
            }
        }
        let newcomers = newcomers();
        let logs = self.readable(self.registry().select(pattern, Some((&newcomers, self.user())))?);
        Ok(Selected { logs, newcomers: Some(newcomers) })
    }
}
