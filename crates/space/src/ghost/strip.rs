//! Which neighbours may see an entity, by the cell it is in.
//!
//! Cells are as large as the strip is wide, or larger: whoever sees an entity owns some of the cells around its own. For most
//! cells nobody else does, and that is known after the first look.

use std::collections::HashMap;

use crate::curve::{Cell, Morton};
use crate::handover::RegionId;
use crate::partition::Partition;
use crate::shape::Aabb;
use crate::world::{CELL_BITS, World};

/// For each cell, the regions that own some of a cell around it, and that cell's box.
#[derive(Debug)]
pub(crate) struct Strip<const D: usize> {
    world: World<D>,
    level: u32,
    cells: HashMap<u64, Vec<(RegionId, Aabb<D>)>>,
    last: (u64, Vec<(RegionId, Aabb<D>)>),
}

/// Cells that are remembered; then they are looked at anew.
const CELLS_MAX: usize = 1 << 18;

impl<const D: usize> Strip<D> {
    pub(crate) fn new(world: World<D>, width: f32) -> Strip<D> {
        let fits = |level: u32| {
            (0..D).all(|axis| {
                (world.max()[axis] - world.min()[axis]) / (1 << level) as f32 >= width * (1.0 + 1e-5)
            })
        };
        let level = (0..=CELL_BITS).rev().find(|level| fits(*level)).unwrap_or(0);
        Strip { world, level, cells: HashMap::new(), last: (u64::MAX, Vec::new()) }
    }

    /// The curve was cut anew.
    pub(crate) fn forget(&mut self) {
        self.cells.clear();
        self.last = (u64::MAX, Vec::new());
    }

    /// The others that may see who has this key.
    #[inline]
    pub(crate) fn near(&mut self, key: u64, own: RegionId, partition: &Partition) -> &[(RegionId, Aabb<D>)] {
        let prefix = key >> ((CELL_BITS - self.level) as usize * D);
        if self.last.0 != prefix {
            self.last = (prefix, self.find(prefix, key, own, partition));
        }
        &self.last.1
    }

    fn find(
        &mut self,
        prefix: u64,
        key: u64,
        own: RegionId,
        partition: &Partition,
    ) -> Vec<(RegionId, Aabb<D>)> {
        if self.cells.len() >= CELLS_MAX {
            self.cells.clear();
        }
        let (world, level) = (&self.world, self.level);
        let look = || {
            let cell = Cell::of(Morton::place::<D>(key), level);
            let mut near = Vec::new();
            for other in cell.around() {
                let (first, count) = other.keys();
                let owners = partition.owners(first, count).filter(|region| *region != own);
                near.extend(owners.map(|region| (region, world.box_of(&other))));
            }
            near
        };
        self.cells.entry(prefix).or_insert_with(look).clone()
    }
}
