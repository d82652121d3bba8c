//! Code for both kinds of groups: the log as their source, and the losses reported to all members.

use std::collections::BTreeSet;

use dunlin_topic::*;

use super::LIMITS;
use super::readers::Truth;
use crate::fixture::{cursor, earliest};

/// The log as the source of a group.
pub(super) struct Feed {
    cursor: Cursor,
    /// The next sequence to read.
    pub(super) next: u64,
    ended: bool,
}

impl Feed {
    pub(super) fn of(topic: &Topic) -> Feed {
        Feed { cursor: cursor(topic, &earliest()), next: 1, ended: false }
    }

    pub(super) fn log(&self) -> &Log {
        self.cursor.log()
    }

    pub(super) fn next(&mut self, truth: &Truth<'_>) -> Option<SourceItem> {
        loop {
            match self.cursor.fill() {
                ReadOutcome::Records => {
                    let (record, bytes) = self.cursor.peek()?;
                    let found = record.map(|record| (record.seq(), record.frame.key().map(key_hash)));
                    self.cursor.advance(1, bytes);
                    if let Some((seq, key)) = found {
                        self.come_to(seq, truth);
                        self.next = seq + 1;
                        return Some(SourceItem::Record { seq, key });
                    }
                }
                ReadOutcome::Empty => return None,
                ReadOutcome::Notice(Notice::Gap(gap)) => {
                    self.come_to(gap.first, truth);
                    assert!(gap.first < truth.info.oldest_seq, "what is held is not lost");
                    self.next = gap.last + 1;
                    return Some(SourceItem::LostRecords { first: gap.first, last: gap.last });
                }
                ReadOutcome::Notice(Notice::Lagging(_)) => {}
                ReadOutcome::Notice(Notice::Deleted { .. }) | ReadOutcome::Closed => {
                    assert!(truth.closed);
                    self.ended = true;
                    return None;
                }
                ReadOutcome::Notice(other) => panic!("unexpected {other:?}"),
            }
        }
    }

    /// Ends the read in progress, so that no segment is pinned between two calls of the group.
    pub(super) fn rest(&mut self) {
        self.cursor.release();
    }

    /// Whether all unread records have expired.
    pub(super) fn has_seen_all(&self, truth: &Truth<'_>) -> bool {
        (self.next..truth.info.next_seq).all(|seq| truth.has_expired(seq))
    }

    fn come_to(&self, seq: u64, truth: &Truth<'_>) {
        assert!(seq >= self.next, "{seq} came again, {} was next", self.next);
        for skipped in self.next..seq {
            assert!(truth.has_expired(skipped), "{skipped} was skipped in silence");
        }
    }
}

/// The members of a group and the losses reported to them.
#[derive(Default)]
pub(super) struct GroupOutput {
    pub(super) members: Vec<MemberId>,
    lost: BTreeSet<u64>,
}

impl GroupOutput {
    /// Checks that all members receive the same losses, each record once.
    pub(super) fn hear(
        &mut self,
        mut take: impl FnMut(MemberId) -> Option<LostRecords>,
        mut each: impl FnMut(u64, &LostRecords),
    ) {
        let told: Vec<Vec<LostRecords>> =
            self.members.iter().map(|member| std::iter::from_fn(|| take(*member)).collect()).collect();
        let Some((first, others)) = told.split_first() else { return };
        assert!(others.iter().all(|other| other == first));
        for lost in first {
            assert!(lost.is_exact());
            for seq in lost.first..=lost.last {
                assert!(self.lost.insert(seq), "{seq} was lost twice");
                each(seq, lost);
            }
        }
    }

    /// Adds a member, unless the group is full.
    pub(super) fn joined(&mut self, joined: Result<MemberId, GroupError>) {
        let members_max = LIMITS.group_members_max;
        if self.members.len() == members_max as usize {
            assert_eq!(joined, Err(GroupError::Full { members_max }));
        } else {
            self.members.push(joined.unwrap());
        }
    }

    pub(super) fn were_told(&self, seq: u64) -> bool {
        self.lost.contains(&seq)
    }

    pub(super) fn pick(&self, member: usize) -> Option<MemberId> {
        self.members.get(member % self.members.len().max(1)).copied()
    }
}
