//! Checks that every entity of the demo's world exists exactly once.

use std::collections::BTreeMap;

use dunlin::space::{LinearScan, Octree, RegionState, SpatialIndex, WorldBox};
use dunlin_cli::commands::space::life::AIRCRAFT;

/// The result of counting a world's entities: how many were found, and which are lost, duplicated or unknown.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct EntityCount {
    pub found: usize,
    /// The ids of the entities that are in no region.
    pub lost: Vec<u64>,
    /// The ids of the entities that are in two or more regions.
    pub duplicated: Vec<u64>,
    /// The ids of entities that the demo did not create.
    pub unknown: Vec<u64>,
    /// The number of entities whose handover has begun but not finished.
    pub in_handover: usize,
}

impl EntityCount {
    /// Counts the entities in the states of all regions. The ticks must be stopped. `expected` contains the id of every
    /// created entity.
    pub fn of<'a>(
        states: impl Iterator<Item = &'a RegionState<3>>,
        expected: impl Iterator<Item = u64>,
    ) -> EntityCount {
        let mut counts: BTreeMap<u64, u32> = expected.map(|id| (id, 0)).collect();
        let mut accounts = EntityCount::default();
        for state in states {
            accounts.in_handover += state.handover().in_doubt().len();
            for id in state.store().ids() {
                accounts.found += 1;
                match counts.get_mut(&id.0) {
                    Some(count) => *count += 1,
                    None => accounts.unknown.push(id.0),
                }
            }
        }
        let which = |condition: fn(u32) -> bool| {
            counts.iter().filter(|(_, count)| condition(**count)).map(|(id, _)| *id).collect()
        };
        accounts.lost = which(|count| count == 0);
        accounts.duplicated = which(|count| count > 1);
        accounts
    }

    /// Whether every created entity exists exactly once, and no other entity exists.
    pub fn is_correct(&self) -> bool {
        self.lost.is_empty() && self.duplicated.is_empty() && self.unknown.is_empty()
    }
}

/// Counts the pairs of aircraft that are at most `radius` apart. Returns two counts: first the pairs that the octree
/// finds, then the pairs that a comparison of each aircraft with every other aircraft finds.
pub fn pairs<'a>(
    states: impl Iterator<Item = &'a RegionState<3>>,
    world: WorldBox<3>,
    radius: f32,
) -> (usize, usize) {
    let mut columns: [Vec<f32>; 3] = Default::default();
    for state in states {
        let store = state.store();
        for row in (0..store.len()).filter(|row| store.kinds()[*row] == AIRCRAFT) {
            columns
                .iter_mut()
                .zip(store.position(row))
                .for_each(|(column, coordinate)| column.push(coordinate));
        }
    }
    let by = |index: &mut dyn FnMut(u32, &mut Vec<u32>)| {
        let mut found = Vec::new();
        let each = (0..columns[0].len() as u32).map(|item| {
            index(item, &mut found);
            found.len()
        });
        each.sum::<usize>() / 2
    };
    let points = std::array::from_fn(|axis| &columns[axis][..]);
    let (mut octree, mut scan) = (Octree::new(world), LinearScan::new());
    octree.rebuild(points);
    scan.rebuild(points);
    (
        by(&mut |item, found| octree.neighbours(item, radius, found)),
        by(&mut |item, found| scan.neighbours(item, radius, found)),
    )
}
