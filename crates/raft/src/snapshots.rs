//! Snapshots on the disk: a journal whose records are the begin of one, its blocks, and its end. What has no end is none.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_journal::{Config, Disk, Item, Journal, Position};

use crate::codec::{Code, CodecError, whole};
use crate::frames::{self, Frames, payloads};
use crate::vocabulary::{Blocks, SnapshotMeta};

/// The journal's name; it stands in each of its files.
const NAME: &str = "raft snapshots";
/// Blocks are written together up to this.
const BATCH_BYTES: usize = 1 << 20;

impl Code for SnapshotMeta {
    fn read(bytes: &mut Bytes) -> Result<SnapshotMeta, CodecError> {
        Ok(SnapshotMeta { last_log_id: Option::read(bytes)?, last_membership: Code::read(bytes)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.last_log_id.write(out);
        self.last_membership.write(out);
    }
}

enum Record {
    Begin(SnapshotMeta),
    Block(Bytes),
    /// After so many blocks.
    End(u64),
}

impl Code for Record {
    fn read(bytes: &mut Bytes) -> Result<Record, CodecError> {
        match u8::read(bytes)? {
            1 => Ok(Record::Begin(Code::read(bytes)?)),
            2 => Ok(Record::Block(std::mem::take(bytes))),
            3 => Ok(Record::End(u64::read(bytes)?)),
            _ => Err(CodecError("a snapshot")),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Record::Begin(meta) => {
                1u8.write(out);
                meta.write(out);
            }
            Record::Block(bytes) => {
                2u8.write(out);
                out.extend_from_slice(bytes);
            }
            Record::End(count) => {
                3u8.write(out);
                count.write(out);
            }
        }
    }
}

/// The last whole snapshot, and where the next will be written.
#[derive(Debug)]
pub(crate) struct Snapshots {
    journal: Journal,
    epoch: u32,
    next_seq: u64,
    /// The begin of the last that is whole.
    last: Option<(SnapshotMeta, Position)>,
    frames: Frames,
}

impl Snapshots {
    /// Opens those of a directory.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path) -> io::Result<Snapshots> {
        let (journal, found) = Journal::open(disk, dir, NAME, Config::default()).map_err(io::Error::other)?;
        let epoch = found.next.epoch.max(found.epoch_least).max(1);
        let next_seq = found.last.map_or(1, |last| last.seq + 1);
        let mut snapshots = Snapshots { journal, epoch, next_seq, last: None, frames: Frames::default() };
        snapshots.last = match found.oldest {
            Some(oldest) => snapshots.find_last(oldest)?,
            None => None,
        };
        Ok(snapshots)
    }

    fn find_last(&self, oldest: Position) -> io::Result<Option<(SnapshotMeta, Position)>> {
        let (mut last, mut begun, mut blocks) = (None, None, 0);
        self.scan(oldest, |position, record| {
            match record {
                Some(Record::Begin(meta)) => (begun, blocks) = (Some((meta, position)), 0),
                Some(Record::Block(_)) => blocks += 1,
                Some(Record::End(count)) if count == blocks => last = begun.take().or(last.take()),
                Some(Record::End(_)) | None => begun = None,
            }
            true
        })?;
        Ok(last)
    }

    /// Goes through the records from `from` on, a hole being none, until it is told to stop.
    fn scan(&self, from: Position, mut take: impl FnMut(Position, Option<Record>) -> bool) -> io::Result<()> {
        let mut scan = self.journal.reader().scan(from);
        while let Some(item) = scan.next().map_err(io::Error::other)? {
            let Item::Records(records) = item else {
                take(from, None);
                continue;
            };
            for (seq, payload) in payloads(&records) {
                let position = Position::new(records.epoch, seq);
                if position >= from && !take(position, Some(whole(payload, "a snapshot")?)) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The last one.
    pub(crate) fn load(&self) -> io::Result<Option<(SnapshotMeta, Blocks)>> {
        let Some((meta, position)) = &self.last else { return Ok(None) };
        let (mut blocks, mut is_whole) = (Vec::new(), false);
        self.scan(*position, |_, record| match record {
            Some(Record::Begin(_)) => blocks.is_empty(),
            Some(Record::Block(block)) => {
                blocks.push(block);
                true
            }
            Some(Record::End(count)) => {
                is_whole = count == blocks.len() as u64;
                false
            }
            None => false,
        })?;
        if !is_whole {
            let why = "the snapshot is damaged: remove the node from the cluster, and let it join anew";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(Some((meta.clone(), Blocks(blocks))))
    }

    /// Writes one, and drops those before. One that fails half-way is none.
    pub(crate) fn save(
        &mut self,
        meta: &SnapshotMeta,
        write: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.frames = Frames::default();
        let begin = Position::new(self.epoch, self.next_seq);
        self.push(&Record::Begin(meta.clone()))?;
        let mut blocks = 0;
        write(&mut |block| {
            blocks += 1;
            self.push(&Record::Block(Bytes::copy_from_slice(block)))
        })?;
        self.push(&Record::End(blocks))?;
        self.flush()?;
        self.journal.sync().map_err(io::Error::other)?;
        self.last = Some((meta.clone(), begin));
        // What cannot be removed takes room, and goes with the next.
        let _ = self.journal.truncate_before(begin);
        Ok(())
    }

    fn push(&mut self, record: &Record) -> io::Result<()> {
        self.frames.push(record)?;
        if self.frames.bytes.len() >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let Frames { bytes, count, .. } = std::mem::take(&mut self.frames);
        let appended = frames::append(&mut self.journal, self.epoch, self.next_seq, count, &[&bytes]);
        self.next_seq += u64::from(count);
        appended.map_err(io::Error::other)
    }
}
