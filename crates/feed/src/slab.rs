//! Entries at fixed places, with the last change of each page.
//!
//! Invariants: a place is assigned again only after it was returned; live and frozen states share pages as in
//! [`Pages`]. A search for changes after a record skips an unchanged page after one comparison. A list of changes is
//! therefore not needed.

use std::array;

use crate::pages::{FrozenPages, Pages};

/// Number of entries in a page.
const PAGE_ENTRIES: usize = 32;

/// Entries by place.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    pages: Pages<Page<T>>,
    /// Returned places; the last one is reused first.
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug, Clone)]
struct Page<T> {
    changed: u64,
    entries: [Option<T>; PAGE_ENTRIES],
}

/// All entries at one moment.
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

    /// Number of places, in use or not.
    pub(crate) fn places(&self) -> usize {
        self.pages.len() * PAGE_ENTRIES
    }

    /// The entry at a place in use.
    #[inline(always)]
    pub(crate) fn at(&self, place: u32) -> &T {
        match &self.pages.get(page(place)).entries[within(place)] {
            Some(entry) => entry,
            None => unreachable!("place {place} is not in use"),
        }
    }

    /// The entry at a place in use, to change it with record `seq`.
    #[inline(always)]
    pub(crate) fn at_mut(&mut self, place: u32, seq: u64) -> &mut T {
        let page = self.pages.get_mut(page(place));
        page.changed = seq;
        match &mut page.entries[within(place)] {
            Some(entry) => entry,
            None => unreachable!("place {place} is not in use"),
        }
    }

    /// Inserts an entry with record `seq`; returns its place.
    #[inline(always)]
    pub(crate) fn insert(&mut self, seq: u64, entry: T) -> u32 {
        if self.free.is_empty() {
            self.grow();
        }
        let place = self.free.pop().unwrap_or(0);
        let page = self.pages.get_mut(page(place));
        page.changed = seq;
        page.entries[within(place)] = Some(entry);
        self.len += 1;
        place
    }

    /// Removes an entry and returns it; the place can be reused.
    #[inline(always)]
    pub(crate) fn remove(&mut self, place: u32) -> T {
        let Some(entry) = self.pages.get_mut(page(place)).entries[within(place)].take() else {
            unreachable!("place {place} is not in use");
        };
        self.free.push(place);
        self.len -= 1;
        entry
    }

    /// Iterates over all entries by place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> + '_ {
        let places =
            |(number, page)| taken(page).map(move |(at, entry)| ((number * PAGE_ENTRIES + at) as u32, entry));
        self.pages.iter().enumerate().flat_map(places)
    }

    /// Iterates over all entries of pages that records after `seq` changed.
    pub(crate) fn near_changes_since(&self, seq: u64) -> impl Iterator<Item = &T> + '_ {
        self.pages.iter().filter(move |page| page.changed > seq).flat_map(taken).map(|(_, entry)| entry)
    }

    pub(crate) fn freeze(&mut self) -> FrozenSlab<T> {
        FrozenSlab(self.pages.freeze())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.pages.bytes() + (self.free.capacity() * size_of::<u32>()) as u64
    }

    #[cold]
    fn grow(&mut self) {
        let number = self.pages.push(Page { changed: 0, entries: array::from_fn(|_| None) });
        let first = number * PAGE_ENTRIES as u32;
        self.free.extend((first..first + PAGE_ENTRIES as u32).rev());
    }
}

impl<T> FrozenSlab<T> {
    /// Iterates over all entries in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> + '_ {
        self.0.iter().flat_map(taken).map(|(_, entry)| entry)
    }
}

fn taken<T>(page: &Page<T>) -> impl Iterator<Item = (usize, &T)> {
    page.entries.iter().enumerate().filter_map(|(at, entry)| Some((at, entry.as_ref()?)))
}

#[inline(always)]
fn page(place: u32) -> u32 {
    place / PAGE_ENTRIES as u32
}

#[inline(always)]
fn within(place: u32) -> usize {
    place as usize % PAGE_ENTRIES
}
