//! What is bounded, and what a log can be told.

/// The bounds of this crate. Those named `MAX` cannot be exceeded.
#[derive(Debug, Clone, Copy)]
pub struct Limits;

impl Limits {
    /// Bytes of the frames of one block: a record of the largest size and a little more.
    pub const BLOCK_BYTES_MAX: u32 = 65 << 20;
    /// Bytes of a log's name.
    pub const NAME_BYTES_MAX: usize = 448;
    /// Bytes of a file, the last block apart: a place in a file is kept in 35 bits.
    pub const FILE_BYTES_MAX: u64 = 8 << 30;
    /// Bytes of the smallest file.
    pub const FILE_BYTES_MIN: u64 = 4 << 10;
    /// Files of one log.
    pub const FILES_MAX: usize = 1 << 20;
    /// Bytes of a snapshot.
    pub const SNAPSHOT_BYTES_MAX: u64 = 4 << 30;
    /// Bytes between two entries of the index that finds a sequence in a file.
    pub const INDEX_STEP_BYTES: u64 = 64 << 10;
    /// Bytes that a reader fetches at once.
    pub const READ_BYTES: usize = 1 << 20;
    /// How often its own size a damaged file may be read in search of the next sound block.
    pub const SEARCH_FACTOR: u64 = 4;
}

/// How a log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// A file that has grown to this many bytes is followed by a new one.
    pub file_bytes: u64,
    /// Zeros are written ahead of the records in steps that grow up to this, so that a commit overwrites what the file
    /// system has already allotted, and a full disk is found before a record is numbered.
    pub ahead_bytes: u64,
    /// The whole log's bytes; the oldest files are dropped beyond it. `None`: no limit.
    pub retain_bytes: Option<u64>,
    /// How old a record may become before its file may be dropped, ns. `None`: no limit.
    pub retain_ns: Option<u64>,
}

impl Default for Config {
    /// Files of 64 MiB, up to 1 MiB of zeros ahead, everything is kept.
    fn default() -> Config {
        Config { file_bytes: 64 << 20, ahead_bytes: 1 << 20, retain_bytes: None, retain_ns: None }
    }
}

impl Config {
    /// The nearest configuration that is within the limits.
    pub(crate) fn bounded(self) -> Config {
        let file_bytes = self.file_bytes.clamp(Limits::FILE_BYTES_MIN, Limits::FILE_BYTES_MAX);
        Config { file_bytes, ahead_bytes: self.ahead_bytes.clamp(1 << 10, file_bytes), ..self }
    }
}
