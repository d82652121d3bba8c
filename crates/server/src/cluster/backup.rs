//! Writes a cluster's agreed state to a backup file, and prepares a new cluster from such a file. The format of the
//! file:
//!
//! ```text
//!  "DUNLINB\n" | version u32 | header length u32 | header (JSON) | keys | number of shards u32 | tasks of each shard
//!              | CRC-64/NVME u64 of all earlier bytes
//!
//!  The keys, and the tasks of each shard, are lists of blocks. A block is a length u32 and that many bytes.
//!  A length of 0 ends a list.
//!  Version 1 has no tasks. Version 2 has the tasks of one shard, and no number of shards.
//! ```
//! Integers are little-endian. A truncated or modified file is refused as a whole.
//!
//! A backup does not contain the records of topics. The records of durable topics are in their owners' data
//! directories.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use dunlin::Tasks;
use dunlin::journal::{Disk as _, RealDisk};
use dunlin::raft::{RaftMember, seed};
use dunlin::scheduler::SHARDS_MAX;
use serde::{Deserialize, Serialize};

use super::authority::CertificateAuthority;
use super::client::ClusterClient;
use super::error::ClusterError;
use super::files::{ClusterDirectory, NodeIdentity};
use crate::whole_file::check_is_file;

const MAGIC: &[u8; 8] = b"DUNLINB\n";
const VERSION: u32 = 3;
/// The file version of backups that have exactly one shard of tasks.
const VERSION_OF_ONE_SHARD: u32 = 2;
/// The first file version. Its backups have keys, but no tasks.
const VERSION_OF_KEYS: u32 = 1;
/// Largest accepted block, bytes. If a file states a larger block, the file is damaged.
const BLOCK_BYTES_MAX: u32 = 64 << 20;
/// The node number of the first node in a new cluster.
pub(super) const FIRST_NODE: u64 = 1;

/// The header of a backup file. It states when, from which cluster and with which release the backup was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHeader {
    /// The id of the cluster whose state the backup contains.
    pub cluster: String,
    /// The release of Dunlin that made the backup.
    pub release: String,
    /// Time of the backup, ms since 1970.
    pub made_ms: u64,
}

/// Writes a backup to `file`, and returns the revision of the keys in it. Until the backup is complete, its file has
/// the suffix `.part`.
pub fn back_up(client: &ClusterClient, file: &Path, made_ms: u64) -> Result<u64, ClusterError> {
    let header =
        BackupHeader { cluster: client.cluster().to_owned(), release: super::RELEASE.to_owned(), made_ms };
    let temporary = part_path(file);
    let error_context = || ClusterError::io(format!("cannot write {}", file.display()));
    let part = create_part(&temporary).map_err(error_context())?;
    let mut out = ChecksumWriter::new(BufWriter::new(part));
    let result = (|| -> Result<u64, ClusterError> {
        out.write(MAGIC).map_err(error_context())?;
        out.write(&VERSION.to_le_bytes()).map_err(error_context())?;
        out.write_block(&super::to_json(&header)).map_err(error_context())?;
        let revision = client.back_up(|block| out.write_block(block))?;
        out.end_part().map_err(error_context())?;
        let shards = client.shards_of_tasks()?;
        out.write(&u32::from(shards).to_le_bytes()).map_err(error_context())?;
        for shard in 0..shards {
            client.back_up_tasks(shard, |block| out.write_block(block))?;
            out.end_part().map_err(error_context())?;
        }
        out.finish().map_err(error_context())?;
        std::fs::rename(&temporary, file).map_err(error_context())?;
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        RealDisk.sync_dir(parent.unwrap_or(Path::new("."))).map_err(error_context())?;
        Ok(revision)
    })();
    result.inspect_err(|_| drop(std::fs::remove_file(&temporary)))
}

/// Opens and locks the file for an incomplete backup. The file may exist already, if an earlier process ended during
/// its backup.
fn create_part(path: &Path) -> io::Result<File> {
    let part = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let number = part.metadata()?.ino();
    match part.try_lock() {
        // Continues only if the path still names the locked file. Before this process obtained the lock, another
        // process may have completed its backup and renamed the file.
        Ok(()) if std::fs::metadata(path).is_ok_and(|named| named.ino() == number) => {}
        Ok(()) | Err(TryLockError::WouldBlock) => {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another backup to this file is in progress",
            ));
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    part.set_len(0)?;
    Ok(part)
}

/// The path of an incomplete backup. It depends on the target file, because several backups may be made at the same
/// time.
fn part_path(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(".part");
    path.into()
}

/// Prepares an empty data directory for the first node of a new cluster, which begins with the state in the backup.
pub fn restore(file: &Path, data_dir: &Path, address: &str) -> Result<BackupHeader, ClusterError> {
    let error_context = |what: &str| ClusterError::io(format!("{what} {}", file.display()));
    let files = ClusterDirectory::of(data_dir);
    let has_content = std::fs::read_dir(data_dir).is_ok_and(|mut dir| dir.next().is_some());
    if has_content {
        return Err(ClusterError::Refused(format!(
            "{} is not empty: restore a backup into an empty directory",
            data_dir.display()
        )));
    }
    // Checks the whole file before anything is written to the directory, so that a damaged file changes nothing.
    let header = {
        let mut backup = BackupReader::open(file).map_err(error_context("cannot read"))?;
        while backup.has_part() {
            backup.part().try_for_each(|block| block.map(drop)).map_err(error_context("cannot restore"))?;
        }
        backup.header
    };
    let cluster = super::new_cluster()?;
    let member = RaftMember { id: FIRST_NODE, address: address.to_owned() };
    let mut backup = BackupReader::open(file).map_err(error_context("cannot read"))?;
    let keys_dir = ClusterDirectory::control_dir(data_dir);
    seed(Arc::new(RealDisk), &keys_dir, &member, backup.part()).map_err(error_context("cannot restore"))?;
    let tasks_dir = ClusterDirectory::tasks_dir(data_dir);
    for shard in 0.. {
        if !backup.has_part() {
            break;
        }
        let dir = Tasks::dir_of(&tasks_dir, shard);
        let seeded = Tasks::seed(Arc::new(RealDisk), &dir, &member, backup.part());
        seeded.map_err(error_context("cannot restore the tasks of"))?;
    }
    files.write_authority(&CertificateAuthority::generate(&cluster)?)?;
    files.write_identity(&NodeIdentity::restored(&cluster, FIRST_NODE, address)?)?;
    Ok(header)
}

/// Writes bytes to `out`, and computes a checksum of them.
struct ChecksumWriter<W> {
    out: W,
    digest: crc_fast::Digest,
}

fn digest() -> crc_fast::Digest {
    crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme)
}

impl<W: Write> ChecksumWriter<W> {
    fn new(out: W) -> ChecksumWriter<W> {
        ChecksumWriter { out, digest: digest() }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.out.write_all(bytes)
    }

    fn write_block(&mut self, block: &[u8]) -> io::Result<()> {
        self.write(&(block.len() as u32).to_le_bytes())?;
        self.write(block)
    }

    fn end_part(&mut self) -> io::Result<()> {
        self.write(&0u32.to_le_bytes())
    }
}

impl ChecksumWriter<BufWriter<File>> {
    fn finish(&mut self) -> io::Result<()> {
        let check = self.digest.finalize();
        self.out.write_all(&check.to_le_bytes())?;
        self.out.flush()?;
        self.out.get_ref().sync_all()
    }
}

/// Reads a backup file. The keys are one part of the file, and the tasks of each shard are another part.
struct BackupReader {
    input: BufReader<File>,
    digest: crc_fast::Digest,
    header: BackupHeader,
    parts_left: u32,
    /// Whether the file states the number of task shards after the keys.
    counts_shards: bool,
}

/// Iterates over the blocks of one part. If the file is damaged, the last item is an error.
struct BackupPart<'a> {
    reader: &'a mut BackupReader,
    is_finished: bool,
}

impl BackupReader {
    fn open(file: &Path) -> io::Result<BackupReader> {
        let header = BackupHeader { cluster: String::new(), release: String::new(), made_ms: 0 };
        check_is_file(file)?;
        let input = BufReader::new(File::open(file)?);
        let mut backup =
            BackupReader { input, digest: digest(), header, parts_left: 2, counts_shards: false };
        let damaged = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        if backup.read(8)? != MAGIC[..] {
            return Err(damaged("the file is not a backup of a cluster".to_owned()));
        }
        let version = backup.read_u32()?;
        match version {
            VERSION => backup.counts_shards = true,
            VERSION_OF_ONE_SHARD => {}
            VERSION_OF_KEYS => backup.parts_left = 1,
            _ => {
                return Err(damaged(format!(
                    "the backup has format {version}, and this release reads formats up to {VERSION}: use \
                         the release that made it, or a later one"
                )));
            }
        }
        let header = backup.read_block()?.ok_or_else(|| damaged("the file has no header".to_owned()))?;
        backup.header = serde_json::from_slice(&header).map_err(io::Error::other)?;
        Ok(backup)
    }

    fn has_part(&self) -> bool {
        self.parts_left > 0
    }

    fn part(&mut self) -> BackupPart<'_> {
        BackupPart { is_finished: !self.has_part(), reader: self }
    }

    fn read(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.input.by_ref().take(count as u64).read_to_end(&mut bytes)?;
        if bytes.len() < count {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the backup is truncated"));
        }
        self.digest.update(&bytes);
        Ok(bytes)
    }

    fn read_u32(&mut self) -> io::Result<u32> {
        let bytes = self.read(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn read_block(&mut self) -> io::Result<Option<Vec<u8>>> {
        let damaged = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        match self.read_u32()? {
            0 => {
                self.parts_left -= 1;
                if std::mem::take(&mut self.counts_shards) {
                    let shards = self.read_u32()?;
                    if !(1..=u32::from(SHARDS_MAX)).contains(&shards) {
                        return Err(damaged("the backup is damaged: the number of shards is missing"));
                    }
                    self.parts_left = shards;
                }
                if self.parts_left > 0 {
                    return Ok(None);
                }
                let check = self.digest.finalize();
                let stored = self.read(8)?;
                if stored != check.to_le_bytes() {
                    return Err(damaged("the backup is damaged: its checksum is wrong"));
                }
                Ok(None)
            }
            BLOCK_BYTES_MAX.. => Err(damaged("the backup is damaged: a block has no end")),
            bytes => self.read(bytes as usize).map(Some),
        }
    }
}

impl Iterator for BackupPart<'_> {
    type Item = io::Result<Bytes>;

    fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.is_finished {
            return None;
        }
        let read = self.reader.read_block();
        self.is_finished = !matches!(read, Ok(Some(_)));
        read.transpose().map(|block| block.map(Bytes::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded_backup(version: u32, parts: &[&[&[u8]]]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backup");
        let mut out = ChecksumWriter::new(BufWriter::new(File::create(&path).unwrap()));
        let header = BackupHeader { cluster: "c".to_owned(), release: "r".to_owned(), made_ms: 7 };
        out.write(MAGIC).unwrap();
        out.write(&version.to_le_bytes()).unwrap();
        out.write_block(&super::super::to_json(&header)).unwrap();
        for (at, blocks) in parts.iter().enumerate() {
            if version == VERSION && at == 1 {
                out.write(&(parts.len() as u32 - 1).to_le_bytes()).unwrap();
            }
            blocks.iter().for_each(|block| out.write_block(block).unwrap());
            out.end_part().unwrap();
        }
        out.finish().unwrap();
        std::fs::read(path).unwrap()
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<Vec<Bytes>>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backup");
        std::fs::write(&path, bytes).unwrap();
        let (mut backup, mut parts) = (BackupReader::open(&path)?, Vec::new());
        while backup.has_part() {
            parts.push(backup.part().collect::<io::Result<_>>()?);
        }
        Ok(parts)
    }

    #[test]
    fn backup_is_read_back_as_written_and_any_damage_is_detected() {
        let bytes = encoded_backup(VERSION, &[&[b"one", b"two"], &[b"three"], &[b"four"]]);
        assert_eq!(
            read(&bytes).unwrap(),
            [vec![Bytes::from("one"), Bytes::from("two")], vec!["three".into()], vec!["four".into()]]
        );
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "byte {at} was changed");
            assert!(read(&bytes[..at]).is_err(), "cut after {at}");
        }
    }

    #[test]
    fn incomplete_backups_to_different_paths_have_different_names() {
        assert_eq!(part_path(Path::new("b/cluster.eu")), Path::new("b/cluster.eu.part"));
        assert_ne!(part_path(Path::new("b/cluster.eu")), part_path(Path::new("b/cluster.us")));
        assert_ne!(part_path(Path::new("cluster.part")), Path::new("cluster.part"));
    }

    #[test]
    fn second_backup_to_a_file_is_refused_while_the_first_runs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backup.part");
        std::fs::write(&path, "of a process that ended").unwrap();
        let first = create_part(&path).unwrap();
        assert_eq!(first.metadata().unwrap().len(), 0);
        assert_eq!(create_part(&path).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(first);
        create_part(&path).unwrap();
    }

    #[test]
    fn backup_made_before_shards_existed_has_one_shard() {
        let bytes = encoded_backup(VERSION_OF_ONE_SHARD, &[&[b"one"], &[b"two"]]);
        assert_eq!(read(&bytes).unwrap(), [vec![Bytes::from("one")], vec!["two".into()]]);
    }

    #[test]
    fn backup_made_before_tasks_existed_contains_only_keys() {
        let bytes = encoded_backup(VERSION_OF_KEYS, &[&[b"one"]]);
        assert_eq!(read(&bytes).unwrap(), [vec![Bytes::from("one")]]);
    }
}
