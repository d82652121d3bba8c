use std::io;
use std::path::{Path, PathBuf};

use dunlin_journal::{DiskError, OpenError, lacks_resource};
use dunlin_topic::ConfigError;
use thiserror::Error;

use super::open_files;
use crate::error::TopicError;

/// The reason why a node's data directory cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StorageError {
    /// Another node uses the directory.
    #[error("{} is in use by another node", .0.display())]
    InUse(PathBuf),
    /// A disk operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// The operation that failed, as a verb.
        action: &'static str,
        /// The file or directory of the operation.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The tasks in the directory have another number of shards than the configuration says.
    #[error("{0}")]
    Shards(String),
    /// A topic's file is invalid.
    #[error("{}: {why}", path.display())]
    Catalogue {
        /// The topic's file.
        path: PathBuf,
        /// The defect of the file.
        why: String,
    },
    /// A topic's log cannot be opened.
    #[error("topic {topic:?}: {error}")]
    Log {
        /// The name of the topic.
        topic: String,
        /// The reason why the log cannot be opened.
        error: OpenError,
    },
    /// The configuration of a topic, or the default configuration, is invalid.
    #[error("topic {topic:?}: {error}")]
    Config {
        /// The topic's name, or `by default` for the default configuration.
        topic: String,
        /// The reason why the configuration is invalid.
        error: ConfigError,
    },
    /// The state or the records of a topic cannot be restored from its files.
    #[error("topic {topic:?}: {why}")]
    Refused {
        /// The name of the topic.
        topic: String,
        /// The reason why the topic cannot be restored.
        why: String,
    },
    /// A thread could not be started.
    #[error("cannot start the thread that stores records: {0}")]
    Thread(io::Error),
}

impl StorageError {
    pub(super) fn disk<'a>(
        action: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(io::Error) -> StorageError + Copy + 'a {
        move |source| StorageError::Disk { action, path: path.to_owned(), source }
    }

    /// Whether the process or the machine lacked file descriptors or memory, so that a later attempt may succeed.
    pub fn lacks_resource(&self) -> bool {
        match self {
            StorageError::Disk { source, .. } => lacks_resource(source),
            StorageError::Log { error: OpenError::Disk(failed), .. } => failed.lacks_resource(),
            _ => false,
        }
    }
}

impl From<StorageError> for TopicError {
    fn from(error: StorageError) -> TopicError {
        if error.lacks_resource() {
            return open_files::lack_of_resource(&error);
        }
        let is_full = match &error {
            StorageError::Disk { source, .. } => is_full(source),
            StorageError::Log { error: OpenError::Disk(failed), .. } => failed.is_full(),
            _ => false,
        };
        match is_full {
            true => TopicError::DiskFull(error.to_string()),
            false => TopicError::Disk(error.to_string()),
        }
    }
}

/// Whether the error says that the disk or the user's quota is full, or that a file has reached the process's size
/// limit.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

impl From<DiskError> for StorageError {
    fn from(DiskError { action, path, source }: DiskError) -> StorageError {
        StorageError::Disk { action, path, source }
    }
}
