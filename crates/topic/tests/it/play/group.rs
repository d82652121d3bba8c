//! Code that the tests of share groups and of work groups have in common: the log as the source of a group, and the
//! members with the losses that were reported to them.

use std::collections::BTreeSet;

use dunlin_topic::*;

use super::LIMITS;
use super::readers::ExpectedLog;
use crate::fixture::{cursor, earliest};

/// The log as the source of a group.
pub(super) struct Feed {
    cursor: Cursor,
    /// The sequence number of the next record to read.
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

    pub(super) fn next(&mut self, expected: &ExpectedLog<'_>) -> Option<SourceItem> {
        loop {
            match self.cursor.fill() {
                ReadOutcome::Records => {
                    let (record, bytes) = self.cursor.peek()?;
                    let found = record.map(|record| (record.seq(), record.frame.key().map(key_hash)));
                    self.cursor.advance(1, bytes);
                    if let Some((seq, key)) = found {
                        self.check_skipped_before(seq, expected);
                        self.next = seq + 1;
                        return Some(SourceItem::Record { seq, key });
                    }
                }
                ReadOutcome::Empty => return None,
                ReadOutcome::Skipped => {}
                ReadOutcome::Notice(Notice::Gap(gap)) => {
                    self.check_skipped_before(gap.first, expected);
                    assert!(gap.first < expected.info.oldest_seq, "a retained record is not lost");
                    self.next = gap.last + 1;
                    return Some(SourceItem::LostRecords { first: gap.first, last: gap.last });
                }
                ReadOutcome::Notice(Notice::Lagging(_)) => {}
                ReadOutcome::Notice(Notice::Deleted { .. }) | ReadOutcome::Closed => {
                    assert!(expected.closed);
                    self.ended = true;
                    return None;
                }
                ReadOutcome::Notice(other) => panic!("unexpected {other:?}"),
            }
        }
    }

    /// Ends a read, so that no segment stays pinned until the group reads again.
    pub(super) fn release(&mut self) {
        self.cursor.release();
    }

    /// Whether the group has read all records. Unread records that have expired do not count.
    pub(super) fn has_read_all(&self, expected: &ExpectedLog<'_>) -> bool {
        (self.next..expected.info.next_seq).all(|seq| expected.has_expired(seq))
    }

    fn check_skipped_before(&self, seq: u64, expected: &ExpectedLog<'_>) {
        assert!(seq >= self.next, "{seq} was delivered again, {} was next", self.next);
        for skipped in self.next..seq {
            assert!(expected.has_expired(skipped), "{skipped} was skipped without a report");
        }
    }
}

/// The members of a group, and the losses that were reported to them.
#[derive(Default)]
pub(super) struct GroupOutput {
    pub(super) members: Vec<MemberId>,
    lost: BTreeSet<u64>,
}

impl GroupOutput {
    /// Takes all reports of lost records. Checks that all members receive the same reports, and that no record is
    /// reported twice. Passes each lost record to `each`.
    pub(super) fn take_losses(
        &mut self,
        mut take: impl FnMut(MemberId) -> Option<LostRecords>,
        mut each: impl FnMut(u64, &LostRecords),
    ) {
        let reported: Vec<Vec<LostRecords>> =
            self.members.iter().map(|member| std::iter::from_fn(|| take(*member)).collect()).collect();
        let Some((first, others)) = reported.split_first() else { return };
        assert!(others.iter().all(|other| other == first));
        for lost in first {
            assert!(lost.is_exact());
            for seq in lost.first..=lost.last {
                assert!(self.lost.insert(seq), "{seq} was lost twice");
                each(seq, lost);
            }
        }
    }

    /// Adds the member that has just joined. If the group is full, checks that it was refused instead.
    pub(super) fn add_member(&mut self, joined: Result<MemberId, GroupError>) {
        let members_max = LIMITS.group_members_max;
        if self.members.len() == members_max as usize {
            assert_eq!(joined, Err(GroupError::Full { members_max }));
        } else {
            self.members.push(joined.unwrap());
        }
    }

    pub(super) fn was_reported_lost(&self, seq: u64) -> bool {
        self.lost.contains(&seq)
    }

    pub(super) fn pick(&self, member: usize) -> Option<MemberId> {
        self.members.get(member % self.members.len().max(1)).copied()
    }
}
