//! The records of a work group that are not settled (acknowledged, dead-lettered or lost), and whether each of them can
//! be claimed.
//!
//! Invariants:
//! - Of the unsettled records with the same key, the oldest is ready, claimed or delayed. The other records are
//!   [`RecordState::Behind`] the oldest one, in order.
//! - `ready` has exactly the records that are ready, and `timers` exactly those that are claimed or delayed.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::claim::DeadLetter;
use crate::group::MemberId;

/// Whether a record of a work group can be claimed, now or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordState {
    /// The record can be claimed.
    Ready,
    /// The record cannot be claimed, because an older record with the same key is not settled yet.
    Behind,
    /// A member has claimed the record.
    Claimed { member: MemberId, token: u64, deadline_ns: u64 },
    /// The record can be claimed at a later time.
    Delayed { until_ns: u64 },
}

impl RecordState {
    fn due_ns(&self) -> Option<u64> {
        match self {
            RecordState::Claimed { deadline_ns, .. } => Some(*deadline_ns),
            RecordState::Delayed { until_ns } => Some(*until_ns),
            RecordState::Ready | RecordState::Behind => None,
        }
    }
}

#[derive(Debug)]
struct UnsettledRecord {
    key: Option<u64>,
    attempts: u32,
    state: RecordState,
}

/// The records of a work group that are not settled yet.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    records: BTreeMap<u64, UnsettledRecord>,
    ready: BTreeSet<u64>,
    /// The times at which claims and delays end, each with the sequence number of the record.
    timers: BTreeSet<(u64, u64)>,
    /// The keys of all unsettled records. Each has the records that wait behind the oldest record with this key.
    keys: HashMap<u64, VecDeque<u64>>,
    keys_blocked: usize,
    /// Dead letters, by sequence number, until the group's owner takes them to publish them.
    dead: BTreeMap<u64, DeadLetter>,
}

impl Backlog {
    /// Number of tracked records: unsettled records, and dead letters that were not taken yet.
    pub(super) fn len(&self) -> usize {
        self.records.len() + self.dead.len()
    }

    /// Number of keys with more than one unsettled record.
    pub(super) fn keys_blocked(&self) -> usize {
        self.keys_blocked
    }

    /// Sequence number of the oldest tracked record.
    pub(super) fn oldest(&self) -> Option<u64> {
        let first = self.records.first_key_value().map(|(seq, _)| *seq);
        let dead = self.dead.first_key_value().map(|(seq, _)| *seq);
        first.into_iter().chain(dead).min()
    }

    pub(super) fn has_ready_record(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn first_ready(&self) -> Option<u64> {
        self.ready.first().copied()
    }

    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.timers.first().map(|(due_ns, _)| *due_ns)
    }

    /// Returns a record whose claim or delay ends at `now_ns` or earlier, and its state.
    pub(super) fn due(&self, now_ns: u64) -> Option<(u64, RecordState)> {
        let &(due_ns, seq) = self.timers.first()?;
        (due_ns <= now_ns).then(|| (seq, self.records[&seq].state))
    }

    pub(super) fn state(&self, seq: u64) -> Option<RecordState> {
        self.records.get(&seq).map(|record| record.state)
    }

    pub(super) fn attempts(&self, seq: u64) -> u32 {
        self.records[&seq].attempts
    }

    /// Decreases a record's number of attempts by one, because its last attempt does not count.
    pub(super) fn uncount_attempt(&mut self, seq: u64) {
        self.record_mut(seq).attempts -= 1;
    }

    pub(super) fn claimed_by(&self, holder: MemberId) -> Vec<u64> {
        let is_claimed =
            |state: RecordState| matches!(state, RecordState::Claimed { member, .. } if member == holder);
        self.records.iter().filter(|(_, record)| is_claimed(record.state)).map(|(seq, _)| *seq).collect()
    }

    pub(super) fn unclaimed_before(&self, seq: u64) -> Vec<u64> {
        let is_unclaimed = |record: &UnsettledRecord| !matches!(record.state, RecordState::Claimed { .. });
        self.records.range(..seq).filter(|(_, record)| is_unclaimed(record)).map(|(seq, _)| *seq).collect()
    }

    /// Adds record `seq`, the next record of the log.
    pub(super) fn add(&mut self, seq: u64, key: Option<u64>) {
        let state = match key.map(|key| self.keys.entry(key)) {
            Some(std::collections::hash_map::Entry::Occupied(mut behind)) => {
                self.keys_blocked += usize::from(behind.get().is_empty());
                behind.get_mut().push_back(seq);
                RecordState::Behind
            }
            Some(std::collections::hash_map::Entry::Vacant(free)) => {
                free.insert(VecDeque::new());
                RecordState::Ready
            }
            None => RecordState::Ready,
        };
        self.records.insert(seq, UnsettledRecord { key, attempts: 0, state: RecordState::Behind });
        self.set_state(seq, state);
    }

    /// Marks the record as claimed, with the claim in `state`. Returns the number of this attempt.
    pub(super) fn claim(&mut self, seq: u64, state: RecordState) -> u32 {
        self.set_state(seq, state);
        let record = self.record_mut(seq);
        record.attempts += 1;
        record.attempts
    }

    pub(super) fn set_state(&mut self, seq: u64, state: RecordState) {
        let before = std::mem::replace(&mut self.record_mut(seq).state, state);
        self.unschedule(seq, before);
        if state == RecordState::Ready {
            self.ready.insert(seq);
        }
        if let Some(due_ns) = state.due_ns() {
            self.timers.insert((due_ns, seq));
        }
    }

    /// Settles the record: removes it, and makes the next record with the same key ready.
    pub(super) fn settle(&mut self, seq: u64) {
        let Some(record) = self.records.remove(&seq) else { return };
        self.unschedule(seq, record.state);
        let Some(key) = record.key else { return };
        let Some(behind) = self.keys.get_mut(&key) else { return };
        if record.state == RecordState::Behind {
            let at = behind.partition_point(|waiting| *waiting < seq);
            behind.remove(at);
            self.keys_blocked -= usize::from(behind.is_empty());
            return;
        }
        match behind.pop_front() {
            None => {
                self.keys.remove(&key);
            }
            Some(next) => {
                self.keys_blocked -= usize::from(behind.is_empty());
                self.set_state(next, RecordState::Ready);
            }
        }
    }

    /// Turns a record into a dead letter, and makes the next record with the same key ready.
    pub(super) fn add_dead_letter(&mut self, letter: DeadLetter) {
        self.settle(letter.seq);
        self.dead.insert(letter.seq, letter);
    }

    pub(super) fn take_dead_letter(&mut self) -> Option<DeadLetter> {
        self.dead.pop_first().map(|(_, letter)| letter)
    }

    pub(super) fn dead_letters(&self) -> usize {
        self.dead.len()
    }

    fn unschedule(&mut self, seq: u64, state: RecordState) {
        if state == RecordState::Ready {
            self.ready.remove(&seq);
        }
        if let Some(due_ns) = state.due_ns() {
            self.timers.remove(&(due_ns, seq));
        }
    }

    fn record_mut(&mut self, seq: u64) -> &mut UnsettledRecord {
        self.records.get_mut(&seq).expect("the record must be unsettled")
    }

    /// Checks the invariants in the module's documentation.
    #[cfg(test)]
    pub(super) fn assert_sound(&self) {
        let with_state = |matches: fn(&RecordState) -> bool| {
            self.records.iter().filter(move |(_, record)| matches(&record.state))
        };
        let ready: BTreeSet<u64> =
            with_state(|state| *state == RecordState::Ready).map(|(seq, _)| *seq).collect();
        assert_eq!(ready, self.ready);
        let due = self.records.iter().filter_map(|(seq, record)| Some((record.state.due_ns()?, *seq)));
        assert_eq!(due.collect::<BTreeSet<_>>(), self.timers);
        let mut keys: HashMap<u64, VecDeque<u64>> = HashMap::new();
        for (seq, record) in &self.records {
            let Some(key) = record.key else {
                assert_ne!(record.state, RecordState::Behind);
                continue;
            };
            assert_eq!(record.state == RecordState::Behind, keys.contains_key(&key), "record {seq}");
            match keys.get_mut(&key) {
                Some(behind) => behind.push_back(*seq),
                None => {
                    keys.insert(key, VecDeque::new());
                }
            }
        }
        assert_eq!(keys, self.keys);
        assert_eq!(keys.values().filter(|behind| !behind.is_empty()).count(), self.keys_blocked);
    }
}
