//! Claims of work groups.

/// Limits of a record's attempts.
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

/// A member's right to a record until the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The record.
    pub seq: u64,
    /// The claim's token, used once.
    pub token: u64,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Time at which the claim ends, ns.
    pub deadline_ns: u64,
}

/// The claim is not valid: its deadline has passed, or it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("claim {token} of record {seq} has ended or belongs to another member")]
pub struct ClaimError {
    /// The record.
    pub seq: u64,
    /// The claim's token.
    pub token: u64,
}

/// How a member leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// The member leaves on its own: its claims do not count as attempts.
    Left,
    /// The member died: its claims count as attempts, because they may be the cause.
    Died,
}

/// A record that failed as often as allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetter {
    /// The record.
    pub seq: u64,
    /// Number of attempts.
    pub attempts: u32,
    /// How the last attempt ended.
    pub cause: DeadCause,
}

/// How the last attempt at a dead letter ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadCause {
    /// The member returned the record.
    Refused,
    /// The deadline passed.
    Expired,
    /// The member died.
    MemberDied,
}
