//! Builds a tree: computes the points' keys, sorts the points by key, and builds the nodes over the sorted points.

use super::{LEAF_MAX, Node, Tree};
use crate::curve::Curve;
use crate::index::{PointColumns, point_at};
use crate::shape::Aabb;

impl<const D: usize, C: Curve<D>> Tree<D, C> {
    /// Sorts the points along the curve. Starts from the previous order, in which points that moved little are nearly
    /// sorted.
    pub(super) fn sort_points(&mut self, points: &PointColumns<'_, D>) {
        let count = points[0].len();
        if self.keys.len() == count {
            for (key, item) in &mut self.keys {
                *key = C::key(self.world.grid_point(&point_at(points, *item as usize)));
            }
        } else {
            self.keys.clear();
            let numbered =
                (0..count).map(|item| (C::key(self.world.grid_point(&point_at(points, item))), item as u32));
            self.keys.extend(numbered);
        }
        C::sort(&mut self.keys, &mut self.scratch);
        for (column, given) in self.at.iter_mut().zip(points) {
            column.clear();
            column.extend(self.keys.iter().map(|(_, item)| given[*item as usize]));
        }
        self.slots.resize(count, 0);
        for (slot, (_, item)) in self.keys.iter().enumerate() {
            self.slots[*item as usize] = slot as u32;
        }
    }

    /// Rebuilds the nodes over the sorted points.
    pub(super) fn build_nodes(&mut self) {
        self.nodes.clear();
        if !self.keys.is_empty() {
            self.build_node(0, self.keys.len(), 0);
        }
    }

    /// Adds a node for the points in these slots, and the node's descendants. The keys of the points share the first
    /// `depth` digits. Returns the box around the points.
    fn build_node(&mut self, first: usize, end: usize, mut depth: u32) -> Aabb<D> {
        let digit = |tree: &Self, slot: usize, depth| C::digit(tree.keys[slot].0, depth);
        let fits = end - first <= LEAF_MAX;
        // A cell with a single child gets no node.
        while !fits && depth < C::DIGITS && digit(self, first, depth) == digit(self, end - 1, depth) {
            depth += 1;
        }
        let leaf = fits || depth == C::DIGITS;
        let index = self.nodes.len();
        let node = Node { bounds: Aabb::EMPTY, first: first as u32, end: end as u32, after: 0, leaf };
        self.nodes.push(node);
        let mut bounds = Aabb::EMPTY;
        let mut start = first;
        while !leaf && start < end {
            let child = digit(self, start, depth);
            let after =
                start + self.keys[start..end].partition_point(|pair| C::digit(pair.0, depth) <= child);
            bounds = bounds.join(&self.build_node(start, after, depth + 1));
            start = after;
        }
        if leaf {
            bounds = self.bounds_of(first, end);
        }
        let after = self.nodes.len() as u32;
        self.nodes[index] = Node { bounds, after, ..node };
        bounds
    }

    fn bounds_of(&self, first: usize, end: usize) -> Aabb<D> {
        let ends = |axis: usize| {
            let column = &self.at[axis][first..end];
            column
                .iter()
                .fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), at| (min.min(*at), max.max(*at)))
        };
        Aabb { min: std::array::from_fn(|axis| ends(axis).0), max: std::array::from_fn(|axis| ends(axis).1) }
    }
}
