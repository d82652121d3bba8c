//! Finds the nearest items of every item at once.
//!
//! All items of a leaf share one walk through the tree. The walk lists the leaves that may contain a nearest item of
//! any item of this leaf. Then, for each item of the leaf, the search checks those listed leaves that may contain one
//! of this item's nearest items. The first limit for the distances comes from the items with neighbouring keys.

use super::{Node, Tree};
use crate::curve::Curve;
use crate::index::{NearItem, NearestItems, SpatialIndex};
use crate::world::Point;

impl<const D: usize, C: Curve<D>> Tree<D, C> {
    pub(super) fn find_nearest_of_each(&self, count: usize, found: &mut Vec<NearItem>) {
        found.clear();
        let count_each = count.min(self.len().saturating_sub(1));
        found.resize(count_each * self.len(), NearItem { item: 0, distance_sq: 0.0 });
        if count_each == 0 {
            return;
        }
        let mut search =
            Search { nearest: NearestItems::new(count_each), reaches: Vec::new(), leaves: Vec::new() };
        for leaf in self.nodes.iter().filter(|node| node.leaf) {
            self.find_nearest_for_leaf(leaf, count_each, &mut search, found);
        }
    }

    fn find_nearest_for_leaf(
        &self,
        leaf: &Node<D>,
        count_each: usize,
        search: &mut Search<D>,
        found: &mut [NearItem],
    ) {
        let Search { nearest, reaches, leaves } = search;
        let slots = leaf.first as usize..leaf.end as usize;
        reaches.clear();
        reaches.extend(slots.clone().map(|slot| self.first_reach(slot, count_each, nearest)));
        let furthest = reaches.iter().fold(0.0, |far: f32, reach| far.max(*reach));
        leaves.clear();
        self.walk(
            |bounds| bounds.distance_sq_to(&leaf.bounds) <= furthest,
            |other| leaves.push((other.bounds.distance_sq_to(&leaf.bounds), *other)),
        );
        leaves.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.first.cmp(&b.1.first)));
        for (slot, reach) in slots.zip(reaches.iter()) {
            let at = self.slot(slot);
            nearest.clear();
            self.search_leaves(leaves, slot, &at, *reach, nearest);
            let item = self.keys[slot].1 as usize;
            let room = &mut found[item * count_each..(item + 1) * count_each];
            room.iter_mut().zip(nearest.found()).for_each(|(slot, near)| *slot = near);
        }
    }

    /// Returns a squared distance within which the slot's item has at least `count` other items.
    fn first_reach(&self, slot: usize, count: usize, nearest: &mut NearestItems) -> f32 {
        nearest.clear();
        let at = self.slot(slot);
        let (before, after) = (slot.saturating_sub(count), (slot + 1 + count).min(self.len()));
        self.offer(before..slot, &at, nearest);
        self.offer(slot + 1..after, &at, nearest);
        nearest.reach()
    }

    #[inline]
    fn search_leaves(
        &self,
        leaves: &[(f32, Node<D>)],
        own: usize,
        at: &Point<D>,
        reach: f32,
        nearest: &mut NearestItems,
    ) {
        for (apart, node) in leaves {
            let reach = reach.min(nearest.reach());
            if *apart > reach {
                break;
            }
            if node.bounds.distance_sq(at) > reach {
                continue;
            }
            let (first, end) = (node.first as usize, node.end as usize);
            if (first..end).contains(&own) {
                self.offer(first..own, at, nearest);
                self.offer(own + 1..end, at, nearest);
            } else {
                self.offer(first..end, at, nearest);
            }
        }
    }
}

/// Buffers that searches reuse.
struct Search<const D: usize> {
    nearest: NearestItems,
    reaches: Vec<f32>,
    leaves: Vec<(f32, Node<D>)>,
}
