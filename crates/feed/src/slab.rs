//! A table whose entries are in numbered slots. The slots are grouped in pages, and each page has the sequence number
//! of the last record that changed the page.
//!
//! Invariants: a slot is used again only after its entry was removed. The live table and its frozen copies share pages,
//! as [`Pages`] describes. A search for the entries that changed since a record skips each unchanged page after one
//! comparison. Therefore, no list of changes is kept.

use std::array;

use crate::pages::{FrozenPages, Pages};

const PAGE_ENTRIES: usize = 32;

/// A table of entries in numbered slots.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    pages: Pages<Page<T>>,
    /// Slots that are not in use. The last slot in this list is used next.
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug, Clone)]
struct Page<T> {
    changed_seq: u64,
    entries: [Option<T>; PAGE_ENTRIES],
}

/// All entries of a [`Slab`] at one moment.
#[derive(Debug)]
pub(crate) struct FrozenSlab<T>(FrozenPages<Page<T>>);

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { pages: Pages::default(), free: Vec::new(), len: 0 }
    }
}

impl<T: Clone> Slab<T> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Number of all slots, both in use and free.
    pub(crate) fn slot_count(&self) -> usize {
        self.pages.len() * PAGE_ENTRIES
    }

    /// Returns the entry in a slot, which must be in use.
    #[inline(always)]
    pub(crate) fn at(&self, slot: u32) -> &T {
        match &self.pages.get(page_of(slot)).entries[index_in_page(slot)] {
            Some(entry) => entry,
            None => unreachable!("slot {slot} is not in use"),
        }
    }

    /// Returns the entry in a slot, which must be in use, and marks its page as changed by record `seq`.
    #[inline(always)]
    pub(crate) fn at_mut(&mut self, slot: u32, seq: u64) -> &mut T {
        let page = self.pages.get_mut(page_of(slot));
        page.changed_seq = seq;
        match &mut page.entries[index_in_page(slot)] {
            Some(entry) => entry,
            None => unreachable!("slot {slot} is not in use"),
        }
    }

    /// Inserts an entry and marks its page as changed by record `seq`. Returns the entry's slot.
    #[inline(always)]
    pub(crate) fn insert(&mut self, seq: u64, entry: T) -> u32 {
        if self.free.is_empty() {
            self.grow();
        }
        let slot = self.free.pop().unwrap_or(0);
        let page = self.pages.get_mut(page_of(slot));
        page.changed_seq = seq;
        page.entries[index_in_page(slot)] = Some(entry);
        self.len += 1;
        slot
    }

    /// Removes the entry in a slot and returns it. The slot is then free for another entry.
    #[inline(always)]
    pub(crate) fn remove(&mut self, slot: u32) -> T {
        let Some(entry) = self.pages.get_mut(page_of(slot)).entries[index_in_page(slot)].take() else {
            unreachable!("slot {slot} is not in use");
        };
        self.free.push(slot);
        self.len -= 1;
        entry
    }

    /// Iterates over all entries, in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> + '_ {
        let with_slots = |(page_number, page)| {
            occupied(page).map(move |(at, entry)| ((page_number * PAGE_ENTRIES + at) as u32, entry))
        };
        self.pages.iter().enumerate().flat_map(with_slots)
    }

    /// Iterates over all entries of the pages that records after `seq` changed. Some of these entries may be unchanged.
    pub(crate) fn near_changes_since(&self, seq: u64) -> impl Iterator<Item = &T> + '_ {
        self.pages
            .iter()
            .filter(move |page| page.changed_seq > seq)
            .flat_map(occupied)
            .map(|(_, entry)| entry)
    }

    pub(crate) fn freeze(&mut self) -> FrozenSlab<T> {
        FrozenSlab(self.pages.freeze())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.pages.bytes() + (self.free.capacity() * size_of::<u32>()) as u64
    }

    #[cold]
    fn grow(&mut self) {
        let page_number = self.pages.push(Page { changed_seq: 0, entries: array::from_fn(|_| None) });
        let first = page_number * PAGE_ENTRIES as u32;
        self.free.extend((first..first + PAGE_ENTRIES as u32).rev());
    }
}

impl<T> FrozenSlab<T> {
    /// Iterates over all entries in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> + '_ {
        self.0.iter().flat_map(occupied).map(|(_, entry)| entry)
    }
}

fn occupied<T>(page: &Page<T>) -> impl Iterator<Item = (usize, &T)> {
    page.entries.iter().enumerate().filter_map(|(at, entry)| Some((at, entry.as_ref()?)))
}

#[inline(always)]
fn page_of(slot: u32) -> u32 {
    slot / PAGE_ENTRIES as u32
}

#[inline(always)]
fn index_in_page(slot: u32) -> usize {
    slot as usize % PAGE_ENTRIES
}
