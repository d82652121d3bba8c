//! Stores snapshots on disk in a journal. Each snapshot has a begin record, records with blocks, and an end record. A
//! snapshot without an end record is ignored.
//!
//! Each snapshot begins a new epoch of the journal and a new file, so that the files of older snapshots can be removed.
//! A snapshot is written only if the disk has room for all of it. If necessary, the [`DiskReserve`] becomes the
//! snapshot's file; when older snapshots have been removed, the reserve is filled again. If another program takes the
//! room while a snapshot is written, the written part of the snapshot is removed. A later attempt can then use this
//! part's room.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use dunlin_journal::{AppendError, Disk, DiskError, DiskReserve, Journal, JournalConfig, Position, ScanItem};

use crate::codec::{CodecError, ValueCodec, decode_exact};
use crate::error::damaged;
use crate::frames::{self, EncodedRecords, payloads};
use crate::type_config::{Blocks, LogId, SnapshotMeta};

/// The name of the journal, which is written to each of the journal's files.
const NAME: &str = "raft snapshots";
/// Blocks are written to the journal in batches of about this size, bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Name of the file that reserves room for a snapshot.
const RESERVE: &str = "reserve";
/// Maximum size of a frame without the block that it contains, bytes.
const BLOCK_BYTES_EXTRA: u64 = 64;
/// Maximum number of bytes that a snapshot needs in addition to its frames: for the header and the marks of its first
/// file, and for marks in the previous file.
const FIRST_FILE_BYTES_EXTRA: u64 = 16 << 10;
/// Maximum number of bytes that each further file needs for its header, marks and preallocated room.
const FILE_BYTES_EXTRA: u64 = 2 << 20;

impl ValueCodec for SnapshotMeta {
    fn read(bytes: &mut Bytes) -> Result<SnapshotMeta, CodecError> {
        Ok(SnapshotMeta { last_log_id: Option::read(bytes)?, last_membership: ValueCodec::read(bytes)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.last_log_id.write(out);
        self.last_membership.write(out);
    }
}

/// A record in the journal of snapshots.
pub(crate) enum SnapshotRecord {
    Begin(SnapshotMeta),
    Block(Bytes),
    /// The end of a snapshot, with the number of the snapshot's blocks.
    End(u64),
}

impl ValueCodec for SnapshotRecord {
    fn read(bytes: &mut Bytes) -> Result<SnapshotRecord, CodecError> {
        match u8::read(bytes)? {
            1 => Ok(SnapshotRecord::Begin(ValueCodec::read(bytes)?)),
            2 => Ok(SnapshotRecord::Block(std::mem::take(bytes))),
            3 => Ok(SnapshotRecord::End(u64::read(bytes)?)),
            _ => Err(CodecError("a snapshot")),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            SnapshotRecord::Begin(meta) => {
                1u8.write(out);
                meta.write(out);
            }
            SnapshotRecord::Block(bytes) => {
                2u8.write(out);
                out.extend_from_slice(bytes);
            }
            SnapshotRecord::End(count) => {
                3u8.write(out);
                count.write(out);
            }
        }
    }
}

/// The last complete snapshot, and the journal to which the next snapshot is written.
#[derive(Debug)]
pub(crate) struct Snapshots {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    reserve: DiskReserve,
    journal: Journal,
    epoch: u32,
    next_seq: u64,
    /// The last complete snapshot's metadata, and the position of its begin record.
    last: Option<(SnapshotMeta, Position)>,
    frames: EncodedRecords,
}

impl Snapshots {
    /// Opens the journal of snapshots in a directory, or creates one.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path, reserve_bytes: u64) -> io::Result<Snapshots> {
        let opened = Journal::open(Arc::clone(&disk), dir, NAME, JournalConfig::default());
        let (journal, recovered) = opened.map_err(io::Error::other)?;
        let reserve = DiskReserve::open(Arc::clone(&disk), dir, RESERVE, reserve_bytes);
        let (reserve, dir) = (reserve.map_err(io::Error::other)?, dir.to_owned());
        let epoch = recovered.next.epoch.max(recovered.epoch_least).max(1);
        let next_seq = recovered.last.map_or(1, |last| last.seq + 1);
        let (last, frames) = Default::default();
        let mut snapshots = Snapshots { disk, dir, reserve, journal, epoch, next_seq, last, frames };
        snapshots.last = match recovered.oldest {
            Some(oldest) => snapshots.find_last(oldest)?,
            None => None,
        };
        Ok(snapshots)
    }

    fn find_last(&self, oldest: Position) -> io::Result<Option<(SnapshotMeta, Position)>> {
        let (mut last, mut begun, mut blocks) = (None, None, 0);
        self.scan(oldest, |position, record| {
            match record {
                Some(SnapshotRecord::Begin(meta)) => (begun, blocks) = (Some((meta, position)), 0),
                Some(SnapshotRecord::Block(_)) => blocks += 1,
                Some(SnapshotRecord::End(count)) if count == blocks => last = begun.take().or(last.take()),
                Some(SnapshotRecord::End(_)) | None => begun = None,
            }
            true
        })?;
        Ok(last)
    }

    /// Calls `handle` with each record from `from` on, and with `None` for each hole in the journal, until `handle`
    /// returns `false`.
    fn scan(
        &self,
        from: Position,
        mut handle: impl FnMut(Position, Option<SnapshotRecord>) -> bool,
    ) -> io::Result<()> {
        let mut scan = self.journal.reader().scan(from);
        while let Some(item) = scan.next().map_err(io::Error::other)? {
            let ScanItem::Records(records) = item else {
                handle(from, None);
                continue;
            };
            for (seq, payload) in payloads(&records) {
                let position = Position::new(records.epoch, seq);
                if position >= from && !handle(position, Some(decode_exact(payload, "a snapshot")?)) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads the last complete snapshot; `None` if there is none.
    pub(crate) fn load(&self) -> io::Result<Option<(SnapshotMeta, Blocks)>> {
        let Some((meta, position)) = &self.last else { return Ok(None) };
        let (mut blocks, mut is_complete) = (Vec::new(), false);
        self.scan(*position, |_, record| match record {
            Some(SnapshotRecord::Begin(_)) => blocks.is_empty(),
            Some(SnapshotRecord::Block(block)) => {
                blocks.push(block);
                true
            }
            Some(SnapshotRecord::End(count)) => {
                is_complete = count == blocks.len() as u64;
                false
            }
            None => false,
        })?;
        if !is_complete {
            return Err(damaged("snapshot", "not all of it is there"));
        }
        Ok(Some((meta.clone(), Blocks(blocks))))
    }

    /// The last log entry that the last complete snapshot contains.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.last.as_ref().and_then(|(meta, _)| meta.last_log_id)
    }

    /// The number of free bytes on the disk, and the number of bytes that a snapshot with these blocks would take.
    fn free_and_needed(&self, blocks: &Blocks) -> io::Result<(u64, u64)> {
        let bytes: u64 = blocks.0.iter().map(|block| block.len() as u64 + BLOCK_BYTES_EXTRA).sum();
        let further = bytes / JournalConfig::default().file_bytes;
        let need = bytes + FIRST_FILE_BYTES_EXTRA + further * FILE_BYTES_EXTRA;
        Ok((self.disk.free_bytes(&self.dir)?, need))
    }

    /// Whether the disk has room for the reserve and also for twice the size of a snapshot with these blocks.
    pub(crate) fn has_ample_room(&self, blocks: &Blocks) -> io::Result<bool> {
        let (free, need) = self.free_and_needed(blocks)?;
        let for_reserve = if self.reserve.needs_fill() { self.reserve.bytes() } else { 0 };
        Ok(free.saturating_sub(for_reserve) >= need.saturating_mul(2))
    }

    /// Whether there is room for this snapshot. If necessary, makes the reserve the file of the snapshot. If the
    /// reserve were deleted instead, logs on the same disk could take the room.
    fn has_room(&mut self, blocks: &Blocks) -> io::Result<bool> {
        let (free, need) = self.free_and_needed(blocks)?;
        // An earlier attempt may already have claimed room in the file that this attempt uses first.
        let free = free.saturating_add(self.journal.room_left());
        if free >= need {
            return Ok(true);
        }
        let releasable = if self.reserve.is_filled() { self.reserve.bytes() } else { 0 };
        let first_file = need.min(JournalConfig::default().file_bytes);
        if free + releasable < need {
            return Ok(false);
        }
        let begun = self.journal.begin_file_in(&mut self.reserve, first_file).and_then(|is_begun| {
            // If an earlier attempt left an empty file, the journal continues in that file, and the reserve's room
            // becomes free. The room must therefore be claimed for that file.
            let claimed = first_file.saturating_sub(FIRST_FILE_BYTES_EXTRA);
            if is_begun { self.journal.reserve_room(claimed).map(|()| true) } else { Ok(false) }
        });
        match begun {
            Err(error) if error.allows_retry() => Ok(false),
            begun => begun.map_err(io::Error::other),
        }
    }

    /// Whether the reserve should be filled.
    pub(crate) fn lacks_reserve(&self) -> bool {
        self.reserve.needs_fill()
    }

    /// Fills the reserve if the disk has room. Returns whether the reserve is filled.
    pub(crate) fn fill_reserve(&mut self) -> Result<bool, DiskError> {
        self.reserve.fill()
    }

    /// Writes a snapshot and removes older ones. Returns `false` if the disk has no room or the process lacks file
    /// descriptors.
    pub(crate) fn save(&mut self, meta: &SnapshotMeta, blocks: &Blocks) -> io::Result<bool> {
        if !self.has_room(blocks)? {
            return Ok(false);
        }
        self.epoch += 1;
        self.frames = EncodedRecords::default();
        let before = self.journal.appended();
        let begin = Position::new(self.epoch, self.next_seq);
        match self.write(meta, blocks) {
            Ok(()) => {}
            // Another program has used the room in the meantime, or the process lacks file descriptors.
            Err(error) if error.allows_retry() => {
                self.discard(before, begin)?;
                return Ok(false);
            }
            Err(error) => return Err(io::Error::other(error)),
        }
        self.last = Some((meta.clone(), begin));
        // Frees the part of the file's room that this snapshot did not need. This room may come from the reserve.
        self.journal.end_file().map_err(io::Error::other)?;
        // Files that cannot be removed now are removed after the next snapshot.
        let _ = self.journal.truncate_before(begin);
        Ok(true)
    }

    /// Removes the written part of an incomplete snapshot. The snapshot began at `begin`, and `before` is the position
    /// of the last record before it. The next snapshot then uses the same file.
    fn discard(&mut self, before: Option<Position>, begin: Position) -> io::Result<()> {
        match self.journal.discard_after(before) {
            Ok(()) => {
                (self.epoch, self.next_seq) = (begin.epoch - 1, begin.seq);
                Ok(())
            }
            // The written blocks remain on disk until a later snapshot is complete.
            Err(error) if error.allows_retry() => Ok(()),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn write(&mut self, meta: &SnapshotMeta, blocks: &Blocks) -> Result<(), AppendError> {
        self.push(&SnapshotRecord::Begin(meta.clone()))?;
        blocks.0.iter().try_for_each(|block| self.push(&SnapshotRecord::Block(block.clone())))?;
        self.push(&SnapshotRecord::End(blocks.0.len() as u64))?;
        self.flush()?;
        self.journal.sync().map(drop)
    }

    fn push(&mut self, record: &SnapshotRecord) -> Result<(), AppendError> {
        // This error never happens: every block that this crate makes fits into a frame.
        self.frames.push(record).map_err(|_| AppendError::Batch("a block of a snapshot is too long"))?;
        if self.frames.bytes.len() >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), AppendError> {
        let EncodedRecords { bytes, count, .. } = std::mem::take(&mut self.frames);
        frames::append(&mut self.journal, self.epoch, self.next_seq, count, &[&bytes])?;
        self.next_seq += u64::from(count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use dunlin_journal::{FakeDisk, Faults};

    use super::*;

    fn blocks(byte: u8, count: usize) -> Blocks {
        Blocks(vec![Bytes::from(vec![byte; 600 << 10]); count])
    }

    #[test]
    fn snapshot_that_fails_for_lack_of_room_leaves_no_partial_file() {
        let (meta, mut refused) = (SnapshotMeta::default(), 0);
        for writes in 0..40 {
            let disk = FakeDisk::new(1);
            let mut snapshots = Snapshots::open(Arc::new(disk.clone()), Path::new("/snapshots"), 0).unwrap();
            assert!(snapshots.save(&meta, &blocks(1, 1)).unwrap());
            let used = disk.used();
            disk.set_faults(Faults {
                write_fails: Some(writes),
                write_reports_full: true,
                ..Faults::default()
            });
            let is_saved = snapshots.save(&meta, &blocks(2, 3)).unwrap();
            disk.set_faults(Faults::default());
            let expected = if is_saved { blocks(2, 3) } else { blocks(1, 1) };
            assert!(snapshots.load().unwrap().unwrap().1.0 == expected.0, "{writes} writes");
            if !is_saved {
                refused += 1;
                assert!(disk.used() < used + (64 << 10), "{writes} writes: {} after {used}", disk.used());
                assert!(snapshots.save(&meta, &blocks(3, 3)).unwrap());
                assert!(snapshots.load().unwrap().unwrap().1.0 == blocks(3, 3).0, "{writes} writes");
            }
        }
        assert!(refused > 0);
    }
}
