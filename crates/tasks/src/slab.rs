//! A list of items in numbered slots. The slots are on pages (see module `pages`), which copies of the list share.
//!
//! An id consists of a slot's number, the mark of a shard (see module `shard`), and the number of times that the slot
//! was used. When a slot is used for another item, the id of the removed item is therefore no longer valid. The choice
//! of the next slot depends only on earlier operations, so all nodes assign the same ids.

use std::ops::{Index, IndexMut};

use crate::error::TaskDecodeError;
use crate::layout::{Fields, Layout};
use crate::pages::Pages;

/// The value that stands for no slot.
pub(crate) const NONE: u32 = u32::MAX;

/// A slot of a [`Slab`], as stored in snapshots.
#[derive(Debug, Clone)]
pub(crate) struct Slot<T> {
    /// Number of times that the slot was used.
    generation: u32,
    /// Next free slot, if this one is free.
    next_free: u32,
    value: Option<T>,
}

impl<'a, T: Layout<'a>> Layout<'a> for Slot<T> {
    fn read(fields: &mut Fields<'a>) -> Result<Slot<T>, TaskDecodeError> {
        let (generation, next_free) = (u32::read(fields)?, u32::read(fields)?);
        Ok(Slot { generation, next_free, value: Layout::read(fields)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.generation.write(out);
        self.next_free.write(out);
        self.value.write(out);
    }
}

/// A list of items in numbered slots, whose clones share unchanged pages.
#[derive(Debug, Clone)]
pub(crate) struct Slab<T> {
    slots: Pages<Slot<T>>,
    free: u32,
    len: u32,
    /// The bits of an id that mark the shard (see module `shard`), above the bits of the slot's number.
    mark: u32,
    /// Lowest generation of new items. Each restoration from a backup raises this number. Before the first restoration,
    /// it is 0 for a state on a disk.
    generation_min: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { slots: Pages::default(), free: NONE, len: 0, mark: 0, generation_min: 0 }
    }
}

impl<T: Clone> Slab<T> {
    /// Creates an empty slab whose ids have this mark.
    pub(crate) fn with_mark(mark: u32) -> Slab<T> {
        Slab { mark, ..Slab::default() }
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if self.free == NONE {
            let generation = self.generation_min.max(1);
            self.slots.push_back(Slot { generation, next_free: NONE, value: Some(value) });
            return self.slots.len() as u32 - 1;
        }
        let at = self.free;
        let slot = &mut self.slots[at as usize];
        self.free = slot.next_free;
        slot.generation = slot.generation.wrapping_add(1).max(self.generation_min).max(1);
        slot.value = Some(value);
        at
    }

    pub(crate) fn remove(&mut self, at: u32) -> Option<T> {
        let slot = self.slots.get_mut(at as usize)?;
        let value = slot.value.take()?;
        slot.next_free = self.free;
        self.free = at;
        self.len -= 1;
        Some(value)
    }

    pub(crate) fn id(&self, at: u32) -> u64 {
        u64::from(self.slots[at as usize].generation) << 32 | u64::from(at ^ self.mark)
    }

    /// Raises the lowest generation of new items above the generations that any slot would reach in its next `count`
    /// uses.
    pub(crate) fn skip_generations(&mut self, count: u32) {
        let highest = self.slots.iter().map(|slot| slot.generation).fold(self.generation_min, u32::max);
        self.generation_min = highest.saturating_add(count);
    }

    /// Lowest generation of new items, for snapshots; 0 before the first restore.
    pub(crate) fn generation_min(&self) -> u32 {
        self.generation_min
    }

    pub(crate) fn set_generation_min(&mut self, generation_min: u32) {
        self.generation_min = generation_min;
    }

    /// Slot of an id, if the item still exists.
    pub(crate) fn find(&self, id: u64) -> Option<u32> {
        // An id of another shard gives a number above all slots.
        let at = id as u32 ^ self.mark;
        let slot = self.slots.get(at as usize)?;
        (slot.generation == (id >> 32) as u32 && slot.value.is_some()).then_some(at)
    }

    pub(crate) fn contains(&self, at: u32) -> bool {
        self.slots.get(at as usize).is_some_and(|slot| slot.value.is_some())
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Iterates over items from slot `from` on.
    pub(crate) fn iter_from(&self, from: u32) -> impl Iterator<Item = (u32, &T)> {
        let from = (from as usize).min(self.slots.len());
        let slots = self.slots.iter_from(from).enumerate();
        slots.filter_map(move |(at, slot)| Some(((from + at) as u32, slot.value.as_ref()?)))
    }

    /// All slots, including free slots, and the number of the first free slot, for snapshots.
    pub(crate) fn slots(&self) -> (impl Iterator<Item = &Slot<T>>, u32) {
        (self.slots.iter(), self.free)
    }

    pub(crate) fn slots_len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Appends a slot from a snapshot.
    pub(crate) fn push_slot(&mut self, slot: Slot<T>) {
        self.len += u32::from(slot.value.is_some());
        self.slots.push_back(slot);
    }

    /// Sets the first free slot from a snapshot. Returns whether the chain that begins there contains exactly the free
    /// slots.
    pub(crate) fn set_free(&mut self, free: u32) -> bool {
        self.free = free;
        let (mut at, mut left) = (free, self.slots.len() - self.len as usize);
        while at != NONE {
            match self.slots.get(at as usize) {
                Some(slot) if slot.value.is_none() && left > 0 => at = slot.next_free,
                _ => return false,
            }
            left -= 1;
        }
        left == 0
    }
}

impl<T: Clone> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        self.slots[at as usize].value.as_ref().expect("the slot is in use")
    }
}

impl<T: Clone> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        self.slots[at as usize].value.as_mut().expect("a referenced slot is in use")
    }
}
