//! The price levels of one side, best first.
//!
//! ```text
//!   steps   [ −∞ → page 4 ][ 9,950 → page 0 ][ 9,983 → page 2 ]      lowest key of each page, ascending
//!                                                    │
//!   page 2  keys   [ 9,983 | 9,984 | 9,990 | … best ] at most 64, ascending
//!           levels [  …    |  …    |  …    | …      ] the same order
//! ```
//! Invariants:
//! - Keys grow towards the best price on both sides: a bid's key is its price, and an ask's key is its price with all
//!   bits flipped. The same code therefore serves both sides, and the best levels are at the end of the arrays, where
//!   changes cost least.
//! - All keys of a page are at least the lowest key that the page's step states, and below the lowest key that the next
//!   step states.
//! - A page in use contains levels, unless it is the only page.
//!
//! A page consists of two arrays, not of a tree, because in most books one page has all levels of a side. Two rounds of
//! eight comparisons find a level in a page. A change takes 24 ns on the simulator's books of 30 levels, where a
//! `BTreeMap` takes 41 ns. If changes are spread over 7,500 levels, a change takes 47 ns, and 73 ns in a `BTreeMap`.

use crate::pages::{FrozenPages, Pages};
use crate::side::Side;

/// The value that means "no key". It is below every valid key.
pub(crate) const NO_KEY: i64 = i64::MIN;
/// Maximum number of levels in a page.
const PAGE_LEVELS: usize = 64;
/// Number of keys that are compared at once. A search in a page first compares the last key of each block, and then the
/// keys of one block.
const BLOCK_KEYS: usize = 8;
/// The key in the unused places at the end of a page. It is above every valid key, and small enough that the difference
/// of two keys does not overflow.
const UNUSED: i64 = 1 << 60;
/// A page with fewer levels than this number is merged with a neighbouring page if the levels of both fill at most
/// three quarters of a page.
const PAGE_LEVELS_FEW: usize = PAGE_LEVELS / 4;
/// Number of levels in each page when [`Ladder::push_best`] builds a side.
const PAGE_LEVELS_BUILT: usize = PAGE_LEVELS * 3 / 4;

/// Returns the key of a price. The function is its own inverse: for a key, it returns the price.
#[inline(always)]
pub(crate) fn key(side: Side, price: i64) -> i64 {
    // The mask that is combined with the price has all bits set for asks, and none for bids. A branch would often be
    // mispredicted, because the sides of successive changes follow no pattern.
    price ^ -i64::from(side as u8)
}

/// The levels of one side of an order book, by key. With each level, the ladder stores the sequence number of the last
/// record that changed the level.
#[derive(Debug)]
pub(crate) struct Ladder<L> {
    steps: Vec<Step>,
    pages: Pages<Page<L>>,
    free: Vec<u32>,
    len: usize,
    best_key: i64,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    low: i64,
    page: u32,
}

#[derive(Debug, Clone)]
struct Page<L> {
    len: usize,
    /// The sequence number of the last record that changed a level of the page.
    changed_seq: u64,
    keys: [i64; PAGE_LEVELS],
    levels: [Dated<L>; PAGE_LEVELS],
}

#[derive(Debug, Clone, Copy, Default)]
struct Dated<L> {
    changed_seq: u64,
    level: L,
}

impl<L> Default for Ladder<L> {
    fn default() -> Ladder<L> {
        Ladder { steps: Vec::new(), pages: Pages::default(), free: Vec::new(), len: 0, best_key: NO_KEY }
    }
}

impl<L: Copy + Default> Ladder<L> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Key of the best level; [`NO_KEY`] if there are no levels.
    #[inline(always)]
    pub(crate) fn best_key(&self) -> i64 {
        self.best_key
    }

    /// Key of the worst level.
    pub(crate) fn worst_key(&self) -> Option<i64> {
        let mut pages = self.steps.iter().map(|step| self.pages.get(step.page));
        pages.find(|page| page.len > 0).map(|page| page.keys[0])
    }

    pub(crate) fn get(&self, key: i64) -> Option<&L> {
        let page = self.pages.get(self.steps.get(self.step_index(key))?.page);
        let at = page.find(key)?;
        Some(&page.levels[at].level)
    }

    /// Returns the level at a key, and marks it as changed by record `seq`. Creates the level if it does not exist.
    #[inline(always)]
    pub(crate) fn get_or_insert(&mut self, key: i64, seq: u64) -> &mut L {
        if self.steps.is_empty() {
            self.add_first_page();
        }
        let mut page_number = self.steps[self.step_index(key)].page;
        if self.pages.get(page_number).len == PAGE_LEVELS {
            page_number = self.split(key);
        }
        let page = self.pages.get_mut(page_number);
        let at = page.lower_bound(key);
        if !page.has_key_at(at, key) {
            page.insert(at, key);
            self.len += 1;
            self.best_key = self.best_key.max(key);
        }
        page.changed_seq = seq;
        let dated = &mut page.levels[at];
        dated.changed_seq = seq;
        &mut dated.level
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, key: i64) -> Option<L> {
        let step = self.step_index(key);
        let page_number = self.steps.get(step)?.page;
        let at = self.pages.get(page_number).find(key)?;
        let page = self.pages.get_mut(page_number);
        let level = page.levels[at].level;
        page.remove(at);
        self.len -= 1;
        if page.len < PAGE_LEVELS_FEW && self.steps.len() > 1 {
            self.merge_with_neighbour(step);
        }
        if key == self.best_key {
            self.best_key = self.last_key();
        }
        Some(level)
    }

    /// Appends a level that is better than all others. A side is built with this function, from the worst level to the
    /// best. Some room stays free in each page.
    pub(crate) fn push_best(&mut self, key: i64, seq: u64, level: L) {
        debug_assert!(key > self.best_key);
        let full = |page: &Page<L>| page.len >= PAGE_LEVELS_BUILT;
        if self.steps.last().is_none_or(|last| full(self.pages.get(last.page))) {
            let low = if self.steps.is_empty() { NO_KEY } else { key };
            let page = self.new_page();
            self.steps.push(Step { low, page });
        }
        let page = self.pages.get_mut(self.steps[self.steps.len() - 1].page);
        (page.keys[page.len], page.levels[page.len]) = (key, Dated { changed_seq: seq, level });
        page.len += 1;
        page.changed_seq = seq;
        (self.best_key, self.len) = (key, self.len + 1);
    }

    pub(crate) fn clear(&mut self) {
        for Step { page, .. } in self.steps.drain(..) {
            *self.pages.get_mut(page) = Page::empty();
            self.free.push(page);
        }
        (self.len, self.best_key) = (0, NO_KEY);
    }

    /// Iterates over the levels from the best to the worst.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &L)> + '_ {
        self.steps.iter().rev().flat_map(|step| self.pages.get(step.page).iter())
    }

    /// Iterates over the levels that were changed by records after `seq`. Pages without such levels are skipped.
    pub(crate) fn changed_since(&self, seq: u64) -> impl Iterator<Item = (i64, &L)> + '_ {
        let pages = self.steps.iter().rev().map(|step| self.pages.get(step.page));
        pages.filter(move |page| page.changed_seq > seq).flat_map(move |page| page.changed_since(seq))
    }

    pub(crate) fn freeze(&mut self) -> FrozenLadder<L> {
        FrozenLadder { pages: self.pages.freeze(), len: self.len }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.pages.bytes() + (self.steps.capacity() * size_of::<Step>()) as u64
    }

    /// Index of the step whose page has the range of keys to which `key` belongs. For most keys, this is the last step.
    #[inline(always)]
    fn step_index(&self, key: i64) -> usize {
        match self.steps.last() {
            Some(last) if key < last.low => self.steps.partition_point(|step| step.low <= key) - 1,
            Some(_) => self.steps.len() - 1,
            None => 0,
        }
    }

    fn last_key(&self) -> i64 {
        let last = self.steps.last().map(|step| self.pages.get(step.page));
        last.filter(|page| page.len > 0).map_or(NO_KEY, |page| page.keys[page.len - 1])
    }

    #[cold]
    fn add_first_page(&mut self) {
        let page = self.new_page();
        self.steps.push(Step { low: NO_KEY, page });
    }

    fn new_page(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| self.pages.push(Page::empty()))
    }

    /// Splits a full page into two pages. Returns the number of the page to which `key` belongs.
    #[cold]
    fn split(&mut self, key: i64) -> u32 {
        let step = self.step_index(key);
        let lower = self.steps[step].page;
        let upper = self.pages.get_mut(lower).split_off(PAGE_LEVELS / 2);
        let low = upper.keys[0];
        let page = self.new_page();
        *self.pages.get_mut(page) = upper;
        self.steps.insert(step + 1, Step { low, page });
        if key < low { lower } else { page }
    }

    /// Merges the page of a step with the page of a neighbouring step if one of them is empty, or if the levels of both
    /// pages together fill at most three quarters of one page.
    #[cold]
    fn merge_with_neighbour(&mut self, step: usize) {
        let lower = step.saturating_sub(1);
        let (into, from) = (self.steps[lower].page, self.steps[lower + 1].page);
        let fits = self.pages.get(into).len + self.pages.get(from).len <= PAGE_LEVELS * 3 / 4;
        if fits || self.pages.get(from).len == 0 || self.pages.get(into).len == 0 {
            let upper = self.pages.get_mut(from).split_off(0);
            self.pages.get_mut(into).append(&upper);
            self.steps.remove(lower + 1);
            self.free.push(from);
        }
    }
}

impl<L: Copy + Default> Page<L> {
    fn empty() -> Page<L> {
        Page { len: 0, changed_seq: 0, keys: [UNUSED; PAGE_LEVELS], levels: [Dated::default(); PAGE_LEVELS] }
    }

    /// Number of keys in the page that are below `key`.
    #[inline(always)]
    fn lower_bound(&self, key: i64) -> usize {
        let (blocks, _) = self.keys.as_chunks::<BLOCK_KEYS>();
        let lasts = std::array::from_fn(|at| blocks[at][BLOCK_KEYS - 1]);
        let block = count_below(key, &lasts).min(BLOCK_KEYS - 1);
        block * BLOCK_KEYS + count_below(key, &blocks[block])
    }

    #[inline(always)]
    fn has_key_at(&self, at: usize, key: i64) -> bool {
        at < PAGE_LEVELS && self.keys[at] == key
    }

    #[inline(always)]
    fn find(&self, key: i64) -> Option<usize> {
        let at = self.lower_bound(key);
        self.has_key_at(at, key).then_some(at)
    }

    #[inline(always)]
    fn insert(&mut self, at: usize, key: i64) {
        self.keys.copy_within(at..self.len, at + 1);
        self.levels.copy_within(at..self.len, at + 1);
        self.keys[at] = key;
        self.levels[at] = Dated::default();
        self.len += 1;
    }

    #[inline(always)]
    fn remove(&mut self, at: usize) {
        self.keys.copy_within(at + 1..self.len, at);
        self.levels.copy_within(at + 1..self.len, at);
        self.len -= 1;
        self.keys[self.len] = UNUSED;
    }

    fn split_off(&mut self, at: usize) -> Page<L> {
        let mut upper = Page::empty();
        upper.changed_seq = self.changed_seq;
        upper.len = self.len - at;
        upper.keys[..upper.len].copy_from_slice(&self.keys[at..self.len]);
        upper.levels[..upper.len].copy_from_slice(&self.levels[at..self.len]);
        self.keys[at..].fill(UNUSED);
        self.len = at;
        upper
    }

    fn append(&mut self, upper: &Page<L>) {
        let len = self.len + upper.len;
        self.keys[self.len..len].copy_from_slice(&upper.keys[..upper.len]);
        self.levels[self.len..len].copy_from_slice(&upper.levels[..upper.len]);
        self.len = len;
        self.changed_seq = self.changed_seq.max(upper.changed_seq);
    }

    fn iter(&self) -> impl Iterator<Item = (i64, &L)> + '_ {
        (0..self.len).rev().map(|at| (self.keys[at], &self.levels[at].level))
    }

    fn changed_since(&self, seq: u64) -> impl Iterator<Item = (i64, &L)> + '_ {
        let changed = (0..self.len).rev().filter(move |at| self.levels[*at].changed_seq > seq);
        changed.map(|at| (self.keys[at], &self.levels[at].level))
    }
}

/// Counts the keys below `key` by the sign of each difference. The function needs no branches and can be compiled to
/// vector instructions.
#[inline(always)]
fn count_below(key: i64, keys: &[i64; BLOCK_KEYS]) -> usize {
    keys.iter().map(|other| (other.wrapping_sub(key) as u64) >> 63).sum::<u64>() as usize
}

/// The price levels of one side of a book at one moment.
#[derive(Debug)]
pub(crate) struct FrozenLadder<L> {
    pages: FrozenPages<Page<L>>,
    len: usize,
}

impl<L: Copy + Default> FrozenLadder<L> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Iterates over the levels from the best to the worst. The order of the pages is not stored in the frozen ladder;
    /// this function computes it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &L)> + '_ {
        let mut pages: Vec<&Page<L>> = self.pages.iter().filter(|page| page.len > 0).collect();
        pages.sort_unstable_by_key(|page| std::cmp::Reverse(page.keys[0]));
        pages.into_iter().flat_map(Page::iter)
    }
}
