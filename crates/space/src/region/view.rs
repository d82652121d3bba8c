//! A grid of the entities in and around a region after the last tick: the region's own entities, and the ghosts of its
//! neighbours' entities.
//!
//! Invariant: the entities that an entity sees, and the order in which it sees them, depend only on the world's state.
//! Reason: the cells depend only on the world, and within a cell the entities are ordered by id.

mod lanes;

use std::ops::Range;

use crate::behaviour::{NearbyEntities, OtherEntity};
use crate::entity::EntityId;
use crate::ghost::{Ghost, Ghosts};
use crate::index::{Grid, SpatialIndex};
use crate::shape::Aabb;
use crate::store::EntityStore;
use crate::world::{Point, WorldBox};

pub(super) use lanes::{LaneSlots, LanesInSight};

/// Velocity and kind of a visible entity.
#[derive(Debug, Clone, Copy)]
struct SeenState<const D: usize> {
    velocity: Point<D>,
    kind: u32,
}

/// All entities that the entities of a region can see, with a copy of what behaviours read: position, velocity and
/// kind.
#[derive(Debug)]
pub(super) struct VisibleEntities<const D: usize> {
    sight: f32,
    grid: Grid<D>,
    /// The visible ghosts. In the grid, the rows of the entity store are numbered first, and then these ghosts.
    others: Vec<Ghost<D>>,
    /// Velocity and kind by slot.
    states: Vec<SeenState<D>>,
    scratch: Vec<(EntityId, u32, Point<D>)>,
}

impl<const D: usize> VisibleEntities<D> {
    pub(super) fn new(world: WorldBox<D>, sight: f32) -> VisibleEntities<D> {
        VisibleEntities {
            sight,
            grid: Grid::for_sight(world, if sight > 0.0 { sight } else { f32::MAX }),
            others: Vec::new(),
            states: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Rebuilds the view after `tick`, with ticks of `seconds` seconds.
    pub(super) fn rebuild(
        &mut self,
        store: &EntityStore<D>,
        ghosts: &Ghosts<D>,
        tick: u64,
        seconds: f32,
        ticks_max: u64,
    ) {
        self.others.clear();
        ghosts.for_each(tick, seconds, ticks_max, |ghost| {
            if store.row(ghost.id).is_none() {
                self.others.push(*ghost);
            }
        });
        let (own, others) = (store.len(), &self.others);
        let point = |item: usize| if item < own { store.position(item) } else { others[item - own].position };
        let id = |item: usize| if item < own { store.ids()[item] } else { others[item - own].id };
        self.grid.rebuild_with(own + others.len(), point);
        self.grid.sort_cells(id, &mut self.scratch);
        let state = |item: &u32| {
            let item = *item as usize;
            if item < own {
                SeenState { velocity: store.velocity(item), kind: store.kinds()[item] }
            } else {
                SeenState { velocity: others[item - own].velocity, kind: others[item - own].kind }
            }
        };
        self.states.clear();
        self.states.extend(self.grid.items().iter().map(state));
    }

    /// The distance up to which each entity of the region sees other entities.
    pub(super) fn sight(&self) -> f32 {
        self.sight
    }

    /// Number of rows of cells; entities of adjacent slots are near each other.
    pub(super) fn row_count(&self) -> usize {
        self.grid.row_count()
    }

    /// Slots of a row of cells.
    pub(super) fn row(&self, nth: usize) -> Range<usize> {
        self.grid.row(nth)
    }

    /// The item in a slot. Numbers below the store's length are rows of the store; higher numbers are ghosts.
    #[inline(always)]
    pub(super) fn item(&self, slot: usize) -> usize {
        self.grid.items()[slot] as usize
    }

    /// Coordinate of a slot's entity along the first axis.
    #[inline(always)]
    pub(super) fn first_axis(&self, slot: usize) -> f32 {
        self.grid.columns()[0][slot]
    }

    /// The entities around the entity in a slot.
    #[inline(always)]
    pub(super) fn around(&self, slot: usize) -> SlotsInSight<'_, D> {
        SlotsInSight { view: self, own: slot, position: self.grid.slot(slot) }
    }

    /// A distance a little greater than the sight, so that rounding errors do not omit an entity around the box
    /// `bounds`.
    #[inline(always)]
    fn reach(&self, bounds: &Aabb<D>) -> f32 {
        let corners = bounds.min.iter().chain(&bounds.max);
        let furthest = corners.fold(0.0, |far: f32, along| far.max(along.abs()));
        self.sight * (1.0 + 1e-5) + furthest * 1e-6
    }

    pub(super) fn bytes(&self) -> usize {
        let slots = self.states.capacity() * size_of::<SeenState<D>>();
        let others = self.others.capacity() * size_of::<Ghost<D>>();
        let scratch = self.scratch.capacity() * size_of::<(EntityId, u32, Point<D>)>();
        self.grid.bytes() + slots + others + scratch
    }
}

/// Finds the entities within sight of one entity.
pub(super) struct SlotsInSight<'a, const D: usize> {
    view: &'a VisibleEntities<D>,
    own: usize,
    position: Point<D>,
}

/// Number of slots that are compared together.
const LANES: usize = 8;
/// Capacity of the buffer of entities within sight.
const BUFFER_MAX: usize = 56;

impl<const D: usize> NearbyEntities<D> for SlotsInSight<'_, D> {
    /// Entities within sight are first collected without a branch, which would often be mispredicted, and visited
    /// afterwards.
    #[inline(always)]
    fn for_each(&self, mut visit: impl FnMut(&OtherEntity<D>)) {
        let sight = self.view.sight;
        let here = Aabb { min: self.position, max: self.position };
        let mut buffer = SightBuffer { slots: [(0, 0.0); BUFFER_MAX + LANES], count: 0 };
        for slots in self.view.grid.rows_around(here, self.view.reach(&here)) {
            let columns = self.view.grid.columns().map(|column| &column[slots.clone()]);
            let mut first = slots.start;
            let whole = slots.len() / LANES;
            for chunk in 0..whole {
                let at = chunk * LANES..(chunk + 1) * LANES;
                let distances = distances::<D>(&columns.map(|column| &column[at.clone()]), &self.position);
                buffer.push_visible(first, &distances, sight * sight);
                first += LANES;
                if buffer.count > BUFFER_MAX - LANES {
                    self.visit(&mut buffer, &mut visit);
                }
            }
            let at = whole * LANES..slots.len();
            let mut rest = [[0.0; LANES]; D];
            for axis in 0..D {
                rest[axis][..at.len()].copy_from_slice(&columns[axis][at.clone()]);
            }
            let distances = distances::<D>(&rest.each_ref().map(|column| &column[..]), &self.position);
            buffer.push_visible(first, &distances[..at.len()], sight * sight);
            if buffer.count > BUFFER_MAX - LANES {
                self.visit(&mut buffer, &mut visit);
            }
        }
        self.visit(&mut buffer, &mut visit);
    }
}

impl<const D: usize> SlotsInSight<'_, D> {
    #[inline(always)]
    fn visit(&self, buffer: &mut SightBuffer, visit: &mut impl FnMut(&OtherEntity<D>)) {
        let (view, columns) = (self.view, self.view.grid.columns());
        for (slot, distance_sq) in &buffer.slots[..buffer.count] {
            let slot = *slot as usize;
            if slot != self.own {
                let SeenState { velocity, kind } = view.states[slot];
                let offset = std::array::from_fn(|axis| columns[axis][slot] - self.position[axis]);
                visit(&OtherEntity { kind, offset, distance_sq: *distance_sq, velocity });
            }
        }
        buffer.count = 0;
    }
}

/// Squared distances of several adjacent slots from a point.
#[inline(always)]
fn distances<const D: usize>(columns: &[&[f32]; D], from: &Point<D>) -> [f32; LANES] {
    let mut sums = [0.0_f32; LANES];
    for axis in 0..D {
        for (sum, along) in sums.iter_mut().zip(columns[axis]) {
            let beside = along - from[axis];
            *sum += beside * beside;
        }
    }
    sums
}

/// Slots of entities within sight, with squared distances.
struct SightBuffer {
    slots: [(u32, f32); BUFFER_MAX + LANES],
    count: usize,
}

impl SightBuffer {
    #[inline(always)]
    fn push_visible(&mut self, first: usize, distances: &[f32], most: f32) {
        for (lane, distance_sq) in distances.iter().enumerate() {
            // If this entity is too far away, `count` does not grow, and the next entity overwrites this entry.
            self.slots[self.count] = ((first + lane) as u32, *distance_sq);
            self.count += usize::from(*distance_sq <= most);
        }
    }
}

/// An empty set of nearby entities, for behaviours without sight.
pub(super) struct NoNearbyEntities;

impl<const D: usize> NearbyEntities<D> for NoNearbyEntities {
    #[inline(always)]
    fn for_each(&self, _: impl FnMut(&OtherEntity<D>)) {}
}
