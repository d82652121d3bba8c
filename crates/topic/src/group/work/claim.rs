//! The claims, dead letters and options of work groups.

/// The options of a work group: how long a claim lasts, and how many attempts a record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkConfig {
    /// How long a claim lasts, ns.
    pub claim_ns: u64,
    /// Maximum number of attempts before a record becomes a dead letter.
    pub attempts_max: u32,
}

impl Default for WorkConfig {
    fn default() -> WorkConfig {
        WorkConfig { claim_ns: 30_000_000_000, attempts_max: 5 }
    }
}

/// A member's right to a record of a work group until a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Sequence number of the claimed record.
    pub seq: u64,
    /// The claim's token, which no other claim of the group has.
    pub token: u64,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Time at which the claim ends, ns.
    pub deadline_ns: u64,
}

/// The error for a claim that has ended: the record was acknowledged or returned, or the deadline has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("claim {token} of record {seq} has ended or belongs to another member")]
pub struct ClaimError {
    /// Sequence number of the record.
    pub seq: u64,
    /// The claim's token.
    pub token: u64,
}

/// The way in which a member of a work group departed: it left, or it died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberDeparture {
    /// The member left the group by itself. Its open claims do not count as attempts.
    Left,
    /// The member died. Its open claims count as attempts, because one of the claimed records may have caused the
    /// member's death.
    Died,
}

/// A record of a work group whose last allowed attempt has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetter {
    /// Sequence number of the record.
    pub seq: u64,
    /// The number of attempts that have failed.
    pub attempts: u32,
    /// The reason why the last attempt failed.
    pub cause: DeadCause,
}

/// The destination of a work group's dead letters: a subject, or none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeadLetterTarget {
    /// Dead letters go to the subject `dead.<topic>`.
    #[default]
    Default,
    /// Dead letters go to this subject.
    Subject(String),
    /// Dead letters are dropped.
    Drop,
}

impl DeadLetterTarget {
    /// The subject to which the dead letters of groups of the topic `topic` are published; `None` if they are dropped.
    pub fn subject_for(&self, topic: &str) -> Option<String> {
        match self {
            DeadLetterTarget::Default => Some(format!("dead.{topic}")),
            DeadLetterTarget::Subject(subject) => Some(subject.clone()),
            DeadLetterTarget::Drop => None,
        }
    }
}

/// The reason why the last attempt of a dead letter failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadCause {
    /// The member returned the record without an acknowledgement.
    Refused,
    /// The claim's deadline passed.
    Expired,
    /// The member with the claim died.
    MemberDied,
}
