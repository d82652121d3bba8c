//! Defines the positions of records in a log, and holes: ranges of records that can no longer be read.

/// A record's position in a log. Positions are ordered by epoch, then by sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// The epoch, which becomes higher whenever the log may have lost earlier records.
    pub epoch: u32,
    /// The record's number within the epoch, from 1 on. The position with number 0 is before the first record.
    pub seq: u64,
}

impl Position {
    /// The position with this sequence number in this epoch.
    pub const fn new(epoch: u32, seq: u64) -> Position {
        Position { epoch, seq }
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.epoch, self.seq)
    }
}

/// A range of records that a log contained once, but that can no longer be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The first missing record.
    pub first: Position,
    /// Sequence number of the last missing record; `None` if it is unknown how many records are missing.
    pub last: Option<u64>,
    /// The reason why the records are missing.
    pub cause: HoleCause,
}

/// The reason why records of a log can no longer be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoleCause {
    /// The file with the records is damaged or missing.
    Damaged,
    /// The records were dropped, by retention or after a snapshot, while they were being read.
    Dropped,
}

impl std::fmt::Display for Hole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, state) = (self.first, if self.cause == HoleCause::Damaged { "lost" } else { "dropped" });
        match self.last {
            Some(last) if last == first.seq => write!(f, "record {first} is {state}"),
            Some(last) => write!(f, "records {first} to {last} are {state}"),
            None => write!(f, "the records of epoch {} from {} on are {state}", first.epoch, first.seq),
        }
    }
}
