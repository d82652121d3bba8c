use dunlin_topic::{ConfigError, PublishError, SubjectError, SubscribeError};
use thiserror::Error;

use crate::access::Action;
use crate::refusal::Refused;

/// Why a topic was not created, found or deleted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TopicError {
    /// Its name breaks the rules.
    #[error("{0}")]
    Name(#[from] SubjectError),
    /// Its configuration is not sound.
    #[error("{0}")]
    Config(ConfigError),
    /// There is a topic of this name, or of this name and another configuration.
    #[error("topic {0:?} exists")]
    Exists(String),
    /// Another topic owns some of the subjects.
    #[error("the pattern overlaps that of topic {0:?}")]
    Overlaps(String),
    /// There is none of this name.
    #[error("there is no topic {0:?}")]
    Unknown(String),
    /// The name is the system's or a session's.
    #[error("the name {0:?} is reserved: $… is the system's, _INBOX.… the sessions'")]
    Reserved(String),
    /// A durable topic, where the node has no directory for it.
    #[error("a durable topic needs a data directory: start the node with --data-dir DIR")]
    NoDataDir,
    /// Another node owns the topic, and only its owner can do this.
    #[error("{why}")]
    Elsewhere {
        /// Which node.
        node: u64,
        /// In words: what can be had there only, and where that is.
        why: String,
    },
    /// This node comes to own the topic, and has yet to receive what its owner before has: try again.
    #[error("topic {0:?} is about to be this node's: the owner before it hands over its records; try again")]
    HandingOver(String),
    /// The cluster did not answer, or refused.
    #[error("the cluster: {0}")]
    Cluster(String),
    /// The disk refused.
    #[error("the disk: {0}")]
    Disk(String),
    /// The record that would have been its first is too large.
    #[error("{0}")]
    Record(Box<PublishError>),
    /// A named limit is reached.
    #[error("limit {limit} of {value} is reached")]
    Limit {
        /// The limit's name.
        limit: &'static str,
        /// Its value.
        value: u64,
    },
    /// Who asks may not.
    #[error("{}", forbidden(*action, subject))]
    Forbidden {
        /// What was asked for.
        action: Action,
        /// Of what.
        subject: String,
    },
}

/// Which permission is missing.
pub(crate) fn forbidden(action: Action, subject: &str) -> String {
    format!("no permission to {action} {subject:?}")
}

impl From<ConfigError> for TopicError {
    fn from(error: ConfigError) -> TopicError {
        match error {
            ConfigError::Subject(error) => TopicError::Name(error),
            other => TopicError::Config(other),
        }
    }
}

impl From<TopicError> for PublishError {
    fn from(error: TopicError) -> PublishError {
        match error {
            TopicError::Unknown(subject) => PublishError::NoTopic(subject),
            TopicError::Record(error) => *error,
            TopicError::Cluster(_) | TopicError::HandingOver(_) => PublishError::OwnerAway(error.to_string()),
            TopicError::Forbidden { .. } => PublishError::Forbidden(error.to_string()),
            other => PublishError::Refused(other.to_string()),
        }
    }
}

impl From<TopicError> for SubscribeError {
    fn from(error: TopicError) -> SubscribeError {
        match error {
            TopicError::Unknown(subject) => SubscribeError::NoTopic(subject),
            TopicError::Name(error) => SubscribeError::Subject(error),
            TopicError::Limit { limit, value } => SubscribeError::Limit { limit, value },
            TopicError::Forbidden { .. } => SubscribeError::Forbidden(error.to_string()),
            other => SubscribeError::Refused(Refused::from(&other).in_words()),
        }
    }
}
