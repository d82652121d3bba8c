//! The world around a region's entities as it was after the last tick: its own and its neighbours' in one grid.
//!
//! Invariant: whom an entity sees, and in which order, follows from the world's state alone. Cells are the world's, and in a
//! cell everybody stands by id.

mod lanes;

use std::ops::Range;

use crate::behaviour::{Around, Other};
use crate::entity::EntityId;
use crate::ghost::{Ghost, Ghosts};
use crate::index::{Grid, Index};
use crate::shape::Aabb;
use crate::store::Store;
use crate::world::{Point, World};

pub(super) use lanes::{Asked, SeenLanes};

/// What is seen of somebody beside where it is.
#[derive(Debug, Clone, Copy)]
struct Look<const D: usize> {
    velocity: Point<D>,
    kind: u32,
}

/// Everybody that may be seen. What is the region's own stands in its store, and is not copied but into slots.
#[derive(Debug)]
pub(super) struct View<const D: usize> {
    sight: f32,
    grid: Grid<D>,
    /// The neighbours', whose items come after all rows.
    others: Vec<Ghost<D>>,
    /// By slot of the grid.
    looks: Vec<Look<D>>,
    room: Vec<(EntityId, u32, Point<D>)>,
}

impl<const D: usize> View<D> {
    pub(super) fn new(world: World<D>, sight: f32) -> View<D> {
        View {
            sight,
            grid: Grid::for_sight(world, if sight > 0.0 { sight } else { f32::MAX }),
            others: Vec::new(),
            looks: Vec::new(),
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
        let look = |item: &u32| {
            let item = *item as usize;
            if item < own {
                Look { velocity: store.velocity(item), kind: store.kinds()[item] }
            } else {
                Look { velocity: others[item - own].velocity, kind: others[item - own].kind }
            }
        };
        self.looks.clear();
        self.looks.extend(self.grid.items().iter().map(look));
    }

    /// How far everybody sees.
    pub(super) fn sight(&self) -> f32 {
        self.sight
    }

    /// Rows of cells: whoever stands in one stands near the next in it.
    pub(super) fn row_count(&self) -> usize {
        self.grid.row_count()
    }

    /// The slots of a row of cells.
    pub(super) fn row(&self, nth: usize) -> Range<usize> {
        self.grid.row(nth)
    }

    /// Who stands in a slot: a row of the store, or, from its length on, one of the neighbours'.
    #[inline(always)]
    pub(super) fn item(&self, slot: usize) -> usize {
        self.grid.items()[slot] as usize
    }

    /// Where one stands along the first axis.
    #[inline(always)]
    pub(super) fn first_axis(&self, slot: usize) -> f32 {
        self.grid.columns()[0][slot]
    }

    /// Those around who stands in a slot.
    #[inline(always)]
    pub(super) fn around(&self, slot: usize) -> Seen<'_, D> {
        Seen { view: self, own: slot, position: self.grid.slot(slot) }
    }

    /// A little more than how far those in a box see, so that rounding leaves nobody out.
    #[inline(always)]
    fn reach(&self, bounds: &Aabb<D>) -> f32 {
        let corners = bounds.min.iter().chain(&bounds.max);
        let furthest = corners.fold(0.0, |far: f32, along| far.max(along.abs()));
        self.sight * (1.0 + 1e-5) + furthest * 1e-6
    }

    pub(super) fn bytes(&self) -> usize {
        let slots = self.looks.capacity() * size_of::<Look<D>>();
        let others = self.others.capacity() * size_of::<Ghost<D>>();
        let room = self.room.capacity() * size_of::<(EntityId, u32, Point<D>)>();
        self.grid.bytes() + slots + others + room
    }
}

/// Those within sight of one.
pub(super) struct Seen<'a, const D: usize> {
    view: &'a View<D>,
    own: usize,
    position: Point<D>,
}

/// Slots that are looked at together.
const LANES: usize = 8;
/// Those within sight that are noted before they are visited.
const NOTED_MAX: usize = 56;

impl<const D: usize> Around<D> for Seen<'_, D> {
    /// Who is within sight is noted without a branch, which would be foretold wrongly for every other one, and visited after that.
    #[inline(always)]
    fn each(&self, mut visit: impl FnMut(&Other<D>)) {
        let sight = self.view.sight;
        let here = Aabb { min: self.position, max: self.position };
        let mut noted = Noted { slots: [(0, 0.0); NOTED_MAX + LANES], count: 0 };
        for slots in self.view.grid.rows_around(here, self.view.reach(&here)) {
            let columns = self.view.grid.columns().map(|column| &column[slots.clone()]);
            let mut first = slots.start;
            let whole = slots.len() / LANES;
            for chunk in 0..whole {
                let at = chunk * LANES..(chunk + 1) * LANES;
                let distances = distances::<D>(&columns.map(|column| &column[at.clone()]), &self.position);
                noted.note(first, &distances, sight * sight);
                first += LANES;
                if noted.count > NOTED_MAX - LANES {
                    self.visit(&mut noted, &mut visit);
                }
            }
            let at = whole * LANES..slots.len();
            let mut rest = [[0.0; LANES]; D];
            for axis in 0..D {
                rest[axis][..at.len()].copy_from_slice(&columns[axis][at.clone()]);
            }
            let distances = distances::<D>(&rest.each_ref().map(|column| &column[..]), &self.position);
            noted.note(first, &distances[..at.len()], sight * sight);
            if noted.count > NOTED_MAX - LANES {
                self.visit(&mut noted, &mut visit);
            }
        }
        self.visit(&mut noted, &mut visit);
    }
}

impl<const D: usize> Seen<'_, D> {
    #[inline(always)]
    fn visit(&self, noted: &mut Noted, visit: &mut impl FnMut(&Other<D>)) {
        let (view, columns) = (self.view, self.view.grid.columns());
        for (slot, distance_sq) in &noted.slots[..noted.count] {
            let slot = *slot as usize;
            if slot != self.own {
                let Look { velocity, kind } = view.looks[slot];
                let offset = std::array::from_fn(|axis| columns[axis][slot] - self.position[axis]);
                visit(&Other { kind, offset, distance_sq: *distance_sq, velocity });
            }
        }
        noted.count = 0;
    }
}

/// Squares of how far some slots are away.
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

/// Slots within sight, and the squares of how far they are away.
struct Noted {
    slots: [(u32, f32); NOTED_MAX + LANES],
    count: usize,
}

impl Noted {
    #[inline(always)]
    fn note(&mut self, first: usize, distances: &[f32], most: f32) {
        for (lane, distance_sq) in distances.iter().enumerate() {
            // Written over by the next where it is too far away.
            self.slots[self.count] = ((first + lane) as u32, *distance_sq);
            self.count += usize::from(*distance_sq <= most);
        }
    }
}

/// Nobody: for those who do not look.
pub(super) struct Nobody;

impl<const D: usize> Around<D> for Nobody {
    #[inline(always)]
    fn each(&self, _: impl FnMut(&Other<D>)) {}
}
