//! Builds one revision: changes keys, and collects these changes for watches.

use crate::change::{Change, KeyEvent};
use crate::effects::ControlEffects;
use crate::item::{Key, KeyItem, Value};
use crate::layout::Layout;
use crate::lock;
use crate::reply::ControlReply;
use crate::state::{ControlState, SYSTEM_KEYS, SYSTEM_KEYS_END};

/// The size of an encoded put in [`Change::bytes`], without the bytes of the key and of the value.
const PUT_BYTES: usize = 1 + 2 * size_of::<u32>() + 4 * size_of::<u64>();

/// Collects the changes of keys in one revision. If no key changes, the state keeps its last revision.
#[derive(Debug)]
pub(crate) struct RevisionBuilder<'s> {
    pub(crate) state: &'s mut ControlState,
    pub(crate) effects: &'s mut ControlEffects,
    pub(crate) revision: u64,
    events: Vec<u8>,
    keys: u64,
}

impl<'s> RevisionBuilder<'s> {
    pub(crate) fn begin(state: &'s mut ControlState, effects: &'s mut ControlEffects) -> RevisionBuilder<'s> {
        let revision = state.revision + 1;
        RevisionBuilder { state, effects, revision, events: Vec::new(), keys: 0 }
    }

    /// Writes a key. The caller has checked the permission, the limits and the lease.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], lease: u64) {
        self.put_as(self.state.writer.clone(), key, value, lease);
    }

    pub(crate) fn put_as(&mut self, tenant: Option<Value>, key: &[u8], value: &[u8], lease: u64) {
        let (created, modified) = (self.revision, self.revision);
        let mut item = KeyItem { value: value.into(), created, modified, version: 1, lease, tenant };
        let mut lease_before = 0;
        // Looks up an existing key only once: the state exceeds the processor's caches, so each lookup is slow.
        match self.state.keys.get_mut(key) {
            Some(found) => {
                lease_before = found.lease;
                (item.created, item.version) = (found.created, found.version + 1);
                let before = std::mem::replace(found, item.clone());
                self.state.subtract_key_bytes(key, &before);
            }
            None => drop(self.state.keys.insert(Key::from(key), item.clone())),
        }
        self.state.add_key_bytes(key, &item);
        if lease_before != lease {
            self.detach_lease(key, lease_before);
            if let Some(found) = self.state.leases.get_mut(&lease) {
                found.keys.insert(Key::from(key));
            }
        }
        self.events.reserve_exact(usize::from(self.events.is_empty()) + PUT_BYTES + key.len() + value.len());
        self.record_event(&KeyEvent::Put { key, item });
    }

    /// Deletes a key and returns whether it existed. If the key stores the holder of a lock, the lock passes to the
    /// lease that has waited longest.
    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        let Some((key, item)) = self.state.keys.remove_with_key(key) else { return false };
        self.state.subtract_key_bytes(&key, &item);
        self.detach_lease(&key, item.lease);
        self.record_event(&KeyEvent::Deleted { key: &key });
        if let Some(name) = lock::lock_name(&key) {
            self.pass_lock(name);
        }
        true
    }

    /// Deletes the keys of a range except system keys, but at most the first `range_keys_max` of them. Returns the
    /// number of deleted keys.
    pub(crate) fn delete_range(&mut self, start: &[u8], end: &[u8]) -> u64 {
        // Cuts the system keys out of the range. Checking each key instead would take too long for a transaction with
        // many ranges.
        let before_end = if end.is_empty() { SYSTEM_KEYS } else { end.min(SYSTEM_KEYS) };
        let before = self.state.between(start, before_end);
        let client_keys = before.chain(self.state.between(start.max(SYSTEM_KEYS_END), end));
        let keys: Vec<Key> =
            client_keys.take(self.state.limits.range_keys_max as usize).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| {
            self.delete(key);
        });
        keys.len() as u64
    }

    fn detach_lease(&mut self, key: &[u8], lease: u64) {
        if let Some(found) = self.state.leases.get_mut(&lease) {
            found.keys.remove(key);
        }
    }

    fn record_event(&mut self, event: &KeyEvent<'_>) {
        if self.events.is_empty() {
            self.events.push(crate::VERSION);
        }
        event.write(&mut self.events);
        self.keys += 1;
    }

    /// Ends the revision and returns its number. If no key changed, there is no new revision, and the number of the
    /// state's last revision is returned.
    pub(crate) fn end(self) -> u64 {
        if self.keys > 0 {
            self.state.revision = self.revision;
            self.effects.changes.push(Change { revision: self.revision, bytes: self.events });
        }
        self.state.revision
    }

    /// Like [`RevisionBuilder::end`], but returns the number as a reply.
    pub(crate) fn changed(self) -> ControlReply {
        let keys = self.keys;
        ControlReply::Changed { revision: self.end(), keys }
    }
}
