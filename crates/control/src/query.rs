//! Defines the queries that read a [`ControlState`], and the results of these queries.

use crate::error::{ControlDecodeError, ControlRefusal};
use crate::layout::{choice, decode, encode, layout};
use crate::reply::{ControlReply, FoundKey, FoundKeys};
use crate::state::{ControlState, check_range};

/// [`ControlQueryResult::Status`] contains this number in place of each total that the user may not see.
pub const NOT_SHOWN: u64 = u64::MAX;

choice! {
    /// A query of keys, leases or the state's totals.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ControlQuery<'a> {
        /// Reads one key.
        Get { /// The key.
            key: &'a [u8] } = 1,
        /// Reads the keys of a range, in the order of their bytes.
        Range { /// The first key.
            start: &'a [u8], /// The end of the range, excluded; empty for no end.
            end: &'a [u8], /// The maximum number; 0 for the limit of the state.
            limit: u32 } = 2,
        /// Reads the status of a lease.
        Lease { /// The lease.
            lease: u64 } = 3,
        /// Lists leases in the order in which they were granted.
        Leases { /// The lease before the first one listed; 0 to begin.
            after: u64, /// The maximum number; 0 for the limit of the state.
            limit: u32 } = 4,
        /// Reads the totals of the state, such as the number of keys.
        Status = 5,
    }
}

choice! {
    /// The result of a [`ControlQuery`], such as the value of a key.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum ControlQueryResult {
        /// The keys that were found; empty if there are none.
        Found { /// The last revision at the time of the read.
            revision: u64, /// The keys.
            found: FoundKeys } = 1,
        /// The leases that were found; empty if there are none.
        Leases { /// The leases.
            leases: Vec<LeaseState>, /// Whether more follow.
            more: bool } = 2,
        /// The totals of the state, such as the number of keys.
        Status { /// The epoch of the revisions.
            epoch: u32, /// The last revision.
            revision: u64, /// Number of keys, system keys included; [`NOT_SHOWN`] here and below for a user who may not see all.
            keys: u64, /// Approximate bytes of the keys.
            bytes: u64, /// Number of leases.
            leases: u64, /// The cluster's time: ms since it began, as counted by its leaders.
            now_ms: u64 } = 3,
    }
}

layout! {
    /// The status of a lease in a query's result: its remaining time, keys and waits for locks.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct LeaseState {
        /// The lease's number.
        pub lease: u64,
        /// How long the lease lasts after a renewal, ms.
        pub ttl_ms: u64,
        /// How long the lease still lasts unless it is renewed, ms.
        pub left_ms: u64,
        /// Number of keys that are deleted when the lease ends.
        pub keys: u64,
        /// Number of locks for which the lease waits.
        pub waits: u64,
    }
}

choice! {
    /// The outcome of a command: its reply if it was applied, or the reason why it was refused.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum ControlOutcome {
        /// The command was applied.
        Done { /// The reply.
            reply: ControlReply } = 1,
        /// The command was refused.
        Refused { /// The refusal.
            refusal: ControlRefusal } = 2,
    }
}

impl ControlState {
    /// Runs a query and returns its result.
    pub fn answer(&self, query: &ControlQuery<'_>) -> Result<ControlQueryResult, ControlRefusal> {
        let revision = self.revision();
        match *query {
            ControlQuery::Get { key } => {
                self.check_key(key)?;
                let pair = self.keys.get_key_value(key);
                let pair = pair.map(|(key, item)| FoundKey { key: key.clone(), item: item.clone() });
                let found = FoundKeys { items: Vec::from_iter(pair), more: false };
                Ok(ControlQueryResult::Found { revision, found })
            }
            ControlQuery::Range { start, end, limit } => {
                check_range(start, end)?;
                Ok(ControlQueryResult::Found { revision, found: self.range(start, end, limit) })
            }
            ControlQuery::Lease { lease } => {
                let leases = self.leases_after(lease.saturating_sub(1), 1);
                Ok(ControlQueryResult::Leases {
                    leases: leases.filter(|state| state.lease == lease).collect(),
                    more: false,
                })
            }
            ControlQuery::Status => Ok(ControlQueryResult::Status {
                epoch: self.epoch,
                revision,
                keys: self.len() as u64,
                bytes: self.bytes(),
                leases: self.leases.len() as u64,
                now_ms: self.now_ms,
            }),
            ControlQuery::Leases { after, limit } => {
                let max = self.limits.range_keys_max;
                let max = if limit == 0 { max } else { limit.min(max) } as usize;
                let mut leases: Vec<LeaseState> = self.leases_after(after, max + 1).collect();
                let more = leases.len() > max;
                leases.truncate(max);
                Ok(ControlQueryResult::Leases { leases, more })
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

impl<'a> ControlQuery<'a> {
    /// Appends the encoded query.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes a query; its keys borrow from `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<ControlQuery<'a>, ControlDecodeError> {
        decode(bytes)
    }
}

impl ControlQueryResult {
    /// Appends the encoded result.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let ControlQueryResult::Found { found, .. } = self {
            out.reserve(found.items.iter().map(|pair| pair.item.bytes(&pair.key) as usize).sum());
        }
        encode(self, out);
    }

    /// Decodes a result.
    pub fn decode(bytes: &[u8]) -> Result<ControlQueryResult, ControlDecodeError> {
        decode(bytes)
    }
}

impl ControlOutcome {
    /// Appends the encoded result.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes a result.
    pub fn decode(bytes: &[u8]) -> Result<ControlOutcome, ControlDecodeError> {
        decode(bytes)
    }
}

impl From<Result<ControlReply, ControlRefusal>> for ControlOutcome {
    fn from(result: Result<ControlReply, ControlRefusal>) -> ControlOutcome {
        match result {
            Ok(reply) => ControlOutcome::Done { reply },
            Err(refusal) => ControlOutcome::Refused { refusal },
        }
    }
}

impl From<ControlOutcome> for Result<ControlReply, ControlRefusal> {
    fn from(outcome: ControlOutcome) -> Result<ControlReply, ControlRefusal> {
        match outcome {
            ControlOutcome::Done { reply } => Ok(reply),
            ControlOutcome::Refused { refusal } => Err(refusal),
        }
    }
}
