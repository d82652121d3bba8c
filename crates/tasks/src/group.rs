//! Limits by a key: tasks of a tenant that have the same value under it.
//!
//! A place in a group is taken when a task becomes ready, not when it starts: a lane never holds more of a group than may
//! run, so nobody who is next has to be passed over, however many wait. It is given back when the task no longer runs
//! or no longer wants to. The same goes for how often they start (`rate`): who is ready counts on a token, and takes it when it starts.
//! Who finds no place waits with the group, by priority and age.
//!
//! Invariant: no place is kept by a task that nobody could run, for whom there is no worker, while one waits for it that somebody could.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;

use crate::rate::Bucket;
use crate::task::NEVER_MS;
use crate::tenant::Limited;

/// Which group: of whom, by which limit, with which value.
pub(crate) type GroupKey = (u32, u32, Arc<[u8]>);

/// What a group is counted as besides its value, in bytes.
const GROUP_BYTES: u64 = 192;

/// Tasks for which the same workers do: a lane, and what each needs, in thousandths of a processor and bytes of memory.
pub(crate) type Sort = (u32, u64, u64);

/// Members of a group, sort by sort, by how each ranks.
pub(crate) type Members = OrdSet<(Sort, i64, u32)>;

/// The first of each sort.
pub(crate) fn firsts(members: &Members) -> impl Iterator<Item = (Sort, i64, u32)> {
    let mut next = members.get_min().copied();
    std::iter::from_fn(move || {
        let found = next?;
        let behind = (Bound::Excluded((found.0, i64::MAX, u32::MAX)), Bound::Unbounded);
        next = members.range(behind).next().copied();
        Some(found)
    })
}

/// Those that have the same value under a key.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// Ready or held.
    pub(crate) places: u32,
    /// Ready, and counting on a token; only where there is a rate.
    pub(crate) ready: u32,
    pub(crate) bucket: Bucket,
    /// When somebody gets a token, or nothing is left to remember.
    pub(crate) due_ms: u64,
    /// Those that have no place.
    pub(crate) waiting: Members,
    /// Those that have a place and are ready: no worker has them.
    pub(crate) ready_members: Members,
}

impl Default for Group {
    fn default() -> Group {
        let (waiting, ready_members) = (OrdSet::new(), OrdSet::new());
        Group { places: 0, ready: 0, bucket: Bucket::default(), due_ms: NEVER_MS, waiting, ready_members }
    }
}

impl Group {
    /// There is nothing to remember.
    pub(crate) fn is_empty(&self, limit: &Limited, now_ms: u64) -> bool {
        let is_full = limit.rate.is_none_or(|rate| self.bucket.missing(&rate, now_ms) == 0);
        self.places == 0 && self.waiting.is_empty() && is_full
    }

    /// Whether one more may be ready.
    pub(crate) fn has_place(&self, limit: &Limited, now_ms: u64) -> bool {
        self.places < limit.running_max && self.has_token(limit, now_ms)
    }

    /// Whether one more may be ready once another that was is not any more.
    pub(crate) fn has_place_of_another(&self, limit: &Limited, now_ms: u64) -> bool {
        let is_covered = |rate| u64::from(self.ready) <= self.bucket.tokens(&rate, now_ms);
        self.places <= limit.running_max && limit.rate.is_none_or(is_covered)
    }

    pub(crate) fn has_token(&self, limit: &Limited, now_ms: u64) -> bool {
        limit.rate.is_none_or(|rate| u64::from(self.ready) < self.bucket.tokens(&rate, now_ms))
    }

    /// When time alone changes something: who waits for nothing but a token gets it, or the group is forgotten.
    pub(crate) fn next_due_ms(&self, limit: &Limited) -> u64 {
        let Some(rate) = &limit.rate else { return NEVER_MS };
        if !self.waiting.is_empty() && self.places < limit.running_max && self.ready < rate.burst {
            self.bucket.due_ms(rate, u64::from(self.ready) + 1)
        } else if self.waiting.is_empty() && self.places == 0 {
            self.bucket.full_ms(rate)
        } else {
            NEVER_MS
        }
    }
}

/// What a group is counted as, in bytes.
pub(crate) fn bytes(key: &GroupKey) -> u64 {
    GROUP_BYTES + key.2.len() as u64
}
