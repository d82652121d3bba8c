//! Entities as columns: one for the ids, one for each coordinate, one for each component.
//!
//! Invariants:
//! - All columns have one length; an id stands in one row only.
//! - The same operations in the same order give the same rows everywhere, so that a standby can be told of rows.
//! - Positions and velocities are finite: what is not is refused, and leaves no trace.
//!
//! Rows are brought into the Morton order some at a time (see `order`), as the owner says; in between new rows stand at
//! the end, and the last row takes the place of one that goes. Limit: [`Limits::entities_max`](crate::Limits).

mod component;
mod order;
mod snapshot;
mod state;

use std::ops::Deref;

use hashbrown::HashTable;

use crate::entity::EntityId;
use crate::handover::{Holdings, Parcel, Refusal, RegionId};
use crate::index::Columns;
use crate::limits::Limits;
use crate::world::Point;

pub use component::{Component, Kind, Schema, SchemaError};
pub use order::Window;
pub use state::{Entity, StateError};

use component::Column;

/// Nobody moves it: it is being handed over.
const STILL: u8 = 1;
/// Its behaviour failed: it stays where it is until it is thawed.
const FROZEN: u8 = 2;

/// All entities of a region.
#[derive(Debug, Clone)]
pub struct Store<const D: usize> {
    schema: Schema,
    schema_hash: u32,
    limits: Limits,
    ids: Vec<EntityId>,
    generations: Vec<u32>,
    kinds: Vec<u32>,
    flags: Vec<u8>,
    /// The tick before which each is not handed over again.
    rests_until: Vec<u32>,
    position: [Vec<f32>; D],
    velocity: [Vec<f32>; D],
    components: Vec<Column>,
    rows: HashTable<u32>,
}

/// All rows of a store, to be moved; those with a flag stand still.
#[derive(Debug)]
pub(crate) struct Rows<'a, const D: usize> {
    pub(crate) ids: &'a [EntityId],
    pub(crate) kinds: &'a [u32],
    pub(crate) flags: &'a [u8],
    pub(crate) position: [&'a mut [f32]; D],
    pub(crate) velocity: [&'a mut [f32]; D],
}

/// Why an entity is not taken in.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is one of this id.
    #[error("entity {0} is there already")]
    Duplicate(EntityId),
    /// Another region of the world has one of this id.
    #[error("entity {id} is in region {} already: each id is given once in a world", .region.0)]
    Taken {
        /// Which entity.
        id: EntityId,
        /// The region that has it.
        region: RegionId,
    },
    /// There is none of this id.
    #[error("there is no entity {0}")]
    Unknown(EntityId),
    /// There are as many as there may be.
    #[error("there would be more than {max} entities")]
    Full {
        /// The limit.
        max: u32,
    },
    /// A coordinate is not a number, or infinite.
    #[error("entity {id}: {what} is not finite")]
    NotFinite {
        /// Which.
        id: EntityId,
        /// Its position or velocity.
        what: &'static str,
    },
    /// It is not in the world.
    #[error("entity {0} is outside of the world")]
    Outside(EntityId),
    /// Its place is in a region that is not run here.
    #[error("entity {id}: its place is in region {}, which is not run here: spawn it in the process that owns that region", .region.0)]
    Elsewhere {
        /// Which entity.
        id: EntityId,
        /// The region whose place it is.
        region: RegionId,
    },
    /// Its velocity is too low for its place.
    #[error(
        "entity {id} would stand still: at its place two coordinates are {apart} apart, and in a tick it flies less; \
         give it {slowest} a second or more, or a place nearer to 0"
    )]
    StandsStill {
        /// Which entity.
        id: EntityId,
        /// The distance between two coordinates there.
        apart: f32,
        /// So much a second moves it surely.
        slowest: f32,
    },
    /// It is being handed over: its new owner takes commands before long.
    #[error("entity {0} is being handed over")]
    Leaving(EntityId),
    /// Its bytes are not a state of these components.
    #[error(transparent)]
    State(#[from] StateError),
}

impl<const D: usize> Store<D> {
    /// Without entities.
    pub fn new(schema: Schema, limits: Limits) -> Store<D> {
        let components = schema.components().iter().map(|component| Column::new(component.kind)).collect();
        Store {
            schema_hash: schema.hash(),
            schema,
            limits,
            ids: Vec::new(),
            generations: Vec::new(),
            kinds: Vec::new(),
            flags: Vec::new(),
            rests_until: Vec::new(),
            position: std::array::from_fn(|_| Vec::new()),
            velocity: std::array::from_fn(|_| Vec::new()),
            components,
            rows: HashTable::new(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// What entities are made of, beside their position and velocity.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Ids by row.
    pub fn ids(&self) -> &[EntityId] {
        &self.ids
    }

    /// Kinds by row.
    pub fn kinds(&self) -> &[u32] {
        &self.kinds
    }

    /// Coordinates by axis and row.
    pub fn positions(&self) -> Columns<'_, D> {
        std::array::from_fn(|axis| &self.position[axis][..])
    }

    /// Velocities by axis and row, units a second.
    pub fn velocities(&self) -> Columns<'_, D> {
        std::array::from_fn(|axis| &self.velocity[axis][..])
    }

    /// A component's numbers by row, where it is of `f32`.
    pub fn f32s(&self, component: usize) -> Option<&[f32]> {
        self.components.get(component)?.f32s()
    }

    /// A component's bytes by row, so many for each.
    pub fn bytes_of(&self, component: usize, row: usize) -> Option<&[u8]> {
        let column = self.components.get(component)?;
        (row < self.len()).then(|| column.bytes_of(row)).flatten()
    }

    /// Where an entity stands.
    #[inline]
    pub fn row(&self, id: EntityId) -> Option<usize> {
        let ids = &self.ids;
        self.rows.find(hash(id), |row| ids[*row as usize] == id).map(|row| *row as usize)
    }

    /// A row's position.
    #[inline(always)]
    pub fn position(&self, row: usize) -> Point<D> {
        row_of(&self.position, row)
    }

    /// A row's velocity.
    #[inline(always)]
    pub fn velocity(&self, row: usize) -> Point<D> {
        row_of(&self.velocity, row)
    }

    /// Which of those that have had its id a row is.
    pub fn generation(&self, row: usize) -> u32 {
        self.generations[row]
    }

    /// Whether a row is being handed over.
    #[inline(always)]
    pub fn is_still(&self, row: usize) -> bool {
        self.flags[row] & STILL != 0
    }

    /// Whether a row's behaviour has failed.
    pub fn is_frozen(&self, row: usize) -> bool {
        self.flags[row] & FROZEN != 0
    }

    /// Whether a row may move: whether no flag stands there.
    #[inline(always)]
    pub(crate) fn moves(&self, row: usize) -> bool {
        self.flags[row] == 0
    }

    #[inline(always)]
    pub(crate) fn rests(&self, row: usize, tick: u64) -> bool {
        u64::from(self.rests_until[row]) > tick
    }

    /// Takes an entity in.
    pub fn insert(&mut self, entity: &Entity<'_, D>) -> Result<usize, StoreError> {
        let id = entity.id;
        finite(id, "its position", &entity.position)?;
        finite(id, "its velocity", &entity.velocity)?;
        self.schema.check(entity.components)?;
        if self.row(id).is_some() {
            return Err(StoreError::Duplicate(id));
        }
        if self.len() >= self.limits.entities_max as usize {
            return Err(StoreError::Full { max: self.limits.entities_max });
        }
        let row = self.len();
        self.ids.push(id);
        self.generations.push(entity.generation);
        self.kinds.push(entity.kind);
        self.flags.push(if entity.frozen { FROZEN } else { 0 });
        self.rests_until.push(0);
        for axis in 0..D {
            self.position[axis].push(entity.position[axis]);
            self.velocity[axis].push(entity.velocity[axis]);
        }
        let mut rest = entity.components;
        for column in &mut self.components {
            rest = column.push(rest);
        }
        let ids = &self.ids;
        self.rows.insert_unique(hash(id), row as u32, |row| hash(ids[*row as usize]));
        Ok(row)
    }

    /// Takes an entity out; the last row takes its place.
    pub fn remove(&mut self, id: EntityId) -> Result<(), StoreError> {
        let row = self.row(id).ok_or(StoreError::Unknown(id))?;
        let last = self.len() - 1;
        let (moved, ids) = (self.ids[last], &self.ids);
        if let Ok(found) = self.rows.find_entry(hash(id), |row| ids[*row as usize] == id) {
            found.remove();
        }
        if row != last
            && let Some(place) = self.rows.find_mut(hash(moved), |row| ids[*row as usize] == moved)
        {
            *place = row as u32;
        }
        self.ids.swap_remove(row);
        self.generations.swap_remove(row);
        self.kinds.swap_remove(row);
        self.flags.swap_remove(row);
        self.rests_until.swap_remove(row);
        self.position.iter_mut().chain(&mut self.velocity).for_each(|column| {
            column.swap_remove(row);
        });
        self.components.iter_mut().for_each(|column| column.swap_remove(row));
        Ok(())
    }

    /// Puts another state in a row's place.
    pub(crate) fn overwrite(&mut self, row: usize, entity: &Entity<'_, D>) -> Result<(), StoreError> {
        finite(entity.id, "its position", &entity.position)?;
        finite(entity.id, "its velocity", &entity.velocity)?;
        self.set_components(row, entity.components)?;
        (self.generations[row], self.kinds[row]) = (entity.generation, entity.kind);
        self.set_frozen(row, entity.frozen);
        self.set_motion(row, &entity.position, &entity.velocity);
        Ok(())
    }

    /// Moves a row; the caller has checked that both are finite.
    #[inline(always)]
    pub(crate) fn set_motion(&mut self, row: usize, position: &Point<D>, velocity: &Point<D>) {
        for axis in 0..D {
            self.position[axis][row] = position[axis];
            self.velocity[axis][row] = velocity[axis];
        }
    }

    /// All that a tick reads and writes.
    #[inline(always)]
    pub(crate) fn rows_mut(&mut self) -> Rows<'_, D> {
        let len = self.ids.len();
        Rows {
            ids: &self.ids,
            kinds: &self.kinds[..len],
            flags: &self.flags[..len],
            position: self.position.each_mut().map(|column| &mut column[..len]),
            velocity: self.velocity.each_mut().map(|column| &mut column[..len]),
        }
    }

    pub(crate) fn columns_mut(&mut self) -> (&mut [Vec<f32>; D], &mut [Vec<f32>; D]) {
        (&mut self.position, &mut self.velocity)
    }

    pub(crate) fn set_still(&mut self, id: EntityId, still: bool) {
        if let Some(row) = self.row(id) {
            self.flags[row] = if still { self.flags[row] | STILL } else { self.flags[row] & !STILL };
        }
    }

    pub(crate) fn rest(&mut self, id: EntityId, until: u64) {
        if let Some(row) = self.row(id) {
            self.rests_until[row] = u32::try_from(until).unwrap_or(u32::MAX);
        }
    }

    /// Stops a row, or lets it go on.
    pub fn set_frozen(&mut self, row: usize, frozen: bool) {
        if let Some(flags) = self.flags.get_mut(row) {
            *flags = if frozen { *flags | FROZEN } else { *flags & !FROZEN };
        }
    }

    /// Bytes of memory it holds.
    pub fn bytes(&self) -> usize {
        let fixed = self.ids.capacity() * 8 + self.flags.capacity();
        let words = self.generations.capacity() + self.kinds.capacity() + self.rests_until.capacity();
        let floats: usize = self.position.iter().chain(&self.velocity).map(Vec::capacity).sum();
        let components: usize = self.components.iter().map(Column::bytes).sum();
        fixed + (words + floats) * 4 + components + self.rows.allocation_size()
    }
}

/// One row of columns. A loop is compiled into who asks; closures for each axis were not.
#[inline(always)]
pub(crate) fn row_of<const D: usize>(columns: &[impl Deref<Target = [f32]>; D], row: usize) -> Point<D> {
    let mut at = [0.0; D];
    for axis in 0..D {
        at[axis] = columns[axis][row];
    }
    at
}

impl<const D: usize> Holdings for Store<D> {
    fn refusal(&self, parcel: &Parcel, others: usize) -> Option<Refusal> {
        if self.row(parcel.id).is_some() {
            return Some(Refusal::Held);
        }
        if self.len() + others >= self.limits.entities_max as usize {
            return Some(Refusal::Full);
        }
        Entity::<D>::of_parcel(parcel, &self.schema).is_err().then_some(Refusal::Unreadable)
    }
}

pub(crate) fn finite<const D: usize>(
    id: EntityId,
    what: &'static str,
    at: &Point<D>,
) -> Result<(), StoreError> {
    if at.iter().all(|along| along.is_finite()) { Ok(()) } else { Err(StoreError::NotFinite { id, what }) }
}

/// Ids are given by programs, often one after another.
#[inline(always)]
fn hash(id: EntityId) -> u64 {
    let product = u128::from(id.0 ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (product as u64) ^ ((product >> 64) as u64)
}
