//! Checks whether the state can accept an append. Each entry is checked against the state as the earlier entries of the
//! append would leave it.

use std::collections::HashMap;

use dunlin_topic::Reducer;

use super::{KEY_HEAD_BYTES, LastValue, ValueEntry};
use crate::entry_error::EntryError;
use crate::limits::FeedLimits;
use crate::snapshot;

/// Checks the entries of an append one after another, and remembers how the entries checked so far would change the
/// state.
pub(super) struct AppendCheck<'a> {
    values: &'a LastValue,
    /// The key that the previous entry set or removed. The key comes with the size of its new value, or with `None` if
    /// the entry removed it. The next check moves this pair to `changed`, so that an append of one entry needs no map.
    last: Option<(&'a [u8], Option<usize>)>,
    /// The keys that earlier entries set or removed since the last [`ValueEntry::Clear`], each with the size of its
    /// value, or with `None` if it was removed.
    changed: HashMap<&'a [u8], Option<usize>>,
    is_cleared: bool,
    /// Number of keys that the state would have.
    keys: usize,
    /// Size of a snapshot that the state would have, bytes.
    bytes: usize,
}

impl<'a> AppendCheck<'a> {
    pub(super) fn new(values: &'a LastValue) -> AppendCheck<'a> {
        AppendCheck {
            values,
            last: None,
            changed: HashMap::new(),
            is_cleared: false,
            keys: values.len(),
            bytes: values.snapshot_bytes(),
        }
    }

    /// Checks the next entry against the limits. An entry that needs no room is never refused.
    pub(super) fn check(&mut self, entry: &ValueEntry<'a>) -> Result<(), EntryError> {
        self.changed.extend(self.last.take());
        let (key, after) = match *entry {
            ValueEntry::Set { key, value } => (key, Some(value.len())),
            ValueEntry::Remove { key } => (key, None),
            ValueEntry::Clear => {
                self.changed.clear();
                (self.is_cleared, self.keys, self.bytes) = (true, 0, snapshot::HEAD_BYTES);
                return Ok(());
            }
        };
        let before = self.value_bytes(key);
        let bytes_of = |value: Option<usize>| value.map_or(0, |bytes| KEY_HEAD_BYTES + key.len() + bytes);
        self.keys = self.keys + usize::from(after.is_some()) - usize::from(before.is_some());
        self.bytes = self.bytes + bytes_of(after) - bytes_of(before);
        self.last = Some((key, after));
        let FeedLimits { keys_max, last_bytes_max: bytes_max, .. } = self.values.limits;
        if after.is_some() && before.is_none() && self.keys > keys_max as usize {
            return Err(EntryError::TooManyKeys { keys_max });
        }
        if bytes_of(after) > bytes_of(before) && self.bytes > bytes_max as usize {
            return Err(EntryError::ValuesTooLarge { bytes_max });
        }
        Ok(())
    }

    /// Size of a key's value after the entries checked so far; `None` if the key would not exist after these entries.
    fn value_bytes(&self, key: &[u8]) -> Option<usize> {
        match self.changed.get(key) {
            Some(value_bytes) => *value_bytes,
            None if self.is_cleared => None,
            None => self.values.get(key).map(<[u8]>::len),
        }
    }
}
