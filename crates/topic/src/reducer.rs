//! Reducers: code that computes a topic's state from the topic's records, both at the log's owner and at subscribers.
//!
//! Invariants:
//! - The same records in the same order give the same state and the same checksum in every process.
//! - A refused append changes nothing: all its records are checked before any of them is applied.
//! - There are three ways to the same state: all records, a snapshot together with the records after it, and a snapshot
//!   together with the merged changes after it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use dunlin_frame::Frame;

/// The kind of a topic's reducer, and the reducer's options.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReducerConfig {
    /// The reducer's kind, such as `book`.
    pub kind: String,
    /// The reducer's options, by name.
    pub options: BTreeMap<String, String>,
}

/// Computes a topic's state from its records.
///
/// A state topic delivers records even after they have expired, because the state depends on them. The owner calls all
/// methods inside the log's lock. They must not block, and must not take longer than a record requires.
///
/// The supertrait [`Any`] lets callers that know the kind inspect the state.
pub trait Reducer: Any + Send + std::fmt::Debug {
    /// Checks whether these records may be appended next, in this order.
    fn check(&self, frames: &mut dyn Iterator<Item = Frame<'_>>) -> Result<(), ReducerError>;

    /// Applies the record `seq`, which [`check`](Reducer::check) has accepted. Fails only at a subscriber whose state
    /// is wrong. After an error, the state must be restored before it is used again.
    fn apply(&mut self, seq: u64, frame: &Frame<'_>) -> Result<(), ReducerError>;

    /// Returns an unchanging view of the present state. The call takes the same time whatever the state's size.
    fn freeze(&mut self) -> Arc<dyn FrozenState>;

    /// Replaces the state by the state after record `seq`, which a [`FrozenState`] has written. After an error, the
    /// state is empty.
    fn restore(&mut self, seq: u64, snapshot: &[u8]) -> Result<(), ReducerError>;

    /// The checksum of the state: the wrapping sum of the hashes of all entries.
    fn checksum(&self) -> u64;

    /// Appends to `payload` the payload of one record that changes the state after record `seq` into the present state.
    /// Returns `false` and appends nothing if the changes are not known, or if a snapshot is preferred because it is
    /// shorter.
    fn changes_since(&self, seq: u64, payload: &mut Vec<u8>) -> bool;

    /// Approximate size of a snapshot of the present state, bytes.
    fn snapshot_bytes(&self) -> usize;

    /// Approximate size of the memory that the state takes, bytes.
    fn bytes(&self) -> u64;

    /// Number of entries in the state.
    fn entries(&self) -> u64;
}

/// A state as it was at one moment. A snapshot can be written from it while the reducer continues.
pub trait FrozenState: Send + Sync + std::fmt::Debug {
    /// Appends the state's bytes to `out`, in the format that [`Reducer::restore`] reads.
    fn write(&self, out: &mut Vec<u8>);
}

/// The reason why a reducer refuses records or a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReducerError(pub String);
