//! Writes the marks that say whether a log is open: the begin mark before the first change after an opening, and the
//! end mark when the log is closed.

use super::Journal;
use crate::error::{AppendError, DiskError};
use crate::layout::BlockKind;
use crate::position::Position;

impl Journal {
    /// Syncs all records and closes the log. When the log is opened again, it can then continue in the same epoch.
    pub fn close(mut self) -> Result<(), AppendError> {
        self.check_not_ended()?;
        match self.mark(BlockKind::End) {
            Ok(()) => {}
            Err(error) => return Err(self.end(error)),
        }
        self.shared.files().durable = self.tail.last;
        Ok(())
    }

    /// Writes the begin mark before the first change. Because of this mark, the next start knows after a crash that the
    /// log was not closed.
    pub(super) fn begin(&mut self) -> Result<(), AppendError> {
        self.mark(BlockKind::Begin).map_err(|error| self.end(error))
    }

    fn mark(&mut self, kind: BlockKind) -> Result<(), DiskError> {
        let oldest = self.oldest();
        let time_ns = self.tail.last_time_ns;
        let is_end = kind == BlockKind::End;
        let Some(current) = &mut self.current else { return Ok(()) };
        if current.is_marked_closed != is_end {
            let next = Position::new(current.log.name.first.epoch, current.next_seq());
            let mark = current.mark(kind, next, oldest, 0, time_ns);
            current.write_mark(&mark)?;
            current.is_marked_closed = is_end;
        }
        if is_end {
            // Removes the zeros even if the log already has an end mark, because an append that was refused may have
            // preallocated zeros after the mark.
            current.remove_ahead()?;
            current.file.sync().map_err(DiskError::of("sync", &current.log.path))?;
        }
        Ok(())
    }
}
