//! Entries that keep their place, with the moment of their page's last change.
//!
//! Invariants: a place that is given out is not given out again before it is returned; the live state and frozen ones share
//! pages as [`Pages`] says. Which entries a record after some other changed is asked page by page: pages where none did are
//! skipped by one comparison, so nothing has to be kept in order for it.

use std::array;

use crate::pages::{FrozenPages, Pages};

/// Entries in a page.
const PAGE_ENTRIES: usize = 32;

/// Entries by place.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    pages: Pages<Page<T>>,
    /// Places returned; the last one is warm.
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

    /// Places there are, taken or not.
    pub(crate) fn places(&self) -> usize {
        self.pages.len() * PAGE_ENTRIES
    }

    /// The entry at a place that was given out.
    #[inline(always)]
    pub(crate) fn at(&self, place: u32) -> &T {
        match &self.pages.get(page(place)).entries[within(place)] {
            Some(entry) => entry,
            None => unreachable!("place {place} was not given out"),
        }
    }

    /// The same, to change it with the record `seq`.
    #[inline(always)]
    pub(crate) fn at_mut(&mut self, place: u32, seq: u64) -> &mut T {
        let page = self.pages.get_mut(page(place));
        page.changed = seq;
        match &mut page.entries[within(place)] {
            Some(entry) => entry,
            None => unreachable!("place {place} was not given out"),
        }
    }

    /// Takes an entry in with the record `seq`, and gives its place.
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

    /// Gives the entry back, and its place to others.
    #[inline(always)]
    pub(crate) fn remove(&mut self, place: u32) -> T {
        let Some(entry) = self.pages.get_mut(page(place)).entries[within(place)].take() else {
            unreachable!("place {place} was not given out");
        };
        self.free.push(place);
        self.len -= 1;
        entry
    }

    /// All entries by place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> + '_ {
        let places =
            |(number, page)| taken(page).map(move |(at, entry)| ((number * PAGE_ENTRIES + at) as u32, entry));
        self.pages.iter().enumerate().flat_map(places)
    }

    /// All entries of pages of which a record after `seq` changed one.
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
    /// All entries, in no order that means anything.
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
