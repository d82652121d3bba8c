//! A disk that fills up, and a disk that fails.

use dunlin_journal::{AppendError, FakeDisk, Faults, Position, verify};

use crate::stage::{append, dir, expected, open, read};

#[test]
fn full_disk_refuses_loses_nothing_and_goes_on_when_there_is_room() {
    let disk = FakeDisk::new(1);
    let (mut journal, _) = open(&disk).unwrap();
    disk.set_room(20_000);
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
                assert!(journal.room(10_000).is_err());
                disk.set_room(disk.used() + 20_000);
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

#[test]
fn room_that_was_made_is_there_though_the_disk_fills_up() {
    let disk = FakeDisk::new(2);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 1, 1, 1, 100).unwrap();
    journal.room(30 * (48 + 128)).unwrap();
    assert!(journal.room_left() >= 30 * (48 + 128));
    disk.set_room(disk.used());
    for seq in 2..32 {
        append(&mut journal, 1, seq, 1, 100).unwrap();
    }
    journal.sync().unwrap();
    assert!(matches!(journal.room(10_000), Err(AppendError::Full { .. })));
    journal.close().unwrap();
    assert!(verify(&disk, &dir()).unwrap().is_sound(true), "the end mark found its room, too");
}

#[test]
fn sync_that_failed_is_never_tried_again() {
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
        assert!(matches!(journal.room(1), Err(AppendError::Ended(_))));
    }
    let reader = journal.reader();
    assert_eq!(read(&reader, Position::default()), expected(1, 1, 5, 100), "what was synced stays readable");
    assert!(matches!(journal.close(), Err(AppendError::Ended(_))));
}

#[test]
fn what_a_failed_sync_left_in_memory_is_written_again_by_the_next_start() {
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
        assert!(found.last.map_or(0, |last| last.seq) == last, "seed {seed}: what readers saw is gone");
        assert_eq!(read(&journal.reader(), Position::default()), expected(1, 1, last, 100));
    }
}

#[test]
fn epoch_whose_first_record_was_not_written_is_not_gone_on_with() {
    let mut begun_in_vain = 0;
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
        begun_in_vain += usize::from(!found.clean && !written);
        append(&mut journal, found.epoch_least, last.seq + 1, 1, 100).unwrap();
        journal.close().unwrap();
        assert!(verify(&disk, &dir()).unwrap().is_sound(true));
    }
    assert!(begun_in_vain > 0);
}
