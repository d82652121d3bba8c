//! Saves and reads snapshots. A snapshot is the state that follows from all records up to a position, so these records
//! are no longer needed to restore the state.
//!
//! ```text
//!  0              8         12       16      20      24       32          40
//!  +--------------+---------+--------+-------+-------+--------+-----------+---------
//!  | "DUNLINS\n"  | version | crc32c | epoch | 0     | seq    | bytes     | bytes …
//!  |              | u32     | u32    | u32   | u32   | u64    | u64       |
//!  +--------------+---------+--------+-------+-------+--------+-----------+---------
//! ```
//! `crc32c` covers all bytes after this field. A snapshot is written under a temporary name, synced and renamed. Only
//! then are older snapshots removed, so there is always a complete snapshot once the first was saved.

use std::path::Path;

use crc_fast::{CrcAlgorithm, Digest};

use crate::JournalLimits;
use crate::disk::Disk;
use crate::error::{DiskError, ReadError};
use crate::layout::{FORMAT_VERSION, SnapshotName, TEMPORARY_SUFFIX, u32_at, u64_at};
use crate::position::Position;

const MAGIC: [u8; 8] = *b"DUNLINS\n";
const HEADER_BYTES: usize = 40;
const CRC_AT: usize = 12;

/// A saved state, and the position of the last record that it includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The last record that the state includes.
    pub position: Position,
    /// The serialized state.
    pub bytes: Vec<u8>,
}

/// The positions of all snapshots in a directory, oldest first.
pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<Position>, DiskError> {
    let names = disk.list(dir).map_err(DiskError::of("list", dir))?;
    let mut found: Vec<_> = names.iter().filter_map(|name| Some(SnapshotName::parse(name)?.0)).collect();
    found.sort_unstable();
    Ok(found)
}

pub(crate) fn latest(disk: &dyn Disk, dir: &Path) -> Result<Option<Snapshot>, ReadError> {
    let mut tries_left = 16;
    loop {
        tries_left -= 1;
        let Some(&position) = list(disk, dir)?.last() else { return Ok(None) };
        match read(disk, dir, position) {
            // A newer snapshot was saved after the listing, and this one was removed.
            Err(ReadError::Disk(error)) if error.is_missing() && tries_left > 0 => {}
            read => return read.map(Some),
        }
    }
}

/// Reads and validates the snapshot at a position.
pub(crate) fn read(disk: &dyn Disk, dir: &Path, position: Position) -> Result<Snapshot, ReadError> {
    let path = dir.join(SnapshotName(position).to_string());
    let read = || {
        let file = disk.open(&path, false)?;
        let mut bytes =
            vec![0; file.bytes()?.min(JournalLimits::SNAPSHOT_BYTES_MAX + HEADER_BYTES as u64) as usize];
        let count = file.read_at(&mut bytes, 0)?;
        bytes.truncate(count);
        Ok(bytes)
    };
    let mut bytes = read().map_err(DiskError::of("read", &path))?;
    match check(&bytes, position) {
        Ok(()) => {
            bytes.drain(..HEADER_BYTES);
            Ok(Snapshot { position, bytes })
        }
        Err(why) => Err(ReadError::Damaged { file: path, why }),
    }
}

fn check(bytes: &[u8], position: Position) -> Result<(), String> {
    if bytes.len() < 12 || bytes[..8] != MAGIC {
        return Err("the file is not a snapshot: it does not begin with DUNLINS".to_owned());
    }
    let version = u32_at(bytes, 8);
    if version > FORMAT_VERSION {
        return Err(format!(
            "a newer version of Dunlin wrote the snapshot in format {version}; this build reads formats up to {FORMAT_VERSION}"
        ));
    }
    if bytes.len() < HEADER_BYTES || u64_at(bytes, 32) != (bytes.len() - HEADER_BYTES) as u64 {
        return Err("the snapshot is incomplete".to_owned());
    }
    if u32_at(bytes, CRC_AT) != checksum(&bytes[CRC_AT + 4..HEADER_BYTES], &bytes[HEADER_BYTES..]) {
        return Err("the snapshot's checksum is wrong".to_owned());
    }
    if Position::new(u32_at(bytes, 16), u64_at(bytes, 24)) != position {
        return Err("the snapshot does not match its file's name: was the file renamed?".to_owned());
    }
    Ok(())
}

/// Saves a snapshot, and then removes older ones. If saving fails, the older snapshots remain.
pub(crate) fn save(disk: &dyn Disk, dir: &Path, position: Position, bytes: &[u8]) -> Result<(), DiskError> {
    let path = dir.join(SnapshotName(position).to_string());
    let temporary = dir.join(format!("{}{TEMPORARY_SUFFIX}", SnapshotName(position)));
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    header[16..20].copy_from_slice(&position.epoch.to_le_bytes());
    header[24..32].copy_from_slice(&position.seq.to_le_bytes());
    header[32..40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    let crc = checksum(&header[CRC_AT + 4..], bytes);
    header[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    let write = || {
        if disk.list(dir)?.iter().any(|name| temporary.ends_with(name)) {
            disk.remove(&temporary)?;
        }
        let file = disk.create(&temporary)?;
        file.write_at(&[&header, bytes], 0)?;
        file.sync()?;
        disk.rename(&temporary, &path)?;
        disk.sync_dir(dir)
    };
    let written = write();
    if written.is_err() {
        // Frees the file's disk space. If even this fails, the next start removes the file.
        let _ = disk.remove(&temporary);
    }
    written.map_err(DiskError::of("save", &path))?;
    for old in list(disk, dir)?.into_iter().filter(|&old| old < position) {
        let old = dir.join(SnapshotName(old).to_string());
        disk.remove(&old).map_err(DiskError::of("remove", &old))?;
    }
    Ok(())
}

fn checksum(header: &[u8], bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(header);
    digest.update(bytes);
    digest.finalize() as u32
}
