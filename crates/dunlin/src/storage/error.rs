use std::io;
use std::path::{Path, PathBuf};

use dunlin_journal::OpenError;
use dunlin_topic::ConfigError;
use thiserror::Error;

/// Why a node's data directory cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StorageError {
    /// Another node works in it.
    #[error("{} is in use by another node", .0.display())]
    InUse(PathBuf),
    /// The disk failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its tasks are in another number of shards.
    #[error("{0}")]
    Shards(String),
    /// A topic's file is not one.
    #[error("{}: {why}", path.display())]
    Catalogue {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A topic's log cannot be opened.
    #[error("topic {topic:?}: {error}")]
    Log {
        /// The topic.
        topic: String,
        /// Why.
        error: OpenError,
    },
    /// A configuration is not sound.
    #[error("topic {topic:?}: {error}")]
    Config {
        /// The topic.
        topic: String,
        /// Why.
        error: ConfigError,
    },
    /// Two topics that cannot stand beside each other.
    #[error("topic {topic:?}: {why}")]
    Refused {
        /// The topic.
        topic: String,
        /// Why.
        why: String,
    },
    /// The system gave no thread.
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
}
