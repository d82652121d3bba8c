use dunlin_topic::{GroupError, SubjectError, SubscribeError};
use dunlin_wire::ErrorCode;
use thiserror::Error;

use super::GroupKind;
use crate::access::Action;
use crate::error::{TopicError, forbidden};
use crate::refusal::Refused;

/// The reason why joining a group failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The group's name is invalid.
    #[error("invalid group name: {0}")]
    Name(#[from] SubjectError),
    /// The group's topic, or the topic for its dead letters, does not exist or cannot be used.
    #[error("{0}")]
    Topic(#[from] TopicError),
    /// The group cannot start at the requested position.
    #[error("{0}")]
    Start(#[from] SubscribeError),
    /// The group exists already, but is of the other kind.
    #[error("group {group:?} exists already and is of kind {kind}")]
    Kind {
        /// The group's name.
        group: String,
        /// The kind of the existing group.
        kind: GroupKind,
    },
    /// The subject for dead letters belongs to the group's own topic. The group would receive its own dead letters.
    #[error(
        "topic {topic:?} owns {subject:?}, so the group's dead letters would return to the group's own \
         topic: choose a subject of another topic, or let the group drop its dead letters"
    )]
    DeadLetters {
        /// The subject for dead letters.
        subject: String,
        /// The group's topic.
        topic: String,
    },
    /// The subject for dead letters is invalid. The default subject, which is `dead.` and the topic's name, may be too
    /// long.
    #[error(
        "the subject {subject:?} of the group's dead letters is invalid: {error}; choose another subject, or \
         let the group drop its dead letters"
    )]
    DeadLetterSubject {
        /// The subject for dead letters.
        subject: String,
        /// The reason why the subject is invalid.
        error: SubjectError,
    },
    /// The user may not use the subject for dead letters, and therefore may not create the group.
    #[error(
        "{}, the subject of the group's dead letters: grant the permission, choose another subject, or let \
         the group drop its dead letters",
        forbidden(*action, subject)
    )]
    DeadLettersForbidden {
        /// The action for which the user lacks the permission.
        action: Action,
        /// The subject of that action.
        subject: String,
    },
    /// A named limit is reached.
    #[error("the limit {limit} = {value} is reached")]
    Limit {
        /// The limit's name.
        limit: &'static str,
        /// The limit's value.
        value: u64,
    },
}

/// The error for a claim that is no longer open: its deadline has passed, or the record was already acknowledged or
/// returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("claim {token} has ended: its deadline passed, or the record was already acknowledged or returned")]
pub struct StaleClaim {
    /// The claim's token.
    pub token: u64,
}

impl From<GroupError> for JoinError {
    fn from(error: GroupError) -> JoinError {
        match error {
            GroupError::Full { members_max } => {
                JoinError::Limit { limit: "group_members_max", value: members_max.into() }
            }
            other => JoinError::Start(SubscribeError::Refused(other.to_string())),
        }
    }
}

impl From<&JoinError> for Refused {
    fn from(error: &JoinError) -> Refused {
        match error {
            JoinError::Name(error) => Refused::new(ErrorCode::Subject, error.to_string()),
            JoinError::Topic(error) => error.into(),
            JoinError::Start(error) => error.into(),
            JoinError::Kind { kind, .. } => Refused::new(ErrorCode::GroupKind, kind.to_string()),
            JoinError::DeadLetters { .. } => Refused::new(ErrorCode::TopicConfig, error.to_string()),
            JoinError::DeadLetterSubject { .. } => Refused::new(ErrorCode::Subject, error.to_string()),
            JoinError::DeadLettersForbidden { .. } => Refused::new(ErrorCode::Forbidden, error.to_string()),
            JoinError::Limit { limit, value } => Refused::limit(limit, *value),
        }
    }
}
