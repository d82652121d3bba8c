//! What members of a `work` group and its owner say to each other.

/// How often and how long a record may be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkConfig {
    /// How long a claim lasts, ns.
    pub claim_ns: u64,
    /// How often a record is given out before it becomes a dead letter.
    pub attempts_max: u32,
}

impl Default for WorkConfig {
    fn default() -> WorkConfig {
        WorkConfig { claim_ns: 30_000_000_000, attempts_max: 5 }
    }
}

/// A record that is a member's until the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The record.
    pub seq: u64,
    /// What proves the claim; each is given once.
    pub token: u64,
    /// The how-manieth time the record is given out, from 1.
    pub attempt: u32,
    /// When the claim ends.
    pub deadline_ns: u64,
}

/// A claim that does not count, or no longer: its deadline passed, or it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("claim {token} of record {seq} has ended or is another member's")]
pub struct ClaimError {
    /// The record.
    pub seq: u64,
    /// What was to prove the claim.
    pub token: u64,
}

/// How a member goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It says so: what it had claimed, or was given and has not confirmed, was not tried.
    Left,
    /// It is gone: what it had claimed may be why, so it was tried.
    Died,
}

/// A record that was tried in vain as often as it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetter {
    /// The record.
    pub seq: u64,
    /// How often it was tried.
    pub attempts: u32,
    /// How the last attempt ended.
    pub cause: DeadCause,
}

/// How the last attempt at a dead letter ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadCause {
    /// The member said that it could not.
    Refused,
    /// The deadline passed.
    Expired,
    /// The member died.
    MemberDied,
}
