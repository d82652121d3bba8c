//! Errors: one enum for each kind of operation.

use std::io;
use std::path::{Path, PathBuf};

use crate::position::Position;

/// The disk failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct DiskError {
    /// The attempted action.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The system's error.
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

    /// Whether the file does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// The reason why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process or `Journal` writes to this log.
    #[error("the log in {} is being written by another process", .0.display())]
    InUse(PathBuf),
    /// The directory holds no log.
    #[error("there is no log in {}", .0.display())]
    NoLog(PathBuf),
    /// The directory holds another log.
    #[error("{} holds the log '{found}', not '{expected}'", dir.display())]
    OtherLog {
        /// The directory.
        dir: PathBuf,
        /// The requested name.
        expected: String,
        /// The name in its files.
        found: String,
    },
    /// A newer version wrote the file.
    #[error("{}: recording made by a newer version {version}; this build reads up to {reads}", file.display())]
    Newer {
        /// The file.
        file: PathBuf,
        /// The file's format version.
        version: u32,
        /// The newest version that this build reads.
        reads: u32,
    },
    /// A file's content does not match its name: it was renamed or replaced.
    #[error("{}: its content does not match its name: was it renamed?", .0.display())]
    Misnamed(PathBuf),
    /// The log's name is too long or empty.
    #[error("a log's name is 1 to {bytes_max} bytes, not {bytes}")]
    Name {
        /// The name's length, bytes.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The directory holds more files than a log may have.
    #[error("{} holds {files} files, more than the {files_max} of a log", dir.display())]
    TooManyFiles {
        /// The directory.
        dir: PathBuf,
        /// Number of files.
        files: usize,
        /// The limit.
        files_max: usize,
    },
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// The reason why nothing was appended. The log is unchanged, except after [`AppendError::Ended`] and
/// [`AppendError::Disk`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The disk is full. No record is lost; a later retry may succeed.
    #[error("the disk is full: {need} bytes are needed, but {free} are free")]
    Full {
        /// Bytes needed.
        need: u64,
        /// Bytes free.
        free: u64,
    },
    /// The batch does not continue the log.
    #[error("{got} does not follow the log's last record: expected {expected}")]
    Order {
        /// The given value.
        got: Position,
        /// The position at which the log would have continued.
        expected: Position,
    },
    /// The log was not closed properly, and continues only in a higher epoch.
    #[error("epoch {got} cannot continue after an unclean end: use {least} or higher")]
    Epoch {
        /// The given value.
        got: u32,
        /// The lowest allowed epoch.
        least: u32,
    },
    /// The batch is larger than a block may be.
    #[error("{bytes} bytes exceed the limit of {bytes_max} bytes")]
    TooLarge {
        /// The batch's size, bytes.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// Count, times and bytes of the batch contradict each other.
    #[error("not a batch of frames: {0}")]
    Batch(&'static str),
    /// The disk failed earlier, and this log accepts no more records. Synced records are kept.
    #[error("the log ended when the disk failed: {0}")]
    Ended(String),
    /// The disk failed. This log accepts no more records.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// The reason why a position cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The position was dropped, or never existed here.
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
        /// The damage.
        why: String,
    },
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}
