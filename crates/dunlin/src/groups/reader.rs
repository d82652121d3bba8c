//! Reads the records of a log for a group.

use dunlin_topic::{
    Cursor, Notice, Position, ReadDeferred, ReadOutcome, Record, RecordSource, SkipBudget, SourceItem,
    key_hash,
};

use super::owned_epochs::OwnedEpochs;

/// Reads records from a cursor for a group. After a read, the cursor stays at the last record, so that the record can
/// be copied without a search.
pub(super) struct GroupReader<'a> {
    cursor: &'a mut Cursor,
    ended: &'a mut bool,
    epochs: &'a mut OwnedEpochs,
    /// The number of expired records that the group may still skip while it holds its lock. Once the budget is spent,
    /// the reader ends as if there were no more records, although the cursor has some.
    skips: &'a mut SkipBudget,
    /// Notices other than losses.
    pub(super) notices: Vec<Notice>,
    /// The size in bytes of the record that was returned last; 0 once the cursor has moved past it.
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

    /// Appends the record's frame to `out`, and returns its position; `None` if the log has dropped the record. The
    /// epoch of the position may be older than the cursor's.
    ///
    /// # Errors
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
                // The group ignores the new epoch, because its members join the group again at the next owner.
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
