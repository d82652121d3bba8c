//! Tests that write a log through many crashes and restarts. Each seed gives another sequence of operations.
//!
//! Faults: power failures after which unsynced data is lost or partly written, failed syncs and writes, a full disk,
//! processes that end without closing the log, and flipped bits. `DUNLIN_JOURNAL_SEEDS` sets the number of seeds;
//! `DUNLIN_JOURNAL_SEED` runs only the given seed.

use std::sync::Arc;

use dunlin_journal::{
    AppendError, Disk, DiskReserve, FakeDisk, Faults, Hole, Journal, JournalConfig, Position, RecoveredLog,
    verify,
};

use crate::fixture::{JournalEntry, append, dir, log_files, open_with, payload, read};
use crate::ledger::AppendedRecords;

const SEEDS: u64 = 2_000;
const STEPS: u64 = 64;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    match number("DUNLIN_JOURNAL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("DUNLIN_JOURNAL_SEEDS").unwrap_or(default),
    }
}

/// Runs each seed, and reports a seed that fails.
fn each_seed(flips: bool, default: u64) {
    for seed in seeds(default) {
        let outcome = std::panic::catch_unwind(|| Play::new(seed, flips).run());
        assert!(outcome.is_ok(), "run again with DUNLIN_JOURNAL_SEED={seed}");
    }
}

#[test]
fn synced_records_survive_every_crash() {
    each_seed(false, SEEDS);
}

#[test]
fn flipped_bits_are_reported_with_the_exact_lost_range() {
    each_seed(true, SEEDS / 2);
}

struct Play {
    disk: FakeDisk,
    random: u64,
    flips: bool,
    flipped: bool,
    config: JournalConfig,
    journal: Option<Journal>,
    ledger: AppendedRecords,
    epoch: u32,
    next_seq: u64,
    snapshot: Option<Position>,
    /// The ranges of records that were reported as lost.
    lost: Vec<Hole>,
    /// For each incomplete write that was removed at a start: the log's last record after the removal, and the last
    /// record that was acknowledged as synced.
    incomplete_writes: Vec<(Option<Position>, Position)>,
}

impl Play {
    fn new(seed: u64, flips: bool) -> Play {
        let mut play = Play {
            disk: FakeDisk::new(seed ^ 0x5eed),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 77,
            flips,
            flipped: false,
            config: JournalConfig::default(),
            journal: None,
            ledger: AppendedRecords::default(),
            epoch: 0,
            next_seq: 1,
            snapshot: None,
            lost: Vec::new(),
            incomplete_writes: Vec::new(),
        };
        play.config.file_bytes = [4 << 10, 6 << 10, 16 << 10][play.below(3) as usize];
        play.config.ahead_bytes = [1 << 10, 4 << 10][play.below(2) as usize];
        play.config.retain_bytes = [None, None, Some(24 << 10)][play.below(3) as usize];
        play
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn run(mut self) {
        self.start();
        for _ in 0..STEPS {
            match self.below(33) {
                0..=14 => self.append(),
                15..=21 => self.sync(),
                22 => self.crash(),
                23 => self.end_process(),
                24 => self.close(),
                25 => self.save_snapshot(),
                26 if self.config.retain_bytes.is_some() => self.retain(),
                26 => self.truncate(),
                27 => self.break_disk(),
                28 => self.fill_disk(),
                29 => self.disk.set_capacity(u64::MAX),
                30 => self.use_reserved_room(),
                31 => self.use_disk_reserve(),
                _ => self.compare_synced(),
            }
        }
        self.disk.set_capacity(u64::MAX);
        self.disk.set_faults(Faults::default());
        self.close();
        let report = verify(&self.disk, &dir()).map(|report| report.is_sound(true));
        if !self.flipped {
            assert!(
                report.is_ok_and(|sound| sound) || log_files(&self.disk).is_empty(),
                "{:?}",
                verify(&self.disk, &dir())
            );
        }
    }

    fn start(&mut self) {
        self.disk.set_capacity(u64::MAX);
        self.disk.set_faults(Faults::default());
        let (journal, found) = match open_with(&self.disk, self.config) {
            Ok(opened) => opened,
            Err(error) => panic!("cannot be opened again: {error}"),
        };
        self.check_recovered(&journal, &found);
        self.epoch = found.next.epoch.max(1);
        self.next_seq = found.next.seq;
        if !found.clean {
            self.epoch += self.below(2) as u32;
        }
        self.journal = Some(journal);
    }

    /// Checks the log after a start: it has every synced record and no unknown record, and every loss was reported.
    fn check_recovered(&mut self, journal: &Journal, found: &RecoveredLog) {
        let seen = read(&journal.reader(), Position::default());
        let holes: Vec<Hole> =
            seen.iter().filter_map(|s| if let JournalEntry::Hole(h) = s { Some(*h) } else { None }).collect();
        if !self.flipped {
            let all = || verify(&self.disk, &dir());
            assert!(holes.is_empty() && found.holes.is_empty(), "{holes:?} {found:?} {:?}", all());
            assert!(found.damage.is_empty(), "{:?}", found.damage);
        }
        if let (Some(_), Some(synced)) = (&found.cut, self.ledger.synced_through()) {
            self.incomplete_writes.push((found.last, synced));
        }
        self.lost.extend(holes);
        self.lost.extend(&found.holes);
        let (lost, incomplete_writes, flipped) = (&self.lost, &self.incomplete_writes, self.flipped);
        self.ledger.compare(&seen, |at| flipped && is_reported_lost(at, lost, incomplete_writes));
        let last = seen
            .iter()
            .rev()
            .find_map(|s| if let JournalEntry::Record(at, _) = s { Some(*at) } else { None });
        if !self.flipped {
            assert_eq!(found.last, last);
            // From now on, all records that survived count as synced, because readers may have seen them.
            self.ledger.record_sync(last.max(self.ledger.synced_through()));
        }
        let snapshot = journal.latest_snapshot();
        if !self.flipped {
            let position = snapshot.unwrap().map(|snapshot| {
                assert_eq!(snapshot.bytes, payload(9, snapshot.position.seq, 700));
                snapshot.position
            });
            assert!(position >= self.snapshot, "the snapshot of {:?} is gone", self.snapshot);
            self.snapshot = position;
        }
    }

    fn append(&mut self) {
        let count = 1 + self.below(6) as u32;
        let bytes = self.below(400) as usize;
        let Some(journal) = &mut self.journal else { return };
        for seq in self.next_seq..self.next_seq + u64::from(count) {
            self.ledger.record_append(Position::new(self.epoch, seq), payload(self.epoch, seq, bytes));
        }
        match append(journal, self.epoch, self.next_seq, count, bytes) {
            Ok(()) => self.next_seq += u64::from(count),
            Err(AppendError::Full { .. }) => {
                for seq in self.next_seq..self.next_seq + u64::from(count) {
                    self.ledger.remove_refused(Position::new(self.epoch, seq));
                }
            }
            // The append failed, but its records may exist after the next start.
            Err(_) => self.restart(),
        }
    }

    /// Reserves room, then fills the disk, and checks that the reserved room can still be used.
    fn use_reserved_room(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        match journal.reserve_room(3_000) {
            Ok(()) => {}
            Err(AppendError::Full { .. }) => return,
            Err(_) => return self.restart(),
        }
        if journal.room_left() >= 3_000 {
            let room = self.disk.used() + self.below(8_000);
            self.disk.set_capacity(room);
            for _ in 0..3 {
                let (epoch, seq) = (self.epoch, self.next_seq);
                self.ledger.record_append(Position::new(epoch, seq), payload(epoch, seq, 700));
                let Some(journal) = &mut self.journal else { return };
                match append(journal, epoch, seq, 1, 700) {
                    Ok(()) => self.next_seq += 1,
                    Err(AppendError::Full { .. }) => panic!("the reserved room does not exist"),
                    Err(_) => return self.restart(),
                }
            }
        }
    }

    fn use_disk_reserve(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        let begun = DiskReserve::open(Arc::new(self.disk.clone()), &dir(), "reserve", 12_000)
            .map_err(AppendError::Disk)
            .and_then(|mut reserve| {
                reserve.fill().map_err(AppendError::Disk)?;
                self.disk.set_capacity(self.disk.used());
                journal.begin_file_in(&mut reserve, 0)
            });
        match begun {
            Ok(true) => {}
            Err(_) if matches!(journal.sync(), Err(AppendError::Ended(_))) => return self.restart(),
            // If the reserve cannot be filled or renamed, the log continues.
            Ok(false) | Err(_) => return,
        }
        for _ in 0..2 {
            let (epoch, seq) = (self.epoch, self.next_seq);
            self.ledger.record_append(Position::new(epoch, seq), payload(epoch, seq, 700));
            let Some(journal) = &mut self.journal else { return };
            match append(journal, epoch, seq, 1, 700) {
                Ok(()) => self.next_seq += 1,
                Err(AppendError::Full { need, free }) => {
                    panic!("the reserve lacks room: {need}, free {free}")
                }
                Err(_) => return self.restart(),
            }
        }
    }

    fn sync(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        match journal.sync() {
            Ok(through) => self.ledger.record_sync(through.max(self.ledger.synced_through())),
            Err(_) => self.restart(),
        }
    }

    /// Checks that the log accepts no records after a failure. Then simulates a crash of the machine or the end of
    /// the process, and opens the log again.
    fn restart(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        let refused = append(journal, self.epoch + 5, 1, 1, 10);
        assert!(matches!(refused, Err(AppendError::Ended(_))), "{refused:?}");
        if self.below(2) == 0 { self.crash() } else { self.end_process() }
    }

    fn crash(&mut self) {
        self.disk.crash();
        self.journal = None;
        self.flip();
        self.start();
    }

    fn end_process(&mut self) {
        self.journal = None;
        self.start();
    }

    fn close(&mut self) {
        let Some(journal) = self.journal.take() else { return };
        let appended = journal.appended();
        match journal.close() {
            Ok(()) => {
                self.ledger.record_sync(appended.max(self.ledger.synced_through()));
                if !self.flipped && !log_files(&self.disk).is_empty() {
                    let report = verify(&self.disk, &dir()).unwrap();
                    assert!(report.is_sound(true), "{report:?}");
                }
            }
            Err(_) if self.below(2) == 0 => self.disk.crash(),
            Err(_) => {}
        }
        self.start();
    }

    fn save_snapshot(&mut self) {
        let (Some(journal), Some(durable)) = (&mut self.journal, self.ledger.synced_through()) else {
            return;
        };
        match journal.save_snapshot(durable, &payload(9, durable.seq, 700)) {
            Ok(()) => self.snapshot = self.snapshot.max(Some(durable)),
            Err(AppendError::Full { .. } | AppendError::Disk(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn truncate(&mut self) {
        let (Some(journal), Some(snapshot)) = (&mut self.journal, self.snapshot) else { return };
        let below = Position::new(snapshot.epoch, snapshot.seq + 1);
        self.ledger.may_drop_below(below);
        match journal.truncate_before(below) {
            Ok(_) | Err(AppendError::Full { .. }) => {}
            Err(_) => self.end_process(),
        }
    }

    fn retain(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        let dropped = journal.retain(0);
        if let Some(oldest) = journal.reader().oldest() {
            self.ledger.may_drop_below(oldest);
        }
        match dropped {
            Ok(_) | Err(AppendError::Full { .. }) => {}
            Err(_) => self.end_process(),
        }
    }

    fn break_disk(&mut self) {
        let (syncs, writes, names) = (self.below(6) as u32, self.below(12) as u32, self.below(8) as u32);
        let faults = match self.below(4) {
            0 => Faults { sync_fails: Some(syncs), ..Faults::default() },
            1 => Faults { write_fails: Some(writes), ..Faults::default() },
            2 => Faults { names_fail: Some(names), ..Faults::default() },
            _ => Faults {
                sync_fails: Some(syncs),
                write_fails: Some(writes),
                names_fail: Some(names),
                ..Faults::default()
            },
        };
        self.disk.set_faults(faults);
    }

    fn fill_disk(&mut self) {
        let room = self.disk.used() + self.below(6_000);
        self.disk.set_capacity(room);
    }

    fn flip(&mut self) {
        if !self.flips || self.below(2) == 0 {
            return;
        }
        let files = log_files(&self.disk);
        if files.is_empty() {
            return;
        }
        let file = &files[self.below(files.len() as u64) as usize];
        self.flipped = true;
        let count = 1 + self.below(3) as u32;
        self.disk.flip_bits(file, count, 0, u64::MAX);
    }

    /// Checks that a reader of the open log returns exactly the synced records.
    fn compare_synced(&mut self) {
        let Some(journal) = &self.journal else { return };
        if self.flipped {
            return;
        }
        let seen = read(&journal.reader(), Position::default());
        let last = seen
            .iter()
            .rev()
            .find_map(|s| if let JournalEntry::Record(at, _) = s { Some(*at) } else { None });
        assert_eq!(last, journal.durable().filter(|_| last.is_some()));
        assert!(seen.iter().all(|s| matches!(s, JournalEntry::Record(..))));
    }
}

/// Whether the record at `at` was reported as lost.
fn is_reported_lost(at: Position, lost: &[Hole], incomplete_writes: &[(Option<Position>, Position)]) -> bool {
    let in_hole = |hole: &Hole| {
        hole.first.epoch == at.epoch
            && hole.first.seq <= at.seq
            && hole.last.is_none_or(|last| at.seq <= last)
    };
    lost.iter().any(in_hole)
        || incomplete_writes.iter().any(|(last, synced)| Some(at) > *last && at <= *synced)
}

/// Checks that the simulated disk really loses unsynced data: otherwise these tests would prove nothing.
#[test]
fn fake_disk_loses_only_unsynced_bytes() {
    let mut lost = 0;
    for seed in 0..64 {
        let disk = FakeDisk::new(seed);
        let path = dir().join("a");
        let file = disk.create(&path).unwrap();
        file.write_at(&[&[1; 2_000]], 0).unwrap();
        file.sync().unwrap();
        disk.sync_dir(&dir()).unwrap();
        file.write_at(&[&[2; 2_000]], 1_000).unwrap();
        disk.crash();
        assert!(file.sync().is_err(), "a handle is invalid after a crash");
        let content = disk.content(&path).unwrap();
        assert!(content.len() == 2_000 || content.len() == 3_000);
        assert!(content[..1_000].iter().all(|&byte| byte == 1));
        lost += usize::from(content[1_000..].contains(&1));
    }
    assert!((10..60).contains(&lost), "{lost} of 64 lost something");
}
