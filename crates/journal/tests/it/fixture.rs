//! Helpers for the tests: a log on a simulated disk, and records whose content follows from their position.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin_frame::{Frame, RecordMeta};
use dunlin_journal::{
    AppendBatch, AppendError, FakeDisk, Hole, Journal, JournalConfig, OpenError, Position, Reader, Records,
    RecoveredLog, ScanItem,
};

/// The directory in which all tests keep their log.
pub fn dir() -> PathBuf {
    PathBuf::from("/data/orders")
}

/// A configuration with small files and little preallocation, so that a few records already take several files.
pub fn small() -> JournalConfig {
    JournalConfig { file_bytes: 8 << 10, ahead_bytes: 2 << 10, ..JournalConfig::default() }
}

pub fn open(disk: &FakeDisk) -> Result<(Journal, RecoveredLog), OpenError> {
    open_with(disk, small())
}

pub fn open_with(disk: &FakeDisk, config: JournalConfig) -> Result<(Journal, RecoveredLog), OpenError> {
    Journal::open(Arc::new(disk.clone()), &dir(), "orders", config)
}

/// The append time of a record, which follows from its position.
pub fn time_of(epoch: u32, seq: u64) -> u64 {
    u64::from(epoch) * 1_000_000 + seq * 10
}

/// The payload of a record: its epoch, its sequence number, and `bytes` more bytes that are computed from these two
/// numbers.
pub fn payload(epoch: u32, seq: u64, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes + 12);
    out.extend_from_slice(&epoch.to_le_bytes());
    out.extend_from_slice(&seq.to_le_bytes());
    out.extend((0..bytes).map(|i| (seq as usize * 31 + i * 7 + epoch as usize) as u8));
    out
}

/// The frames of `count` consecutive records.
pub fn frames(epoch: u32, first_seq: u64, count: u32, bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for seq in first_seq..first_seq + u64::from(count) {
        let payload = payload(epoch, seq, bytes);
        let encoded = RecordMeta::default().measure(payload.len()).unwrap();
        let start = out.len();
        out.resize(start + encoded.padded(), 0);
        RecordMeta::default().encode(encoded, time_of(epoch, seq), &payload, &mut out[start..]);
    }
    out
}

/// Appends records as one batch.
pub fn append(
    journal: &mut Journal,
    epoch: u32,
    first_seq: u64,
    count: u32,
    bytes: usize,
) -> Result<(), AppendError> {
    let frames = frames(epoch, first_seq, count, bytes);
    let batch = AppendBatch {
        epoch,
        first_seq,
        count,
        first_time_ns: time_of(epoch, first_seq),
        last_time_ns: time_of(epoch, first_seq + u64::from(count) - 1),
        frames: &[&frames],
    };
    journal.append_with_note(&batch, &note(epoch, first_seq))
}

/// The note of a block. Only blocks whose first sequence number is a multiple of three have a note.
fn note(epoch: u32, first_seq: u64) -> Vec<u8> {
    if first_seq.is_multiple_of(3) {
        [u64::from(epoch), first_seq].map(u64::to_le_bytes).concat()
    } else {
        Vec::new()
    }
}

/// Checks that a block has the note that [`note`] gave it.
fn check_note(records: &Records<'_>) {
    if let Some((epoch, first_seq)) = records.note.split_first_chunk::<8>() {
        assert_eq!(u64::from_le_bytes(*epoch), u64::from(records.epoch));
        let first_seq = u64::from_le_bytes(first_seq.try_into().unwrap());
        // If the reader started in the middle of a block, `records` begins later than the block.
        assert!((1..=records.first_seq).contains(&first_seq) && first_seq.is_multiple_of(3));
    } else {
        assert!(records.note.is_empty());
    }
}

/// An item that a scan returns: a record, or a range of records that can no longer be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalEntry {
    Record(Position, Vec<u8>),
    Hole(Hole),
}

/// Reads all items from a position on.
pub fn read(reader: &Reader, from: Position) -> Vec<JournalEntry> {
    let mut scan = reader.scan(from);
    let mut seen = Vec::new();
    while let Some(item) = scan.next().unwrap() {
        match item {
            ScanItem::Hole(hole) => seen.push(JournalEntry::Hole(hole)),
            ScanItem::Records(records) => {
                check_note(&records);
                let mut rest = records.frames;
                let mut seq = records.first_seq;
                while let Some((frame, stride)) = Frame::split(rest) {
                    seen.push(JournalEntry::Record(
                        Position::new(records.epoch, seq),
                        frame.payload().to_vec(),
                    ));
                    rest = &rest[stride..];
                    seq += 1;
                }
                assert_eq!(seq, records.last_seq() + 1, "as many frames as it says");
            }
        }
    }
    seen
}

/// The records `first..=last` of an epoch, with the content that [`append`] gives them.
pub fn expected(epoch: u32, first: u64, last: u64, bytes: usize) -> Vec<JournalEntry> {
    (first..=last)
        .map(|seq| JournalEntry::Record(Position::new(epoch, seq), payload(epoch, seq, bytes)))
        .collect()
}

/// The log's record files, oldest first.
pub fn log_files(disk: &FakeDisk) -> Vec<PathBuf> {
    use dunlin_journal::Disk;
    let mut names: Vec<_> = disk.list(Path::new("/data/orders")).unwrap();
    names.retain(|name| name.ends_with(".log"));
    names.sort();
    names.into_iter().map(|name| dir().join(name)).collect()
}
