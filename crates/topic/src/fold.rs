//! Stateful topics: a state that follows from a topic's records, kept by the log's owner and, from
//! the same bytes, by any reader.
//!
//! Invariants:
//! - The same records in the same order give the same state and the same checksum everywhere.
//! - A refused append leaves no trace: it is checked whole before anything of it is applied.
//! - `snapshot` at a position and the records after it give what all records from the first give;
//!   so do the changes since a position, applied to the state at that position.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use dunlin_frame::Frame;

/// Which state a topic keeps. What kinds there are and what options they take is not known here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoldConfig {
    /// Its name, such as `book`.
    pub kind: String,
    /// What the kind is told, by name.
    pub options: BTreeMap<String, String>,
}

/// State that follows from a topic's records. Records do not expire to it: readers of a stateful topic
/// are given them all. It runs inside the log's lock: it does not wait, and
/// does no more per record than the record asks for.
///
/// It is [`Any`], so that who knows the kind can look at the state itself.
pub trait Fold: Any + Send + std::fmt::Debug {
    /// Whether these records, which would follow one another from here, may be appended.
    fn check(&self, frames: &mut dyn Iterator<Item = Frame<'_>>) -> Result<(), FoldError>;

    /// Takes a record in that [`check`](Fold::check) has accepted; `seq` is its number. Only a
    /// reader whose state has gone wrong is refused; its state means nothing until it is restored.
    fn apply(&mut self, seq: u64, frame: &Frame<'_>) -> Result<(), FoldError>;

    /// The state as it is now, at a cost that does not grow with it.
    fn freeze(&mut self) -> Arc<dyn Frozen>;

    /// Becomes the state that a [`Frozen`] wrote, which stood after the record `seq`. A refusal
    /// leaves the state empty.
    fn restore(&mut self, seq: u64, snapshot: &[u8]) -> Result<(), FoldError>;

    /// The wrapping sum of the hashes of all entries.
    fn checksum(&self) -> u64;

    /// Appends to `payload` the content of one record that brings a state as it was after the record
    /// `seq` to now. `false`, and nothing appended, when that is not known any more or a snapshot is shorter.
    fn changes_since(&self, seq: u64, payload: &mut Vec<u8>) -> bool;

    /// How many bytes a snapshot of it would have, roughly.
    fn snapshot_bytes(&self) -> usize;

    /// Bytes of memory it holds, roughly.
    fn bytes(&self) -> u64;

    /// How many entries the state has.
    fn entries(&self) -> u64;
}

/// A state at one moment, which may be read while its fold goes on.
pub trait Frozen: Send + Sync + std::fmt::Debug {
    /// Appends the state's bytes, from which [`Fold::restore`] makes it again.
    fn write(&self, out: &mut Vec<u8>);
}

/// Why records or a snapshot cannot be taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FoldError(pub String);
