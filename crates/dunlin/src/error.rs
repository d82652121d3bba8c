use dunlin_topic::{ConfigError, PublishError, SubjectError, SubscribeError};
use thiserror::Error;

use crate::access::Action;
use crate::refusal::Refused;

/// The reason why a topic could not be created, found or deleted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TopicError {
    /// The name is invalid.
    #[error("{0}")]
    Name(#[from] SubjectError),
    /// The configuration is invalid.
    #[error("{0}")]
    Config(ConfigError),
    /// A topic with this name exists. If `or_same` was set, the existing topic has another configuration.
    #[error("topic {0:?} already exists")]
    Exists(String),
    /// The topic of this name owns some of the subjects. The name is empty if the user may not see that topic.
    #[error("{}", overlap(.0))]
    Overlaps(String),
    /// There is no topic with this name.
    #[error("there is no topic {0:?}")]
    Unknown(String),
    /// A work group's topic for dead letters does not exist, and the node does not create it.
    #[error(
        "no topic owns {0:?}, the subject of the group's dead letters, and the node creates no topics \
         (topics.auto_create is off): create the topic, or let the group drop its dead letters"
    )]
    NoDeadLetterTopic(String),
    /// The name is reserved for the system or for sessions.
    #[error(
        "the name {0:?} is reserved: names that begin with $ belong to the system, and names that begin with \
         _INBOX. to clients' inboxes; choose another name"
    )]
    Reserved(String),
    /// The topic is durable, and the node has no data directory.
    #[error("a durable topic needs a data directory: start the node with --data-dir DIR")]
    NoDataDir,
    /// Another node owns the topic, and only the owner can do the requested operation.
    #[error("{why}")]
    Elsewhere {
        /// The number of the owner.
        node: u64,
        /// The operation that only the owner can do, and where the owner is.
        why: String,
    },
    /// This node is becoming the topic's owner, but has not yet received all records from the previous owner. Retry.
    #[error("topic {0:?}: the previous owner is handing its records over to this node; retry")]
    HandingOver(String),
    /// The topic cannot move to another node, because this node is not part of a cluster.
    #[error(
        "topic {0:?} cannot move: this node is not part of a cluster; start it with --cluster-listen, see \
         docs/operations.md"
    )]
    NoCluster(String),
    /// The cluster refused the request or did not respond.
    #[error("the cluster refused the request or did not respond: {0}")]
    Cluster(String),
    /// The disk failed, or contains a topic with this name that cannot be opened.
    #[error("the disk failed: {0}")]
    Disk(String),
    /// The disk is full. A retry may succeed once there is room.
    #[error("the disk is full: {0}")]
    DiskFull(String),
    /// The process may not open as many files as the topic needs, or lacks memory for them. A later retry may succeed.
    #[error("{why}")]
    OpenFiles {
        /// The number of files that the process may have open; 0 if there is no limit.
        limit: u64,
        /// Why the files cannot be opened, and what to do.
        why: String,
    },
    /// A new topic was to be created with its first record, but this record was refused.
    #[error("{0}")]
    Record(Box<PublishError>),
    /// A named limit is reached.
    #[error("the limit {limit} = {value} is reached")]
    Limit {
        /// The limit's name.
        limit: &'static str,
        /// The limit's value.
        value: u64,
    },
    /// The user lacks the permission for this action.
    #[error("{}", forbidden(*action, subject))]
    Forbidden {
        /// The action that the user may not do.
        action: Action,
        /// The subject, topic, group or key of the action.
        subject: String,
    },
}

fn overlap(topic: &str) -> String {
    match topic {
        "" => "the pattern overlaps the pattern of another topic".to_owned(),
        topic => format!("the pattern overlaps the pattern of topic {topic:?}"),
    }
}

/// Returns the text of the error about a missing permission.
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
            TopicError::DiskFull(why) => PublishError::DiskFull(why),
            TopicError::OpenFiles { .. } => PublishError::Refused(Refused::from(&error).to_line()),
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
            other => SubscribeError::Refused(Refused::from(&other).to_line()),
        }
    }
}
