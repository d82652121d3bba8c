//! Tests that logs on disk have the layout in `docs/journal.md`, which never changes.

use std::path::PathBuf;
use std::sync::Arc;

use dunlin_journal::{FILE_HEADER_BYTES, FORMAT_VERSION, FakeDisk, Position, Reader, verify};

use crate::fixture::{append, dir, expected, log_files, open, read, time_of};

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/version-1.log")
}

const NAME: &str = "0000000007-00000000000000000001-ca8216fa9058d0fa.log";

/// Writes a log file with four blocks, the last of which has a note, and an end mark. Returns the name and the content
/// of the file. They are the same in each call, because the simulated disk assigns the same file identities.
fn written() -> (String, Vec<u8>) {
    let disk = FakeDisk::new(0x00c0_ffee);
    let (mut journal, _) = open(&disk).unwrap();
    append(&mut journal, 7, 1, 3, 10).unwrap();
    journal.sync().unwrap();
    append(&mut journal, 7, 4, 1, 40).unwrap();
    append(&mut journal, 7, 5, 1, 0).unwrap();
    append(&mut journal, 7, 6, 1, 0).unwrap();
    journal.close().unwrap();
    let path = log_files(&disk).remove(0);
    (path.file_name().unwrap().to_str().unwrap().to_owned(), disk.content(&path).unwrap())
}

#[test]
fn written_journal_file_equals_the_stored_golden_file() {
    let (name, content) = written();
    if std::env::var_os("DUNLIN_JOURNAL_GOLDEN").is_some() {
        std::fs::create_dir_all(golden().parent().unwrap()).unwrap();
        std::fs::write(golden(), &content).unwrap();
        println!("{name}");
    }
    assert_eq!(name, NAME);
    assert_eq!(content, std::fs::read(golden()).unwrap(), "the format changed: it needs a new version");
}

#[test]
fn journal_file_of_version_1_is_read() {
    let disk = FakeDisk::new(1);
    disk.overwrite(&dir().join(NAME), std::fs::read(golden()).unwrap());
    assert!(verify(&disk, &dir()).unwrap().is_sound(true));
    let reader = Reader::open(Arc::new(disk), &dir()).unwrap();
    let mut all = expected(7, 1, 3, 10);
    all.extend(expected(7, 4, 4, 40));
    all.extend(expected(7, 5, 6, 0));
    assert_eq!(read(&reader, Position::default()), all);
}

#[test]
fn journal_file_fields_are_at_their_documented_offsets() {
    let (_, content) = written();
    let u32_at = |at: usize| u32::from_le_bytes(content[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(content[at..at + 8].try_into().unwrap());
    assert_eq!(&content[..8], b"DUNLINJ\n");
    assert_eq!((u32_at(8), u32_at(12)), (FORMAT_VERSION, 512));
    assert_eq!((u64_at(16), u64_at(24)), (0xca82_16fa_9058_d0fa, 0));
    assert_eq!((u32_at(32), u32_at(36), u64_at(40)), (7, 6, 1));
    assert_eq!((u64_at(48), &content[64..70]), (time_of(7, 1), &b"orders"[..]));
    let block = FILE_HEADER_BYTES;
    // Each frame has a head of 8 bytes, an append time of 8 bytes and a payload of 22 (12 + 10). These 38 bytes are
    // padded to 40.
    assert_eq!((u32_at(block + 4), u32_at(block + 8), u32_at(block + 12)), (3 * 40, 1, 7));
    assert_eq!((u64_at(block + 16), u32_at(block + 24), u32_at(block + 28)), (1, 3, 64));
    assert_eq!((u64_at(block + 32), u64_at(block + 40)), (time_of(7, 1), time_of(7, 3)));
    let second = block + 48 + 3 * 40;
    assert_eq!((u64_at(second + 16), u32_at(second + 28) as usize * 8), (4, second));
    let noted = second + 48 + 72 + 48 + 32;
    assert_eq!((u64_at(noted + 16), u32_at(noted + 4), u32_at(noted + 8)), (6, 32 + 16, 1 | 2 << 8));
    assert_eq!((u64_at(noted + 48 + 32), u64_at(noted + 48 + 40)), (7, 6));
    let mark = noted + 48 + 32 + 16;
    assert_eq!((u32_at(mark + 8), u64_at(mark + 16), u32_at(mark + 24)), (3, 7, 0));
    assert_eq!([48, 56, 64, 72, 80].map(|at| u64_at(mark + at)), [4, 6, 7, 1, 0]);
    assert_eq!(content.len(), mark + 88);
}
