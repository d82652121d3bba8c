//! A list of numbered items, which are stored on pages. Copies of the list share each page until one of the copies
//! changes an item on this page.
//!
//! ```text
//!   root     [ ● ][ ● ] …             a copy costs this list: one entry for 8,192 items
//!              ▼
//!   branch   [ ● ][ ● ] … 256         shared until an item below it is changed
//!              ▼
//!   page     [ T ][ T ] … 32          shared until one of these is changed
//! ```
//! Reading an item follows three pointers, and a change checks two reference counts. The persistent vector of the crate
//! `imbl` can be copied at no cost. But reading and changing it took half of the time of a dispatch, because it
//! consists of four buffers and a tree of variable depth.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

const PAGE: usize = 32;
const BRANCH: usize = 256;
const SPAN: usize = PAGE * BRANCH;

type Page<T> = [Option<T>; PAGE];
type Branch<T> = [Option<Arc<Page<T>>>; BRANCH];

/// A list of numbered items. Clones of the list share the pages that none of them has changed. No item is ever removed.
#[derive(Debug)]
pub(crate) struct Pages<T> {
    root: Vec<Arc<Branch<T>>>,
    len: usize,
}

impl<T> Default for Pages<T> {
    fn default() -> Pages<T> {
        Pages { root: Vec::new(), len: 0 }
    }
}

impl<T> Clone for Pages<T> {
    fn clone(&self) -> Pages<T> {
        Pages { root: self.root.clone(), len: self.len }
    }
}

impl<T> Pages<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.root.get(at / SPAN)?[at / PAGE % BRANCH].as_ref()?[at % PAGE].as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.iter_from(0)
    }

    pub(crate) fn iter_from(&self, from: usize) -> impl Iterator<Item = &T> + Clone {
        (from..self.len).filter_map(|at| self.get(at))
    }
}

impl<T: Clone> Pages<T> {
    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        let branch = Arc::make_mut(self.root.get_mut(at / SPAN)?);
        Arc::make_mut(branch[at / PAGE % BRANCH].as_mut()?)[at % PAGE].as_mut()
    }

    pub(crate) fn push_back(&mut self, value: T) {
        let at = self.len;
        if at.is_multiple_of(SPAN) {
            self.root.push(Arc::new([const { None }; BRANCH]));
        }
        let branch = Arc::make_mut(&mut self.root[at / SPAN]);
        let page = branch[at / PAGE % BRANCH].get_or_insert_with(|| Arc::new([const { None }; PAGE]));
        Arc::make_mut(page)[at % PAGE] = Some(value);
        self.len += 1;
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let pages = self.root.iter_mut().flat_map(|branch| Arc::make_mut(branch).iter_mut().flatten());
        pages.flat_map(|page| Arc::make_mut(page).iter_mut().flatten())
    }
}

impl<T> Index<usize> for Pages<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        self.get(at).expect("the item exists")
    }
}

impl<T: Clone> IndexMut<usize> for Pages<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        self.get_mut(at).expect("the item exists")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_pages_keep_their_values_when_the_original_changes() {
        let mut pages = Pages::default();
        (0..20_000).for_each(|at| pages.push_back(at));
        let copy = pages.clone();
        for at in (0..20_000).step_by(7) {
            pages[at] = -1;
        }
        pages.push_back(20_000);
        assert!(copy.iter().copied().eq(0..20_000));
        assert_eq!((copy.len(), pages.len()), (20_000, 20_001));
        let changed = |at: usize| if at < 20_000 && at.is_multiple_of(7) { -1 } else { at as i32 };
        assert!(pages.iter_from(8_190).copied().eq((8_190..20_001).map(changed)));
        pages.iter_mut().for_each(|value| *value += 1);
        assert!(pages.iter().copied().eq((0..20_001).map(|at| changed(at) + 1)));
        assert!(pages.get(20_001).is_none() && copy.get(20_000).is_none());
        assert_eq!(pages.get_mut(1 << 40), None);
    }
}
