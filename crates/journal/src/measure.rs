//! Measures how fast a journal without the rest of a node uses a real disk: the time of commits with several records
//! each, and the time of reading the whole log.
//!
//! The benchmark measures a durable topic on the same disk in the same run, and compares its speed with these results.
//! The caller provides the clock.

use std::io;
use std::path::Path;
use std::sync::Arc;

use dunlin_frame::{Frame, RecordMeta};

use crate::disk::{Disk, RealDisk};
use crate::error::AppendError;
use crate::limits::JournalConfig;
use crate::position::Position;
use crate::reader::{Reader, ScanItem};
use crate::writer::{AppendBatch, Journal};

/// The load of a disk measurement: the size of the records, how many records each commit has, and the number of
/// commits.
#[derive(Debug, Clone, Copy)]
pub struct CommitLoad {
    /// Payload size of each record, bytes.
    pub payload_bytes: usize,
    /// Number of records in each commit.
    pub in_flight: u32,
    /// Number of commits.
    pub commits: u64,
}

/// The result of a disk measurement: how many records and bytes were committed or read, and how long this took.
#[derive(Debug, Clone, Default)]
pub struct DiskMeasurement {
    /// Number of records written or read.
    pub records: u64,
    /// Size of the records' frames, bytes.
    pub bytes: u64,
    /// Duration of the whole measurement, ns.
    pub elapsed_ns: u64,
    /// Duration of each commit, ns, in order; empty if the log was read.
    pub commits_ns: Vec<u64>,
}

impl DiskMeasurement {
    /// The number of records per second.
    pub fn records_per_s(&self) -> f64 {
        self.records as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// The number of bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// The reason why a disk measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The directory is on a file system in memory, where a measurement says nothing about a disk.
    #[error("{0} is on a file system in memory, where durability cannot be measured")]
    NotADisk(String),
    /// The log could not be opened.
    #[error(transparent)]
    Open(#[from] crate::OpenError),
    /// The log could not be written.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The log could not be read.
    #[error(transparent)]
    Read(#[from] crate::ReadError),
    /// The disk failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Commits records to a new log in `dir`, which must be on a disk, and must be empty or not exist.
///
/// `now_ns` returns the time of a monotonic clock, ns. One thread makes the commits one after another. Each commit
/// writes `in_flight` records and syncs them once.
pub fn measure_commits(
    dir: &Path,
    load: &CommitLoad,
    config: JournalConfig,
    now_ns: impl Fn() -> u64,
) -> Result<DiskMeasurement, MeasureError> {
    RealDisk.create_dir(dir)?;
    if RealDisk.in_memory(dir)? {
        return Err(MeasureError::NotADisk(dir.display().to_string()));
    }
    let (mut journal, found) = Journal::open(Arc::new(RealDisk), dir, "measured", config)?;
    let epoch = found.next.epoch.max(1);
    let mut frames = frames(load);
    let mut next_seq = found.next.seq;
    let mut measured = DiskMeasurement {
        commits_ns: Vec::with_capacity(load.commits as usize),
        ..DiskMeasurement::default()
    };
    let start_ns = now_ns();
    let mut before_ns = start_ns;
    for _ in 0..load.commits {
        stamp(&mut frames, before_ns);
        journal.append(&AppendBatch {
            epoch,
            first_seq: next_seq,
            count: load.in_flight,
            first_time_ns: before_ns,
            last_time_ns: before_ns,
            frames: &[&frames],
        })?;
        journal.sync()?;
        next_seq += u64::from(load.in_flight);
        let after_ns = now_ns();
        measured.commits_ns.push(after_ns - before_ns);
        before_ns = after_ns;
    }
    measured.elapsed_ns = before_ns - start_ns;
    measured.records = load.commits * u64::from(load.in_flight);
    measured.bytes = load.commits * frames.len() as u64;
    journal.close()?;
    Ok(measured)
}

/// Reads the whole log in `dir` and validates every checksum and frame.
pub fn measure_replay(dir: &Path, now_ns: impl Fn() -> u64) -> Result<DiskMeasurement, MeasureError> {
    let reader = Reader::open(Arc::new(RealDisk), dir)?;
    let mut scan = reader.scan(Position::default());
    let mut measured = DiskMeasurement::default();
    let start_ns = now_ns();
    while let Some(item) = scan.next()? {
        if let ScanItem::Records(records) = item {
            measured.records += u64::from(records.count);
            measured.bytes += records.frames.len() as u64;
        }
    }
    measured.elapsed_ns = now_ns() - start_ns;
    Ok(measured)
}

fn frames(load: &CommitLoad) -> Vec<u8> {
    let payload: Vec<u8> = (0..load.payload_bytes).map(|i| i as u8).collect();
    let mut out = Vec::new();
    for _ in 0..load.in_flight {
        if let Ok(encoded) = RecordMeta::default().measure(payload.len()) {
            let start = out.len();
            out.resize(start + encoded.padded(), 0);
            RecordMeta::default().encode(encoded, 0, &payload, &mut out[start..]);
        }
    }
    out
}

/// Writes the append time into each frame, as a topic does with its records.
fn stamp(frames: &mut [u8], time_ns: u64) {
    let mut at = 0;
    while let Some((_, stride)) = frames.get(at..).and_then(Frame::split) {
        let time_at = at + dunlin_frame::APPEND_TIME_AT;
        frames[time_at..time_at + 8].copy_from_slice(&time_ns.to_le_bytes());
        at += stride;
    }
}
