//! What is refused, and how the world fails: one enum for each kind of operation.

use std::io;
use std::path::{Path, PathBuf};

use crate::position::Position;

/// The disk failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct DiskError {
    /// What was tried.
    pub action: &'static str,
    /// On what.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl DiskError {
    pub(crate) fn of<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> DiskError + 'a {
        move |source| DiskError { action, path: path.to_owned(), source }
    }

    /// Whether the disk, or what of it this user may have, is full.
    pub(crate) fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self.source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    }

    /// Whether there is no such file.
    pub(crate) fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another `Journal`, writes to this log.
    #[error("the log in {} is being written by another process", .0.display())]
    InUse(PathBuf),
    /// The directory holds no log.
    #[error("there is no log in {}", .0.display())]
    NoLog(PathBuf),
    /// The directory holds another log.
    #[error("{} holds the log '{found}', not '{expected}'", dir.display())]
    OtherLog {
        /// Where.
        dir: PathBuf,
        /// The name that was asked for.
        expected: String,
        /// The name in its files.
        found: String,
    },
    /// A newer build wrote it.
    #[error("{}: recording made by a newer version {version}; this build reads up to {reads}", file.display())]
    Newer {
        /// Which file.
        file: PathBuf,
        /// The version of its format.
        version: u32,
        /// The newest that this build reads.
        reads: u32,
    },
    /// A file is not what its name says: somebody renamed or replaced it.
    #[error("{}: its name and its content do not fit: was it renamed?", .0.display())]
    Misnamed(PathBuf),
    /// The name cannot be a log's.
    #[error("a log's name is 1 to {bytes_max} bytes, not {bytes}")]
    Name {
        /// The bytes of the name.
        bytes: usize,
        /// The most there may be.
        bytes_max: usize,
    },
    /// More files than a log may have.
    #[error("{} holds {files} files, more than the {files_max} of a log", dir.display())]
    TooManyFiles {
        /// Where.
        dir: PathBuf,
        /// How many.
        files: usize,
        /// The most there may be.
        files_max: usize,
    },
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Why nothing was appended. The log is as it was, unless it is [`AppendError::Ended`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The disk is full. Nothing is lost, and it is worth trying again later.
    #[error("the disk is full: {need} bytes are needed, {free} are free")]
    Full {
        /// Bytes needed.
        need: u64,
        /// Bytes free.
        free: u64,
    },
    /// The first sequence is not the one that comes next.
    #[error("{got} does not follow: next is {expected}")]
    Order {
        /// What was given.
        got: Position,
        /// What would have followed.
        expected: Position,
    },
    /// The log was not closed before it was opened: it goes on in a higher epoch only.
    #[error("epoch {got} cannot go on after an unclean end: take {least} or higher")]
    Epoch {
        /// What was given.
        got: u32,
        /// The least epoch that may follow.
        least: u32,
    },
    /// A block cannot be that large.
    #[error("{bytes} bytes are more than the {bytes_max} of a block")]
    TooLarge {
        /// Bytes given.
        bytes: u64,
        /// The most there may be.
        bytes_max: u64,
    },
    /// Count, times and bytes do not fit one another.
    #[error("not a batch of frames: {0}")]
    Batch(&'static str),
    /// The disk failed earlier: this log takes nothing more. What was synced before is there.
    #[error("the log ended when the disk failed: {0}")]
    Ended(String),
    /// The disk failed now: this log takes nothing more.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Why nothing can be read from a position.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// What was asked for has been dropped, or was never here.
    #[error("{position} is no longer held: the oldest record is {oldest}")]
    Gone {
        /// What was asked for.
        position: Position,
        /// The oldest record held.
        oldest: Position,
    },
    /// A snapshot is damaged.
    #[error("{}: {why}", file.display())]
    Damaged {
        /// Which file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}
