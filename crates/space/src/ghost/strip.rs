//! Decides which neighbours may see an entity, and therefore receive it as a ghost. The decision depends only on the
//! entity's cell.
//!
//! Entities in a strip along a border become ghosts. Cells are at least as wide as this strip. A region that sees an
//! entity therefore owns some of the cells around the entity's cell. Cells are also so large that the data of all cells
//! along a border fits into the processor's cache. Near the two ends of a region's stretch of the curve, a neighbour
//! also receives some entities that it does not see.

use std::collections::BTreeMap;

use crate::curve::Cell;
use crate::handover::RegionId;
use crate::partition::Partition;
use crate::shape::Aabb;
use crate::world::{GRID_BITS, GridPoint, Point, WorldBox};

/// For each cell, the regions that own some of the cells around it.
#[derive(Debug)]
pub(crate) struct BorderStrip<const D: usize> {
    world: WorldBox<D>,
    level: u32,
    /// For each cell: 0 if the cell was not looked up yet, otherwise the index of its result in `found`, plus one.
    /// Allocated at the first lookup.
    cells: Vec<u32>,
    found: Vec<Box<[NeighbourBoxes<D>]>>,
}

/// A region that owns some of the cells around a certain cell, and boxes that cover these owned cells.
#[derive(Debug)]
pub(crate) struct NeighbourBoxes<const D: usize> {
    pub(crate) region: RegionId,
    boxes: Vec<Aabb<D>>,
}

impl<const D: usize> NeighbourBoxes<D> {
    /// Whether one of the boxes is within this squared distance of a point.
    #[inline]
    pub(crate) fn is_within(&self, distance_sq: f32, at: &Point<D>) -> bool {
        self.boxes.iter().any(|bounds| bounds.distance_sq(at) <= distance_sq)
    }
}

/// Maximum number of times that each axis of the world is halved to make cells, in three and in two dimensions. At most
/// 65,536 cells result.
const LEVELS: (u32, u32) = (5, 8);

impl<const D: usize> BorderStrip<D> {
    pub(crate) fn new(world: WorldBox<D>, width: f32) -> BorderStrip<D> {
        let fits = |level: u32| {
            (0..D).all(|axis| {
                (world.max()[axis] - world.min()[axis]) / (1 << level) as f32 >= width * (1.0 + 1e-5)
            })
        };
        let finest = if D == 2 { LEVELS.1 } else { LEVELS.0 };
        let level = (0..=finest).rev().find(|level| fits(*level)).unwrap_or(0);
        BorderStrip { world, level, cells: Vec::new(), found: Vec::new() }
    }

    /// Discards the stored results of all cells. Must be called whenever the curve has been cut anew.
    pub(crate) fn clear(&mut self) {
        self.cells.clear();
        self.found.clear();
    }

    /// The other regions that may see a point, each once.
    #[inline(always)]
    pub(crate) fn near(
        &mut self,
        at: &Point<D>,
        own: RegionId,
        partition: &Partition,
    ) -> &[NeighbourBoxes<D>] {
        let (grid_point, mut number) = (self.world.grid_point(at), 0);
        for axis in 0..D {
            number = number << self.level | (grid_point[axis] >> (GRID_BITS - self.level)) as usize;
        }
        let known = self.cells.get(number).map_or(0, |known| *known as usize);
        let known = if known == 0 { self.find(number, grid_point, own, partition) } else { known };
        &self.found[known - 1]
    }

    #[cold]
    fn find(
        &mut self,
        number: usize,
        grid_point: GridPoint<D>,
        own: RegionId,
        partition: &Partition,
    ) -> usize {
        let mut near: BTreeMap<RegionId, Vec<Aabb<D>>> = BTreeMap::new();
        for other in Cell::of(grid_point, self.level).around() {
            let (first, count) = other.keys();
            for region in partition.owners(first, count).filter(|region| *region != own) {
                near.entry(region).or_default().push(self.world.box_of(&other));
            }
        }
        let near =
            near.into_iter().map(|(region, boxes)| NeighbourBoxes { region, boxes: merge_adjacent(boxes) });
        self.found.push(near.collect());
        self.cells.resize(1 << (self.level as usize * D), 0);
        self.cells[number] = self.found.len() as u32;
        self.found.len()
    }
}

/// Merges boxes that are adjacent along one axis and equal along all other axes.
fn merge_adjacent<const D: usize>(mut boxes: Vec<Aabb<D>>) -> Vec<Aabb<D>> {
    for axis in 0..D {
        let alike = |a: &Aabb<D>, b: &Aabb<D>| {
            (0..D)
                .all(|other| other == axis || (a.min[other] == b.min[other] && a.max[other] == b.max[other]))
        };
        let mut fewer: Vec<Aabb<D>> = Vec::with_capacity(boxes.len());
        boxes.sort_by(|a, b| a.min[axis].total_cmp(&b.min[axis]));
        for one in boxes {
            match fewer.iter_mut().find(|other| alike(other, &one) && other.max[axis] >= one.min[axis]) {
                Some(other) => other.max[axis] = other.max[axis].max(one.max[axis]),
                None => fewer.push(one),
            }
        }
        boxes = fewer;
    }
    boxes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_adjacent_boxes_keeps_the_covered_space() {
        let cube = |x: u32, y: u32, z: u32| {
            let at = [x, y, z].map(|along| along as f32);
            Aabb { min: at, max: at.map(|along| along + 1.0) }
        };
        let slab = (0..9).map(|nth| cube(nth % 3, nth / 3, 4)).collect();
        assert_eq!(merge_adjacent(slab), [Aabb { min: [0.0, 0.0, 4.0], max: [3.0, 3.0, 5.0] }]);
        let corner = vec![cube(0, 0, 0), cube(1, 0, 0), cube(0, 1, 0)];
        let fewer = merge_adjacent(corner.clone());
        assert_eq!(fewer.len(), 2);
        for nth in 0..1_000_u32 {
            let at = [nth % 10, nth / 10 % 10, nth / 100].map(|along| along as f32 * 0.29 + 0.05);
            let contains = |boxes: &[Aabb<3>]| boxes.iter().any(|one| one.distance_sq(&at) == 0.0);
            assert_eq!(contains(&corner), contains(&fewer), "{at:?}");
        }
    }
}
