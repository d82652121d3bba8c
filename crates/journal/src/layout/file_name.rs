//! Makes and parses the names of a log's files. A name contains the position at which the file's content begins, so
//! that files can be ordered without being opened.
//!
//! Record files: `EPOCH-SEQ-IDENTITY.log` with ten, twenty and sixteen digits (the identity in hexadecimal). Snapshots:
//! `EPOCH-SEQ.snapshot`. While a file is being created, its name ends in `.new`. If a crash interrupts the creation,
//! the next start removes the file.

use crate::position::Position;

const LOG_SUFFIX: &str = ".log";
const SNAPSHOT_SUFFIX: &str = ".snapshot";
/// The suffix of a file's name while the file is being created.
pub(crate) const TEMPORARY_SUFFIX: &str = ".new";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileName {
    pub first: Position,
    pub identity: u64,
}

impl FileName {
    /// Parses the name of a file with records; `None` if `name` is not such a name.
    pub fn parse(name: &str) -> Option<FileName> {
        let mut parts = name.strip_suffix(LOG_SUFFIX)?.splitn(3, '-');
        let first = position(parts.next()?, parts.next()?)?;
        let identity = parts.next().filter(|digits| digits.len() == 16)?;
        let parsed = FileName { first, identity: u64::from_str_radix(identity, 16).ok()? };
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FileName { first, identity } = self;
        write!(f, "{:010}-{:020}-{identity:016x}{LOG_SUFFIX}", first.epoch, first.seq)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SnapshotName(pub Position);

impl SnapshotName {
    /// Parses the name of a snapshot; `None` if `name` is not such a name.
    pub fn parse(name: &str) -> Option<SnapshotName> {
        let (epoch, seq) = name.strip_suffix(SNAPSHOT_SUFFIX)?.split_once('-')?;
        position(epoch, seq).map(SnapshotName)
    }
}

impl std::fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:010}-{:020}{SNAPSHOT_SUFFIX}", self.0.epoch, self.0.seq)
    }
}

fn position(epoch: &str, seq: &str) -> Option<Position> {
    let digits = |text: &str, len: usize| text.len() == len && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(epoch, 10) || !digits(seq, 20) {
        return None;
    }
    Some(Position::new(epoch.parse().ok()?, seq.parse().ok()?))
}
