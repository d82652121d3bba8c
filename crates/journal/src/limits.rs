//! The limits and the configuration of logs.

/// Limits of every log on disk: the sizes of names, blocks, files and snapshots.
#[derive(Debug, Clone, Copy)]
pub struct JournalLimits;

impl JournalLimits {
    /// Maximum number of frame bytes in a block. The largest record fits, with some margin.
    pub const BLOCK_BYTES_MAX: u32 = 65 << 20;
    /// Maximum size of a log's name, bytes.
    pub const NAME_BYTES_MAX: usize = 448;
    /// Maximum number of bytes in a file before the file's last block. The offsets in block headers have 35 bits.
    pub const FILE_BYTES_MAX: u64 = 8 << 30;
    /// Smallest configurable size of a file, bytes.
    pub const FILE_BYTES_MIN: u64 = 4 << 10;
    /// Maximum number of files of one log.
    pub const FILES_MAX: usize = 1 << 20;
    /// Maximum size of a snapshot, bytes.
    pub const SNAPSHOT_BYTES_MAX: u64 = 4 << 30;
    /// The distance between two index entries of a file, bytes.
    pub const INDEX_STEP_BYTES: u64 = 64 << 10;
    /// Number of bytes that a reader fetches at a time.
    pub const READ_BYTES: usize = 1 << 20;
    /// A search for the next valid block in a damaged file reads at most this multiple of the file's size.
    pub const SEARCH_FACTOR: u64 = 4;
}

/// The configuration of a log: file sizes and retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalConfig {
    /// The size at which a new file begins, bytes.
    pub file_bytes: u64,
    /// Maximum number of zero bytes that are written after the records in advance. Commits then overwrite allocated
    /// blocks, and a full disk is detected before a record receives its number.
    pub ahead_bytes: u64,
    /// The largest size of the log, bytes; the oldest files beyond the limit are dropped. `None`: no limit.
    pub retain_bytes: Option<u64>,
    /// The age in ns above which records may be dropped. A file is dropped as a whole. `None`: no limit.
    pub retain_ns: Option<u64>,
}

impl Default for JournalConfig {
    /// By default, files have 64 MiB, up to 1 MiB of zeros is written in advance, and retention has no limits.
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
