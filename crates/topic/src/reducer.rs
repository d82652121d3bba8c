//! Reducers compute a topic's state from the topic's records, at the log's owner and at subscribers.
//!
//! Invariants:
//! - The same records in the same order give the same state and the same checksum everywhere.
//! - A refused append changes nothing: all its records are checked before any of them is applied.
//! - A snapshot and the records after it give the same state as all records. The state at a position and the changes
//!   since that position give the same state, too.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use dunlin_frame::Frame;

/// The name of the kind of a topic's reducer, and the reducer's options.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReducerConfig {
    /// The reducer's kind, such as `book`.
    pub kind: String,
    /// Options of the kind, by name.
    pub options: BTreeMap<String, String>,
}

/// Computes a topic's state from its records.
///
/// A state topic delivers expired records too.
/// Calls run inside the log's lock: they must not block, and cost no more than a record requires.
///
/// The supertrait [`Any`] lets callers that know the kind inspect the state.
pub trait Reducer: Any + Send + std::fmt::Debug {
    /// Checks whether these records may be appended next, in this order.
    fn check(&self, frames: &mut dyn Iterator<Item = Frame<'_>>) -> Result<(), ReducerError>;

    /// Applies a record that [`check`](Reducer::check) has accepted; `seq` is its sequence. Fails only at a subscriber
    /// whose state is wrong. That state must then be restored before it is used.
    fn apply(&mut self, seq: u64, frame: &Frame<'_>) -> Result<(), ReducerError>;

    /// Returns a view of the present state, in the same time for every size of the state.
    fn freeze(&mut self) -> Arc<dyn FrozenState>;

    /// Restores the state that a [`FrozenState`] wrote after the record `seq`. A failure leaves the state empty.
    fn restore(&mut self, seq: u64, snapshot: &[u8]) -> Result<(), ReducerError>;

    /// The checksum of the state: the wrapping sum of the hashes of all entries.
    fn checksum(&self) -> u64;

    /// Appends to `payload` the payload of one record that updates the state after the record `seq` to the present
    /// state. Returns `false` and appends nothing if the changes are unknown or a snapshot is shorter.
    fn changes_since(&self, seq: u64, payload: &mut Vec<u8>) -> bool;

    /// Approximate size of a snapshot, bytes.
    fn snapshot_bytes(&self) -> usize;

    /// Approximate memory use, bytes.
    fn bytes(&self) -> u64;

    /// Number of entries in the state.
    fn entries(&self) -> u64;
}

/// A state as it was at one moment, from which a snapshot is written while the reducer continues.
pub trait FrozenState: Send + Sync + std::fmt::Debug {
    /// Appends the serialized state, which [`Reducer::restore`] reads.
    fn write(&self, out: &mut Vec<u8>);
}

/// The reason why a reducer refuses records or a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReducerError(pub String);
