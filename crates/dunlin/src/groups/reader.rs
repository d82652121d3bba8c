//! Reads the records of a log for a group.

use dunlin_topic::{
    Cursor, Notice, Position, ReadDeferred, ReadOutcome, Record, RecordSource, SkipBudget, SourceItem,
    key_hash,
};

use super::owned_epochs::OwnedEpochs;

/// Reads records for a group with the group's cursor. After a read, the cursor stays at the record, so that the record
/// can be copied without a search.
pub(super) struct GroupReader<'a> {
    cursor: &'a mut Cursor,
    ended: &'a mut bool,
    epochs: &'a mut OwnedEpochs,
    /// The number of expired records that the group's present operation may still skip. Once the budget is spent,
    /// `next` returns `None` as if there were no more records.
    skips: &'a mut SkipBudget,
    /// Notices from the log, except for gaps.
    pub(super) notices: Vec<Notice>,
    /// The size in bytes of the record that `next` returned last; 0 once the cursor has moved past that record.
    current_bytes: u32,
}

impl<'a> GroupReader<'a> {
    pub(super) fn new(
        cursor: &'a mut Cursor,
        ended: &'a mut bool,
        epochs: &'a mut OwnedEpochs,
        skips: &'a mut SkipBudget,
    ) -> GroupReader<'a> {
        GroupReader { cursor, ended, epochs, skips, notices: Vec::new(), current_bytes: 0 }
    }

    /// Appends the frame of the record `seq` to `out`, and returns the record's position. Returns `None` if the log has
    /// dropped the record. The record may belong to an earlier epoch than the cursor's.
    ///
    /// # Errors
    ///
    /// [`ReadDeferred`] if the record cannot be read at present.
    pub(super) fn copy(&self, seq: u64, out: &mut Vec<u8>) -> Result<Option<Position>, ReadDeferred> {
        let mut append = |record: Record<'_>| {
            record.frame.append_to(out);
            record.position
        };
        if self.current_bytes > 0
            && self.cursor.next().seq == seq
            && let Some((record, _)) = self.cursor.peek_any()
        {
            return Ok(Some(append(record)));
        }
        self.cursor.log().try_read(seq, append)
    }

    fn step(&mut self) {
        if self.current_bytes > 0 {
            self.cursor.advance(1, std::mem::take(&mut self.current_bytes));
        }
    }
}

impl RecordSource for GroupReader<'_> {
    fn next(&mut self) -> Option<SourceItem> {
        self.step();
        loop {
            if !self.epochs.includes(self.cursor.next().epoch) {
                return None;
            }
            match self.cursor.fill_within(self.skips) {
                ReadOutcome::Records => match self.cursor.peek()? {
                    (Some(record), bytes) => {
                        let (seq, key) = (record.seq(), record.frame.key().map(key_hash));
                        self.current_bytes = bytes;
                        return Some(SourceItem::Record { seq, key });
                    }
                    (None, expired_bytes) => {
                        self.cursor.advance(1, expired_bytes);
                        self.skips.count(expired_bytes);
                        if self.skips.is_spent() {
                            return None;
                        }
                    }
                },
                ReadOutcome::Empty | ReadOutcome::Skipped => return None,
                ReadOutcome::Notice(Notice::Gap(gap)) => {
                    return Some(SourceItem::LostRecords { first: gap.first, last: gap.last });
                }
                ReadOutcome::Notice(Notice::Deleted { .. }) | ReadOutcome::Closed => {
                    *self.ended = true;
                    return None;
                }
                // Drop the notice: the group's members join the group at the next owner, and that group delivers this
                // epoch's records.
                ReadOutcome::Notice(Notice::EpochChanged(changed))
                    if self.epochs.is_ending() || !self.epochs.includes(changed.new_first.epoch) => {}
                ReadOutcome::Notice(notice) => self.notices.push(notice),
            }
        }
    }
}

impl Drop for GroupReader<'_> {
    fn drop(&mut self) {
        self.step();
    }
}
