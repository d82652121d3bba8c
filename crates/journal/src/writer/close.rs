//! Saying that the log has begun again, and that it has ended.

use super::Journal;
use crate::error::{AppendError, DiskError};
use crate::layout::Kind;
use crate::position::Position;

impl Journal {
    /// Ends the log in good order: all of it is on the disk, and the next start goes on in the same epoch.
    pub fn close(mut self) -> Result<(), AppendError> {
        self.check_alive()?;
        match self.mark(Kind::End) {
            Ok(()) => {}
            Err(error) => return Err(self.end(error)),
        }
        self.shared.files().durable = self.tail.last;
        Ok(())
    }

    /// Takes back that the log has ended, before anything is changed: a crash from here on is an unclean end.
    pub(super) fn begin(&mut self) -> Result<(), AppendError> {
        self.mark(Kind::Begin).map_err(|error| self.end(error))
    }

    fn mark(&mut self, kind: Kind) -> Result<(), DiskError> {
        let oldest = self.oldest();
        let time_ns = self.tail.last_time_ns;
        let ends = kind == Kind::End;
        let Some(current) = &mut self.current else { return Ok(()) };
        if current.at_rest != ends {
            let next = Position::new(current.log.name.first.epoch, current.next_seq());
            let mark = current.mark(kind, next, oldest, 0, time_ns);
            current.write_mark(&mark)?;
            current.at_rest = ends;
        }
        if ends {
            // Also where the mark was there before: room may have been made since, for what was then refused.
            current.cut_ahead()?;
            current.file.sync().map_err(DiskError::of("sync", &current.log.path))?;
        }
        Ok(())
    }
}
