//! Defines the errors of the journal: one type for each kind of operation.

use std::io;
use std::path::{Path, PathBuf};

use crate::position::Position;

/// The error of a disk operation: what was attempted, on which file, and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct DiskError {
    /// The attempted action, such as "open".
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The error of the operating system.
    pub source: io::Error,
}

impl DiskError {
    pub(crate) fn of<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> DiskError + 'a {
        move |source| DiskError { action, path: path.to_owned(), source }
    }

    /// Whether the disk or the user's quota is full.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self.source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    }

    /// If this error reports a full disk at a sync, returns the error in a form that allows no retry, because the
    /// failed sync may have lost earlier writes. Returns any other error unchanged.
    pub(crate) fn without_retry_of_sync(self) -> DiskError {
        match self.action {
            "sync" => DiskError { source: io::Error::other(self.source), ..self },
            _ => self,
        }
    }

    /// Whether the process or the machine lacked file descriptors or memory for the operation. A later attempt may
    /// succeed.
    pub fn lacks_resource(&self) -> bool {
        is_lack_of_resource(&self.source)
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

fn is_lack_of_resource(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let lacks = |errno: Errno| matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM);
    Errno::from_io_error(error).is_some_and(lacks) || error.kind() == io::ErrorKind::OutOfMemory
}

/// Whether `error`, or the error that caused it, reports that the process or the machine lacks file descriptors or
/// memory. A later attempt may then succeed.
pub fn lacks_resource(error: &io::Error) -> bool {
    if is_lack_of_resource(error) {
        return true;
    }
    let mut cause = error.get_ref().map(|inner| inner as &(dyn std::error::Error + 'static));
    while let Some(inner) = cause {
        if inner.downcast_ref::<io::Error>().is_some_and(lacks_resource) {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// The reason why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another `Journal` of this process, is writing this log.
    #[error("the log in {} is being written by another process", .0.display())]
    InUse(PathBuf),
    /// The directory contains no log.
    #[error("there is no log in {}", .0.display())]
    NoLog(PathBuf),
    /// The directory contains another log.
    #[error("{} holds the log '{found}', not '{expected}'", dir.display())]
    OtherLog {
        /// The directory.
        dir: PathBuf,
        /// The requested name.
        expected: String,
        /// The name in the log's files.
        found: String,
    },
    /// A newer version of Dunlin wrote the file, in a format that this build cannot read.
    #[error("a newer version of Dunlin wrote {} in format {version}; this build reads formats up to {reads}", file.display())]
    Newer {
        /// The file.
        file: PathBuf,
        /// The file's format version.
        version: u32,
        /// The newest version that this build reads.
        reads: u32,
    },
    /// A file's content does not belong to its name: the file was renamed or replaced.
    #[error("the content of {} does not match the file's name: was the file renamed?", .0.display())]
    Misnamed(PathBuf),
    /// The requested name of the log is empty or too long.
    #[error("a log's name is 1 to {bytes_max} bytes, not {bytes}")]
    Name {
        /// The name's length, bytes.
        bytes: usize,
        /// The maximum length, bytes.
        bytes_max: usize,
    },
    /// The directory contains more files than a log may have.
    #[error("{} holds {files} files, but a log may have at most {files_max}", dir.display())]
    TooManyFiles {
        /// The directory.
        dir: PathBuf,
        /// Number of files.
        files: usize,
        /// The maximum number of files.
        files_max: usize,
    },
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// The reason why a batch was not appended to a log. After [`AppendError::Ended`] and [`AppendError::Disk`], records
/// may be lost; after any other error, the log is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The disk is full. No record is lost, and a later retry may succeed.
    #[error("{}", lack_of_room(*need, *free))]
    Full {
        /// Number of bytes that the operation needs.
        need: u64,
        /// Number of bytes that are free.
        free: u64,
    },
    /// The process or the machine lacks file descriptors or memory. No record is lost, and a later retry may succeed.
    #[error("the process lacks file descriptors or memory: {0}")]
    LacksResource(#[source] DiskError),
    /// The position of the batch does not follow the log's last record.
    #[error("position {got} does not follow the log's last record: expected {expected}")]
    Order {
        /// The position of the batch.
        got: Position,
        /// The position that the batch would have needed.
        expected: Position,
    },
    /// The log was not closed properly, so the batch would need a higher epoch.
    #[error("the log was not closed cleanly and cannot continue in epoch {got}: use epoch {least} or higher")]
    Epoch {
        /// The epoch of the batch.
        got: u32,
        /// The lowest allowed epoch.
        least: u32,
    },
    /// The batch is larger than a block may be.
    #[error("a batch of {bytes} bytes exceeds the limit of {bytes_max} bytes")]
    TooLarge {
        /// The batch's size, bytes.
        bytes: u64,
        /// The maximum size, bytes.
        bytes_max: u64,
    },
    /// The number of records, the times and the bytes of the batch do not fit each other.
    #[error("the bytes are not a batch of frames: {0}")]
    Batch(&'static str),
    /// The disk failed earlier, so this log accepts no more records. Records that were synced are kept.
    #[error("the log accepts no more records, because the disk failed: {0}")]
    Ended(String),
    /// A disk operation failed. If this was a write or sync of records, this log accepts no more records.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Returns the text of [`AppendError::Full`]. If a write fails although the disk has much more free space than needed,
/// the text says that a quota or the maximum size of a file is reached.
fn lack_of_room(need: u64, free: u64) -> String {
    /// If the disk has more free bytes than needed, but at most this many more, the disk still counts as full. Other
    /// programs may have freed space after the failure, or the file system may not let the process use the free space.
    const UNCERTAIN_BYTES: u64 = 1 << 20;
    match free > need.saturating_add(UNCERTAIN_BYTES) {
        true => format!(
            "{need} bytes are needed, but the file size limit (ulimit -f) or a quota is reached; the disk has {free} \
             bytes free"
        ),
        false => format!("{need} bytes are needed, but {free} are free on the disk"),
    }
}

impl AppendError {
    /// Converts an error that does not end the log: to `LacksResource` if a later retry may succeed, otherwise to
    /// `Disk`.
    pub(crate) fn classify_disk_error(error: DiskError) -> AppendError {
        if error.lacks_resource() { AppendError::LacksResource(error) } else { AppendError::Disk(error) }
    }

    /// Whether the same batch may be appended by a later retry. This is so if the disk was full, or if file descriptors
    /// or memory were lacking. The log is then unchanged.
    pub fn allows_retry(&self) -> bool {
        matches!(self, AppendError::Full { .. } | AppendError::LacksResource(_))
    }
}

/// The reason why records or a snapshot cannot be read from a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The record at the position was dropped, or this log never contained it.
    #[error("{position} is not retained: the oldest record is {oldest}")]
    Gone {
        /// The requested position.
        position: Position,
        /// The oldest retained record.
        oldest: Position,
    },
    /// A snapshot is damaged.
    #[error("{}: {why}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// A description of the damage.
        why: String,
    },
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_caused_by_a_lack_of_file_descriptors_is_recognized() {
        let lacking = || io::Error::from(rustix::io::Errno::MFILE);
        let failed = DiskError { action: "open", path: PathBuf::new(), source: lacking() };
        assert!(lacks_resource(&lacking()));
        assert!(lacks_resource(&io::Error::other(OpenError::Disk(failed))));
        assert!(!lacks_resource(&io::Error::other("the device failed")));
    }
}
