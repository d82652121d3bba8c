//! What can be asked of a [`State`] that changes nothing, and what is answered.

use crate::error::{DecodeError, Refusal};
use crate::layout::{choice, decode, encode, layout};
use crate::reply::{Found, Pair, Reply};
use crate::state::{State, check_range};

/// Stands for a total in [`Answer::Status`] that the user may not know.
pub const NOT_SHOWN: u64 = u64::MAX;

choice! {
    /// One question.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Query<'a> {
        /// What a key holds.
        Get { /// The key.
            key: &'a [u8] } = 1,
        /// Keys of a range, in order.
        Range { /// The first.
            start: &'a [u8], /// Before this; empty: to the last.
            end: &'a [u8], /// At most so many; 0 for as many as may be.
            limit: u32 } = 2,
        /// What is known of a lease.
        Lease { /// Which.
            lease: u64 } = 3,
        /// Leases in the order in which they were granted.
        Leases { /// After this one; 0 for the first.
            after: u64, /// At most so many; 0 for as many as may be.
            limit: u32 } = 4,
        /// What the state is now.
        Status = 5,
    }
}

choice! {
    /// What is so.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Answer {
        /// Keys; none for one that is not there.
        Found { /// The last revision when it was looked for.
            revision: u64, /// The keys.
            found: Found } = 1,
        /// Leases; none for one that is not there.
        Leases { /// The leases.
            leases: Vec<LeaseState>, /// There are more after the last of them.
            more: bool } = 2,
        /// What the state is now.
        Status { /// The epoch of its revisions.
            epoch: u32, /// The last revision.
            revision: u64, /// Keys, the system's among them; [`NOT_SHOWN`] here and below to a user who may not see all of them.
            keys: u64, /// What they take.
            bytes: u64, /// Leases.
            leases: u64, /// Milliseconds since the cluster began, as its leaders have counted them.
            now_ms: u64 } = 3,
    }
}

layout! {
    /// A lease.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct LeaseState {
        /// Its number.
        pub lease: u64,
        /// How long it lives after it was kept alive.
        pub ttl_ms: u64,
        /// How long it lives if nobody keeps it alive.
        pub left_ms: u64,
        /// How many keys go when it ends.
        pub keys: u64,
        /// For how many locks it waits.
        pub waits: u64,
    }
}

choice! {
    /// What came of a command.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Answered {
        /// It was taken in.
        Done { /// What came of it.
            reply: Reply } = 1,
        /// It was refused.
        Refused { /// Why.
            refusal: Refusal } = 2,
    }
}

impl State {
    /// Answers a question.
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
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Reads one; its keys lie in `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<Query<'a>, DecodeError> {
        decode(bytes)
    }
}

impl Answer {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Answer::Found { found, .. } = self {
            out.reserve(found.items.iter().map(|pair| pair.item.bytes(&pair.key) as usize).sum());
        }
        encode(self, out);
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<Answer, DecodeError> {
        decode(bytes)
    }
}

impl Answered {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Reads one.
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
