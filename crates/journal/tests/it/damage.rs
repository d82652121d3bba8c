//! Tests with damaged recordings: logs that were closed and then damaged. Strict verification must refuse them. A
//! reader must lose as few records as possible, report the loss, and not panic.

use std::path::{Path, PathBuf};

use dunlin_journal::{Disk, FakeDisk, Journal, OpenError, Position, Reader, VerifyReport, verify};

use crate::fixture::{JournalEntry, append, dir, log_files, open, read};

/// Number of records in the recording.
const RECORDS: u64 = 240;

/// Creates a closed log of several files. Returns the disk, and the path and content of each file.
fn recording() -> (FakeDisk, Vec<(PathBuf, Vec<u8>)>) {
    let disk = FakeDisk::new(42);
    let (journal, _) = open(&disk).unwrap();
    fill(journal, 7);
    let files =
        log_files(&disk).into_iter().map(|path| (path.clone(), disk.content(&path).unwrap())).collect();
    (disk, files)
}

fn fill(mut journal: Journal, epoch: u32) {
    for first in (1..=RECORDS).step_by(3) {
        append(&mut journal, epoch, first, 3, 100).unwrap();
        journal.sync().unwrap();
    }
    journal.close().unwrap();
}

/// Creates a disk that contains these files.
fn disk_of(files: &[(PathBuf, Vec<u8>)]) -> FakeDisk {
    let disk = FakeDisk::new(1);
    for (path, content) in files {
        disk.overwrite(path, content.clone());
    }
    disk
}

/// The offsets at which the blocks of a file begin, followed by the offset of the file's end.
fn boundaries(content: &[u8]) -> Vec<usize> {
    let mut at = 512;
    let mut all = Vec::new();
    while at + 48 <= content.len() {
        all.push(at);
        at += 48 + u32::from_le_bytes(content[at + 4..at + 8].try_into().unwrap()) as usize;
    }
    all.push(content.len());
    all
}

fn strict(disk: &FakeDisk) -> Result<VerifyReport, OpenError> {
    verify(disk, &dir())
}

/// Checks that strict verification refuses the log, and that the records that can be read are valid and in order.
fn check_refused(files: &[(PathBuf, Vec<u8>)], what: &str) {
    let disk = disk_of(files);
    match strict(&disk) {
        Ok(report) => assert!(!report.is_sound(true), "{what} was accepted: {report:?}"),
        Err(_) => return,
    }
    let reader = Reader::open(std::sync::Arc::new(disk.clone()), &dir()).unwrap();
    let mut last = 0;
    for seen in read(&reader, Position::default()) {
        let JournalEntry::Record(at, payload) = seen else { continue };
        assert!(at.seq > last, "{what}: {at} after {last}");
        assert_eq!(payload, crate::fixture::payload(at.epoch, at.seq, 100), "{what}");
        last = at.seq;
    }
}

#[test]
fn undamaged_recording_is_accepted_and_its_records_are_counted() {
    let (disk, files) = recording();
    assert!(files.len() >= 4, "{}", files.len());
    let report = strict(&disk).unwrap();
    assert!(report.is_sound(true), "{report:?}");
    assert_eq!((report.records, report.blocks), (RECORDS, RECORDS / 3));
    assert_eq!(report.first, Some(Position::new(7, 1)));
    assert_eq!(report.last, Some(Position::new(7, RECORDS)));
    assert_eq!(report.files.iter().map(|file| file.records).sum::<u64>(), RECORDS);
    assert_eq!(report.bytes, files.iter().map(|(_, content)| content.len() as u64).sum::<u64>());
    assert_eq!(report.name, "orders");
}

#[test]
fn recording_file_truncated_at_any_offset_is_refused() {
    let (_, files) = recording();
    for index in 0..files.len() {
        let content = &files[index].1;
        let ends = boundaries(content);
        let between = (0..content.len()).step_by(97);
        for end in ends[..ends.len() - 1].iter().copied().chain(between).chain([content.len() - 1]) {
            let mut damaged = files.clone();
            damaged[index].1.truncate(end);
            check_refused(&damaged, &format!("file {index} truncated at {end}"));
        }
    }
}

#[test]
fn recording_with_an_empty_or_zeroed_file_is_refused() {
    let (_, files) = recording();
    for index in 0..files.len() {
        let mut damaged = files.clone();
        damaged[index].1.clear();
        check_refused(&damaged, &format!("file {index} empty"));
        let mut damaged = files.clone();
        damaged[index].1.fill(0);
        check_refused(&damaged, &format!("file {index} zeroed"));
        let mut damaged = files.clone();
        damaged[index].1[512..].fill(0);
        check_refused(&damaged, &format!("blocks of file {index} zeroed"));
    }
    assert!(matches!(strict(&disk_of(&[])), Err(OpenError::NoLog(_))));
}

#[test]
fn recording_with_any_zeroed_missing_or_moved_block_is_refused() {
    let (_, files) = recording();
    for index in 0..files.len() {
        let content = &files[index].1;
        let at = boundaries(content);
        for block in 0..at.len() - 1 {
            let (start, end) = (at[block], at[block + 1]);
            let check_damaged = |what: &str, content: Vec<u8>| {
                let mut damaged = files.clone();
                damaged[index].1 = content;
                check_refused(&damaged, &format!("block {block} of file {index} {what}"));
            };
            let mut zeroed = content.clone();
            zeroed[start..end].fill(0);
            check_damaged("zeroed", zeroed);
            check_damaged("removed", [&content[..start], &content[end..]].concat());
            check_damaged("repeated", [&content[..end], &content[start..]].concat());
            if let Some(&next) = at.get(block + 2) {
                let exchanged =
                    [&content[..start], &content[end..next], &content[start..end], &content[next..]];
                check_damaged("exchanged with the next", exchanged.concat());
            }
        }
    }
}

#[test]
fn recording_with_a_flipped_bit_is_refused() {
    let (_, files) = recording();
    for index in 0..files.len() {
        for at in (0..files[index].1.len()).step_by(13).chain(0..64).chain(512..600) {
            let mut damaged = files.clone();
            damaged[index].1[at] ^= 1 << (at % 8);
            check_refused(&damaged, &format!("bit of byte {at} of file {index} flipped"));
        }
    }
}

#[test]
fn files_with_overwritten_or_added_bytes_are_refused() {
    let (_, files) = recording();
    for index in 0..files.len() {
        let bytes = files[index].1.len();
        for at in (0..bytes - 4).step_by(211) {
            let mut damaged = files.clone();
            damaged[index].1[at..at + 4].copy_from_slice(&[0xde, 0xad, 0xbe, 0xef]);
            check_refused(&damaged, &format!("four bytes at {at} of file {index} overwritten"));
        }
        let mut damaged = files.clone();
        damaged[index].1.extend_from_slice(b"something behind the end");
        check_refused(&damaged, &format!("something behind file {index}"));
    }
}

#[test]
fn recording_with_missing_or_exchanged_files_is_refused() {
    let (_, files) = recording();
    for index in 0..files.len() {
        let mut damaged = files.clone();
        damaged.remove(index);
        check_refused(&damaged, &format!("file {index} missing"));
        for other in 0..files.len() {
            if other != index {
                let mut damaged = files.clone();
                damaged[index].1 = files[other].1.clone();
                check_refused(&damaged, &format!("file {other} in place of file {index}"));
                damaged[other].1 = files[index].1.clone();
                check_refused(&damaged, &format!("files {index} and {other} swapped"));
            }
        }
    }
    // Replaces each file by the file of another log with the same records. The checksums must then be wrong, because
    // they were computed with the identity of the other log's file.
    let other = FakeDisk::new(43);
    fill(open(&other).unwrap().0, 7);
    for (file, path) in log_files(&other).iter().enumerate() {
        let mut damaged = files.clone();
        damaged[file].1 = other.content(path).unwrap();
        check_refused(&damaged, &format!("file {file} of another recording"));
    }
}

#[test]
fn refusal_of_a_newer_recording_names_its_version() {
    let (_, mut files) = recording();
    let header = &mut files[1].1[..512];
    header[8..12].copy_from_slice(&9_u32.to_le_bytes());
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &[&header[..56], &header[60..]].concat())
        as u32;
    header[56..60].copy_from_slice(&crc.to_le_bytes());
    let disk = disk_of(&files);
    let error = strict(&disk).unwrap_err().to_string();
    assert!(error.contains("in format 9; this build reads formats up to 1"), "{error}");
    assert!(matches!(open(&disk), Err(OpenError::Newer { version: 9, reads: 1, .. })));
}

#[test]
fn open_log_without_an_end_mark_is_valid() {
    let disk = FakeDisk::new(3);
    let (mut journal, _) = open(&disk).unwrap();
    for first in 1..100 {
        append(&mut journal, 1, first, 1, 100).unwrap();
        journal.sync().unwrap();
        let report = strict(&disk).unwrap();
        assert!(report.is_sound(false) && !report.is_sound(true), "{report:?}");
        assert_eq!(report.records, first);
    }
    drop(journal);
    open(&disk).unwrap();
    assert!(strict(&disk).unwrap().is_sound(true), "recovery writes the end mark");
}

#[test]
fn damaged_block_is_reported_as_lost_and_the_rest_is_read() {
    let (_, files) = recording();
    let at = boundaries(&files[1].1);
    let first = Reader::open(std::sync::Arc::new(disk_of(&files)), &dir()).unwrap();
    let all = read(&first, Position::default());
    for block in 1..at.len() - 2 {
        let mut damaged = files.clone();
        damaged[1].1[at[block] + 60] ^= 4;
        let disk = disk_of(&damaged);
        let reader = Reader::open(std::sync::Arc::new(disk.clone()), &dir()).unwrap();
        let seen = read(&reader, Position::default());
        let holes: Vec<_> =
            seen.iter().filter_map(|s| if let JournalEntry::Hole(h) = s { Some(h) } else { None }).collect();
        assert_eq!(holes.len(), 1, "{holes:?}");
        let hole = *holes[0];
        assert_eq!(hole.last, Some(hole.first.seq + 2));
        let lost = |s: &JournalEntry| matches!(s, JournalEntry::Record(at, _) if at.seq >= hole.first.seq && Some(at.seq) <= hole.last);
        let rest: Vec<_> = all.iter().filter(|s| !lost(s)).cloned().collect();
        let records: Vec<_> =
            seen.iter().filter(|s| matches!(s, JournalEntry::Record(..))).cloned().collect();
        assert_eq!(records, rest);
        assert_eq!(strict(&disk).unwrap().holes, [hole]);
        let (journal, found) = open(&disk).unwrap();
        assert!(found.clean && found.last == Some(Position::new(7, RECORDS)));
        assert_eq!(read(&journal.reader(), Position::default()), seen);
    }
}

#[test]
fn damage_before_synced_records_loses_only_the_damaged_record() {
    let disk = FakeDisk::new(8);
    let (mut journal, _) = open(&disk).unwrap();
    for first in 1..=12 {
        append(&mut journal, 1, first, 1, 100).unwrap();
        journal.sync().unwrap();
    }
    drop(journal);
    let path = log_files(&disk).remove(0);
    let at = boundaries(&disk.content(&path).unwrap()[..]);
    disk.flip_bits(&path, 1, at[4] as u64 + 50, at[5] as u64 - 8);
    let (journal, found) = open(&disk).unwrap();
    assert_eq!(found.last, Some(Position::new(1, 12)));
    assert_eq!(found.holes.len(), 1);
    assert_eq!((found.holes[0].first, found.holes[0].last), (Position::new(1, 5), Some(5)));
    let records = read(&journal.reader(), Position::default());
    assert_eq!(records.iter().filter(|seen| matches!(seen, JournalEntry::Record(..))).count(), 11);
}

#[test]
fn verification_finds_a_damaged_or_truncated_snapshot() {
    let disk = FakeDisk::new(9);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 1, 1, 4, 10).unwrap();
    journal.sync().unwrap();
    journal.save_snapshot(Position::new(1, 3), b"the state after three").unwrap();
    let snapshot = journal.latest_snapshot().unwrap().unwrap();
    assert_eq!((snapshot.position.seq, &snapshot.bytes[..]), (3, &b"the state after three"[..]));
    journal.close().unwrap();
    let path = Path::new("/data/orders/0000000001-00000000000000000003.snapshot");
    let content = disk.content(path).unwrap();
    assert!(strict(&disk).unwrap().is_sound(true));
    for at in 0..content.len() {
        let mut damaged = content.clone();
        damaged[at] ^= 16;
        disk.overwrite(path, damaged);
        assert!(!strict(&disk).unwrap().is_sound(true), "byte {at}");
    }
    for end in 0..content.len() {
        disk.overwrite(path, content[..end].to_vec());
        assert!(!strict(&disk).unwrap().is_sound(true), "truncated at {end}");
    }
    assert!(disk.list(&dir()).unwrap().len() >= 2);
}
