//! A share group whose deliveries are compared with a simple list.

use std::collections::BTreeMap;

use dunlin_topic::*;

use super::LIMITS;
use super::group::{Feed, GroupOutput};
use super::readers::ExpectedLog;

pub(super) struct Sharers {
    share: ShareGroup,
    feed: Feed,
    output: GroupOutput,
    /// The records that were delivered and not confirmed, each with the member that received it.
    open: BTreeMap<u64, MemberId>,
    ends: BTreeMap<u64, End>,
    /// The sequence number of the last record that the group has read from the log.
    last: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Confirmed,
    /// The record was delivered to a member that left before it had confirmed the record.
    Unconfirmed,
    Dropped,
}

impl Sharers {
    pub(super) fn of(topic: &Topic) -> Sharers {
        Sharers {
            share: ShareGroup::new(&LIMITS, 0),
            feed: Feed::of(topic),
            output: GroupOutput::default(),
            open: BTreeMap::new(),
            ends: BTreeMap::new(),
            last: 0,
        }
    }

    pub(super) fn join(&mut self) {
        let joined = self.share.join();
        self.output.add_member(joined);
    }

    pub(super) fn leave(&mut self, member: usize) {
        let Some(member) = self.output.pick(member) else { return };
        self.share.leave(member).unwrap();
        self.output.members.retain(|known| *known != member);
        assert_eq!(self.share.leave(member), Err(GroupError::NoMember(member)));
        self.end(member, u64::MAX, End::Unconfirmed);
    }

    pub(super) fn take(&mut self, member: usize, max: usize, expected: &ExpectedLog<'_>) {
        let Some(member) = self.output.pick(member) else { return };
        for _ in 0..max {
            let Sharers { share, feed, open, ends, last: last_read, .. } = self;
            let in_flight = open.values().filter(|holder| **holder == member).count();
            let mut next = None;
            let mut source = || {
                let item = feed.next(expected)?;
                match item {
                    SourceItem::Record { seq, .. } => (next, *last_read) = (Some(seq), seq),
                    SourceItem::LostRecords { first, last } => {
                        *last_read = last;
                        ends.extend((first..=last).map(|seq| (seq, End::Dropped)));
                    }
                }
                Some(item)
            };
            let taken = share.take(member, &mut source).unwrap();
            assert_eq!(taken, next, "the group delivers the record that it has read, and nothing else");
            match taken {
                Some(seq) => assert_eq!(open.insert(seq, member), None),
                None => {
                    assert!(in_flight == LIMITS.share_in_flight_max as usize || feed.has_read_all(expected));
                    break;
                }
            }
        }
        self.feed.release();
    }

    /// Confirms a member's records up to a sequence number, which is `back` before the last record that the group has
    /// read.
    pub(super) fn confirm(&mut self, member: usize, back: u64) {
        let Some(member) = self.output.pick(member) else { return };
        let through = self.feed.next.saturating_sub(1 + back);
        self.share.confirm(member, through).unwrap();
        self.end(member, through, End::Confirmed);
    }

    fn end(&mut self, member: MemberId, through: u64, end: End) {
        let ended = self.open.extract_if(..=through, |_, holder| *holder == member);
        self.ends.extend(ended.map(|(seq, _)| (seq, end)));
    }

    pub(super) fn check(&mut self) {
        let Sharers { share, output, ends, .. } = self;
        output.take_losses(
            |member| share.take_lost(member),
            |seq, lost| match ends.get(&seq) {
                Some(End::Dropped) => assert_eq!((lost.dropped > 0, lost.unconfirmed), (true, 0)),
                Some(End::Unconfirmed) => assert_eq!((lost.dropped, lost.unconfirmed > 0), (0, true)),
                other => panic!("{seq} is reported lost, and is {other:?}"),
            },
        );
        let open = self.open.first_key_value().map(|(seq, _)| seq - 1);
        assert_eq!(self.share.position(), open.unwrap_or(self.last));
    }

    /// Lets a single member take the records that are left. Then checks that every record was settled exactly once.
    pub(super) fn finish(&mut self, expected: &ExpectedLog<'_>) {
        while !self.output.members.is_empty() {
            self.leave(0);
        }
        self.join();
        self.check();
        while !self.feed.has_read_all(expected) {
            self.take(0, usize::MAX, expected);
            self.confirm(0, 0);
            self.check();
        }
        assert!(self.open.is_empty());
        for seq in 1..expected.info.next_seq {
            match self.ends.get(&seq) {
                Some(End::Confirmed) => assert!(!self.output.was_reported_lost(seq)),
                Some(End::Dropped | End::Unconfirmed) => {
                    assert!(self.output.was_reported_lost(seq), "{seq} was lost")
                }
                None => assert!(expected.has_expired(seq), "{seq} was skipped without a report"),
            }
        }
    }
}
