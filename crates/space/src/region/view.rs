//! The world around a region's entities as it was after the last tick: its own and its neighbours' in one grid.
//!
//! Invariant: whom an entity sees, and in which order, follows from the world's state alone. Cells are the world's, and in a
//! cell everybody stands by id.

use crate::behaviour::{Around, Other};
use crate::entity::EntityId;
use crate::ghost::{Ghost, Ghosts};
use crate::index::{Grid, Index};
use crate::shape::Aabb;
use crate::store::Store;
use crate::world::{Point, World};

/// Everybody that may be seen. What is the region's own stands in its store, and is not copied but into slots.
#[derive(Debug)]
pub(super) struct View<const D: usize> {
    sight: f32,
    grid: Grid<D>,
    /// The neighbours', whose items come after all rows.
    others: Vec<Ghost<D>>,
    /// By slot of the grid.
    slot_kinds: Vec<u32>,
    slot_velocity: [Vec<f32>; D],
    room: Vec<(EntityId, u32, Point<D>)>,
}

impl<const D: usize> View<D> {
    pub(super) fn new(world: World<D>, sight: f32) -> View<D> {
        View {
            sight,
            grid: Grid::new(world, if sight > 0.0 { sight } else { f32::MAX }),
            others: Vec::new(),
            slot_kinds: Vec::new(),
            slot_velocity: std::array::from_fn(|_| Vec::new()),
            room: Vec::new(),
        }
    }

    /// Takes in everybody as they are now; `seconds` a tick, after `tick` of them.
    pub(super) fn look(
        &mut self,
        store: &Store<D>,
        ghosts: &Ghosts<D>,
        tick: u64,
        seconds: f32,
        ticks_max: u64,
    ) {
        self.others.clear();
        ghosts.each(tick, seconds, ticks_max, |ghost| {
            if store.row(ghost.id).is_none() {
                self.others.push(*ghost);
            }
        });
        let (own, others) = (store.len(), &self.others);
        let point = |item: usize| if item < own { store.position(item) } else { others[item - own].position };
        let id = |item: usize| if item < own { store.ids()[item] } else { others[item - own].id };
        self.grid.rebuild_of(own + others.len(), point);
        self.grid.sort_cells(id, &mut self.room);
        let kind = |item: usize| if item < own { store.kinds()[item] } else { others[item - own].kind };
        let items = || self.grid.items().iter().map(|item| *item as usize);
        self.slot_kinds.clear();
        self.slot_kinds.extend(items().map(kind));
        let velocities = store.velocities();
        for axis in 0..D {
            let velocity = |item: usize| {
                if item < own { velocities[axis][item] } else { others[item - own].velocity[axis] }
            };
            self.slot_velocity[axis].clear();
            self.slot_velocity[axis].extend(items().map(velocity));
        }
    }

    /// Those around a row of the store that was looked at.
    #[inline(always)]
    pub(super) fn around(&self, row: usize) -> Seen<'_, D> {
        let position = self.grid.point(row as u32);
        Seen { view: self, own: self.grid.slot_of(row), position }
    }

    pub(super) fn bytes(&self) -> usize {
        let floats: usize = self.slot_velocity.iter().map(Vec::capacity).sum();
        let others = self.others.capacity() * size_of::<Ghost<D>>();
        let room = self.room.capacity() * size_of::<(EntityId, u32, Point<D>)>();
        self.grid.bytes() + (self.slot_kinds.capacity() + floats) * 4 + others + room
    }
}

/// Those within sight of one.
pub(super) struct Seen<'a, const D: usize> {
    view: &'a View<D>,
    own: usize,
    position: Point<D>,
}

impl<const D: usize> Around<D> for Seen<'_, D> {
    #[inline(always)]
    fn each(&self, mut visit: impl FnMut(&Other<D>)) {
        const LANES: usize = 16;
        let (view, sight) = (self.view, self.view.sight);
        // A little more, so that rounding leaves nobody out.
        let reach = sight * (1.0 + 1e-5);
        let room: Point<D> = self.position.map(|along| reach + along.abs() * 1e-6);
        let bounds = Aabb {
            min: std::array::from_fn(|axis| self.position[axis] - room[axis]),
            max: std::array::from_fn(|axis| self.position[axis] + room[axis]),
        };
        let columns = view.grid.columns();
        view.grid.rows(&bounds, |slots| {
            let mut start = slots.start;
            while start < slots.end {
                let count = LANES.min(slots.end - start);
                let mut distances = [0.0_f32; LANES];
                for axis in 0..D {
                    for (sum, along) in distances.iter_mut().zip(&columns[axis][start..start + count]) {
                        let beside = along - self.position[axis];
                        *sum += beside * beside;
                    }
                }
                for (lane, distance_sq) in distances[..count].iter().enumerate() {
                    let slot = start + lane;
                    if *distance_sq <= sight * sight && slot != self.own {
                        visit(&Other {
                            kind: view.slot_kinds[slot],
                            offset: std::array::from_fn(|axis| columns[axis][slot] - self.position[axis]),
                            distance_sq: *distance_sq,
                            velocity: std::array::from_fn(|axis| view.slot_velocity[axis][slot]),
                        });
                    }
                }
                start += count;
            }
        });
    }
}

/// Nobody: for those who do not look.
pub(super) struct Nobody;

impl<const D: usize> Around<D> for Nobody {
    #[inline(always)]
    fn each(&self, _: impl FnMut(&Other<D>)) {}
}
