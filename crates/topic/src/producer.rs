//! Detects retries of producers, which are named publishers with numbered records, so that no record is appended twice.
//!
//! For each producer, the log remembers the last number, and the positions of the producer's recent records.
//!
//! Invariants:
//! - Within one `producer_epoch`, each new record must have the next number after the record before, and is appended
//!   only once.
//! - After the first record with a higher `producer_epoch` is appended, records with a lower one are refused (fenced).
//!   A refused append changes nothing.
//! - The receipt of a retry names the position of the first attempt. A retry may use other batch boundaries, but never
//!   mixes old records with new ones.
//!
//! Limits: [`LogLimits::producers_max`] and [`LogLimits::producer_outcomes_max`]. A producer that the log has forgotten
//! counts as new: if it retries a record, the record is appended again.

use std::collections::{HashMap, VecDeque};

use crate::event::Position;
use crate::limits::LogLimits;
use crate::log::ProducerMark;
use crate::publish::PublishError;

/// Whether the records of a producer are new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DuplicateVerdict {
    Fresh,
    /// The records are a retry: they were appended before.
    Duplicate {
        /// Position at which the last of the records was appended.
        last: Position,
    },
}

/// The producers of one log, ordered by their last use.
#[derive(Debug)]
pub(crate) struct Producers {
    by_id: HashMap<u64, u32>,
    slots: Vec<Producer>,
    newest: u32,
    oldest: u32,
    producers_max: u32,
    outcomes_max: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ProducerLimits {
    producers_max: u32,
    outcomes_max: u32,
}

impl ProducerLimits {
    pub(crate) fn of(limits: &LogLimits) -> ProducerLimits {
        ProducerLimits { producers_max: limits.producers_max, outcomes_max: limits.producer_outcomes_max }
    }
}

#[derive(Debug)]
struct Producer {
    id: u64,
    epoch: u32,
    last: u64,
    /// Ranges of appended records, in ascending order of their numbers and positions. Empty only until the first record
    /// is appended.
    outcomes: VecDeque<Outcome>,
    newer: u32,
    older: u32,
}

/// A range of appended records. From one record to the next, both the producer's number and the sequence number rise by
/// 1.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    first: u64,
    count: u64,
    at: Position,
}

const NONE: u32 = u32::MAX;

impl Producers {
    pub(crate) fn new(limits: ProducerLimits) -> Producers {
        Producers {
            by_id: HashMap::new(),
            slots: Vec::new(),
            newest: NONE,
            oldest: NONE,
            producers_max: limits.producers_max.clamp(1, NONE - 1),
            outcomes_max: limits.outcomes_max.max(1),
        }
    }

    /// Checks whether `count` records from the number in `mark` on are new or were appended before. Returns an error if
    /// they must be refused.
    ///
    /// # Panics
    /// If `count` is 0.
    #[inline]
    pub(crate) fn check(&mut self, mark: ProducerMark, count: u64) -> Result<DuplicateVerdict, PublishError> {
        assert!(count > 0, "an append holds at least one record");
        if mark.producer_seq.checked_add(count).is_none() {
            return Err(PublishError::Batch("producer sequence overflows"));
        }
        let Some(slot) = self.find(mark.producer) else { return Ok(DuplicateVerdict::Fresh) };
        self.touch(slot);
        self.slots[slot as usize].check(mark, count)
    }

    /// Remembers that the `count` records from the number in `mark` on were appended, the first of them at position
    /// `first`.
    ///
    /// # Panics
    /// If [`check`](Producers::check) would not find the records new.
    #[inline]
    pub(crate) fn record(&mut self, mark: ProducerMark, count: u64, first: Position) {
        let slot = match self.find(mark.producer) {
            Some(slot) => slot,
            None => self.add(mark),
        };
        self.touch(slot);
        let outcomes_max = self.outcomes_max as usize;
        let outcome = Outcome { first: mark.producer_seq, count, at: first };
        self.slots[slot as usize].record(mark, outcome, outcomes_max);
    }

    pub(crate) fn last(&self, id: u64) -> Option<u64> {
        self.find(id).map(|slot| self.slots[slot as usize].last)
    }

    /// Finds the slot of a producer. If it is the producer that was used last, no hash is needed.
    #[inline]
    fn find(&self, id: u64) -> Option<u32> {
        match self.slots.get(self.newest as usize) {
            Some(newest) if newest.id == id => Some(self.newest),
            _ => self.by_id.get(&id).copied(),
        }
    }

    /// Adds a producer and returns its slot. At the limit, the new producer replaces the least recently used one.
    fn add(&mut self, mark: ProducerMark) -> u32 {
        let fresh = Producer {
            id: mark.producer,
            epoch: mark.producer_epoch,
            last: 0,
            outcomes: VecDeque::new(),
            newer: NONE,
            older: NONE,
        };
        let slot = if self.slots.len() < self.producers_max as usize {
            self.slots.push(fresh);
            self.slots.len() as u32 - 1
        } else {
            let slot = self.oldest;
            self.unlink(slot);
            self.by_id.remove(&self.slots[slot as usize].id);
            self.slots[slot as usize] = fresh;
            slot
        };
        self.by_id.insert(mark.producer, slot);
        self.link_newest(slot);
        slot
    }

    #[inline]
    fn touch(&mut self, slot: u32) {
        if slot != self.newest {
            self.unlink(slot);
            self.link_newest(slot);
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Producer { newer, older, .. } = self.slots[slot as usize];
        match self.slots.get_mut(newer as usize) {
            Some(neighbour) => neighbour.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(neighbour) => neighbour.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let older = std::mem::replace(&mut self.newest, slot);
        match self.slots.get_mut(older as usize) {
            Some(neighbour) => neighbour.newer = slot,
            None => self.oldest = slot,
        }
        let linked = &mut self.slots[slot as usize];
        linked.newer = NONE;
        linked.older = older;
    }
}

impl Producer {
    fn check(&self, mark: ProducerMark, count: u64) -> Result<DuplicateVerdict, PublishError> {
        if mark.producer_epoch != self.epoch {
            return if mark.producer_epoch > self.epoch {
                Ok(DuplicateVerdict::Fresh)
            } else {
                Err(PublishError::ProducerFenced { epoch: mark.producer_epoch, current: self.epoch })
            };
        }
        let (first, end) = (mark.producer_seq, mark.producer_seq + count);
        if first > self.last {
            return if first == self.last + 1 {
                Ok(DuplicateVerdict::Fresh)
            } else {
                Err(PublishError::ProducerGap { producer_seq: first, last: self.last })
            };
        }
        if end > self.last + 1 {
            return Err(PublishError::Batch("a retry must not contain new records"));
        }
        let remembered_from = self.outcomes.front().map_or(self.last + 1, |oldest| oldest.first);
        if first < remembered_from {
            return Err(PublishError::DuplicateForgotten { producer_seq: first, remembered_from });
        }
        Ok(DuplicateVerdict::Duplicate { last: self.outcome_of(end - 1) })
    }

    /// Position at which the producer's record with this number was appended. The log must still remember the record.
    fn outcome_of(&self, producer_seq: u64) -> Position {
        let after = self.outcomes.partition_point(|outcome| outcome.first <= producer_seq);
        let outcome = &self.outcomes[after - 1];
        Position { seq: outcome.at.seq + (producer_seq - outcome.first), ..outcome.at }
    }

    fn record(&mut self, mark: ProducerMark, new: Outcome, outcomes_max: usize) {
        if mark.producer_epoch != self.epoch {
            assert!(mark.producer_epoch > self.epoch, "a fenced producer cannot append");
            self.epoch = mark.producer_epoch;
            self.outcomes.clear();
        }
        self.last = new.first + new.count - 1;
        if let Some(before) = self.outcomes.back_mut() {
            assert_eq!(before.first + before.count, new.first, "only new records are appended");
            if before.at.epoch == new.at.epoch && before.at.seq + before.count == new.at.seq {
                before.count += new.count;
                return;
            }
        }
        if self.outcomes.len() == outcomes_max {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(new);
    }
}

#[cfg(test)]
mod tests;
