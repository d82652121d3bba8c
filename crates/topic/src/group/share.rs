//! Share groups: each record goes to one member, at most once.
//!
//! Members take records when they have room, so that the fastest member gets the most. A member confirms the records
//! that it has consumed. When a member leaves, it can state that it has not used its unconfirmed records; other members
//! then receive these records. Otherwise, the unconfirmed records are reported as lost, because the member may have
//! used them.

use std::collections::VecDeque;

use super::lost::LostRecords;
use super::members::{MemberId, Members};
use super::{GroupError, RecordSource, SourceItem};
use crate::limits::LogLimits;

/// The state machine of a share group: each record goes to one member, at most once.
#[derive(Debug)]
pub struct ShareGroup {
    members: Members<Unconfirmed>,
    fed_through: u64,
    unconfirmed_max: u64,
    /// Records that can be delivered again because members returned them, as ascending ranges.
    returned: VecDeque<(u64, u64)>,
}

/// The records that were delivered to a member and are not confirmed, as ranges in the order of their delivery.
#[derive(Debug, Default)]
struct Unconfirmed {
    ranges: VecDeque<(u64, u64)>,
    records: u64,
}

impl ShareGroup {
    /// Creates a group that starts after the record `after_seq`.
    pub fn new(limits: &LogLimits, after_seq: u64) -> ShareGroup {
        ShareGroup {
            members: Members::new(limits),
            fed_through: after_seq,
            unconfirmed_max: limits.share_in_flight_max.max(1).into(),
            returned: VecDeque::new(),
        }
    }

    /// Adds a member.
    pub fn join(&mut self) -> Result<MemberId, GroupError> {
        self.members.join()
    }

    /// Removes a member. Its unconfirmed records are reported to the other members as lost.
    pub fn leave(&mut self, member: MemberId) -> Result<(), GroupError> {
        let unconfirmed = self.members.leave(member)?;
        unconfirmed
            .ranges
            .into_iter()
            .for_each(|(first, last)| self.members.report(LostRecords::unconfirmed(first, last)));
        Ok(())
    }

    /// Removes a member that has not used its unconfirmed records. Other members receive these records.
    pub fn leave_and_return(&mut self, member: MemberId) -> Result<(), GroupError> {
        self.returned.extend(self.members.leave(member)?.ranges);
        self.returned.make_contiguous().sort_unstable();
        Ok(())
    }

    /// Adds the records from `first` to `last`, which precede the group's first record and were not delivered to any
    /// member.
    pub fn add_earlier(&mut self, first: u64, last: u64) {
        self.returned.push_back((first, last));
        self.returned.make_contiguous().sort_unstable();
    }

    /// For a group without members: the records from `first` on that were delivered to members and not returned, as
    /// ascending ranges.
    pub fn delivered_since(&self, first: u64) -> Vec<(u64, u64)> {
        let mut delivered = Vec::new();
        let mut next = first;
        for &(returned_first, returned_last) in &self.returned {
            if returned_first > next {
                delivered.push((next, returned_first - 1));
            }
            next = next.max(returned_last + 1);
        }
        if next <= self.fed_through {
            delivered.push((next, self.fed_through));
        }
        delivered
    }

    /// Reports that the log has dropped record `seq`, the last record that was delivered to the member. The record is
    /// lost.
    pub fn report_dropped(&mut self, member: MemberId, seq: u64) -> Result<(), GroupError> {
        self.members.get_mut(member)?.pop();
        self.members.report(LostRecords::dropped(seq, seq));
        Ok(())
    }

    /// Takes back record `seq`, the last record that was delivered to the member, because it cannot be read at present.
    pub fn withdraw(&mut self, member: MemberId, seq: u64) -> Result<(), GroupError> {
        self.members.get_mut(member)?.pop();
        match self.returned.front_mut() {
            Some((first, _)) if *first == seq + 1 => *first = seq,
            _ => self.returned.push_front((seq, seq)),
        }
        Ok(())
    }

    /// Whether there are records that members returned and that can be delivered again.
    pub fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// Reports that the log has dropped all records before `oldest_seq`. Returned records among them are lost.
    pub fn drop_before(&mut self, oldest_seq: u64) {
        while let Some((first, last)) = self.returned.front_mut().filter(|(first, _)| *first < oldest_seq) {
            let lost = LostRecords::dropped(*first, (*last).min(oldest_seq - 1));
            *first = lost.last + 1;
            if *first > *last {
                self.returned.pop_front();
            }
            self.members.report(lost);
        }
    }

    fn take_returned(&mut self) -> Option<u64> {
        let (first, last) = self.returned.front_mut()?;
        let seq = *first;
        *first += 1;
        if *first > *last {
            self.returned.pop_front();
        }
        Some(seq)
    }

    /// Takes the next record for this member. Returns `None` if the member has no room, or if there is no record yet.
    pub fn take(
        &mut self,
        member: MemberId,
        source: &mut impl RecordSource,
    ) -> Result<Option<u64>, GroupError> {
        if self.members.get(member)?.records >= self.unconfirmed_max {
            return Ok(None);
        }
        if let Some(seq) = self.take_returned() {
            self.members.get_mut(member)?.push(seq);
            return Ok(Some(seq));
        }
        while let Some(item) = source.next() {
            match item {
                SourceItem::Record { seq, .. } => {
                    assert!(seq > self.fed_through, "a source returns ascending records");
                    self.fed_through = seq;
                    self.members.get_mut(member)?.push(seq);
                    return Ok(Some(seq));
                }
                SourceItem::LostRecords { first, last } => {
                    assert!(first > self.fed_through && last >= first, "a source returns ascending records");
                    self.fed_through = last;
                    self.members.report(LostRecords::dropped(first, last));
                }
            }
        }
        Ok(None)
    }

    /// Confirms record `through` and all records that were delivered to the member before it. If the member has not
    /// received record `through`, or has confirmed it already, confirms the member's records up to this sequence
    /// number.
    pub fn confirm(&mut self, member: MemberId, through: u64) -> Result<(), GroupError> {
        self.members.get_mut(member)?.confirm(through);
        Ok(())
    }

    /// Takes the next report of lost records that this member has to receive.
    pub fn take_lost(&mut self, member: MemberId) -> Option<LostRecords> {
        self.members.take_lost(member)
    }

    /// Whether there is a report of lost records that this member has to receive.
    pub fn has_lost(&self, member: MemberId) -> bool {
        self.members.has_lost(member)
    }

    /// Number of losses so far. When it has grown, members have reports of lost records to receive.
    pub fn losses(&self) -> u64 {
        self.members.losses()
    }

    /// Whether this member may take more records.
    pub fn has_room(&self, member: MemberId) -> bool {
        self.members.get(member).is_ok_and(|unconfirmed| unconfirmed.records < self.unconfirmed_max)
    }

    /// The sequence number up to which every record that the group has taken is confirmed or lost.
    pub fn position(&self) -> u64 {
        let unconfirmed = self.members.iter().filter_map(|unconfirmed| unconfirmed.ranges.front());
        let unconfirmed = unconfirmed.chain(self.returned.front());
        unconfirmed.map(|(first, _)| first - 1).min().unwrap_or(self.fed_through)
    }

    /// Sequence number of the last record that the group has taken from the log.
    pub fn fed_through(&self) -> u64 {
        self.fed_through
    }

    /// Number of members.
    pub fn members(&self) -> usize {
        self.members.len()
    }
}

impl Unconfirmed {
    fn push(&mut self, seq: u64) {
        self.records += 1;
        match self.ranges.back_mut() {
            Some((_, last)) if *last + 1 == seq => *last = seq,
            _ => self.ranges.push_back((seq, seq)),
        }
    }

    /// Removes the record that was delivered last.
    fn pop(&mut self) {
        self.records -= 1;
        if let Some((first, last)) = self.ranges.back_mut() {
            *last -= 1;
            if *last < *first {
                self.ranges.pop_back();
            }
        }
    }

    fn confirm(&mut self, through: u64) {
        let contains = |(first, last): &(u64, u64)| (*first..=*last).contains(&through);
        if let Some(at) = self.ranges.iter().position(contains) {
            let before: u64 = self.ranges.drain(..at).map(|(first, last)| last - first + 1).sum();
            self.records -= before;
            return self.confirm_first(through);
        }
        while self.ranges.front().is_some_and(|(first, _)| *first <= through) {
            self.confirm_first(through);
        }
    }

    /// Confirms the records up to `through` in the first range.
    fn confirm_first(&mut self, through: u64) {
        if let Some((first, last)) = self.ranges.front_mut() {
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
