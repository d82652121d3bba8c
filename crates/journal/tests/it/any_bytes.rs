//! Checks of properties that hold whatever bytes a log's files contain. The random tests here and the fuzz target
//! `journal` use these checks.

use std::path::Path;
use std::sync::Arc;

use crc_fast::{CrcAlgorithm, Digest};
use dunlin_journal::{FakeDisk, Journal, JournalConfig, Position, Reader, ScanItem, verify};

const IDENTITY: u64 = 0x1122_3344_5566_7788;
const HEADER_BYTES: usize = 512;
const BLOCK_BYTES: usize = 48;

/// Reads `bytes` as the content of a log's two files. The first byte decides where the first file ends. The checksums
/// are corrected, so that the code after the checksum tests is also reached.
pub fn try_log(bytes: &[u8]) {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let (first, second) = bytes.split_at(bytes.len() * usize::from(cut) / 255);
    let disk = FakeDisk::new(1);
    let dir = Path::new("/log");
    for (seq, body) in [(1, first), (9, second)] {
        let name = format!("0000000001-{seq:020}-{:016x}.log", IDENTITY + seq);
        disk.overwrite(&dir.join(name), file(IDENTITY + seq, seq, body));
    }
    let before = verify(&disk, dir).expect("the headers are valid");
    assert!(!before.is_sound(true) || before.records > 0 || before.blocks == 0);
    let reader = Reader::open(Arc::new(disk.clone()), dir).expect("the headers are valid");
    let read = read_in_order(&reader);
    let _ = reader.position_at(u64::from(cut));
    let _ = reader.load(Position::new(1, u64::from(cut)), 1 << 10);
    let Ok((journal, _)) = Journal::open(Arc::new(disk.clone()), dir, "any", JournalConfig::default()) else {
        return;
    };
    assert!(read_in_order(&journal.reader()) <= read, "recovery adds no records");
    journal.close().expect("a disk without faults");
    let after = verify(&disk, dir).expect("the headers are valid");
    assert!(after.unended.is_empty(), "a closed log has an end mark: {after:?}");
}

fn read_in_order(reader: &Reader) -> u64 {
    let mut scan = reader.scan(Position::default());
    let (mut next, mut records) = (Position::default(), 0);
    while let Some(item) = scan.next().expect("a disk without faults") {
        match item {
            ScanItem::Records(found) => {
                let first = Position::new(found.epoch, found.first_seq);
                assert!(found.count > 0 && first >= next, "{first} does not come after {next}");
                next = Position::new(found.epoch, found.last_seq().saturating_add(1));
                records += u64::from(found.count);
            }
            ScanItem::Hole(hole) => assert!(hole.last.is_none_or(|last| last >= hole.first.seq)),
        }
    }
    records
}

/// Returns a file with a valid header and the content `body`.
fn file(identity: u64, seq: u64, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES];
    out[..8].copy_from_slice(b"DUNLINJ\n");
    out[8..12].copy_from_slice(&1_u32.to_le_bytes());
    out[12..16].copy_from_slice(&512_u32.to_le_bytes());
    out[16..24].copy_from_slice(&identity.to_le_bytes());
    out[32..36].copy_from_slice(&1_u32.to_le_bytes());
    out[36..40].copy_from_slice(&3_u32.to_le_bytes());
    out[40..48].copy_from_slice(&seq.to_le_bytes());
    out[64..67].copy_from_slice(b"any");
    let crc = crc(&[&out[..56], &out[60..]]);
    out[56..60].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(body);
    seal_blocks(&mut out, identity);
    out
}

/// Sets the right checksums, as if a block began wherever the one before it ends.
fn seal_blocks(out: &mut [u8], identity: u64) {
    let mut at = HEADER_BYTES;
    while at + BLOCK_BYTES <= out.len() {
        // Sets block kinds and note lengths that are rare in random bytes.
        let (kind, epoch) = (out[at + 8] % 7, out[at + 12] % 3);
        let note = if kind == 1 { out[at + 9] % 3 } else { 0 };
        out[at + 8..at + 12].copy_from_slice(&[kind, note, 0, 0]);
        out[at + 6..at + 8].fill(0);
        out[at + 12..at + 16].copy_from_slice(&[epoch, 0, 0, 0]);
        let claimed = u16::from_le_bytes([out[at + 4], out[at + 5]]) as usize;
        let end = (at + BLOCK_BYTES + claimed).min(out.len());
        let crc = crc(&[&identity.to_le_bytes(), &(at as u64).to_le_bytes(), &out[at + 4..end]]);
        out[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        at = end.next_multiple_of(8);
    }
}

fn crc(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}
