//! Stores entities in columns: one for the ids, one for each coordinate, one for each component.
//!
//! Invariants:
//! - All columns have the same length. Each id is in only one row.
//! - Equal operations in equal order give equal rows in every process, so that records may refer to entities by row.
//! - Positions and velocities are finite. The store refuses other values; a refused change leaves the store unchanged.
//!
//! The rows are sorted into the Morton order, a part in each tick (see module `order`). A new row is appended at the
//! end. When a row is removed, the last row takes its place. At most
//! [`RegionLimits::entities_max`](crate::RegionLimits) entities exist.

mod component;
mod order;
mod snapshot;
mod state;

use std::ops::Deref;

use hashbrown::HashTable;

use crate::entity::EntityId;
use crate::handover::{AdmissionCheck, EntityRefusal, RegionId, TransferredEntity};
use crate::index::PointColumns;
use crate::limits::RegionLimits;
use crate::world::Point;

pub use component::{Component, ComponentKind, Schema, SchemaError};
pub use order::SortWindow;
pub use state::{Entity, StateError};

use component::ComponentColumn;

/// Flag: the entity is being handed over and does not move.
const SUSPENDED: u8 = 1;
/// Flag: the behaviour failed for this entity. The entity does not move until it is thawed.
const FROZEN: u8 = 2;

/// The entities of a region, stored in columns: one array for each field.
#[derive(Debug, Clone)]
pub struct EntityStore<const D: usize> {
    schema: Schema,
    schema_hash: u32,
    limits: RegionLimits,
    ids: Vec<EntityId>,
    generations: Vec<u32>,
    kinds: Vec<u32>,
    flags: Vec<u8>,
    /// For each row, the first tick at which the row's entity may be handed over again.
    cooldown_until: Vec<u32>,
    position: [Vec<f32>; D],
    velocity: [Vec<f32>; D],
    components: Vec<ComponentColumn>,
    rows: HashTable<u32>,
}

/// The columns of an entity store, borrowed for a tick. Rows with any flag do not move.
#[derive(Debug)]
pub(crate) struct StoreRows<'a, const D: usize> {
    pub(crate) ids: &'a [EntityId],
    pub(crate) kinds: &'a [u32],
    pub(crate) flags: &'a [u8],
    pub(crate) position: [&'a mut [f32]; D],
    pub(crate) velocity: [&'a mut [f32]; D],
}

/// The reason why a region's store refuses an entity or a change of an entity.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// An entity with this id exists.
    #[error("entity {0} already exists in this region")]
    Duplicate(EntityId),
    /// Another region of the world has an entity with this id.
    #[error("entity {id} is already in region {}: ids are unique in a world; use another id", .region.0)]
    Taken {
        /// Id of the entity.
        id: EntityId,
        /// The region that has the entity.
        region: RegionId,
    },
    /// No entity has this id.
    #[error("there is no entity {0}")]
    Unknown(EntityId),
    /// The limit of entities is reached.
    #[error("the region has reached its limit of {max} entities")]
    Full {
        /// The limit.
        max: u32,
    },
    /// A coordinate is NaN or infinite.
    #[error("entity {id}: {what} is not finite")]
    NotFinite {
        /// Id of the entity.
        id: EntityId,
        /// `position` or `velocity`.
        what: &'static str,
    },
    /// The position is outside the world.
    #[error("entity {0} is outside of the world")]
    Outside(EntityId),
    /// The position belongs to a region of another process.
    #[error("entity {id} cannot be spawned by this process: another process owns region {}, which contains the entity's position", .region.0)]
    Elsewhere {
        /// Id of the entity.
        id: EntityId,
        /// The region of the position.
        region: RegionId,
    },
    /// The velocity is too small to change the position.
    #[error(
        "entity {id} would not move: adjacent coordinates at its position are {spacing} units apart, \
         more than it moves in a tick; use a speed of at least {speed_min} units per second, or a position nearer to 0"
    )]
    TooSlow {
        /// Id of the entity.
        id: EntityId,
        /// Distance between adjacent `f32` values at the position.
        spacing: f32,
        /// Smallest velocity that surely moves the entity, units a second.
        speed_min: f32,
    },
    /// The velocity is so large that sums of a few velocities would be infinite.
    #[error(
        "the velocity of entity {id} is too large: use at most {speed_max:e} units per second along each axis"
    )]
    TooFast {
        /// Id of the entity.
        id: EntityId,
        /// Highest accepted velocity along an axis, units a second.
        speed_max: f32,
    },
    /// The entity is being handed over; the new owner accepts commands afterwards.
    #[error("entity {0} is being handed over to another region: retry")]
    Leaving(EntityId),
    /// The region has no lease, for example because its process is releasing it to another one.
    #[error("region {} has no lease at present, and another process may continue the region: retry", .0.0)]
    NoLease(RegionId),
    /// The bytes are not an encoded state with the registered components.
    #[error(transparent)]
    State(#[from] StateError),
}

impl<const D: usize> EntityStore<D> {
    /// Creates an empty store.
    pub fn new(schema: Schema, limits: RegionLimits) -> EntityStore<D> {
        let components =
            schema.components().iter().map(|component| ComponentColumn::new(component.kind)).collect();
        EntityStore {
            schema_hash: schema.hash(),
            schema,
            limits,
            ids: Vec::new(),
            generations: Vec::new(),
            kinds: Vec::new(),
            flags: Vec::new(),
            cooldown_until: Vec::new(),
            position: std::array::from_fn(|_| Vec::new()),
            velocity: std::array::from_fn(|_| Vec::new()),
            components,
            rows: HashTable::new(),
        }
    }

    /// Number of entities.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether the store is empty.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Components of the entities.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    pub(crate) fn limits(&self) -> &RegionLimits {
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
    pub fn positions(&self) -> PointColumns<'_, D> {
        std::array::from_fn(|axis| &self.position[axis][..])
    }

    /// Velocities by axis and row, units a second.
    pub fn velocities(&self) -> PointColumns<'_, D> {
        std::array::from_fn(|axis| &self.velocity[axis][..])
    }

    /// Values of a component by row. Returns `None` if there is no such component, or if the component's type is not
    /// `f32`.
    pub fn f32s(&self, component: usize) -> Option<&[f32]> {
        self.components.get(component)?.f32s()
    }

    /// Bytes of a component in a row; `None` if the component or the row does not exist, or if the component's type is
    /// `f32`.
    pub fn bytes_of(&self, component: usize, row: usize) -> Option<&[u8]> {
        let column = self.components.get(component)?;
        (row < self.len()).then(|| column.bytes_of(row)).flatten()
    }

    /// Row of an entity; `None` if the entity is not in this store.
    #[inline]
    pub fn row(&self, id: EntityId) -> Option<usize> {
        let ids = &self.ids;
        self.rows.find(hash(id), |row| ids[*row as usize] == id).map(|row| *row as usize)
    }

    /// Position of a row's entity.
    #[inline(always)]
    pub fn position(&self, row: usize) -> Point<D> {
        row_of(&self.position, row)
    }

    /// Velocity of a row's entity.
    #[inline(always)]
    pub fn velocity(&self, row: usize) -> Point<D> {
        row_of(&self.velocity, row)
    }

    /// Generation of a row's entity: a number that distinguishes successive entities with the same id.
    pub fn generation(&self, row: usize) -> u32 {
        self.generations[row]
    }

    /// Whether a row's entity is being handed over.
    #[inline(always)]
    pub fn is_suspended(&self, row: usize) -> bool {
        self.flags[row] & SUSPENDED != 0
    }

    /// Whether the behaviour of a row's entity has failed.
    pub fn is_frozen(&self, row: usize) -> bool {
        self.flags[row] & FROZEN != 0
    }

    /// Whether a row may move: none of its flags is set.
    #[inline(always)]
    pub(crate) fn can_move(&self, row: usize) -> bool {
        self.flags[row] == 0
    }

    #[inline(always)]
    pub(crate) fn is_cooling_down(&self, row: usize, tick: u64) -> bool {
        u64::from(self.cooldown_until[row]) > tick
    }

    /// Inserts an entity and returns its row.
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
        self.cooldown_until.push(0);
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

    /// Removes an entity; the last row takes the place of the removed row.
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
        self.cooldown_until.swap_remove(row);
        self.position.iter_mut().chain(&mut self.velocity).for_each(|column| {
            column.swap_remove(row);
        });
        self.components.iter_mut().for_each(|column| column.swap_remove(row));
        Ok(())
    }

    /// Replaces the state of a row.
    pub(crate) fn overwrite(&mut self, row: usize, entity: &Entity<'_, D>) -> Result<(), StoreError> {
        finite(entity.id, "its position", &entity.position)?;
        finite(entity.id, "its velocity", &entity.velocity)?;
        self.set_components(row, entity.components)?;
        (self.generations[row], self.kinds[row]) = (entity.generation, entity.kind);
        self.set_frozen(row, entity.frozen);
        self.set_motion(row, &entity.position, &entity.velocity);
        Ok(())
    }

    /// Sets position and velocity of a row; the caller has checked that both are finite.
    #[inline(always)]
    pub(crate) fn set_motion(&mut self, row: usize, position: &Point<D>, velocity: &Point<D>) {
        for axis in 0..D {
            self.position[axis][row] = position[axis];
            self.velocity[axis][row] = velocity[axis];
        }
    }

    /// The columns that a tick reads and writes.
    #[inline(always)]
    pub(crate) fn rows_mut(&mut self) -> StoreRows<'_, D> {
        let len = self.ids.len();
        StoreRows {
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

    pub(crate) fn set_suspended(&mut self, id: EntityId, suspended: bool) {
        if let Some(row) = self.row(id) {
            self.flags[row] =
                if suspended { self.flags[row] | SUSPENDED } else { self.flags[row] & !SUSPENDED };
        }
    }

    pub(crate) fn start_cooldown(&mut self, id: EntityId, until: u64) {
        if let Some(row) = self.row(id) {
            self.cooldown_until[row] = u32::try_from(until).unwrap_or(u32::MAX);
        }
    }

    /// Freezes or thaws the entity of a row.
    pub fn set_frozen(&mut self, row: usize, frozen: bool) {
        if let Some(flags) = self.flags.get_mut(row) {
            *flags = if frozen { *flags | FROZEN } else { *flags & !FROZEN };
        }
    }

    /// Memory in use, bytes.
    pub fn bytes(&self) -> usize {
        let fixed = self.ids.capacity() * 8 + self.flags.capacity();
        let words = self.generations.capacity() + self.kinds.capacity() + self.cooldown_until.capacity();
        let floats: usize = self.position.iter().chain(&self.velocity).map(Vec::capacity).sum();
        let components: usize = self.components.iter().map(ComponentColumn::bytes).sum();
        fixed + (words + floats) * 4 + components + self.rows.allocation_size()
    }
}

/// Copies one row of the columns. Uses a loop, because the compiler inlines a loop into the caller, but not a closure
/// for each axis.
#[inline(always)]
pub(crate) fn row_of<const D: usize>(columns: &[impl Deref<Target = [f32]>; D], row: usize) -> Point<D> {
    let mut at = [0.0; D];
    for axis in 0..D {
        at[axis] = columns[axis][row];
    }
    at
}

impl<const D: usize> AdmissionCheck for EntityStore<D> {
    fn refusal(&self, entity: &TransferredEntity, others: usize) -> Option<EntityRefusal> {
        if self.row(entity.id).is_some() {
            return Some(EntityRefusal::Held);
        }
        if self.len() + others >= self.limits.entities_max as usize {
            return Some(EntityRefusal::Full);
        }
        Entity::<D>::decode(entity, &self.schema).is_err().then_some(EntityRefusal::Unreadable)
    }
}

pub(crate) fn finite<const D: usize>(
    id: EntityId,
    what: &'static str,
    at: &Point<D>,
) -> Result<(), StoreError> {
    if at.iter().all(|along| along.is_finite()) { Ok(()) } else { Err(StoreError::NotFinite { id, what }) }
}

/// Mixes the bits of the id, because programs often assign consecutive ids.
#[inline(always)]
fn hash(id: EntityId) -> u64 {
    let product = u128::from(id.0 ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (product as u64) ^ ((product >> 64) as u64)
}
