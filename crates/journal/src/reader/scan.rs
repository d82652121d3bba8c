//! Reads the blocks of a log in order, through all its files.

use std::sync::Arc;

use dunlin_frame::Frame;

use crate::JournalLimits;
use crate::disk::DiskFile;
use crate::error::{DiskError, ReadError};
use crate::files::{self, LogFile, SharedLog};
use crate::layout::{BlockHeader, BlockKind, Mark};
use crate::position::{Hole, HoleCause, Position};
use crate::scan::{BlockScan, ScanStep};

/// Reads a log from a position to its end. At the end, [`LogScan::next`] returns `None`, and later calls return the
/// records that were appended since.
#[derive(Debug)]
pub struct LogScan {
    shared: Arc<SharedLog>,
    /// The position of the next record that the scan may return. Earlier records are skipped.
    from: Position,
    file: Option<OpenFile>,
    /// The header of the first block after a hole. The scan has returned the hole, and will return this block next.
    pending: Option<BlockHeader>,
    read_bytes: usize,
}

#[derive(Debug)]
struct OpenFile {
    log: Arc<LogFile>,
    /// `None` if the file cannot be opened. Its records then count as lost.
    file: Option<Box<dyn DiskFile>>,
    blocks: BlockScan,
    /// The sequence number with which the next block should begin.
    expected: u64,
    /// The mark that was read last, if the last block was a mark.
    mark: Option<Mark>,
    /// Whether a search found no more valid blocks in the file.
    is_exhausted: bool,
}

/// An item that a scan of a log returns: records, or a range of records that can no longer be read.
#[derive(Debug, Clone, Copy)]
pub enum ScanItem<'a> {
    /// Consecutive records, which were written by one commit.
    Records(Records<'a>),
    /// A range of records that can no longer be read.
    Hole(Hole),
}

/// Consecutive records that a scan has read from one block of a log.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    /// The records' epoch.
    pub epoch: u32,
    /// Sequence number of the first record; each further record adds 1.
    pub first_seq: u64,
    /// Number of records.
    pub count: u32,
    /// Time at which the first record was appended, ns since 1970.
    pub first_time_ns: u64,
    /// Time at which the last record was appended, ns since 1970.
    pub last_time_ns: u64,
    /// The records' frames, which were validated. [`Frame::split`] takes them apart.
    pub frames: &'a [u8],
    /// The note that the writer stored with the block. It concerns the whole block, even if earlier records of the
    /// block were skipped.
    pub note: &'a [u8],
}

impl Records<'_> {
    /// Sequence number of the last record.
    pub fn last_seq(&self) -> u64 {
        self.first_seq + u64::from(self.count) - 1
    }
}

enum Found {
    Block(BlockHeader),
    Hole(Hole),
}

impl LogScan {
    pub(super) fn new(shared: Arc<SharedLog>, from: Position) -> LogScan {
        LogScan { shared, from, file: None, pending: None, read_bytes: JournalLimits::READ_BYTES }
    }

    /// Creates a scan that reads about `bytes` bytes from the disk at a time.
    pub(super) fn of_bytes(shared: Arc<SharedLog>, from: Position, bytes: usize) -> LogScan {
        // The scan may have to start up to one index step before the position, so one read must also cover the bytes of
        // that step.
        let read_bytes = bytes.saturating_add(JournalLimits::INDEX_STEP_BYTES as usize);
        LogScan { read_bytes, ..LogScan::new(shared, from) }
    }

    /// Creates a scan that starts in the file `log`, at a block that begins before `time_ns`.
    pub(super) fn at_time(shared: Arc<SharedLog>, log: Arc<LogFile>, time_ns: u64) -> LogScan {
        let start = log.start_before(|entry| entry.first_time_ns < time_ns);
        let from = Position::new(log.name.first.epoch, start.first_seq);
        LogScan::new(shared, from)
    }

    /// The position at which the scan continues: no record before it will be returned.
    pub fn position(&self) -> Position {
        self.from
    }

    /// Whether the log ends with a mark which states that the log was closed or repaired. If not, the last records may
    /// be missing. Call this after [`next`](LogScan::next) has returned `None`.
    pub fn has_end_mark(&self) -> bool {
        self.file.as_ref().is_some_and(|open| {
            let mark = open.mark.is_some_and(|mark| matches!(mark.kind, BlockKind::End | BlockKind::Cut));
            mark && open.blocks.at() == open.blocks.end()
        })
    }

    /// Returns the next records or the next hole; `None` at the end of the log. If records are appended later, a later
    /// call returns them.
    #[allow(clippy::should_implement_trait, reason = "an item borrows the scan until the next call")]
    pub fn next(&mut self) -> Result<Option<ScanItem<'_>>, ReadError> {
        let found = match self.pending.take() {
            Some(header) => Some(Found::Block(header)),
            None => self.find()?,
        };
        match found {
            None => Ok(None),
            Some(Found::Hole(hole)) => Ok(Some(ScanItem::Hole(hole))),
            Some(Found::Block(header)) => Ok(Some(ScanItem::Records(self.records(&header)))),
        }
    }

    /// Returns the records of the block, but skips those before the position `from`.
    fn records(&mut self, header: &BlockHeader) -> Records<'_> {
        let skip =
            if header.epoch == self.from.epoch { self.from.seq.saturating_sub(header.first_seq) } else { 0 };
        self.from = Position::new(header.epoch, header.next_seq());
        let frames = self.file.as_ref().map_or(&[][..], |open| open.blocks.frames());
        let (frames, first_time_ns) = match skip {
            0 => (frames, header.first_time_ns),
            _ => skip_frames(frames, skip),
        };
        Records {
            epoch: header.epoch,
            first_seq: header.first_seq + skip,
            count: header.count - skip as u32,
            first_time_ns,
            last_time_ns: header.last_time_ns,
            frames,
            note: self.file.as_ref().map_or(&[][..], |open| open.blocks.note()),
        }
    }

    fn find(&mut self) -> Result<Option<Found>, ReadError> {
        loop {
            let Some(open) = &mut self.file else {
                let Some(log) = self.shared.file_of(self.from) else { return Ok(None) };
                self.file = OpenFile::new(&self.shared, log, Some(self.from), self.read_bytes)?;
                continue;
            };
            let step = match &open.file {
                Some(file) if !open.is_exhausted => open.blocks.next(&**file),
                _ => Ok(ScanStep::End),
            };
            let step = match step {
                Ok(step) => step,
                Err(error) => return Err(DiskError::of("read", &open.log.path)(error).into()),
            };
            match step {
                ScanStep::Block { at, header } if open.follows(&header) => {
                    open.log.add_to_index(at, &header);
                    open.mark = None;
                    let expected = std::mem::replace(&mut open.expected, header.next_seq());
                    let is_skipped = Position::new(header.epoch, header.next_seq()) <= self.from;
                    if let Some(hole) =
                        self.hole(header.epoch, expected, header.first_seq, HoleCause::Damaged)
                    {
                        self.pending = Some(header);
                        return Ok(Some(Found::Hole(hole)));
                    }
                    if !is_skipped {
                        return Ok(Some(Found::Block(header)));
                    }
                }
                ScanStep::Mark { mark, .. } => {
                    let expected = open.expected;
                    open.expected = expected.max(mark.next.seq);
                    open.mark = Some(mark);
                    let hole = self.hole(mark.next.epoch, expected, mark.next.seq, HoleCause::Damaged);
                    if let Some(hole) = hole {
                        return Ok(Some(Found::Hole(hole)));
                    }
                }
                ScanStep::Block { at, .. } | ScanStep::Bad { at, .. } => self.skip_damage(at)?,
                ScanStep::End => match self.open_next_file()? {
                    NextFile::None => return Ok(None),
                    NextFile::Hole(hole) => return Ok(Some(Found::Hole(hole))),
                    NextFile::Opened => {}
                },
            }
        }
    }

    /// Moves to the first valid block after the damage at offset `at`. If there is none, the file counts as read to its
    /// end.
    fn skip_damage(&mut self, at: u64) -> Result<(), ReadError> {
        let Some(open) = &mut self.file else { return Ok(()) };
        let is_last = self.shared.file_after(&open.log).is_none();
        open.blocks.seek(at);
        let needs_synced_proof = is_last && !self.shared.has_local_writer;
        let found = match &open.file {
            Some(file) => open
                .blocks
                .search(&**file, needs_synced_proof)
                .map_err(DiskError::of("read", &open.log.path))?,
            None => false,
        };
        open.is_exhausted = !found;
        Ok(())
    }

    /// Continues when all readable bytes of the file were read: with bytes that the file has received since, or with
    /// the next file.
    fn open_next_file(&mut self) -> Result<NextFile, ReadError> {
        let Some(open) = &mut self.file else { return Ok(NextFile::None) };
        // Looks for the next file before reading how long this file is: once a next file exists, this file no longer
        // grows.
        let next = self.shared.file_after(&open.log);
        let readable = open.log.readable();
        if readable > open.blocks.end() {
            open.blocks.extend(readable);
            open.is_exhausted = false;
            return Ok(NextFile::Opened);
        }
        let (epoch, expected) = (open.log.name.first.epoch, open.expected);
        let Some((next, is_oldest)) = next else { return Ok(self.hole_at_end(epoch, expected)) };
        let is_linked = open.mark.is_some_and(|mark| mark.next_identity == next.name.identity);
        let cause = if is_oldest && !is_linked { HoleCause::Dropped } else { HoleCause::Damaged };
        let first = next.name.first;
        let Some(mut file) = OpenFile::new(&self.shared, next, None, self.read_bytes)? else {
            return Ok(NextFile::Opened);
        };
        file.expected = if first.epoch == epoch { first.seq.max(expected) } else { first.seq };
        self.file = Some(file);
        let hole = if first.epoch == epoch {
            self.hole(epoch, expected, first.seq, cause)
        } else if is_linked {
            None
        } else {
            Some(Hole { first: Position::new(epoch, expected), last: None, cause })
        };
        if first > self.from {
            self.from = first;
        }
        Ok(hole.map_or(NextFile::Opened, NextFile::Hole))
    }

    /// Reports a hole if no valid block is left in the file, although more records were synced.
    fn hole_at_end(&mut self, epoch: u32, expected: u64) -> NextFile {
        let durable = if self.shared.has_local_writer { self.shared.files().durable } else { None };
        let Some(open) = self.file.as_mut().filter(|open| open.is_exhausted) else { return NextFile::None };
        let Some(durable) = durable.filter(|durable| durable.epoch == epoch && durable.seq >= expected)
        else {
            return NextFile::None;
        };
        open.expected = durable.seq + 1;
        match self.hole(epoch, expected, durable.seq + 1, HoleCause::Damaged) {
            Some(hole) => NextFile::Hole(hole),
            None => NextFile::None,
        }
    }

    /// Returns the part of a hole that the scan has to report. The hole contains the records from `first` to the one
    /// before `next`, but the scan may begin after `first`. Returns `None` if no record of the hole is left.
    fn hole(&mut self, epoch: u32, first: u64, next: u64, cause: HoleCause) -> Option<Hole> {
        let first = if epoch == self.from.epoch { first.max(self.from.seq) } else { first };
        if first >= next || epoch < self.from.epoch {
            return None;
        }
        self.from = Position::new(epoch, next);
        Some(Hole { first: Position::new(epoch, first), last: Some(next - 1), cause })
    }
}

enum NextFile {
    Opened,
    None,
    Hole(Hole),
}

impl OpenFile {
    /// Opens a file, and starts at the last indexed block at or before `from`. If the file no longer exists, removes it
    /// from the log's list and returns `None`. If the file cannot be opened for another reason, such as its permissions,
    /// it counts as a file without valid blocks.
    fn new(
        shared: &SharedLog,
        log: Arc<LogFile>,
        from: Option<Position>,
        read_bytes: usize,
    ) -> Result<Option<OpenFile>, DiskError> {
        let file = match files::open(&*shared.disk, &log.path, false) {
            Err(error) if error.is_missing() => {
                shared.remove(&log);
                return Ok(None);
            }
            Err(error) if error.lacks_resource() => return Err(error),
            opened => opened.ok(),
        };
        let is_exhausted = file.is_none();
        let first = log.name.first;
        let seq = from.filter(|from| from.epoch == first.epoch).map_or(0, |from| from.seq);
        let start = log.start_before(|entry| entry.first_seq <= seq);
        let blocks = BlockScan::new(log.name.identity, start.at, log.readable()).with_read_bytes(read_bytes);
        Ok(Some(OpenFile { log, file, blocks, expected: start.first_seq, mark: None, is_exhausted }))
    }

    fn follows(&self, header: &BlockHeader) -> bool {
        header.kind == BlockKind::Records
            && header.epoch == self.log.name.first.epoch
            && header.first_seq >= self.expected
    }
}

/// Skips the first `skip` frames. Returns the remaining frames, and the append time of the first of them.
fn skip_frames(mut frames: &[u8], skip: u64) -> (&[u8], u64) {
    for _ in 0..skip {
        let stride = Frame::split(frames).map_or(frames.len(), |(_, stride)| stride);
        frames = frames.get(stride..).unwrap_or(&[]);
    }
    (frames, Frame::split(frames).map_or(0, |(frame, _)| frame.append_time_ns()))
}
