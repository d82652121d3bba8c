//! Tests of logs on a disk that is full or fails.

use std::sync::Arc;

use dunlin_journal::{AppendError, Disk, DiskReserve, FakeDisk, Faults, Journal, Position, verify};

use crate::fixture::{append, dir, expected, log_files, open, read};

#[test]
fn full_disk_refuses_appends_until_there_is_room() {
    let disk = FakeDisk::new(1);
    let (mut journal, _) = open(&disk).unwrap();
    disk.set_capacity(20_000);
    let mut seq = 1;
    let mut refused = 0;
    while seq < 400 {
        match append(&mut journal, 1, seq, 1, 100) {
            Ok(()) => seq += 1,
            Err(AppendError::Full { need, free }) => {
                assert!(free < need + 1024, "{free} are free, {need} needed");
                refused += 1;
                assert_eq!(journal.sync().unwrap(), Some(Position::new(1, seq - 1)));
                assert_eq!(read(&journal.reader(), Position::default()), expected(1, 1, seq - 1, 100));
                assert!(journal.reserve_room(10_000).is_err());
                disk.set_capacity(disk.used() + 20_000);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 1);
    journal.close().unwrap();
    assert!(verify(&disk, &dir()).unwrap().is_sound(true));
    let (journal, found) = open(&disk).unwrap();
    assert!(found.clean);
    assert_eq!(read(&journal.reader(), Position::default()), expected(1, 1, 399, 100));
}

/// The text of the error must not say that the disk is full: callers put `the disk is full` before this text.
#[test]
fn append_error_names_ulimit_or_quota_if_the_disk_has_room() {
    let text = |free| AppendError::Full { need: 1_000_064, free }.to_string();
    assert_eq!(text(4_096), "1000064 bytes are needed, but 4096 are free on the disk");
    let limited = text(49_898_418_176);
    assert!(limited.contains("the file size limit (ulimit -f) or a quota is reached"), "{limited}");
}

#[test]
fn reserved_room_is_usable_after_the_disk_fills_up() {
    let disk = FakeDisk::new(2);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 1, 1, 1, 100).unwrap();
    journal.reserve_room(30 * (48 + 128)).unwrap();
    assert!(journal.room_left() >= 30 * (48 + 128));
    disk.set_capacity(disk.used());
    for seq in 2..32 {
        append(&mut journal, 1, seq, 1, 100).unwrap();
    }
    journal.sync().unwrap();
    assert!(matches!(journal.reserve_room(10_000), Err(AppendError::Full { .. })));
    journal.close().unwrap();
    assert!(verify(&disk, &dir()).unwrap().is_sound(true), "there is room for the end mark");
}

#[test]
fn failed_sync_is_never_tried_again() {
    let disk = FakeDisk::new(3);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 1, 1, 5, 100).unwrap();
    journal.sync().unwrap();
    append(&mut journal, 1, 6, 5, 100).unwrap();
    disk.set_faults(Faults { sync_fails: Some(0), ..Faults::default() });
    assert!(matches!(journal.sync(), Err(AppendError::Disk(_))));
    for _ in 0..2 {
        assert!(matches!(journal.sync(), Err(AppendError::Ended(_))));
        assert!(matches!(append(&mut journal, 1, 11, 1, 100), Err(AppendError::Ended(_))));
        assert!(matches!(journal.reserve_room(1), Err(AppendError::Ended(_))));
    }
    let reader = journal.reader();
    assert_eq!(read(&reader, Position::default()), expected(1, 1, 5, 100), "synced records stay readable");
    assert!(matches!(journal.close(), Err(AppendError::Ended(_))));
}

#[test]
fn log_is_unusable_after_a_failed_sync_of_a_new_file() {
    let disk = FakeDisk::new(10);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 1, 1, 5, 100).unwrap();
    journal.end_file().unwrap();
    // The first sync, which succeeds, is that of the new file. The second sync, which fails, is that of the old file
    // and its records.
    disk.set_faults(Faults { sync_fails: Some(1), sync_reports_full: true, ..Faults::default() });
    let refused = append(&mut journal, 1, 6, 1, 100);
    assert!(matches!(refused, Err(AppendError::Disk(_))), "{refused:?}");
    assert!(matches!(journal.sync(), Err(AppendError::Ended(_))));
}

#[test]
fn log_keeps_its_file_if_a_full_disk_prevents_the_next_one() {
    let disk = FakeDisk::new(16);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 1, 1, 5, 100).unwrap();
    journal.end_file().unwrap();
    // The first two writes are those of the new file's header and zeros. The third one, which fails, is that of the
    // mark in the old file.
    let faults = Faults { write_fails: Some(2), write_reports_full: true, ..Faults::default() };
    disk.set_faults(faults);
    append(&mut journal, 1, 6, 1, 100).unwrap();
    assert_eq!(log_files(&disk).len(), 1, "the old file continues");
    journal.end_file().unwrap();
    append(&mut journal, 1, 7, 1, 100).unwrap();
    assert_eq!(log_files(&disk).len(), 2);
    journal.close().unwrap();
    assert!(verify(&disk, &dir()).unwrap().is_sound(true));
    let (journal, found) = open(&disk).unwrap();
    assert!(found.clean && found.holes.is_empty() && found.damage.is_empty(), "{found:?}");
    assert_eq!(read(&journal.reader(), Position::default()), expected(1, 1, 7, 100));
}

#[test]
fn lack_of_file_descriptors_prevents_no_later_append() {
    let lacking = Faults { opens_fail: true, creates_fail: true, ..Faults::default() };
    let disk = FakeDisk::new(17);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 1, 1, 1, 100).unwrap();
    journal.end_file().unwrap();
    disk.set_faults(lacking);
    for _ in 0..2 {
        let refused = append(&mut journal, 1, 2, 1, 100);
        assert!(matches!(refused, Err(AppendError::LacksResource(_))), "{refused:?}");
    }
    disk.set_faults(Faults::default());
    append(&mut journal, 1, 2, 1, 100).unwrap();
    disk.set_faults(lacking);
    let dropped = journal.truncate_before(Position::new(1, 2));
    assert!(matches!(dropped, Err(AppendError::LacksResource(_))), "{dropped:?}");
    disk.set_faults(Faults::default());
    append(&mut journal, 1, 3, 1, 100).unwrap();
    journal.close().unwrap();
    assert!(verify(&disk, &dir()).unwrap().is_sound(true));
    let (journal, _) = open(&disk).unwrap();
    assert_eq!(read(&journal.reader(), Position::new(1, 2)), expected(1, 2, 3, 100));
}

#[test]
fn records_found_after_a_failed_sync_survive_a_crash() {
    for seed in 0..64 {
        let disk = FakeDisk::new(seed);
        let (mut journal, _) = open(&disk).unwrap();
        append(&mut journal, 1, 1, 5, 100).unwrap();
        disk.set_faults(Faults { sync_fails: Some(0), ..Faults::default() });
        assert!(journal.sync().is_err());
        drop(journal);
        let (journal, found) = open(&disk).unwrap();
        let last = found.last.map_or(0, |last| last.seq);
        disk.crash();
        drop(journal);
        let (journal, found) = open(&disk).unwrap();
        assert!(
            found.last.map_or(0, |last| last.seq) == last,
            "seed {seed}: records that readers received are lost"
        );
        assert_eq!(read(&journal.reader(), Position::default()), expected(1, 1, last, 100));
    }
}

#[test]
fn epoch_is_not_reused_if_its_first_write_failed() {
    let mut unused_epochs = 0;
    for writes in 0..8 {
        let disk = FakeDisk::new(4);
        let (mut journal, _) = open(&disk).unwrap();
        append(&mut journal, 3, 1, 5, 100).unwrap();
        journal.close().unwrap();
        let (mut journal, _) = open(&disk).unwrap();
        disk.set_faults(Faults { write_fails: Some(writes), ..Faults::default() });
        let written = append(&mut journal, 4, 6, 1, 100).is_ok();
        drop(journal);
        disk.set_faults(Faults::default());
        let (mut journal, found) = open(&disk).unwrap();
        let last = found.last.unwrap();
        assert_eq!(last, if written { Position::new(4, 6) } else { Position::new(3, 5) });
        assert_eq!(found.clean, found.epoch_least == last.epoch);
        unused_epochs += usize::from(!found.clean && !written);
        append(&mut journal, found.epoch_least, last.seq + 1, 1, 100).unwrap();
        journal.close().unwrap();
        assert!(verify(&disk, &dir()).unwrap().is_sound(true));
    }
    assert!(unused_epochs > 0);
}

fn reserve(disk: &FakeDisk) -> DiskReserve {
    DiskReserve::open(Arc::new(disk.clone()), &dir(), "reserve", 10_000).unwrap()
}

#[test]
fn disk_reserve_fills_only_if_twice_its_size_is_free() {
    let disk = FakeDisk::new(5);
    disk.set_capacity(19_999);
    let mut small = reserve(&disk);
    assert!(!small.fill().unwrap() && small.needs_fill());
    assert_eq!(disk.used(), 0);
    disk.set_capacity(20_000);
    assert!(small.fill().unwrap() && small.is_filled());
    assert_eq!(disk.used(), 10_000);
    disk.crash();
    let mut found = reserve(&disk);
    assert!(found.is_filled());
    assert!(found.release().unwrap());
    assert!(!found.release().unwrap(), "it is released once");
    assert_eq!(disk.used(), 0);
    let mut none = DiskReserve::open(Arc::new(disk.clone()), &dir(), "none", 0).unwrap();
    assert!(none.fill().unwrap() && !none.needs_fill() && !none.release().unwrap());
}

#[test]
fn incomplete_disk_reserve_file_is_removed() {
    let disk = FakeDisk::new(6);
    disk.overwrite(&dir().join("reserve"), vec![0; 5_000]);
    let mut reserve = reserve(&disk);
    assert!(reserve.needs_fill() && disk.used() == 0);
    disk.set_faults(Faults { write_fails: Some(0), ..Faults::default() });
    assert!(reserve.fill().is_err(), "a disk that fails is no full one");
}

#[test]
fn full_disk_accepts_records_after_the_reserve_is_released() {
    let disk = FakeDisk::new(7);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 1, 1, 1, 100).unwrap();
    let mut reserve = reserve(&disk);
    assert!(reserve.fill().unwrap());
    disk.set_capacity(disk.used());
    let mut seq = 2;
    while append(&mut journal, 1, seq, 1, 100).is_ok() {
        seq += 1;
    }
    assert!(reserve.release().unwrap());
    let refused_at = seq;
    while append(&mut journal, 1, seq, 1, 100).is_ok() {
        seq += 1;
    }
    assert!(seq > refused_at + 10_000 / 300, "from {refused_at} to {seq}");
    journal.close().unwrap();
    assert!(verify(&disk, &dir()).unwrap().is_sound(true));
}

/// Appends records until the disk is full, and returns the sequence number of the record that was refused. Meanwhile,
/// other programs use all room that becomes free.
fn fill(disk: &FakeDisk, journal: &mut Journal) -> u64 {
    disk.set_capacity(disk.used() + 20_000);
    disk.set_faults(Faults { freed_room_is_taken: true, ..Faults::default() });
    let mut seq = 1;
    while append(journal, 1, seq, 1, 100).is_ok() {
        seq += 1;
    }
    disk.set_capacity(disk.used());
    seq
}

#[test]
fn disk_reserve_becomes_the_next_log_file_when_disk_is_full() {
    let disk = FakeDisk::new(11);
    let (mut journal, _) = open(&disk).unwrap();
    let mut reserve = reserve(&disk);
    assert!(!journal.begin_file_in(&mut reserve, 0).unwrap(), "it is not filled");
    assert!(reserve.fill().unwrap());
    let first = fill(&disk, &mut journal);
    assert!(journal.begin_file_in(&mut reserve, 0).unwrap() && reserve.needs_fill());
    disk.set_capacity(disk.used());
    assert!(journal.room_left() > 8_000);
    journal.reserve_room(8_000).unwrap();
    assert!(matches!(journal.reserve_room(10_000), Err(AppendError::Full { .. })));
    let mut seq = first;
    while append(&mut journal, 1, seq, 1, 100).is_ok() {
        seq += 1;
    }
    assert!(seq > first + 8_000 / 300, "from {first} to {seq}");
    journal.sync().unwrap();
    disk.crash();
    let (journal, _) = open(&disk).unwrap();
    assert_eq!(read(&journal.reader(), Position::default()), expected(1, 1, seq - 1, 100));
    journal.close().unwrap();
    assert!(verify(&disk, &dir()).unwrap().is_sound(true));
}

#[test]
fn reserve_is_enlarged_only_if_the_disk_has_the_needed_room() {
    let disk = FakeDisk::new(12);
    let (mut journal, _) = open(&disk).unwrap();
    let mut reserve = reserve(&disk);
    assert!(reserve.fill().unwrap());
    let seq = fill(&disk, &mut journal);
    let used = disk.used();
    disk.set_capacity(used + 5_000);
    assert!(!journal.begin_file_in(&mut reserve, 15_001).unwrap() && reserve.is_filled());
    assert_eq!(disk.used(), used);
    assert!(journal.begin_file_in(&mut reserve, 15_000).unwrap());
    assert!(journal.room_left() > 13_000);
    append(&mut journal, 1, seq, 1, 12_000).unwrap();
}

#[test]
fn reserved_disk_space_grows_when_the_disk_has_room() {
    let disk = FakeDisk::new(14);
    let (mut journal, _) = open(&disk).unwrap();
    let mut reserve = reserve(&disk);
    assert!(reserve.fill().unwrap());
    let seq = fill(&disk, &mut journal);
    assert!(journal.begin_file_in(&mut reserve, 0).unwrap());
    let used = disk.used();
    disk.set_capacity(used);
    assert!(matches!(journal.reserve_room(20_000), Err(AppendError::Full { .. })));
    assert_eq!(disk.used(), used);
    disk.set_capacity(u64::MAX);
    journal.reserve_room(20_000).unwrap();
    disk.set_capacity(disk.used());
    append(&mut journal, 1, seq, 1, 19_000).unwrap();
    journal.sync().unwrap();
    assert_eq!(journal.durable(), Some(Position::new(1, seq)));
}

#[test]
fn journal_recovers_after_a_lack_of_file_descriptors() {
    let disk = FakeDisk::new(18);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 1, 1, 1, 100).unwrap();
    // After this restart, the file is repaired and has no room for further marks.
    drop(journal);
    let (mut journal, found) = open(&disk).unwrap();
    assert_eq!(found.epoch_least, 2);
    let mut reserve = reserve(&disk);
    assert!(reserve.fill().unwrap());
    disk.set_capacity(disk.used());
    disk.set_faults(Faults { opens_fail: true, ..Faults::default() });
    assert!(journal.begin_file_in(&mut reserve, 0).unwrap());
    let refused = append(&mut journal, 2, 2, 1, 100);
    assert!(matches!(refused, Err(AppendError::LacksResource(_))), "{refused:?}");
    disk.set_faults(Faults::default());
    append(&mut journal, 2, 2, 1, 100).unwrap();
    journal.sync().unwrap();
    assert_eq!(journal.durable(), Some(Position::new(2, 2)));
}

#[test]
fn disk_space_of_discarded_records_is_freed() {
    let disk = FakeDisk::new(19);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 1, 1, 5, 100).unwrap();
    journal.sync().unwrap();
    for attempt in 0..3 {
        let before = journal.appended();
        let used = disk.used();
        disk.set_capacity(used + 40_000);
        // Appends so many records that they take several files.
        let mut seq = 6;
        while append(&mut journal, 2, seq, 1, 1_000).is_ok() {
            seq += 1;
        }
        assert!(log_files(&disk).len() > 2 && seq > 20, "attempt {attempt}: {seq}");
        journal.discard_after(before).unwrap();
        assert_eq!(journal.appended(), Some(Position::new(1, 5)));
        assert_eq!(log_files(&disk).len(), 2);
        assert!(disk.used() < used + 2_000, "attempt {attempt}: {} after {used}", disk.used());
        assert_eq!(read(&journal.reader(), Position::default()), expected(1, 1, 5, 100));
    }
    append(&mut journal, 2, 6, 1, 100).unwrap();
    journal.close().unwrap();
    assert!(verify(&disk, &dir()).unwrap().is_sound(true));
    let (journal, found) = open(&disk).unwrap();
    assert!(found.clean && found.damage.is_empty(), "{found:?}");
    assert_eq!(read(&journal.reader(), Position::new(2, 6)), expected(2, 6, 6, 100));
}

#[test]
fn appends_succeed_after_the_reserve_file_was_removed() {
    let disk = FakeDisk::new(15);
    let (mut journal, _) = open(&disk).unwrap();
    let mut reserve = reserve(&disk);
    assert!(reserve.fill().unwrap());
    append(&mut journal, 1, 1, 1, 100).unwrap();
    disk.remove(&dir().join("reserve")).unwrap();
    assert!(journal.begin_file_in(&mut reserve, 0).unwrap() && reserve.needs_fill());
    append(&mut journal, 1, 2, 1, 100).unwrap();
}

#[test]
fn unused_disk_reserve_survives_a_restart() {
    let disk = FakeDisk::new(13);
    let (mut journal, _) = open(&disk).unwrap();
    let mut filled = reserve(&disk);
    assert!(filled.fill().unwrap());
    append(&mut journal, 1, 1, 1, 100).unwrap();
    assert!(journal.begin_file_in(&mut filled, 0).unwrap());
    drop(journal);
    disk.set_capacity(disk.used());
    disk.set_faults(Faults { freed_room_is_taken: true, ..Faults::default() });
    let (mut journal, found) = open(&disk).unwrap();
    assert_eq!(found.epoch_least, 2);
    let mut kept = reserve(&disk);
    assert!(kept.is_filled());
    assert!(journal.begin_file_in(&mut kept, 0).unwrap());
    append(&mut journal, 2, 2, 1, 100).unwrap();
    journal.close().unwrap();
    let (journal, _) = open(&disk).unwrap();
    assert!(reserve(&disk).needs_fill());
    assert_eq!(read(&journal.reader(), Position::new(2, 2)), expected(2, 2, 2, 100));
}

#[test]
fn journal_file_that_ended_early_can_be_dropped() {
    let disk = FakeDisk::new(8);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 1, 1, 10, 100).unwrap();
    assert_eq!(journal.truncate_before(Position::new(1, 11)).unwrap(), 0, "it is the last");
    journal.end_file().unwrap();
    append(&mut journal, 1, 11, 1, 100).unwrap();
    journal.end_file().unwrap();
    journal.end_file().unwrap();
    append(&mut journal, 1, 12, 1, 100).unwrap();
    journal.sync().unwrap();
    assert_eq!(journal.truncate_before(Position::new(1, 12)).unwrap(), 2);
    assert_eq!(read(&journal.reader(), Position::new(1, 12)), expected(1, 12, 12, 100));
    journal.close().unwrap();
    assert!(verify(&disk, &dir()).unwrap().is_sound(true));
}

#[test]
fn journal_continues_an_ended_file_if_no_other_fits_on_disk() {
    let disk = FakeDisk::new(9);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 1, 1, 10, 100).unwrap();
    journal.end_file().unwrap();
    // The preallocated space becomes free, but is too small for another file.
    disk.set_capacity(disk.used() + 500);
    append(&mut journal, 1, 11, 1, 100).unwrap();
    journal.sync().unwrap();
    let logs =
        |disk: &FakeDisk| disk.list(&dir()).unwrap().iter().filter(|name| name.ends_with(".log")).count();
    assert_eq!(logs(&disk), 1);
    disk.set_capacity(u64::MAX);
    append(&mut journal, 1, 12, 1, 100).unwrap();
    journal.close().unwrap();
    assert_eq!(read(&open(&disk).unwrap().0.reader(), Position::default()), expected(1, 1, 12, 100));
}
