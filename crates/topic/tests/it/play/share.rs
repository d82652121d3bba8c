//! A share group, compared with a simple record of its deliveries.

use std::collections::BTreeMap;

use dunlin_topic::*;

use super::LIMITS;
use super::group::{Feed, GroupOutput};
use super::readers::Truth;

pub(super) struct Sharers {
    share: ShareGroup,
    feed: Feed,
    told: GroupOutput,
    /// Delivered records that are not confirmed yet, with the member that has them.
    open: BTreeMap<u64, MemberId>,
    over: BTreeMap<u64, End>,
    /// The sequence number of the last record that the group has read.
    last: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Confirmed,
    /// The records were delivered to a member that left before it confirmed them.
    Unconfirmed,
    GivenUp,
}

impl Sharers {
    pub(super) fn of(topic: &Topic) -> Sharers {
        Sharers {
            share: ShareGroup::new(&LIMITS, 0),
            feed: Feed::of(topic),
            told: GroupOutput::default(),
            open: BTreeMap::new(),
            over: BTreeMap::new(),
            last: 0,
        }
    }

    pub(super) fn join(&mut self) {
        let joined = self.share.join();
        self.told.joined(joined);
    }

    pub(super) fn leave(&mut self, member: usize) {
        let Some(member) = self.told.pick(member) else { return };
        self.share.leave(member).unwrap();
        self.told.members.retain(|known| *known != member);
        assert_eq!(self.share.leave(member), Err(GroupError::NoMember(member)));
        self.end(member, u64::MAX, End::Unconfirmed);
    }

    pub(super) fn take(&mut self, member: usize, max: usize, truth: &Truth<'_>) {
        let Some(member) = self.told.pick(member) else { return };
        for _ in 0..max {
            let Sharers { share, feed, open, over, last: come_to, .. } = self;
            let had = open.values().filter(|holder| **holder == member).count();
            let mut came = None;
            let mut source = || {
                let incoming = feed.next(truth)?;
                match incoming {
                    SourceItem::Record { seq, .. } => (came, *come_to) = (Some(seq), seq),
                    SourceItem::LostRecords { first, last } => {
                        *come_to = last;
                        over.extend((first..=last).map(|seq| (seq, End::GivenUp)));
                    }
                }
                Some(incoming)
            };
            let given = share.take(member, &mut source).unwrap();
            assert_eq!(given, came, "what the group came to is given, and nothing else");
            match given {
                Some(seq) => assert_eq!(open.insert(seq, member), None),
                None => {
                    assert!(had == LIMITS.share_in_flight_max as usize || feed.has_seen_all(truth));
                    break;
                }
            }
        }
        self.feed.rest();
    }

    /// Confirms the member's records up to `back` records before the last one that the group has read.
    pub(super) fn confirm(&mut self, member: usize, back: u64) {
        let Some(member) = self.told.pick(member) else { return };
        let through = self.feed.next.saturating_sub(1 + back);
        self.share.confirm(member, through).unwrap();
        self.end(member, through, End::Confirmed);
    }

    fn end(&mut self, member: MemberId, through: u64, end: End) {
        let ended = self.open.extract_if(..=through, |_, holder| *holder == member);
        self.over.extend(ended.map(|(seq, _)| (seq, end)));
    }

    pub(super) fn check(&mut self) {
        let Sharers { share, told, over, .. } = self;
        told.hear(
            |member| share.take_lost(member),
            |seq, lost| match over.get(&seq) {
                Some(End::GivenUp) => assert_eq!((lost.given_up > 0, lost.unconfirmed), (true, 0)),
                Some(End::Unconfirmed) => assert_eq!((lost.given_up, lost.unconfirmed > 0), (0, true)),
                other => panic!("{seq} is told lost, and is {other:?}"),
            },
        );
        let open = self.open.first_key_value().map(|(seq, _)| seq - 1);
        assert_eq!(self.share.position(), open.unwrap_or(self.last));
    }

    /// Lets one member take the remaining records. Then checks that every record was settled exactly once.
    pub(super) fn finish(&mut self, truth: &Truth<'_>) {
        while !self.told.members.is_empty() {
            self.leave(0);
        }
        self.join();
        self.check();
        while !self.feed.has_seen_all(truth) {
            self.take(0, usize::MAX, truth);
            self.confirm(0, 0);
            self.check();
        }
        assert!(self.open.is_empty());
        for seq in 1..truth.info.next_seq {
            match self.over.get(&seq) {
                Some(End::Confirmed) => assert!(!self.told.were_told(seq)),
                Some(End::GivenUp | End::Unconfirmed) => assert!(self.told.were_told(seq), "{seq} was lost"),
                None => assert!(truth.has_expired(seq), "{seq} was skipped in silence"),
            }
        }
    }
}
