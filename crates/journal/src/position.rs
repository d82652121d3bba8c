//! Where a record stands in a log.

/// A record's place: positions of one log are ordered by epoch, then by sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// Grows whenever the log cannot vouch for what went before.
    pub epoch: u32,
    /// The record's number within the epoch; 0 is before the first.
    pub seq: u64,
}

impl Position {
    /// The position of this sequence in this epoch.
    pub const fn new(epoch: u32, seq: u64) -> Position {
        Position { epoch, seq }
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.epoch, self.seq)
    }
}

/// Records that were in the log and cannot be read any more: one epoch's, from `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The first record missing.
    pub first: Position,
    /// The last record missing, of the same epoch; `None` where nobody can know how many there were.
    pub last: Option<u64>,
    /// Why they are missing.
    pub cause: HoleCause,
}

/// Why records are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoleCause {
    /// What held them is damaged, or somebody took the file away.
    Damaged,
    /// They were dropped on purpose while they were being read: by retention, or behind a snapshot.
    Dropped,
}

impl std::fmt::Display for Hole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, gone) = (self.first, if self.cause == HoleCause::Damaged { "lost" } else { "dropped" });
        match self.last {
            Some(last) if last == first.seq => write!(f, "record {first} is {gone}"),
            Some(last) => write!(f, "records {first} to {last} are {gone}"),
            None => write!(f, "the records of epoch {} from {} on are {gone}", first.epoch, first.seq),
        }
    }
}
