//! Sharing: each record goes to one member, at most once.
//!
//! Members take when they have room, so the fastest gets the most. A member confirms what it has consumed; what
//! it had not confirmed when it left is told to the others, because nobody can know whether it was used.

use std::collections::VecDeque;

use super::lost::Lost;
use super::members::{MemberId, Members};
use super::{GroupError, Incoming, Source};
use crate::limits::Limits;

/// A group whose records each go to one member, at most once.
#[derive(Debug)]
pub struct Share {
    members: Members<Handed>,
    fed_through: u64,
    handed_max: u64,
}

/// What a member was given and has not confirmed, as ascending ranges.
#[derive(Debug, Default)]
struct Handed {
    ranges: VecDeque<(u64, u64)>,
    records: u64,
}

impl Share {
    /// A group that begins after the record `after_seq`.
    pub fn new(limits: &Limits, after_seq: u64) -> Share {
        Share {
            members: Members::new(limits),
            fed_through: after_seq,
            handed_max: limits.share_handed_max.max(1).into(),
        }
    }

    /// Lets one more take part.
    pub fn join(&mut self) -> Result<MemberId, GroupError> {
        self.members.join()
    }

    /// Ends a membership, wanted or not. What the member has not confirmed is told to the others as lost.
    pub fn leave(&mut self, member: MemberId) -> Result<(), GroupError> {
        let handed = self.members.leave(member)?;
        handed
            .ranges
            .into_iter()
            .for_each(|(first, last)| self.members.report(Lost::unconfirmed(first, last)));
        Ok(())
    }

    /// The next record for this member, if there is one and the member has room for it.
    pub fn take(&mut self, member: MemberId, source: &mut impl Source) -> Result<Option<u64>, GroupError> {
        if self.members.get(member)?.records >= self.handed_max {
            return Ok(None);
        }
        while let Some(incoming) = source.next() {
            match incoming {
                Incoming::Record { seq, .. } => {
                    assert!(seq > self.fed_through, "a source goes forward");
                    self.fed_through = seq;
                    self.members.get_mut(member)?.push(seq);
                    return Ok(Some(seq));
                }
                Incoming::Lost { first, last } => {
                    assert!(first > self.fed_through && last >= first, "a source goes forward");
                    self.fed_through = last;
                    self.members.report(Lost::given_up(first, last));
                }
            }
        }
        Ok(None)
    }

    /// The member has consumed everything it was given up to and with `through`.
    pub fn confirm(&mut self, member: MemberId, through: u64) -> Result<(), GroupError> {
        self.members.get_mut(member)?.confirm(through);
        Ok(())
    }

    /// A loss this member has yet to be told.
    pub fn take_lost(&mut self, member: MemberId) -> Option<Lost> {
        self.members.take_lost(member)
    }

    /// Whether there is a loss that this member has yet to be told.
    pub fn has_lost(&self, member: MemberId) -> bool {
        self.members.has_lost(member)
    }

    /// How many losses there were so far: when it grows, members have something to be told.
    pub fn losses(&self) -> u64 {
        self.members.losses()
    }

    /// Whether this member may be given more before it confirms what it has.
    pub fn has_room(&self, member: MemberId) -> bool {
        self.members.get(member).is_ok_and(|handed| handed.records < self.handed_max)
    }

    /// Every record up to and with this one was confirmed or lost.
    pub fn position(&self) -> u64 {
        let unconfirmed = self.members.iter().filter_map(|handed| handed.ranges.front());
        unconfirmed.map(|(first, _)| first - 1).min().unwrap_or(self.fed_through)
    }

    /// How many members it has.
    pub fn members(&self) -> usize {
        self.members.len()
    }
}

impl Handed {
    fn push(&mut self, seq: u64) {
        self.records += 1;
        match self.ranges.back_mut() {
            Some((_, last)) if *last + 1 == seq => *last = seq,
            _ => self.ranges.push_back((seq, seq)),
        }
    }

    fn confirm(&mut self, through: u64) {
        while let Some((first, last)) = self.ranges.front_mut() {
            if *first > through {
                return;
            }
            if *last > through {
                self.records -= through + 1 - *first;
                *first = through + 1;
                return;
            }
            self.records -= *last + 1 - *first;
            self.ranges.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
