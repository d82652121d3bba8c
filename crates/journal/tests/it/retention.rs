//! Tests of retention by bytes and age, and of truncation after a snapshot.

use dunlin_journal::{
    AppendError, FakeDisk, Faults, HoleCause, Journal, JournalConfig, LoadOutcome, Position, ReadError,
    ScanItem, verify,
};

use crate::fixture::{JournalEntry, append, dir, expected, log_files, open, open_with, read, small, time_of};

fn fill(journal: &mut Journal, records: u64) {
    let from = journal.appended().map_or(1, |last| last.seq + 1);
    for seq in from..from + records {
        append(journal, 1, seq, 1, 100).unwrap();
        journal.sync().unwrap();
    }
}

#[test]
fn log_over_its_byte_limit_drops_its_oldest_files() {
    let disk = FakeDisk::new(1);
    let config = JournalConfig { retain_bytes: Some(32 << 10), ..small() };
    let (mut journal, _) = open_with(&disk, config).unwrap();
    for _ in 0..20 {
        fill(&mut journal, 40);
        journal.retain(0).unwrap();
        assert!(journal.bytes() <= 32 << 10, "{}", journal.bytes());
        assert!(disk.used() <= 32 << 10, "{}", disk.used());
    }
    let reader = journal.reader();
    let oldest = reader.oldest().unwrap();
    assert!(oldest.seq > 600);
    assert_eq!(read(&reader, Position::default()), expected(1, oldest.seq, 800, 100));
    let error = reader.load(Position::new(1, 5), 1000).unwrap_err();
    assert!(matches!(error, ReadError::Gone { oldest: o, .. } if o == oldest));
    journal.close().unwrap();
    assert!(verify(&disk, &dir()).unwrap().is_sound(true));
}

#[test]
fn journal_files_with_only_outdated_records_are_dropped() {
    let disk = FakeDisk::new(2);
    let config = JournalConfig { retain_ns: Some(1_000), ..small() };
    let (mut journal, _) = open_with(&disk, config).unwrap();
    fill(&mut journal, 400);
    let files = log_files(&disk).len();
    assert_eq!(journal.retain(time_of(1, 1)).unwrap(), 0);
    let dropped = journal.retain(time_of(1, 300)).unwrap();
    assert!(dropped > 0 && dropped < files - 1);
    let oldest = journal.reader().oldest().unwrap().seq;
    assert!(oldest <= 200, "a record younger than the age was dropped: {oldest} is the oldest");
    assert!(oldest > 100);
    assert!(journal.retain(time_of(9, 9)).unwrap() > 0);
    assert_eq!(log_files(&disk).len(), 1, "the last file stays");
}

#[test]
fn truncation_keeps_every_record_at_or_after_its_position() {
    let disk = FakeDisk::new(3);
    let (mut journal, _) = open(&disk).unwrap();
    fill(&mut journal, 300);
    journal.save_snapshot(Position::new(1, 200), b"state").unwrap();
    assert!(journal.truncate_before(Position::new(1, 201)).unwrap() > 0);
    let reader = journal.reader();
    assert!(reader.oldest().unwrap().seq <= 201);
    assert_eq!(read(&reader, Position::new(1, 201)), expected(1, 201, 300, 100));
    drop(journal);
    let (mut journal, found) = open(&disk).unwrap();
    assert_eq!(found.snapshot, Some(Position::new(1, 200)));
    journal.save_snapshot(Position::new(1, 250), b"later state").unwrap();
    assert_eq!(journal.latest_snapshot().unwrap().unwrap().bytes, b"later state");
    journal.close().unwrap();
    assert!(verify(&disk, &dir()).unwrap().is_sound(true));
}

#[test]
fn crash_after_truncation_leaves_an_undamaged_journal() {
    let disk = FakeDisk::new(4);
    let (mut journal, _) = open(&disk).unwrap();
    fill(&mut journal, 300);
    journal.close().unwrap();
    let (mut journal, found) = open(&disk).unwrap();
    assert!(found.clean);
    journal.truncate_before(Position::new(1, 200)).unwrap();
    disk.crash();
    drop(journal);
    let (_journal, found) = open(&disk).unwrap();
    assert!(!found.clean && found.damage.is_empty());
    assert!(verify(&disk, &dir()).unwrap().is_sound(true));
}

/// After a failed sync of the directory, a removed file may still exist on the disk.
#[test]
fn removed_file_does_not_return_after_a_failed_directory_sync() {
    for seed in 0..32 {
        let disk = FakeDisk::new(seed);
        let (mut journal, _) = open(&disk).unwrap();
        fill(&mut journal, 300);
        // The removal of the first file succeeds, and the sync of the directory after it fails.
        disk.set_faults(Faults { names_fail: Some(1), ..Faults::default() });
        assert!(journal.truncate_before(Position::new(1, 200)).is_err());
        assert!(matches!(journal.sync(), Err(AppendError::Ended(_))));
        drop(journal);
        let (journal, found) = open(&disk).unwrap();
        journal.close().unwrap();
        disk.crash();
        let (_journal, again) = open(&disk).unwrap();
        assert_eq!(again.oldest, found.oldest);
        assert!(verify(&disk, &dir()).unwrap().is_sound(true));
    }
}

#[test]
fn reader_of_a_dropped_file_gets_the_exact_lost_range() {
    let disk = FakeDisk::new(5);
    let (mut journal, _) = open(&disk).unwrap();
    fill(&mut journal, 400);
    let mut scan = journal.reader().scan(Position::default());
    assert!(matches!(scan.next().unwrap(), Some(ScanItem::Records(_))));
    journal.truncate_before(Position::new(1, 300)).unwrap();
    let oldest = journal.reader().oldest().unwrap().seq;
    let mut next = 2;
    while let Some(item) = scan.next().unwrap() {
        match item {
            ScanItem::Records(records) => {
                assert_eq!(records.first_seq, next);
                next = records.last_seq() + 1;
            }
            ScanItem::Hole(hole) => {
                assert_eq!((hole.cause, hole.first.seq), (HoleCause::Dropped, next));
                assert_eq!(hole.last, Some(oldest - 1));
                next = oldest;
            }
        }
    }
    assert_eq!(next, 401);
}

#[test]
fn readers_get_exact_lost_ranges_while_retention_drops_files() {
    let disk = FakeDisk::new(8);
    let config = JournalConfig { file_bytes: 4 << 10, retain_bytes: Some(16 << 10), ..small() };
    let (mut journal, _) = open_with(&disk, config).unwrap();
    fill(&mut journal, 100);
    let reader = journal.reader();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut next = Position::new(1, 1);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    match reader.load(next, 2_000) {
                        Ok(Some(LoadOutcome::Records(records))) => {
                            assert_eq!(records.first_seq, next.seq, "records were skipped without a report");
                            next.seq += u64::from(records.count);
                        }
                        Ok(None) => next = reader.oldest().unwrap(),
                        Err(ReadError::Gone { oldest, .. }) => {
                            assert!(oldest > next);
                            next = oldest;
                        }
                        Ok(Some(LoadOutcome::Hole(hole))) => {
                            assert_eq!((hole.cause, hole.first), (HoleCause::Dropped, next));
                            next.seq = hole.last.unwrap() + 1;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for _ in 0..400 {
            fill(&mut journal, 5);
            journal.retain(0).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn first_record_at_or_after_a_time_is_found() {
    let disk = FakeDisk::new(6);
    let (mut journal, _) = open(&disk).unwrap();
    for first in (1..=300).step_by(3) {
        append(&mut journal, 1, first, 3, 100).unwrap();
    }
    journal.sync().unwrap();
    let at = |reader: &dunlin_journal::Reader, time| reader.position_at(time).unwrap();
    for restarted in [false, true] {
        let reader = journal.reader();
        assert_eq!(at(&reader, 0), Some(Position::new(1, 1)));
        for seq in 1..=300 {
            assert_eq!(at(&reader, time_of(1, seq)), Some(Position::new(1, seq)));
            assert_eq!(at(&reader, time_of(1, seq) - 3), Some(Position::new(1, seq)));
        }
        assert_eq!(at(&reader, time_of(1, 301)), None);
        if !restarted {
            journal.close().unwrap();
            journal = open(&disk).unwrap().0;
        }
    }
}

#[test]
fn time_search_over_several_files_finds_the_first_match() {
    let disk = FakeDisk::new(7);
    let (mut journal, _) = open(&disk).unwrap();
    let frames = crate::fixture::frames(1, 1, 1, 900);
    for seq in 1..=40 {
        let time = if seq < 5 { 10 } else { 20 };
        journal
            .append(&dunlin_journal::AppendBatch {
                epoch: 1,
                first_seq: seq,
                count: 1,
                first_time_ns: time,
                last_time_ns: time,
                frames: &[&frames],
            })
            .unwrap();
    }
    journal.sync().unwrap();
    assert!(log_files(&disk).len() > 3);
    assert_eq!(journal.reader().position_at(15).unwrap(), Some(Position::new(1, 5)));
    assert_eq!(journal.reader().position_at(20).unwrap(), Some(Position::new(1, 5)));
    assert!(matches!(read(&journal.reader(), Position::new(1, 40))[..], [JournalEntry::Record(..)]));
}
