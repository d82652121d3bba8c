//! The whole state of an entity, and its encoding.
//!
//! ```text
//!  0         1    2       3   4        8       12           12 + 4 D     12 + 8 D
//!  +---------+----+-------+---+--------+-------+------------+------------+------------+
//!  | version | D  | flags | 0 | schema | kind  | position   | velocity   | components |
//!  | u8      | u8 | u8    |   | u32    | u32   | f32 each   | f32 each   |            |
//!  +---------+----+-------+---+--------+-------+------------+------------+------------+
//!   flags: 1 if the entity stands still because its behaviour failed
//! ```
//! The id and the generation are not part of the encoding.

use std::sync::Arc;

use super::{EntityStore, StoreError};
use crate::entity::EntityId;
use crate::handover::TransferredEntity;
use crate::layout::{Fields, SpaceDecodeError, VERSION, put_point, put_u32};
use crate::store::component::Schema;
use crate::world::{Point, WorldBox};

/// The complete state of an entity: its id, position, velocity and components.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entity<'a, const D: usize> {
    /// Id of the entity.
    pub id: EntityId,
    /// A number that distinguishes successive entities with the same id.
    pub generation: u32,
    /// The entity's kind: a number with a meaning that the program chooses.
    pub kind: u32,
    /// Current position.
    pub position: Point<D>,
    /// Velocity, units a second.
    pub velocity: Point<D>,
    /// Whether the entity's behaviour failed.
    pub frozen: bool,
    /// Bytes of all components, in the order of registration.
    pub components: &'a [u8],
}

/// The reason why bytes are not the encoded state of an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The bytes cannot be decoded.
    #[error(transparent)]
    Decode(#[from] SpaceDecodeError),
    /// The state has another number of dimensions than the world.
    #[error("the entity has {dimensions} dimensions, but its world has {wanted}")]
    Dimensions {
        /// Dimensions of the state.
        dimensions: u8,
        /// Number of dimensions of the world.
        wanted: usize,
    },
    /// The components in the state are not the components that are registered in this process.
    #[error(
        "the entity has other components than those registered here: register the same components in both processes"
    )]
    Schema,
    /// The given components have another size than the registered components.
    #[error("the entity's components have {bytes} bytes, but the registered components have {wanted}")]
    Components {
        /// Size of the given components, bytes.
        bytes: usize,
        /// Size of the registered components, bytes.
        wanted: usize,
    },
    /// A coordinate is NaN or infinite.
    #[error("the entity's position or velocity is not finite")]
    NotFinite,
}

impl<'a, const D: usize> Entity<'a, D> {
    /// Creates an entity without components that stands still.
    pub fn at(id: u64, position: Point<D>) -> Entity<'static, D> {
        let id = EntityId(id);
        Entity { id, generation: 0, kind: 0, position, velocity: [0.0; D], frozen: false, components: &[] }
    }

    pub(crate) fn decode(
        transferred: &'a TransferredEntity,
        schema: &Schema,
    ) -> Result<Entity<'a, D>, StateError> {
        let mut fields = Fields::versioned(&transferred.state)?;
        let (dimensions, flags, _) = (fields.u8()?, fields.u8()?, fields.u8()?);
        if usize::from(dimensions) != D {
            return Err(StateError::Dimensions { dimensions, wanted: D });
        }
        if fields.u32()? != schema.hash() {
            return Err(StateError::Schema);
        }
        let kind = fields.u32()?;
        let (position, velocity) = (fields.point::<D>()?, fields.point::<D>()?);
        let components = fields.take(schema.size())?;
        fields.end()?;
        if !position.iter().chain(&velocity).all(|along| along.is_finite()) {
            return Err(StateError::NotFinite);
        }
        let (id, generation, frozen) = (transferred.id, transferred.generation, flags & 1 != 0);
        Ok(Entity { id, generation, kind, position, velocity, frozen, components })
    }
}

impl<const D: usize> EntityStore<D> {
    /// Appends a row's state.
    pub fn write_state(&self, row: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, D as u8, u8::from(self.is_frozen(row)), 0]);
        put_u32(out, self.schema_hash);
        put_u32(out, self.kinds[row]);
        put_point(out, &self.position(row));
        put_point(out, &self.velocity(row));
        self.write_components(row, out);
    }

    /// Appends a row's components.
    pub(crate) fn write_components(&self, row: usize, out: &mut Vec<u8>) {
        self.components.iter().for_each(|column| column.write(row, out));
    }

    /// Encodes the entity of a row for a handover.
    pub fn transferred_entity(&self, row: usize) -> TransferredEntity {
        let mut state = Vec::with_capacity(12 + 8 * D + self.schema.size());
        self.write_state(row, &mut state);
        TransferredEntity { id: self.ids[row], generation: self.generations[row], state: Arc::from(state) }
    }

    /// Inserts an entity from a handover.
    pub fn insert_transferred(&mut self, transferred: &TransferredEntity) -> Result<usize, StoreError> {
        let entity = Entity::decode(transferred, &self.schema)?;
        self.insert(&entity)
    }

    /// Replaces the state of an existing entity.
    pub(crate) fn overwrite_transferred(
        &mut self,
        transferred: &TransferredEntity,
    ) -> Result<(), StoreError> {
        let entity = Entity::decode(transferred, &self.schema)?;
        let row = self.row(transferred.id).ok_or(StoreError::Unknown(transferred.id))?;
        self.overwrite(row, &entity)
    }

    /// Inserts an entity if its position is in the given world.
    pub fn insert_within(
        &mut self,
        entity: &Entity<'_, D>,
        world: &WorldBox<D>,
    ) -> Result<usize, StoreError> {
        super::finite(entity.id, "its position", &entity.position)?;
        if world.contains(&entity.position) {
            self.insert(entity)
        } else {
            Err(StoreError::Outside(entity.id))
        }
    }

    /// Replaces a row's components; the bytes must have the registered size.
    pub fn set_components(&mut self, row: usize, components: &[u8]) -> Result<(), StateError> {
        self.schema.check(components)?;
        let mut rest = components;
        for column in &mut self.components {
            rest = column.set(row, rest);
        }
        Ok(())
    }

    /// Hash of a row's whole state. The sum over all rows is a region's checksum.
    pub fn state_hash(&self, row: usize, scratch: &mut Vec<u8>) -> u64 {
        scratch.clear();
        self.write_state(row, scratch);
        let mut hash = mix(mix(0x9e37_79b9_7f4a_7c15, self.ids[row].0), u64::from(self.generations[row]));
        for chunk in scratch.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = mix(hash, u64::from_le_bytes(word));
        }
        hash
    }

    /// Id, generation and state hash of each entity, in the order of ids, for comparisons of stores.
    pub fn ledger(&self) -> Vec<(EntityId, u32, u64)> {
        let mut scratch = Vec::new();
        let row = |row: usize| (self.ids[row], self.generations[row]);
        let mut all: Vec<_> = (0..self.len())
            .map(|at| {
                let ((id, generation), hash) = (row(at), self.state_hash(at, &mut scratch));
                (id, generation, hash)
            })
            .collect();
        all.sort_unstable();
        all
    }
}

#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * 0xd6e8_feb8_6659_fd93;
    (product as u64) ^ ((product >> 64) as u64)
}
