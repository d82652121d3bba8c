//! Defines the limits and the configuration of logs.

/// The limits of every log on disk, such as the maximum size of a block.
#[derive(Debug, Clone, Copy)]
pub struct JournalLimits;

impl JournalLimits {
    /// Maximum size of the frames in a block, bytes. The largest record is somewhat smaller than this.
    pub const BLOCK_BYTES_MAX: u32 = 65 << 20;
    /// Maximum size of a log's name, bytes.
    pub const NAME_BYTES_MAX: usize = 448;
    /// Maximum size of a file before its last block, bytes. The offsets that block headers contain have 35 bits.
    pub const FILE_BYTES_MAX: u64 = 8 << 30;
    /// Smallest file size that can be configured, bytes.
    pub const FILE_BYTES_MIN: u64 = 4 << 10;
    /// Maximum number of files of one log.
    pub const FILES_MAX: usize = 1 << 20;
    /// Maximum size of a snapshot, bytes.
    pub const SNAPSHOT_BYTES_MAX: u64 = 4 << 30;
    /// Distance in bytes between the blocks of a file that are in the file's index.
    pub const INDEX_STEP_BYTES: u64 = 64 << 10;
    /// Number of bytes that a reader fetches from the disk at a time.
    pub const READ_BYTES: usize = 1 << 20;
    /// After damage in a file, the search for the next valid block reads at most this many times the file's size.
    pub const SEARCH_FACTOR: u64 = 4;
}

/// The configuration of a log: file sizes and retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalConfig {
    /// Size of a file at which the log begins a new file, bytes.
    pub file_bytes: u64,
    /// Maximum number of zeros that are written in advance after the records, bytes. Commits then overwrite space that
    /// is allocated already, and a full disk is noticed before a record gets its number.
    pub ahead_bytes: u64,
    /// Maximum size of the log, bytes. If the log is larger, its oldest files are dropped. `None`: no limit.
    pub retain_bytes: Option<u64>,
    /// Age from which records may be dropped, ns. A file is dropped only when all its records are that old. `None`: no
    /// limit.
    pub retain_ns: Option<u64>,
}

impl Default for JournalConfig {
    /// Returns files of 64 MiB, up to 1 MiB of zeros in advance, and no limits for retention.
    fn default() -> JournalConfig {
        JournalConfig { file_bytes: 64 << 20, ahead_bytes: 1 << 20, retain_bytes: None, retain_ns: None }
    }
}

impl JournalConfig {
    pub(crate) fn bounded(self) -> JournalConfig {
        let file_bytes = self.file_bytes.clamp(JournalLimits::FILE_BYTES_MIN, JournalLimits::FILE_BYTES_MAX);
        JournalConfig { file_bytes, ahead_bytes: self.ahead_bytes.clamp(1 << 10, file_bytes), ..self }
    }
}
