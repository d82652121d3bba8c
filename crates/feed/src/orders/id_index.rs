//! Finds an order's place by its id.
//!
//! A hash table with open addressing and linear probing, at most half full. Removal moves later entries back, so that
//! no tombstones remain. An entry is a place and 32 bits of the id's hash. The hash distinguishes most other ids, so
//! that their orders need not be read. Growing needs no rehash. Publishers choose ids, so each index has a secret hash
//! key.

use std::hash::{BuildHasher, RandomState};

/// An empty entry. In other entries, the lower half is the place plus one, and the upper half is the hash.
const EMPTY: u64 = 0;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const BITS_MIN: u32 = 4;

/// Places by id.
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
    /// Finds the place for an id; `is_it` decides among entries with the same hash.
    #[inline(always)]
    pub(super) fn find(&self, id: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.probe(id, is_it).map(|(_, place)| place)
    }

    /// Inserts an id that is not in the index.
    #[inline(always)]
    pub(super) fn insert(&mut self, id: u64, place: u32) {
        if (self.len + 1) * 2 > self.entries.len() {
            self.grow();
        }
        self.len += 1;
        let entry = u64::from(self.hash(id)) << 32 | u64::from(place + 1);
        self.put(entry);
    }

    /// Removes an id and returns its place.
    #[inline(always)]
    pub(super) fn remove(&mut self, id: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let (mut hole, place) = self.probe(id, is_it)?;
        let mut at = hole;
        loop {
            at = self.next(at);
            let entry = self.entries[at];
            if entry == EMPTY {
                break;
            }
            // The entry moves into the hole if a search for it would otherwise end at the hole.
            let (from_home, from_hole) = (at.wrapping_sub(self.home(entry)), at.wrapping_sub(hole));
            if from_home & self.mask() >= from_hole & self.mask() {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = EMPTY;
        self.len -= 1;
        Some(place)
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<u64>()) as u64
    }

    #[inline(always)]
    fn probe(&self, id: u64, is_it: impl Fn(u32) -> bool) -> Option<(usize, u32)> {
        let hash = self.hash(id);
        let mut at = self.home(u64::from(hash) << 32);
        loop {
            let entry = self.entries[at];
            if entry == EMPTY {
                return None;
            }
            let place = (entry as u32).wrapping_sub(1);
            if (entry >> 32) as u32 == hash && is_it(place) {
                return Some((at, place));
            }
            at = self.next(at);
        }
    }

    #[inline(always)]
    fn put(&mut self, entry: u64) {
        let mut at = self.home(entry);
        while self.entries[at] != EMPTY {
            at = self.next(at);
        }
        self.entries[at] = entry;
    }

    #[cold]
    fn grow(&mut self) {
        self.bits += 1;
        let before = std::mem::replace(&mut self.entries, vec![EMPTY; 1 << self.bits]);
        before.into_iter().filter(|entry| *entry != EMPTY).for_each(|entry| self.put(entry));
    }

    #[inline(always)]
    fn hash(&self, id: u64) -> u32 {
        let product = u128::from(id ^ self.secret) * u128::from(FACTOR);
        ((product as u64 ^ (product >> 64) as u64) >> 32) as u32
    }

    #[inline(always)]
    fn home(&self, entry: u64) -> usize {
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
        fn order_index_finds_the_same_as_a_map(steps in prop::collection::vec((any::<bool>(), 0_u64..200), 1..600)) {
            let (mut index, mut map) = (IdIndex::default(), HashMap::new());
            let mut ids = Vec::new();
            for (insert, id) in steps {
                let is_it = |place: u32| ids[place as usize] == id;
                prop_assert_eq!(index.find(id, is_it), map.get(&id).copied());
                if !insert {
                    prop_assert_eq!(index.remove(id, is_it), map.remove(&id));
                } else if let Entry::Vacant(vacant) = map.entry(id) {
                    let place = ids.len() as u32;
                    ids.push(id);
                    index.insert(id, place);
                    vacant.insert(place);
                }
            }
            let found = map.iter().all(|(id, place)| index.find(*id, |place| ids[place as usize] == *id) == Some(*place));
            prop_assert!(found);
            prop_assert_eq!(index.len, map.len());
        }
    }
}
