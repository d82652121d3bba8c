//! The operations of a group's state machine, in a trait that [`ShareGroup`] and [`WorkGroup`] implement.

use std::fmt::Debug;

use dunlin_topic::{DeadLetter, GroupError, LostRecords, MemberDeparture, MemberId, ShareGroup, WorkGroup};

/// A state machine of `dunlin-topic`: [`ShareGroup`] or [`WorkGroup`].
pub(crate) trait GroupMachine: Debug + Send + 'static {
    /// Whether publishers of a reliable topic also wait for a group that has no members. Set for groups that lose no
    /// records while they have no members.
    const WAITED_FOR_WITHOUT_MEMBERS: bool;

    fn join(&mut self) -> Result<MemberId, GroupError>;
    fn leave(&mut self, member: MemberId, departure: MemberDeparture, now_ns: u64);
    fn has_room(&self, member: MemberId) -> bool;
    fn has_lost(&self, member: MemberId) -> bool;
    fn take_lost(&mut self, member: MemberId) -> Option<LostRecords>;
    fn losses(&self) -> u64;
    /// The highest sequence number up to which all records are settled.
    fn position(&self) -> u64;
    /// The sequence number of the last record that the state machine has taken from the log.
    fn fed_through(&self) -> u64;

    /// Ends claims and delays that have expired.
    fn tick(&mut self, _now_ns: u64) {}

    fn next_tick_ns(&self) -> Option<u64> {
        None
    }

    fn drop_before(&mut self, _oldest_seq: u64) {}

    /// Adds the records from `first` to `last`. They come before the group's first record, and no member has received
    /// them.
    fn add_earlier(&mut self, _first: u64, _last: u64) {}

    /// The ranges of records that members have received, in ascending order, without the records before `first`. Called
    /// only for a group without members.
    fn delivered_ranges(&self, _first: u64) -> Vec<(u64, u64)> {
        Vec::new()
    }

    /// Whether the state machine can deliver a record that it has already taken from the log.
    fn has_ready_record(&self) -> bool {
        false
    }

    /// Whether the state machine can take more records from the log.
    fn can_read(&self) -> bool {
        true
    }

    /// Returns `false` if a record that was taken from the log still has to be delivered, for the first time or again.
    fn is_settled(&self) -> bool {
        true
    }

    /// The number of records that members have claimed.
    fn claims(&self) -> u32 {
        0
    }

    fn take_dead_letter(&mut self) -> Option<DeadLetter> {
        None
    }

    /// The number of dead letters that [`take_dead_letter`](GroupMachine::take_dead_letter) has not returned yet.
    fn dead_letters(&self) -> usize {
        0
    }

    fn lose_dead_letter(&mut self, _letter: DeadLetter) {}
}

impl GroupMachine for ShareGroup {
    const WAITED_FOR_WITHOUT_MEMBERS: bool = false;

    fn join(&mut self) -> Result<MemberId, GroupError> {
        ShareGroup::join(self)
    }

    fn leave(&mut self, member: MemberId, departure: MemberDeparture, _now_ns: u64) {
        // Ignore the error: it means that the member has left already.
        let _ = match departure {
            MemberDeparture::Left => ShareGroup::leave_and_return(self, member),
            MemberDeparture::Died => ShareGroup::leave(self, member),
        };
    }

    fn has_room(&self, member: MemberId) -> bool {
        ShareGroup::has_room(self, member)
    }

    fn has_lost(&self, member: MemberId) -> bool {
        ShareGroup::has_lost(self, member)
    }

    fn take_lost(&mut self, member: MemberId) -> Option<LostRecords> {
        ShareGroup::take_lost(self, member)
    }

    fn losses(&self) -> u64 {
        ShareGroup::losses(self)
    }

    fn position(&self) -> u64 {
        ShareGroup::position(self)
    }

    fn fed_through(&self) -> u64 {
        ShareGroup::fed_through(self)
    }

    fn drop_before(&mut self, oldest_seq: u64) {
        ShareGroup::drop_before(self, oldest_seq);
    }

    fn add_earlier(&mut self, first: u64, last: u64) {
        ShareGroup::add_earlier(self, first, last);
    }

    fn delivered_ranges(&self, first: u64) -> Vec<(u64, u64)> {
        ShareGroup::delivered_since(self, first)
    }

    fn has_ready_record(&self) -> bool {
        ShareGroup::has_returned(self)
    }

    fn is_settled(&self) -> bool {
        !ShareGroup::has_returned(self)
    }
}

impl GroupMachine for WorkGroup {
    const WAITED_FOR_WITHOUT_MEMBERS: bool = true;

    fn join(&mut self) -> Result<MemberId, GroupError> {
        WorkGroup::join(self)
    }

    fn leave(&mut self, member: MemberId, departure: MemberDeparture, now_ns: u64) {
        // Ignore the error: it means that the member has left already.
        let _ = WorkGroup::leave(self, member, departure, now_ns);
    }

    fn has_room(&self, member: MemberId) -> bool {
        WorkGroup::has_room(self, member)
    }

    fn has_lost(&self, member: MemberId) -> bool {
        WorkGroup::has_lost(self, member)
    }

    fn take_lost(&mut self, member: MemberId) -> Option<LostRecords> {
        WorkGroup::take_lost(self, member)
    }

    fn losses(&self) -> u64 {
        WorkGroup::losses(self)
    }

    fn position(&self) -> u64 {
        WorkGroup::position(self)
    }

    fn fed_through(&self) -> u64 {
        WorkGroup::fed_through(self)
    }

    fn tick(&mut self, now_ns: u64) {
        WorkGroup::tick(self, now_ns);
    }

    fn next_tick_ns(&self) -> Option<u64> {
        WorkGroup::next_tick_ns(self)
    }

    fn drop_before(&mut self, oldest_seq: u64) {
        WorkGroup::drop_before(self, oldest_seq);
    }

    fn has_ready_record(&self) -> bool {
        WorkGroup::has_ready(self)
    }

    fn can_read(&self) -> bool {
        self.reached_limit().is_none()
    }

    /// Whether no record is ready, claimed or delayed. A record that waits behind another record with the same key need
    /// not be checked, because the other record is ready, claimed or delayed.
    fn is_settled(&self) -> bool {
        WorkGroup::claims(self) == 0 && !WorkGroup::has_ready(self) && WorkGroup::next_tick_ns(self).is_none()
    }

    fn claims(&self) -> u32 {
        WorkGroup::claims(self)
    }

    fn take_dead_letter(&mut self) -> Option<DeadLetter> {
        WorkGroup::take_dead_letter(self)
    }

    fn dead_letters(&self) -> usize {
        WorkGroup::dead_letters(self)
    }

    fn lose_dead_letter(&mut self, letter: DeadLetter) {
        WorkGroup::report_dead_letter_lost(self, letter);
    }
}
