//! An index without a structure: each query checks every item. Tests compare the results of other indexes with the
//! results of this one.

use super::{NearItem, NearestItems, PointColumns, SpatialIndex};
use crate::shape::{Shape, distance_sq};
use crate::world::Point;

/// A spatial index whose queries check every item. Tests compare the results of all other indexes with the results of
/// this one.
#[derive(Debug, Clone, Default)]
pub struct LinearScan<const D: usize> {
    points: Vec<Point<D>>,
}

impl<const D: usize> LinearScan<D> {
    /// Creates an empty index.
    pub fn new() -> LinearScan<D> {
        LinearScan { points: Vec::new() }
    }

    fn search(&self, at: &Point<D>, excluded: Option<usize>, nearest: &mut NearestItems) {
        nearest.clear();
        for (item, point) in self.points.iter().enumerate().filter(|(item, _)| Some(*item) != excluded) {
            nearest.offer(distance_sq(at, point), item as u32);
        }
    }
}

impl<const D: usize> SpatialIndex<D> for LinearScan<D> {
    fn rebuild(&mut self, points: PointColumns<'_, D>) {
        self.points.clear();
        self.points.extend((0..points[0].len()).map(|at| super::point_at(&points, at)));
    }

    fn len(&self) -> usize {
        self.points.len()
    }

    fn within<S: Shape<D>>(&self, shape: &S, found: &mut Vec<u32>) {
        found
            .extend((0..).zip(&self.points).filter(|(_, point)| shape.contains(point)).map(|(item, _)| item));
    }

    fn nearest(&self, at: &Point<D>, count: usize, found: &mut Vec<NearItem>) {
        let mut nearest = NearestItems::new(count);
        self.search(at, None, &mut nearest);
        found.clear();
        found.extend(nearest.found());
    }

    fn nearest_of_each(&self, count: usize, found: &mut Vec<NearItem>) {
        let mut nearest = NearestItems::new(count);
        found.clear();
        for (item, at) in self.points.iter().enumerate() {
            self.search(at, Some(item), &mut nearest);
            found.extend(nearest.found());
        }
    }

    fn point(&self, item: u32) -> Point<D> {
        self.points[item as usize]
    }

    fn bytes(&self) -> usize {
        self.points.capacity() * size_of::<Point<D>>()
    }
}
