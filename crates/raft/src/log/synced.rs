//! Stores the number of the last synced record of a group's log in a file. The file is beside the group's directory;
//! for the directory `control`, the file is `control.synced`.
//!
//! Somebody may cut, empty or remove files of a log, or replace them by older files. The log then looks as if a crash
//! had cut off its last records. The number in this file distinguishes damage from a crash: all records up to this
//! number were synced and perhaps acknowledged, so a crash cannot have removed them. If the group's directory is
//! missing, the file, which is outside the directory, shows that the directory was removed.
//!
//! The file has two sectors of 512 bytes. Each sector has a number and a checksum of this number. The second sector is
//! written after syncs of the log, at most once in [`WRITE_EVERY`], and is not synced. After a kill of the process, its
//! number may be too low by the records of the last [`WRITE_EVERY`]; after a power cut, it may be lower still. The
//! first sector is written and synced only when the log is opened or closed, and only after the second sector was
//! synced. After any crash, at least one of the two sectors is therefore valid.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crc_fast::CrcAlgorithm::Crc32Iscsi;
use dunlin_journal::{Disk, DiskFile, replace_file};

const EXTENSION: &str = "synced";
/// Shortest time between two writes of the number. If every sync were followed by a write, a single client would
/// complete an eighth fewer commands per second.
const WRITE_EVERY: Duration = Duration::from_millis(20);
const SECTOR_BYTES: usize = 512;
const MAGIC: [u8; 8] = *b"dunsync1";
/// Size of the content of a sector, bytes: the magic bytes, the number and the checksum.
const MARK_BYTES: usize = 20;

/// The file with the number of the log's last record that is known to be synced.
#[derive(Debug)]
pub(super) struct SyncedMark {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// The open file; `None` if the file does not exist because the disk had no room for it.
    file: Option<Box<dyn DiskFile>>,
    seq: u64,
    /// The number that was written last, and the time of that write.
    written: (u64, Instant),
}

impl SyncedMark {
    /// Opens the file with the number of a group's log, or creates the file. `last` is the number of the last record in
    /// the log. Returns an error if the log has lost synced records.
    pub(super) fn open(disk: Arc<dyn Disk>, group: &Path, last: u64) -> Result<SyncedMark, MarkError> {
        let mut mark = SyncedMark {
            disk,
            path: group.with_extension(EXTENSION),
            file: None,
            seq: last,
            written: (last, Instant::now()),
        };
        let file = match mark.disk.open(&mark.path, true) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                mark.create()?;
                return Ok(mark);
            }
            Err(error) => return Err(error.into()),
        };
        let (first, second) = (read(&*file, 0)?, read(&*file, 1)?);
        let why = match first.max(second) {
            None => Some(format!("{} has no valid checksum", mark.path.display())),
            Some(seq) if last < seq => Some(format!(
                "record {seq} was synced, but the last record in {} is {last}: files were cut, removed or replaced, or a volume is not mounted",
                group.join(super::DIR).display()
            )),
            Some(_) => None,
        };
        if let Some(why) = why {
            return Err(MarkError::Damaged { why, path: mark.path });
        }
        mark.file = Some(file);
        mark.persist()?;
        Ok(mark)
    }

    /// Sets the number of the last synced record, and writes it to the file if a write is due.
    pub(super) fn advance(&mut self, seq: u64) {
        self.seq = seq;
        self.write_if_due();
    }

    /// How long the next write of the number can wait; `None` if the file already has the number.
    pub(super) fn due(&self) -> Option<Duration> {
        let (seq, at) = self.written;
        (seq != self.seq).then(|| WRITE_EVERY.saturating_sub(at.elapsed()))
    }

    pub(super) fn write_if_due(&mut self) {
        if self.due() == Some(Duration::ZERO) {
            self.write_now();
        }
    }

    fn write_now(&mut self) {
        self.written = (self.seq, Instant::now());
        // An error is ignored: the number in the file then stays too low, but the log itself is synced.
        let _ = match &self.file {
            Some(file) => write(&**file, 1, self.seq),
            None => self.create(),
        };
    }

    /// Syncs the file, then writes the number to the first sector, and then syncs the file a second time. After this,
    /// the number survives a power cut.
    pub(super) fn persist(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.sync()?;
        write(&**file, 0, self.seq)?;
        file.sync()
    }

    /// Creates the file, unless the disk has no room for it.
    fn create(&mut self) -> io::Result<()> {
        match replace_file(&*self.disk, &self.path, &[sector(self.seq), sector(self.seq)].concat()) {
            Err(error) if error.is_full() => return Ok(()),
            created => created.map_err(|error| error.source)?,
        }
        self.disk.sync_dir(self.path.parent().unwrap_or(Path::new("")))?;
        self.file = Some(self.disk.open(&self.path, true)?);
        Ok(())
    }
}

/// Whether the directory of a group contains files, or contained files earlier.
pub fn is_begun(disk: &dyn Disk, group: &Path) -> bool {
    let has_files = |folder| disk.list(&group.join(folder)).is_ok_and(|files| !files.is_empty());
    has_files("log") || has_files("snapshots") || disk.open(&group.with_extension(EXTENSION), false).is_ok()
}

/// The reason why the file with the number of a log's last synced record was not opened.
#[derive(Debug)]
pub(super) enum MarkError {
    /// The log lacks synced records, or the file at this path is damaged.
    Damaged {
        why: String,
        path: PathBuf,
    },
    Disk(io::Error),
}

impl From<io::Error> for MarkError {
    fn from(error: io::Error) -> MarkError {
        MarkError::Disk(error)
    }
}

fn write(file: &dyn DiskFile, sector_index: usize, seq: u64) -> io::Result<()> {
    file.write_at(&[&sector(seq)], (sector_index * SECTOR_BYTES) as u64)
}

fn sector(seq: u64) -> [u8; SECTOR_BYTES] {
    let mut bytes = [0; SECTOR_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&seq.to_le_bytes());
    let checksum = checksum(&bytes[..16]);
    bytes[16..MARK_BYTES].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The number in a sector; `None` if the sector's checksum does not match.
fn read(file: &dyn DiskFile, sector: usize) -> io::Result<Option<u64>> {
    let mut bytes = [0; MARK_BYTES];
    if file.read_at(&mut bytes, (sector * SECTOR_BYTES) as u64)? < MARK_BYTES || bytes[..8] != MAGIC {
        return Ok(None);
    }
    let number = |range: std::ops::Range<usize>| {
        bytes[range].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    Ok((number(16..20) == u64::from(checksum(&bytes[..16]))).then(|| number(8..16)))
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use dunlin_journal::FakeDisk;

    use super::*;

    fn open(disk: &Arc<FakeDisk>, last: u64) -> Result<SyncedMark, MarkError> {
        SyncedMark::open(disk.clone(), Path::new("/raft"), last)
    }

    #[test]
    fn log_that_lacks_synced_entries_after_a_power_cut_is_refused() {
        for seed in 0..200 {
            let disk = Arc::new(FakeDisk::new(seed));
            let mut mark = open(&disk, 0).unwrap();
            for round in 0..5 {
                for seq in 1..=3 {
                    mark.advance(round * 3 + seq);
                    mark.write_now();
                    assert!(open(&disk, round * 3 + seq - 1).is_err(), "as after a kill");
                }
                disk.crash();
                // The file must still have the number that was stored when the file was opened before the crash: a log
                // that ends before this number is refused.
                assert!(round == 0 || open(&disk, round * 3 - 1).is_err());
                drop(open(&disk, round * 3 + 3).unwrap());
                disk.crash();
                mark = open(&disk, round * 3 + 3).unwrap();
            }
        }
    }

    #[test]
    fn damaged_number_of_the_last_synced_record_is_refused() {
        let disk = Arc::new(FakeDisk::new(1));
        drop(open(&disk, 7).unwrap());
        disk.overwrite(&Path::new("/raft").with_extension(EXTENSION), vec![0; 1024]);
        assert!(matches!(open(&disk, 7), Err(MarkError::Damaged { .. })));
    }

    #[test]
    fn number_of_last_synced_record_is_written_when_disk_has_room() {
        let disk = Arc::new(FakeDisk::new(1));
        disk.set_capacity(disk.used() + 100);
        let mut mark = open(&disk, 3).unwrap();
        mark.advance(4);
        mark.write_now();
        disk.set_capacity(u64::MAX);
        mark.advance(5);
        mark.write_now();
        drop(mark);
        assert!(matches!(open(&disk, 4), Err(MarkError::Damaged { .. })));
        open(&disk, 5).unwrap();
    }
}
