//! Tests of appending and syncing records, and of closing and reopening logs.

use std::sync::Arc;

use dunlin_journal::{AppendError, FakeDisk, LoadOutcome, OpenError, Position, Reader};

use crate::fixture::{append, dir, expected, log_files, open, read};

#[test]
fn appended_records_are_read_back_over_many_files() {
    let disk = FakeDisk::new(1);
    let (mut journal, found) = open(&disk).unwrap();
    assert!(found.clean && found.last.is_none());
    let mut seq = 1;
    for count in [1, 7, 3, 20, 1].into_iter().cycle().take(60) {
        append(&mut journal, 5, seq, count, 100).unwrap();
        seq += u64::from(count);
        assert_eq!(journal.sync().unwrap(), Some(Position::new(5, seq - 1)));
    }
    assert!(log_files(&disk).len() > 5);
    let reader = journal.reader();
    assert_eq!(read(&reader, Position::default()), expected(5, 1, seq - 1, 100));
    for from in [2, 77, 300] {
        assert_eq!(read(&reader, Position::new(5, from)), expected(5, from, seq - 1, 100));
    }
    journal.close().unwrap();
    let (journal, found) = open(&disk).unwrap();
    assert!(found.clean);
    assert_eq!((found.last, found.epoch_least), (Some(Position::new(5, seq - 1)), 5));
    assert_eq!(read(&journal.reader(), Position::default()), expected(5, 1, seq - 1, 100));
}

#[test]
fn journal_scan_returns_records_only_after_they_are_synced() {
    let disk = FakeDisk::new(2);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 1, 1, 2, 10).unwrap();
    let reader = journal.reader();
    let mut scan = reader.scan(Position::default());
    assert!(scan.next().unwrap().is_none());
    journal.sync().unwrap();
    assert!(scan.next().unwrap().is_some());
    assert!(scan.next().unwrap().is_none());
    for seq in 3..200 {
        append(&mut journal, 1, seq, 1, 100).unwrap();
        assert!(scan.next().unwrap().is_none());
        journal.sync().unwrap();
        assert!(
            matches!(scan.next().unwrap(), Some(dunlin_journal::ScanItem::Records(r)) if r.first_seq == seq)
        );
    }
}

#[test]
fn scan_finds_an_end_mark_only_in_a_closed_log() {
    let disk = FakeDisk::new(11);
    let has_end_mark = || {
        let reader = Reader::open(Arc::new(disk.clone()), &dir()).unwrap();
        let mut scan = reader.scan(Position::default());
        assert!(!scan.has_end_mark(), "nothing was read");
        while scan.next().unwrap().is_some() {}
        scan.has_end_mark()
    };
    let (mut journal, _) = open(&disk).unwrap();
    for seq in 1..200 {
        append(&mut journal, 1, seq, 1, 100).unwrap();
    }
    journal.sync().unwrap();
    assert!(log_files(&disk).len() > 1 && !has_end_mark());
    journal.close().unwrap();
    assert!(has_end_mark());
}

#[test]
fn reader_returns_whole_blocks_up_to_a_byte_limit() {
    let disk = FakeDisk::new(3);
    let (mut journal, _) = open(&disk).unwrap();
    for block in 0..50 {
        append(&mut journal, 1, block * 10 + 1, 10, 100).unwrap();
    }
    journal.sync().unwrap();
    let reader = journal.reader();
    let mut next = Position::new(1, 4);
    while let Some(loaded) = reader.load(next, 5_000).unwrap() {
        let LoadOutcome::Records(records) = loaded else { panic!("{loaded:?}") };
        assert_eq!(records.first_seq, next.seq);
        assert!(records.frames.len() <= 5_000);
        next.seq += u64::from(records.count);
    }
    assert_eq!(next.seq, 501);
}

#[test]
fn append_after_an_unclean_end_needs_a_higher_epoch() {
    let disk = FakeDisk::new(4);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 3, 1, 4, 10).unwrap();
    journal.sync().unwrap();
    drop(journal);
    let (mut journal, found) = open(&disk).unwrap();
    assert!(!found.clean);
    assert_eq!((found.last, found.epoch_least), (Some(Position::new(3, 4)), 4));
    let refused = append(&mut journal, 3, 5, 1, 10).unwrap_err();
    assert!(matches!(refused, AppendError::Epoch { got: 3, least: 4 }));
    append(&mut journal, 4, 1, 2, 10).unwrap();
    journal.close().unwrap();
    let (mut journal, found) = open(&disk).unwrap();
    assert_eq!((found.last, found.clean), (Some(Position::new(4, 2)), true));
    append(&mut journal, 4, 3, 2, 10).unwrap();
    journal.sync().unwrap();
    let mut all = expected(3, 1, 4, 10);
    all.extend(expected(4, 1, 4, 10));
    assert_eq!(read(&journal.reader(), Position::default()), all);
}

#[test]
fn nonconsecutive_batch_is_refused_and_changes_nothing() {
    let disk = FakeDisk::new(5);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 1, 1, 4, 10).unwrap();
    for wrong in [4, 6] {
        assert!(matches!(append(&mut journal, 1, wrong, 1, 10), Err(AppendError::Order { .. })));
    }
    append(&mut journal, 1, 5, 1, 10).unwrap();
    journal.sync().unwrap();
    assert_eq!(read(&journal.reader(), Position::default()), expected(1, 1, 5, 10));
}

#[test]
fn second_writer_of_a_journal_is_refused() {
    let disk = FakeDisk::new(6);
    let (journal, _) = open(&disk).unwrap();
    assert!(matches!(open(&disk), Err(OpenError::InUse(_))));
    drop(journal);
    open(&disk).unwrap();
}
