//! A state that maps each key to its last value.
//!
//! A record that has a key sets this key to the record's payload; an empty payload removes the key. The payload of a
//! record without a key contains [entries](ValueEntry). These entries can change many keys at once, and can set a key
//! to an empty value.
//!
//! A state has at most [`FeedLimits::keys_max`] keys, and its snapshot at most [`FeedLimits::last_bytes_max`] bytes.
//! The state remembers as many removals as it has keys, but at least [`FeedLimits::removals_min`] and at most
//! [`FeedLimits::removals_max`].

mod check;
mod entry;
mod frozen;

use std::collections::HashMap;
use std::sync::Arc;

use dunlin_topic::{Frame, FrozenState, Reducer, ReducerError};

use crate::checksum;
use crate::entry_error::EntryError;
use crate::limits::FeedLimits;
use crate::removals::Removals;
use crate::slab::Slab;
use crate::snapshot::{self, SnapshotError, StateKind};

pub use entry::{VALUE_HEAD_BYTES, ValueEntry};

use check::AppendCheck;
use frozen::FrozenValues;

/// The number of bytes in front of each key in a snapshot: the lengths of the key and of its value.
const KEY_HEAD_BYTES: usize = 8;

#[derive(Debug, Clone)]
struct StoredValue {
    key: Arc<[u8]>,
    value: Arc<[u8]>,
    changed_seq: u64,
}

/// A state that maps each key to its last value.
#[derive(Debug)]
pub struct LastValue {
    limits: FeedLimits,
    values: Slab<StoredValue>,
    slots: HashMap<Arc<[u8]>, u32>,
    removals: Removals<Arc<[u8]>>,
    /// The sequence number of the last record that removed all keys.
    cleared: u64,
    checksum: u64,
    /// The total size of all keys and values, in bytes.
    content_bytes: usize,
}

impl Default for LastValue {
    fn default() -> LastValue {
        LastValue::with_limits(FeedLimits::default())
    }
}

impl LastValue {
    /// Creates an empty state with the given limits.
    pub fn with_limits(limits: FeedLimits) -> LastValue {
        let (values, slots, removals) = (Slab::default(), HashMap::new(), Removals::default());
        LastValue { limits, values, slots, removals, cleared: 0, checksum: 0, content_bytes: 0 }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.slots.get(key).map(|slot| &*self.values.at(*slot).value)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether the state has no keys.
    pub fn is_empty(&self) -> bool {
        self.values.len() == 0
    }

    /// Iterates over all keys and their values, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.values.iter().map(|(_, stored)| (&*stored.key, &*stored.value))
    }

    fn apply_entry(&mut self, seq: u64, entry: &ValueEntry<'_>) {
        match *entry {
            ValueEntry::Set { key, value } => self.set(seq, key, value),
            ValueEntry::Remove { key } => self.remove(seq, key),
            ValueEntry::Clear => {
                self.slots.drain().for_each(|(_, slot)| drop(self.values.remove(slot)));
                (self.cleared, self.checksum, self.content_bytes) = (seq, 0, 0);
            }
        }
    }

    fn set(&mut self, seq: u64, key: &[u8], value: &[u8]) {
        self.checksum = self.checksum.wrapping_add(checksum::value(key, value));
        self.content_bytes += key.len() + value.len();
        let Some(slot) = self.slots.get(key) else {
            let key: Arc<[u8]> = key.into();
            let stored = StoredValue { key: key.clone(), value: value.into(), changed_seq: seq };
            self.slots.insert(key, self.values.insert(seq, stored));
            return;
        };
        let stored = self.values.at_mut(*slot, seq);
        stored.changed_seq = seq;
        let before = std::mem::replace(&mut stored.value, value.into());
        self.subtract(key, &before);
    }

    fn remove(&mut self, seq: u64, key: &[u8]) {
        if let Some(slot) = self.slots.remove(key) {
            let StoredValue { key, value, .. } = self.values.remove(slot);
            self.subtract(&key, &value);
            let max = self.limits.removals(self.values.len());
            self.removals.push(seq, key, max);
        }
    }

    fn subtract(&mut self, key: &[u8], value: &[u8]) {
        self.checksum = self.checksum.wrapping_sub(checksum::value(key, value));
        self.content_bytes -= key.len() + value.len();
    }

    fn read(&mut self, seq: u64, bytes: &[u8]) -> Result<(), SnapshotError> {
        let (keys, _, mut rest) = snapshot::read_head(bytes, StateKind::Last)?;
        let too_short = || SnapshotError::Length { bytes: bytes.len(), wanted: bytes.len() + 1 };
        let mut last: Option<&[u8]> = None;
        for entry in 1..=keys {
            let (head, after) = rest.split_first_chunk::<8>().ok_or_else(too_short)?;
            let len = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (key, after) = after.split_at_checked(len(0) as usize).ok_or_else(too_short)?;
            let (value, after) = after.split_at_checked(len(4) as usize).ok_or_else(too_short)?;
            if last.is_some_and(|last| last >= key) {
                return Err(SnapshotError::Order { entry });
            }
            let set = ValueEntry::Set { key, value };
            AppendCheck::new(self).check(&set).map_err(|error| SnapshotError::Entry { entry, error })?;
            self.apply_entry(seq, &set);
            (last, rest) = (Some(key), after);
        }
        let wanted = bytes.len() - rest.len();
        if rest.is_empty() { Ok(()) } else { Err(SnapshotError::Length { bytes: bytes.len(), wanted }) }
    }
}

/// Iterates over the entries of a record. A record that has a key counts as one entry, which changes this key.
fn entries<'a>(frame: &Frame<'a>) -> impl Iterator<Item = Result<ValueEntry<'a>, EntryError>> {
    let (keyed, payload) = (frame.key(), frame.payload());
    let one = keyed.map(|key| {
        if payload.is_empty() { ValueEntry::Remove { key } } else { ValueEntry::Set { key, value: payload } }
    });
    let many = if one.is_some() { &[] } else { payload };
    one.map(Ok).into_iter().chain(ValueEntry::decode_all(many))
}

impl Reducer for LastValue {
    fn check(&self, frames: &mut dyn Iterator<Item = Frame<'_>>) -> Result<(), ReducerError> {
        let mut append = AppendCheck::new(self);
        for (record, frame) in frames.enumerate() {
            let mut index = 0;
            for entry in entries(&frame) {
                index += 1;
                entry.and_then(|entry| append.check(&entry)).map_err(|error| error.at(record + 1, index))?;
            }
            if index == 0 {
                return Err(EntryError::Empty.at(record + 1, 1));
            }
        }
        Ok(())
    }

    fn apply(&mut self, seq: u64, frame: &Frame<'_>) -> Result<(), ReducerError> {
        for (index, entry) in entries(frame).enumerate() {
            self.apply_entry(seq, &entry.map_err(|error| error.at(1, index + 1))?);
        }
        Ok(())
    }

    fn freeze(&mut self) -> Arc<dyn FrozenState> {
        Arc::new(FrozenValues::new(self.values.freeze()))
    }

    fn restore(&mut self, seq: u64, snapshot: &[u8]) -> Result<(), ReducerError> {
        *self = LastValue::with_limits(self.limits);
        let read = self.read(seq, snapshot);
        if read.is_err() {
            *self = LastValue::with_limits(self.limits);
        }
        self.removals.discard_through(seq);
        self.cleared = seq;
        Ok(read?)
    }

    fn checksum(&self) -> u64 {
        self.checksum
    }

    fn changes_since(&self, seq: u64, payload: &mut Vec<u8>) -> bool {
        let start = payload.len();
        if self.cleared > seq {
            ValueEntry::Clear.encode(payload);
        } else {
            let Some(removed) = self.removals.since(seq) else { return false };
            let removed = removed.filter(|key| !self.slots.contains_key(*key));
            removed.for_each(|key| ValueEntry::Remove { key }.encode(payload));
        }
        for stored in self.values.near_changes_since(seq).filter(|stored| stored.changed_seq > seq) {
            ValueEntry::Set { key: &stored.key, value: &stored.value }.encode(payload);
        }
        snapshot::keep_if_small(payload, start, self.snapshot_bytes())
    }

    fn snapshot_bytes(&self) -> usize {
        snapshot::HEAD_BYTES + KEY_HEAD_BYTES * self.values.len() + self.content_bytes
    }

    fn bytes(&self) -> u64 {
        let slots = self.slots.capacity() * (size_of::<(Arc<[u8]>, u32)>() + 1);
        // A key and its value are two `Arc` slices. Each slice has two reference counters of 8 bytes in front of its
        // content.
        let contents = self.values.len() * 32 + self.content_bytes;
        (slots + contents) as u64 + self.values.bytes() + self.removals.bytes()
    }

    fn entries(&self) -> u64 {
        self.values.len() as u64
    }
}
