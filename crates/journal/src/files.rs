//! Keeps the list of a log's files, oldest first, and how much of each file can be read.
//!
//! Invariants:
//! - Files are ordered by the position of their first record. All records of a file have the same epoch.
//! - The bytes of a file before the offset `readable` never change, so readers need no lock for them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::JournalLimits;
use crate::disk::{Disk, DiskFile};
use crate::error::{DiskError, OpenError};
use crate::layout::{BlockHeader, FILE_HEADER_BYTES, FORMAT_VERSION, FileHeader, FileName, HeaderError};
use crate::position::Position;

/// State that the writer and the readers of a log share.
#[derive(Debug)]
pub(crate) struct SharedLog {
    pub disk: Arc<dyn Disk>,
    pub dir: PathBuf,
    pub name: String,
    /// Whether a writer in this process sets how much of the last file is readable. Otherwise, readers read that file
    /// until they find no more valid blocks.
    pub has_local_writer: bool,
    state: Mutex<LogFiles>,
}

/// The list of a log's files, oldest first, and the position of the log's last synced record.
#[derive(Debug, Default)]
pub(crate) struct LogFiles {
    pub all: Vec<Arc<LogFile>>,
    /// The position of the last synced record; `None` if no record is synced, or if the position is not known.
    pub durable: Option<Position>,
}

/// One file of a log, and an index of some of its blocks.
#[derive(Debug)]
pub(crate) struct LogFile {
    pub name: FileName,
    pub path: PathBuf,
    pub first_time_ns: u64,
    readable: AtomicU64,
    index: Mutex<Vec<IndexEntry>>,
}

/// An entry of a file's index: the offset of a block, and the sequence number and append time of the block's first
/// record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexEntry {
    pub at: u64,
    pub first_seq: u64,
    pub first_time_ns: u64,
}

impl SharedLog {
    pub fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        name: &str,
        has_local_writer: bool,
        files: LogFiles,
    ) -> SharedLog {
        SharedLog {
            disk,
            dir: dir.to_owned(),
            name: name.to_owned(),
            has_local_writer,
            state: Mutex::new(files),
        }
    }

    pub fn files(&self) -> MutexGuard<'_, LogFiles> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last file that begins at or before `position`, or the oldest file if all files begin later. `None` if the
    /// log has no files.
    pub fn file_of(&self, position: Position) -> Option<Arc<LogFile>> {
        let files = self.files();
        let end = files.all.partition_point(|file| file.name.first <= position);
        files.all.get(end.saturating_sub(1)).cloned()
    }

    /// Removes a file from the list, because the file no longer exists on the disk.
    pub fn remove(&self, file: &LogFile) {
        self.files().all.retain(|other| other.name != file.name);
    }

    /// The file after `file`, and whether this next file is now the log's oldest. `None` if `file` is the last one.
    pub fn file_after(&self, file: &LogFile) -> Option<(Arc<LogFile>, bool)> {
        let files = self.files();
        let next = files.all.partition_point(|other| other.name <= file.name);
        files.all.get(next).map(|file| (file.clone(), next == 0))
    }
}

impl LogFile {
    pub fn new(dir: &Path, header: &FileHeader, readable: u64) -> LogFile {
        let name = FileName { first: header.first, identity: header.identity };
        LogFile {
            name,
            path: dir.join(name.to_string()),
            first_time_ns: header.first_time_ns,
            readable: AtomicU64::new(readable),
            index: Mutex::new(Vec::new()),
        }
    }

    /// The offset up to which the file may be read, bytes.
    pub fn readable(&self) -> u64 {
        self.readable.load(Ordering::Acquire)
    }

    pub fn set_readable(&self, bytes: u64) {
        self.readable.store(bytes, Ordering::Release);
    }

    /// Adds a block to the index, unless the last indexed block begins less than `INDEX_STEP_BYTES` bytes before this
    /// block.
    pub fn add_to_index(&self, at: u64, header: &BlockHeader) {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if index.last().is_none_or(|last| at >= last.at + JournalLimits::INDEX_STEP_BYTES) {
            let BlockHeader { first_seq, first_time_ns, .. } = *header;
            index.push(IndexEntry { at, first_seq, first_time_ns });
        }
    }

    /// The last index entry for which `is_before` returns `true`, or an entry for the file's first block if there is
    /// none.
    pub fn start_before(&self, is_before: impl Fn(&IndexEntry) -> bool) -> IndexEntry {
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let end = index.partition_point(is_before);
        end.checked_sub(1).and_then(|last| index.get(last)).copied().unwrap_or(IndexEntry {
            at: FILE_HEADER_BYTES as u64,
            first_seq: self.name.first.seq,
            first_time_ns: self.first_time_ns,
        })
    }
}

/// A file that was found in the directory: its name, its size, and its header or the reason why the header is invalid.
#[derive(Debug)]
pub(crate) struct ListedFile {
    pub name: FileName,
    pub path: PathBuf,
    pub bytes: u64,
    pub header: Result<FileHeader, HeaderError>,
}

impl ListedFile {
    /// Whether the file could be read, so that its content is known or damaged.
    pub fn is_readable(&self) -> bool {
        !matches!(self.header, Err(HeaderError::Unreadable(_)))
    }
}

/// Creates a [`LogFile`] for each listed file. For a file with a damaged header, the information in the file's name is
/// enough.
pub(crate) fn as_log_files(listed: &[ListedFile], dir: &Path, log_name: &str) -> Vec<Arc<LogFile>> {
    let mut time_ns = 0;
    let file = |listed: &ListedFile| {
        let header = listed.header.clone().unwrap_or_else(|_| FileHeader {
            identity: listed.name.identity,
            previous: 0,
            first: listed.name.first,
            // A search by time requires that the field `first_time_ns` never decreases from one file to the next. A
            // file with a damaged header therefore gets the value of the file before it.
            first_time_ns: time_ns,
            name: log_name.to_owned(),
        });
        time_ns = header.first_time_ns.max(time_ns);
        Arc::new(LogFile::new(dir, &header, listed.bytes))
    };
    listed.iter().map(file).collect()
}

/// Lists the files with records in a directory, oldest first.
pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<ListedFile>, OpenError> {
    let names = disk.list(dir).map_err(DiskError::of("list", dir))?;
    let mut names: Vec<FileName> = names.iter().filter_map(|name| FileName::parse(name)).collect();
    if names.len() > JournalLimits::FILES_MAX {
        let files_max = JournalLimits::FILES_MAX;
        return Err(OpenError::TooManyFiles { dir: dir.to_owned(), files: names.len(), files_max });
    }
    names.sort_unstable();
    let newest = names.last().copied();
    let listed = names.into_iter().map(|name| read_header(disk, dir, name, Some(name) == newest));
    listed.filter_map(Result::transpose).collect()
}

/// Reads the header of a file; `None` if the process that writes the log has just removed the file. Returns an error if
/// the newest file is unreadable, because the log cannot continue without it. An older file that is unreadable counts
/// as a file without content.
fn read_header(
    disk: &dyn Disk,
    dir: &Path,
    name: FileName,
    is_newest: bool,
) -> Result<Option<ListedFile>, OpenError> {
    let path = dir.join(name.to_string());
    let read = || -> Result<_, DiskError> {
        let file = open(disk, &path, false)?;
        let bytes = file.bytes().map_err(DiskError::of("measure", &path))?;
        let mut start = [0; FILE_HEADER_BYTES];
        let count = file.read_at(&mut start, 0).map_err(DiskError::of("read", &path))?;
        Ok((bytes, FileHeader::parse(&start[..count])))
    };
    let (bytes, header) = match read() {
        Ok(read) => read,
        Err(error) if error.is_missing() => return Ok(None),
        Err(error) if is_newest || error.lacks_resource() => return Err(error.into()),
        Err(error) => (0, Err(HeaderError::Unreadable(error.source.to_string()))),
    };
    Ok(Some(ListedFile { name, path, bytes, header }))
}

/// Refuses files that this build cannot read, and files of another log. Accepts files with a damaged header, because
/// the information in their names is enough.
pub(crate) fn check(listed: &[ListedFile], dir: &Path, log_name: Option<&str>) -> Result<(), OpenError> {
    for file in listed {
        match &file.header {
            Err(HeaderError::Newer(version)) => {
                let (version, reads) = (*version, FORMAT_VERSION);
                return Err(OpenError::Newer { file: file.path.clone(), version, reads });
            }
            Err(_) => {}
            Ok(header) if header.first != file.name.first || header.identity != file.name.identity => {
                return Err(OpenError::Misnamed(file.path.clone()));
            }
            Ok(header) => {
                if let Some(expected) = log_name.filter(|name| *name != header.name) {
                    let (expected, found) = (expected.to_owned(), header.name.clone());
                    return Err(OpenError::OtherLog { dir: dir.to_owned(), expected, found });
                }
            }
        }
    }
    Ok(())
}

pub(crate) fn open(disk: &dyn Disk, path: &Path, write: bool) -> Result<Box<dyn DiskFile>, DiskError> {
    disk.open(path, write).map_err(DiskError::of("open", path))
}
