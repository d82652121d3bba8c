//! Queries of a [`State`], and their results.

use crate::error::{DecodeError, Refusal};
use crate::layout::{choice, decode, encode, layout};
use crate::reply::{Found, Pair, Reply};
use crate::state::{State, check_range};

/// Replaces a total in [`Answer::Status`] that the user may not see.
pub const NOT_SHOWN: u64 = u64::MAX;

choice! {
    /// A query.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Query<'a> {
        /// Reads a key.
        Get { /// The key.
            key: &'a [u8] } = 1,
        /// Reads a range of keys, in order.
        Range { /// The first key.
            start: &'a [u8], /// The end of the range, excluded; empty for no end.
            end: &'a [u8], /// The maximum number; 0 for the limit of the state.
            limit: u32 } = 2,
        /// Reads the properties of a lease.
        Lease { /// The lease.
            lease: u64 } = 3,
        /// Lists leases in the order in which they were granted.
        Leases { /// The lease before the first one listed; 0 to begin.
            after: u64, /// The maximum number; 0 for the limit of the state.
            limit: u32 } = 4,
        /// Reads figures of the state.
        Status = 5,
    }
}

choice! {
    /// The result of a query.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Answer {
        /// Keys; empty if there is none.
        Found { /// The last revision at the time of the read.
            revision: u64, /// The keys.
            found: Found } = 1,
        /// Leases; empty if there is none.
        Leases { /// The leases.
            leases: Vec<LeaseState>, /// Whether more follow.
            more: bool } = 2,
        /// Figures of the state.
        Status { /// The epoch of its revisions.
            epoch: u32, /// The last revision.
            revision: u64, /// Number of keys, system keys included; [`NOT_SHOWN`] here and below for a user who may not see all.
            keys: u64, /// Their bytes.
            bytes: u64, /// Number of leases.
            leases: u64, /// The cluster's time: ms since it began, as counted by its leaders.
            now_ms: u64 } = 3,
    }
}

layout! {
    /// Properties of a lease.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct LeaseState {
        /// The lease's number.
        pub lease: u64,
        /// Time to live after a renewal, ms.
        pub ttl_ms: u64,
        /// Remaining time without a renewal, ms.
        pub left_ms: u64,
        /// Number of keys that end with the lease.
        pub keys: u64,
        /// Number of locks for which the lease waits.
        pub waits: u64,
    }
}

choice! {
    /// The result of a command.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Answered {
        /// The command was applied.
        Done { /// The reply.
            reply: Reply } = 1,
        /// The command was refused.
        Refused { /// The refusal.
            refusal: Refusal } = 2,
    }
}

impl State {
    /// Answers a query.
    pub fn answer(&self, query: &Query<'_>) -> Result<Answer, Refusal> {
        let revision = self.revision();
        match *query {
            Query::Get { key } => {
                self.check_key(key)?;
                let pair = self.keys.get_key_value(key);
                let pair = pair.map(|(key, item)| Pair { key: key.clone(), item: item.clone() });
                let found = Found { items: Vec::from_iter(pair), more: false };
                Ok(Answer::Found { revision, found })
            }
            Query::Range { start, end, limit } => {
                check_range(start, end)?;
                Ok(Answer::Found { revision, found: self.range(start, end, limit) })
            }
            Query::Lease { lease } => {
                let leases = self.leases_after(lease.saturating_sub(1), 1);
                Ok(Answer::Leases {
                    leases: leases.filter(|state| state.lease == lease).collect(),
                    more: false,
                })
            }
            Query::Status => Ok(Answer::Status {
                epoch: self.epoch,
                revision,
                keys: self.len() as u64,
                bytes: self.bytes(),
                leases: self.leases.len() as u64,
                now_ms: self.now_ms,
            }),
            Query::Leases { after, limit } => {
                let max = self.limits.range_keys_max;
                let max = if limit == 0 { max } else { limit.min(max) } as usize;
                let mut leases: Vec<LeaseState> = self.leases_after(after, max + 1).collect();
                let more = leases.len() > max;
                leases.truncate(max);
                Ok(Answer::Leases { leases, more })
            }
        }
    }

    fn leases_after(&self, after: u64, max: usize) -> impl Iterator<Item = LeaseState> {
        let from = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        self.leases.range(from).take(max).map(|(&lease, found)| {
            let info = found.info(self.now_ms);
            let (keys, waits) = (info.keys as u64, info.waits as u64);
            LeaseState { lease, ttl_ms: info.ttl_ms, left_ms: info.left_ms, keys, waits }
        })
    }
}

impl<'a> Query<'a> {
    /// Appends the encoded query.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes a query; its keys borrow from `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<Query<'a>, DecodeError> {
        decode(bytes)
    }
}

impl Answer {
    /// Appends the encoded result.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Answer::Found { found, .. } = self {
            out.reserve(found.items.iter().map(|pair| pair.item.bytes(&pair.key) as usize).sum());
        }
        encode(self, out);
    }

    /// Decodes a result.
    pub fn decode(bytes: &[u8]) -> Result<Answer, DecodeError> {
        decode(bytes)
    }
}

impl Answered {
    /// Appends the encoded result.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes a result.
    pub fn decode(bytes: &[u8]) -> Result<Answered, DecodeError> {
        decode(bytes)
    }
}

impl From<Result<Reply, Refusal>> for Answered {
    fn from(result: Result<Reply, Refusal>) -> Answered {
        match result {
            Ok(reply) => Answered::Done { reply },
            Err(refusal) => Answered::Refused { refusal },
        }
    }
}

impl From<Answered> for Result<Reply, Refusal> {
    fn from(answered: Answered) -> Result<Reply, Refusal> {
        match answered {
            Answered::Done { reply } => Ok(reply),
            Answered::Refused { refusal } => Err(refusal),
        }
    }
}
