//! Tests that a real disk behaves like the simulated disk.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use dunlin_journal::{
    CommitLoad, Disk, Journal, JournalConfig, MeasureError, OpenError, Position, Reader, RealDisk,
    measure_commits, measure_replay, verify,
};

use crate::fixture::{append, expected, read, small};

/// A temporary directory, which is removed when this value is dropped.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("dunlin-journal-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Dir(path)
    }

    fn open(&self) -> Result<(Journal, dunlin_journal::RecoveredLog), OpenError> {
        Journal::open(Arc::new(RealDisk), &self.0.join("a/log"), "orders", small())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn log_on_the_real_disk_is_written_read_and_verified() {
    let dir = Dir::new("log");
    let (mut journal, _) = dir.open().unwrap();
    for first in (1..=200).step_by(4) {
        append(&mut journal, 1, first, 4, 100).unwrap();
        journal.sync().unwrap();
    }
    append(&mut journal, 1, 201, 1, 400_000).unwrap();
    journal.sync().unwrap();
    assert!(matches!(dir.open(), Err(OpenError::InUse(_))), "a second writer is refused");
    journal.save_snapshot(Position::new(1, 100), b"state").unwrap();
    journal.truncate_before(Position::new(1, 100)).unwrap();
    journal.close().unwrap();
    let log = dir.0.join("a/log");
    let report = verify(&RealDisk, &log).unwrap();
    assert!(report.is_sound(true), "{report:?}");
    let reader = Reader::open(Arc::new(RealDisk), &log).unwrap();
    assert_eq!(read(&reader, Position::new(1, 101))[..100], expected(1, 101, 200, 100)[..]);
    let (journal, found) = dir.open().unwrap();
    assert!(found.clean);
    assert_eq!(journal.latest_snapshot().unwrap().unwrap().bytes, b"state");
    drop(journal);
    assert!(!RealDisk.list(&log).unwrap().iter().any(|name| name.ends_with(".new")));
}

#[test]
fn batch_of_1500_parts_is_written_whole() {
    let dir = Dir::new("parts");
    let (mut journal, _) = dir.open().unwrap();
    // This append has more parts than one system call accepts, and is too large for the journal to join its parts
    // before the write.
    let frames: Vec<Vec<u8>> = (1..=1500).map(|seq| crate::fixture::frames(1, seq, 1, 300)).collect();
    let mut parts: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
    parts.insert(700, &[]);
    parts.insert(0, &[]);
    journal
        .append(&dunlin_journal::AppendBatch {
            epoch: 1,
            first_seq: 1,
            count: 1500,
            first_time_ns: 1,
            last_time_ns: 2,
            frames: &parts,
        })
        .unwrap();
    journal.sync().unwrap();
    assert_eq!(read(&journal.reader(), Position::default()), expected(1, 1, 1500, 300));
}

#[test]
fn replay_measurement_counts_all_committed_records() {
    let dir = Dir::new("measure");
    let begin = std::time::Instant::now();
    let now = || begin.elapsed().as_nanos() as u64;
    let load = CommitLoad { payload_bytes: 256, in_flight: 8, commits: 20 };
    match measure_commits(&dir.0, &load, JournalConfig::default(), now) {
        // If the directory for temporary files is in memory, this error is the right result.
        Err(MeasureError::NotADisk(_)) => return,
        measured => assert_eq!(measured.unwrap().records, 160),
    }
    assert_eq!(measure_replay(&dir.0, now).unwrap().records, 160);
    assert!(verify(&RealDisk, &dir.0).unwrap().is_sound(true));
}

#[test]
fn disk_measurement_refuses_a_memory_file_system() {
    let shm = PathBuf::from("/dev/shm");
    let is_tmpfs = Command::new("stat").args(["-f", "-c", "%T", "/dev/shm"]).output();
    if !is_tmpfs.is_ok_and(|output| output.stdout.starts_with(b"tmpfs")) {
        return;
    }
    let dir = Dir(shm.join(format!("dunlin-journal-{}", std::process::id())));
    let load = CommitLoad { payload_bytes: 1, in_flight: 1, commits: 1 };
    let refused = measure_commits(&dir.0, &load, JournalConfig::default(), || 0);
    assert!(matches!(refused, Err(MeasureError::NotADisk(_))));
}
