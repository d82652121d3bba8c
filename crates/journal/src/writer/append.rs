//! Appends batches to a log, and syncs them.

use super::{Current, Journal, Tail};
use crate::JournalLimits;
use crate::error::{AppendError, DiskError};
use crate::layout::{BLOCK_ALIGN, BLOCK_HEADER_BYTES, BlockHeader, BlockKind};
use crate::position::Position;

/// Maximum size of a batch whose parts are joined before they are written, bytes. For larger batches, one write call
/// with several parts is cheaper than copying.
const JOIN_BYTES_MAX: usize = 256 << 10;

/// Consecutive records that are appended to a log as one block.
#[derive(Debug, Clone, Copy)]
pub struct AppendBatch<'a> {
    /// The records' epoch.
    pub epoch: u32,
    /// Sequence number of the first record.
    pub first_seq: u64,
    /// Number of records.
    pub count: u32,
    /// Time at which the first record was appended, ns since 1970.
    pub first_time_ns: u64,
    /// Time at which the last record was appended, ns since 1970.
    pub last_time_ns: u64,
    /// The complete frames in order, each with its padding, cut into any parts: a frame may begin in one part and end
    /// in another.
    pub frames: &'a [&'a [u8]],
}

impl Journal {
    /// Writes a batch of records. The records then survive the end of the process; after [`Journal::sync`], they also
    /// survive a failure of the machine.
    pub fn append(&mut self, batch: &AppendBatch<'_>) -> Result<(), AppendError> {
        self.append_with_note(batch, &[])
    }

    /// Like [`append`](Journal::append), but stores a note in the same block, so that the note is lost only if the
    /// records are lost too. The length of the note must be a multiple of 8 bytes.
    pub fn append_with_note(&mut self, batch: &AppendBatch<'_>, note: &[u8]) -> Result<(), AppendError> {
        self.check_not_ended()?;
        let bytes = self.tail.check(batch, note)?;
        self.check_order(batch)?;
        let need = BLOCK_HEADER_BYTES as u64 + bytes;
        self.ensure_file(batch, need)?;
        self.ensure_room(need)?;
        if self.current.as_ref().is_some_and(|current| current.is_marked_closed) {
            self.begin()?;
        }
        let mut joined = std::mem::take(&mut self.joined);
        let written =
            self.current.as_mut().map(|current| current.write(batch, note, bytes as u32, &mut joined));
        self.joined = joined;
        match written {
            Some(Err(error)) if error.is_full() => return Err(self.full(need)),
            Some(Err(error)) if error.lacks_resource() => return Err(AppendError::LacksResource(error)),
            Some(Err(error)) => return Err(self.end(error)),
            _ => {}
        }
        let last = Position::new(batch.epoch, batch.first_seq + u64::from(batch.count) - 1);
        self.tail = Tail { last: Some(last), last_time_ns: batch.last_time_ns, epoch_least: batch.epoch };
        Ok(())
    }

    fn check_order(&self, batch: &AppendBatch<'_>) -> Result<(), AppendError> {
        let Some(current) = &self.current else { return Ok(()) };
        let got = Position::new(batch.epoch, batch.first_seq);
        let expected = Position::new(current.log.name.first.epoch, current.next_seq());
        if got.epoch == expected.epoch && got != expected {
            return Err(AppendError::Order { got, expected });
        }
        Ok(())
    }

    /// Syncs all appended records. Returns the position of the last synced record.
    ///
    /// A failed sync is never retried: the log then accepts no more records, and records that were not synced may be
    /// lost.
    pub fn sync(&mut self) -> Result<Option<Position>, AppendError> {
        self.check_not_ended()?;
        if let Some(current) = self.current.as_mut().filter(|current| current.synced < current.end) {
            if let Err(error) = current.sync() {
                return Err(self.end(error));
            }
            self.shared.files().durable = self.tail.last;
        }
        Ok(self.tail.last)
    }
}

impl Tail {
    /// Checks whether the batch may be appended now. Returns the size of the block that would contain it, bytes.
    fn check(&self, batch: &AppendBatch<'_>, note: &[u8]) -> Result<u64, AppendError> {
        if batch.epoch < self.epoch_least {
            return Err(AppendError::Epoch { got: batch.epoch, least: self.epoch_least });
        }
        let frames: u64 = batch.frames.iter().map(|part| part.len() as u64).sum();
        let bytes = frames + note.len() as u64;
        if bytes > u64::from(JournalLimits::BLOCK_BYTES_MAX) {
            return Err(AppendError::TooLarge {
                bytes,
                bytes_max: u64::from(JournalLimits::BLOCK_BYTES_MAX),
            });
        }
        let header = batch.header(bytes as u32, note, 0);
        if header.check().is_err()
            || !note.len().is_multiple_of(BLOCK_ALIGN)
            || batch.first_time_ns < self.last_time_ns
            || !bytes.is_multiple_of(BLOCK_ALIGN as u64)
        {
            return Err(AppendError::Batch("the count, times and bytes contradict each other or the log"));
        }
        Ok(bytes)
    }
}

impl AppendBatch<'_> {
    fn header(&self, bytes: u32, note: &[u8], synced: u64) -> BlockHeader {
        BlockHeader {
            kind: BlockKind::Records,
            bytes,
            note_bytes: note.len() as u32,
            epoch: self.epoch,
            first_seq: self.first_seq,
            count: self.count,
            synced,
            first_time_ns: self.first_time_ns,
            last_time_ns: self.last_time_ns,
        }
    }
}

impl Current {
    fn write(
        &mut self,
        batch: &AppendBatch<'_>,
        note: &[u8],
        bytes: u32,
        joined: &mut Vec<u8>,
    ) -> Result<(), DiskError> {
        let header = batch.header(bytes, note, self.synced);
        let mut parts = Vec::with_capacity(batch.frames.len() + 2);
        parts.extend_from_slice(batch.frames);
        parts.push(note);
        let head = header.encode(self.log.name.identity, self.end, &parts);
        let failed = DiskError::of("write", &self.log.path);
        if bytes as usize <= JOIN_BYTES_MAX {
            joined.clear();
            joined.extend_from_slice(&head);
            parts.iter().for_each(|part| joined.extend_from_slice(part));
            self.file.write_at(&[joined], self.end).map_err(failed)?;
        } else {
            parts.insert(0, &head[..]);
            self.file.write_at(&parts, self.end).map_err(failed)?;
        }
        self.log.add_to_index(self.end, &header);
        self.end += header.whole_bytes();
        self.prepared = self.prepared.max(self.end);
        self.blocks += 1;
        self.records += u64::from(batch.count);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        self.file.sync().map_err(DiskError::of("sync", &self.log.path))?;
        self.synced = self.end;
        self.log.set_readable(self.end);
        Ok(())
    }
}
