//! Finds the slot of an order by the order's id.
//!
//! The index is a hash table with open addressing and linear probing, at most half full. A removal moves later entries
//! into the hole that the removed entry leaves, so that no markers for removed entries (tombstones) are needed. An
//! entry consists of the slot and 32 bits of the id's hash. A search reads an order only if the order's entry has the
//! same 32 bits as the hash of the wanted id. Few entries of other orders have these bits. When the table grows, the
//! stored hashes are used again. Each index has a secret hash key, because publishers choose the ids and could
//! otherwise choose ids with equal hashes.

use std::hash::{BuildHasher, RandomState};

/// The value of an empty entry. In every other entry, the lower 32 bits are the slot plus one, and the upper 32 bits
/// are the hash.
const EMPTY: u64 = 0;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const BITS_MIN: u32 = 4;

/// An index from the ids of orders to their slots.
#[derive(Debug)]
pub(super) struct IdIndex {
    entries: Vec<u64>,
    bits: u32,
    len: usize,
    secret: u64,
}

impl Default for IdIndex {
    fn default() -> IdIndex {
        let secret = RandomState::new().hash_one(FACTOR);
        IdIndex { entries: vec![EMPTY; 1 << BITS_MIN], bits: BITS_MIN, len: 0, secret }
    }
}

impl IdIndex {
    /// Returns the slot of the order with this id. Several ids may have the same hash, so `matches` decides whether the
    /// order in a given slot has the id.
    #[inline(always)]
    pub(super) fn find(&self, id: u64, matches: impl Fn(u32) -> bool) -> Option<u32> {
        self.probe(id, matches).map(|(_, slot)| slot)
    }

    /// Inserts an id that is not in the index yet.
    #[inline(always)]
    pub(super) fn insert(&mut self, id: u64, slot: u32) {
        if (self.len + 1) * 2 > self.entries.len() {
            self.grow();
        }
        self.len += 1;
        let entry = u64::from(self.hash(id)) << 32 | u64::from(slot + 1);
        self.insert_entry(entry);
    }

    /// Removes an id and returns the slot of its order. `matches` decides whether the order in a given slot has the id.
    #[inline(always)]
    pub(super) fn remove(&mut self, id: u64, matches: impl Fn(u32) -> bool) -> Option<u32> {
        let (mut hole, slot) = self.probe(id, matches)?;
        let mut at = hole;
        loop {
            at = self.next(at);
            let entry = self.entries[at];
            if entry == EMPTY {
                break;
            }
            // An entry moves into the hole if a search for the entry would pass the hole, and therefore end there.
            let (from_home, from_hole) = (at.wrapping_sub(self.home_index(entry)), at.wrapping_sub(hole));
            if from_home & self.mask() >= from_hole & self.mask() {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = EMPTY;
        self.len -= 1;
        Some(slot)
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<u64>()) as u64
    }

    #[inline(always)]
    fn probe(&self, id: u64, matches: impl Fn(u32) -> bool) -> Option<(usize, u32)> {
        let hash = self.hash(id);
        let mut at = self.home_index(u64::from(hash) << 32);
        loop {
            let entry = self.entries[at];
            if entry == EMPTY {
                return None;
            }
            let slot = (entry as u32).wrapping_sub(1);
            if (entry >> 32) as u32 == hash && matches(slot) {
                return Some((at, slot));
            }
            at = self.next(at);
        }
    }

    #[inline(always)]
    fn insert_entry(&mut self, entry: u64) {
        let mut at = self.home_index(entry);
        while self.entries[at] != EMPTY {
            at = self.next(at);
        }
        self.entries[at] = entry;
    }

    #[cold]
    fn grow(&mut self) {
        self.bits += 1;
        let before = std::mem::replace(&mut self.entries, vec![EMPTY; 1 << self.bits]);
        before.into_iter().filter(|entry| *entry != EMPTY).for_each(|entry| self.insert_entry(entry));
    }

    #[inline(always)]
    fn hash(&self, id: u64) -> u32 {
        let product = u128::from(id ^ self.secret) * u128::from(FACTOR);
        ((product as u64 ^ (product >> 64) as u64) >> 32) as u32
    }

    #[inline(always)]
    fn home_index(&self, entry: u64) -> usize {
        (entry >> (64 - self.bits)) as usize
    }

    #[inline(always)]
    fn next(&self, at: usize) -> usize {
        (at + 1) & self.mask()
    }

    #[inline(always)]
    fn mask(&self) -> usize {
        self.entries.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::collections::hash_map::Entry;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn index_of_order_ids_gives_the_same_results_as_a_hash_map(steps in prop::collection::vec((any::<bool>(), 0_u64..200), 1..600)) {
            let (mut index, mut map) = (IdIndex::default(), HashMap::new());
            let mut ids = Vec::new();
            for (insert, id) in steps {
                let matches = |slot: u32| ids[slot as usize] == id;
                prop_assert_eq!(index.find(id, matches), map.get(&id).copied());
                if !insert {
                    prop_assert_eq!(index.remove(id, matches), map.remove(&id));
                } else if let Entry::Vacant(vacant) = map.entry(id) {
                    let slot = ids.len() as u32;
                    ids.push(id);
                    index.insert(id, slot);
                    vacant.insert(slot);
                }
            }
            let found = map.iter().all(|(id, slot)| index.find(*id, |slot| ids[slot as usize] == *id) == Some(*slot));
            prop_assert!(found);
            prop_assert_eq!(index.len, map.len());
        }
    }
}
