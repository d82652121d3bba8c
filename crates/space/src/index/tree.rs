//! A linear tree, which is a spatial index: points in the order of a space-filling curve, and a tree of cells over
//! these points.
//!
//! ```text
//!   slots    . .. . ... . .. .... . . .. .      points in the order of the curve, coordinates by axis
//!   nodes    [ root                      ]      in the order of a walk: a node, then its children. Each node has its
//!            [ cell      ][ cell ][ cell ]      slots, the box around its points, and the node at which a walk
//!            [leaf][leaf ]        [..][..]      continues if it skips this node's children
//! ```
//! Invariants: a node's slots are all points of one cell of the curve. A leaf has at most [`LEAF_MAX`] points unless
//! all of them are in one smallest cell. With [`MortonCurve`] the tree is an octree (a quadtree in two dimensions),
//! with [`TetrahedralCurve`] a tree of tetrahedra (of triangles in two dimensions).
//!
//! The curve determines the cells. Searches do not use the cells themselves. They use the box around the points of each
//! cell, which is often much smaller than the cell.

mod build;
mod nearest_of_each;

use super::{NearItem, NearestItems, PointColumns, SpatialIndex};
use crate::curve::{Curve, MortonCurve, TetrahedralCurve};
use crate::shape::{Aabb, Shape};
use crate::world::{Point, WorldBox};

/// A spatial index along the Morton curve: a linear octree, or a quadtree in two dimensions.
pub type Octree<const D: usize> = Tree<D, MortonCurve>;

/// A spatial index along the tetrahedral Morton curve: a linear tree of tetrahedra or triangles.
pub type TetrahedralTree<const D: usize> = Tree<D, TetrahedralCurve>;

/// Maximum number of points in a leaf. Exception: if all points of a leaf are in one smallest cell, the leaf may have
/// more.
pub(crate) const LEAF_MAX: usize = 16;

/// A spatial index: a tree of cells over points that are sorted along a space-filling curve.
#[derive(Debug, Clone)]
pub struct Tree<const D: usize, C: Curve<D>> {
    world: WorldBox<D>,
    keys: Vec<(C::Key, u32)>,
    scratch: Vec<(C::Key, u32)>,
    /// Coordinates by slot.
    at: [Vec<f32>; D],
    /// Slot of each item.
    slots: Vec<u32>,
    nodes: Vec<Node<D>>,
}

#[derive(Debug, Clone, Copy)]
struct Node<const D: usize> {
    bounds: Aabb<D>,
    first: u32,
    end: u32,
    /// The next node of a walk that skips this node's subtree.
    after: u32,
    leaf: bool,
}

impl<const D: usize, C: Curve<D>> Tree<D, C> {
    /// Creates an empty tree.
    pub fn new(world: WorldBox<D>) -> Tree<D, C> {
        let (keys, scratch, slots, nodes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Tree { world, keys, scratch, at: std::array::from_fn(|_| Vec::new()), slots, nodes }
    }

    /// Items in the order of the curve, with their keys.
    pub fn in_order(&self) -> &[(C::Key, u32)] {
        &self.keys
    }

    /// Walks the nodes whose boxes `accept` accepts, and visits the leaves among them.
    #[inline(always)]
    fn walk(&self, mut accept: impl FnMut(&Aabb<D>) -> bool, mut visit: impl FnMut(&Node<D>)) {
        let mut next = 0;
        while let Some(node) = self.nodes.get(next) {
            if !accept(&node.bounds) {
                next = node.after as usize;
            } else {
                if node.leaf {
                    visit(node);
                }
                next += 1;
            }
        }
    }

    #[inline(always)]
    fn slot(&self, slot: usize) -> Point<D> {
        std::array::from_fn(|axis| self.at[axis][slot])
    }

    /// Offers the points of these slots to `nearest`.
    #[inline(always)]
    fn offer(&self, slots: std::ops::Range<usize>, at: &Point<D>, nearest: &mut NearestItems) {
        const LANES: usize = 16;
        let columns: [&[f32]; D] = std::array::from_fn(|axis| &self.at[axis][slots.clone()]);
        let items = &self.keys[slots];
        for start in (0..items.len()).step_by(LANES) {
            let end = (start + LANES).min(items.len());
            let mut distances = [0.0_f32; LANES];
            for axis in 0..D {
                for (sum, along) in distances.iter_mut().zip(&columns[axis][start..end]) {
                    let beside = at[axis] - along;
                    *sum += beside * beside;
                }
            }
            for (distance, item) in distances.iter().zip(&items[start..end]) {
                nearest.offer(*distance, item.1);
            }
        }
    }
}

impl<const D: usize, C: Curve<D>> SpatialIndex<D> for Tree<D, C> {
    fn rebuild(&mut self, points: PointColumns<'_, D>) {
        self.sort_points(&points);
        self.build_nodes();
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn within<S: Shape<D>>(&self, shape: &S, found: &mut Vec<u32>) {
        self.walk(
            |bounds| shape.intersects(bounds),
            |leaf| {
                let slots = leaf.first as usize..leaf.end as usize;
                found.extend(
                    slots.filter(|slot| shape.contains(&self.slot(*slot))).map(|slot| self.keys[slot].1),
                );
            },
        );
    }

    /// First checks the points whose keys are next to the key of `at`. The distances of these points limit how much of
    /// the tree the search then has to walk.
    fn nearest(&self, at: &Point<D>, count: usize, found: &mut Vec<NearItem>) {
        let mut nearest = NearestItems::new(count);
        let key = C::key(self.world.grid_point(at));
        let slot = self.keys.partition_point(|(other, _)| *other < key);
        let candidates = slot.saturating_sub(count)..(slot + count).min(self.len());
        self.offer(candidates, at, &mut nearest);
        let reach = nearest.reach();
        nearest.clear();
        self.find(at, count, reach, &mut nearest);
        found.clear();
        found.extend(nearest.found());
    }

    fn nearest_of_each(&self, count: usize, found: &mut Vec<NearItem>) {
        self.find_nearest_of_each(count, found);
    }

    fn point(&self, item: u32) -> Point<D> {
        self.slot(self.slots[item as usize] as usize)
    }

    fn bytes(&self) -> usize {
        let pairs = (self.keys.capacity() + self.scratch.capacity()) * size_of::<(C::Key, u32)>();
        let columns: usize = self.at.iter().map(|column| column.capacity() * 4).sum();
        pairs + columns + self.slots.capacity() * 4 + self.nodes.capacity() * size_of::<Node<D>>()
    }
}

impl<const D: usize, C: Curve<D>> Tree<D, C> {
    /// Walks the nodes that may hold an item within the squared distance `reach`, and nearer than the farthest of
    /// `count` items found so far.
    fn find(&self, at: &Point<D>, count: usize, reach: f32, nearest: &mut NearestItems) {
        if count == 0 {
            return;
        }
        // The walk is written out here, because two closures would both borrow `nearest`.
        let mut next = 0;
        while let Some(node) = self.nodes.get(next) {
            if node.bounds.distance_sq(at) > nearest.reach().min(reach) {
                next = node.after as usize;
                continue;
            }
            if node.leaf {
                self.offer(node.first as usize..node.end as usize, at, nearest);
            }
            next += 1;
        }
    }
}
