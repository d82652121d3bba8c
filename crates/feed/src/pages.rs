//! Copy-on-write pages: a list of pages that can be frozen, which gives an unchanging copy of all pages. A page is
//! changed in place unless a frozen copy shares the page; in this case, the first change copies the page.
//!
//! ```text
//!   live:    own    [ – ][ B″][ – ][ – ]      changed since the last freeze: written in place
//!            below    │
//!            layer  [ – ][ B′][ C′][ – ]  ◄── frozen later    searched from the top down
//!            layer  [ A ][ B ][ C ][ D ]  ◄── frozen earlier
//! ```
//! Invariants:
//! - A page that a frozen copy shares is never written to: layers are changed only through [`Arc::get_mut`], which
//!   refuses shared layers.
//! - Every page is in `own` or in a layer below it. If there are several versions of a page, the uppermost version is
//!   the live one.
//! - The number of layers is at most one more than the number of frozen copies that still exist.
//!
//! The cost of a freeze depends on the number of pages changed since the previous freeze, not on the number of all
//! pages. If each page had an `Arc` of its own, every change would need an atomic read-modify-write operation. With
//! layers, a change only has to check whether the page is in `own`.

use std::sync::Arc;

/// The live state of all pages, by page number.
#[derive(Debug)]
pub(crate) struct Pages<T> {
    own: Vec<Option<Box<T>>>,
    /// The numbers of the pages that are in `own`.
    own_numbers: Vec<u32>,
    below: Option<Arc<Layer<T>>>,
}

#[derive(Debug)]
struct Layer<T> {
    pages: Vec<Option<Box<T>>>,
    below: Option<Arc<Layer<T>>>,
}

/// A frozen copy: all pages as they were at one moment.
#[derive(Debug)]
pub(crate) struct FrozenPages<T> {
    layers: Option<Arc<Layer<T>>>,
    count: usize,
}

impl<T> Default for Pages<T> {
    fn default() -> Pages<T> {
        Pages { own: Vec::new(), own_numbers: Vec::new(), below: None }
    }
}

impl<T: Clone> Pages<T> {
    /// Number of pages.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.own.len()
    }

    /// Adds a page and returns its number.
    pub(crate) fn push(&mut self, page: T) -> u32 {
        let at = self.own.len() as u32;
        self.own.push(Some(Box::new(page)));
        self.own_numbers.push(at);
        at
    }

    /// Returns the page with this number, to read it.
    #[inline(always)]
    pub(crate) fn get(&self, at: u32) -> &T {
        match &self.own[at as usize] {
            Some(page) => page,
            None => page_below(&self.below, at),
        }
    }

    /// Returns the page with this number, to change it.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, at: u32) -> &mut T {
        if self.own[at as usize].is_none() {
            self.fetch(at);
        }
        match &mut self.own[at as usize] {
            Some(page) => page,
            None => unreachable!("page {at} has just been fetched"),
        }
    }

    /// Iterates over all pages, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> + '_ {
        (0..self.own.len() as u32).map(|at| self.get(at))
    }

    #[cold]
    fn fetch(&mut self, at: u32) {
        self.own[at as usize] = take_or_copy(&mut self.below, at);
        self.own_numbers.push(at);
    }

    /// Returns a frozen copy of all pages as they are now.
    pub(crate) fn freeze(&mut self) -> FrozenPages<T> {
        let count = self.own.len();
        match self.below.as_mut().and_then(Arc::get_mut) {
            Some(layer) => {
                layer.pages.resize_with(count, || None);
                for at in self.own_numbers.drain(..) {
                    layer.pages[at as usize] = self.own[at as usize].take();
                }
                layer.merge_unshared();
            }
            None if self.own_numbers.is_empty() => {}
            None => {
                let empty = std::iter::repeat_with(|| None).take(count).collect();
                let pages = std::mem::replace(&mut self.own, empty);
                self.below = Some(Arc::new(Layer { pages, below: self.below.take() }));
                self.own_numbers.clear();
            }
        }
        FrozenPages { layers: self.below.clone(), count }
    }

    /// Memory that the live pages take, in bytes. Old versions of pages that only frozen copies use are not counted.
    pub(crate) fn bytes(&self) -> u64 {
        (self.own.len() * (size_of::<T>() + size_of::<Option<Box<T>>>())) as u64
    }
}

impl<T> Layer<T> {
    /// Merges this layer with the next layers below, down to the first layer that a frozen copy uses.
    fn merge_unshared(&mut self) {
        while let Some(below) = self.below.as_mut().and_then(Arc::get_mut) {
            below.pages.resize_with(self.pages.len(), || None);
            for (lower, upper) in below.pages.iter_mut().zip(&mut self.pages) {
                if upper.is_some() {
                    *lower = upper.take();
                }
            }
            std::mem::swap(&mut self.pages, &mut below.pages);
            self.below = below.below.take();
        }
    }
}

impl<T> FrozenPages<T> {
    /// Iterates over all pages, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> + '_ {
        (0..self.count as u32).map(|at| page_below(&self.layers, at))
    }
}

fn page_below<T>(layers: &Option<Arc<Layer<T>>>, at: u32) -> &T {
    let mut next = layers.as_deref();
    while let Some(layer) = next {
        if let Some(Some(page)) = layer.pages.get(at as usize) {
            return page;
        }
        next = layer.below.as_deref();
    }
    unreachable!("page {at} is in no layer")
}

/// Takes the page with number `at` out of the layers, or copies the page if a frozen copy shares it.
fn take_or_copy<T: Clone>(layers: &mut Option<Arc<Layer<T>>>, at: u32) -> Option<Box<T>> {
    let Some(layer) = layers else { unreachable!("page {at} is in no layer") };
    match Arc::get_mut(layer) {
        Some(layer) => match layer.pages.get_mut(at as usize).and_then(Option::take) {
            Some(page) => Some(page),
            None => take_or_copy(&mut layer.below, at),
        },
        None => Some(Box::new(page_below(layers, at).clone())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Push(u32),
        Change(u32, u32),
        Freeze,
        Drop(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => any::<u32>().prop_map(Step::Push),
            8 => (any::<u32>(), any::<u32>()).prop_map(|(at, value)| Step::Change(at, value)),
            3 => Just(Step::Freeze),
            2 => any::<usize>().prop_map(Step::Drop),
        ]
    }

    fn layers<T>(pages: &Pages<T>) -> usize {
        std::iter::successors(pages.below.as_ref(), |layer| layer.below.as_ref()).count()
    }

    proptest! {
        #[test]
        fn changing_the_live_state_does_not_change_frozen_states(steps in prop::collection::vec(step(), 1..200)) {
            let (mut pages, mut model) = (Pages::default(), Vec::new());
            let mut kept: Vec<(FrozenPages<u32>, Vec<u32>)> = Vec::new();
            for step in steps {
                match step {
                    Step::Push(value) => {
                        prop_assert_eq!(pages.push(value) as usize, model.len());
                        model.push(value);
                    }
                    Step::Change(at, value) if !model.is_empty() => {
                        let at = at % model.len() as u32;
                        *pages.get_mut(at) = value;
                        model[at as usize] = value;
                    }
                    Step::Freeze => kept.push((pages.freeze(), model.clone())),
                    Step::Drop(which) if !kept.is_empty() => drop(kept.swap_remove(which % kept.len())),
                    _ => {}
                }
                prop_assert!(pages.iter().eq(&model));
                prop_assert!(kept.iter().all(|(frozen, model)| frozen.iter().eq(model)));
            }
            drop(kept);
            pages.freeze();
            prop_assert!(layers(&pages) <= 1, "layers without a frozen state are merged");
        }
    }

    #[test]
    fn layer_of_a_page_is_dropped_when_no_frozen_state_uses_it() {
        let mut pages = Pages::default();
        pages.push(0);
        let oldest = pages.freeze();
        for value in 1..100 {
            *pages.get_mut(0) = value;
            pages.freeze();
        }
        assert_eq!(layers(&pages), 2);
        assert_eq!(oldest.iter().collect::<Vec<_>>(), [&0]);
    }
}
