//! A whole entity, and its bytes.
//!
//! ```text
//!  0         1    2       3   4        8       12           12 + 4 D     12 + 8 D
//!  +---------+----+-------+---+--------+-------+------------+------------+------------+
//!  | version | D  | flags | 0 | schema | kind  | position   | velocity   | components |
//!  | u8      | u8 | u8    |   | u32    | u32   | f32 each   | f32 each   |            |
//!  +---------+----+-------+---+--------+-------+------------+------------+------------+
//!   flags: 1 if its behaviour failed and it stands still
//! ```
//! The id and the generation stand beside it, where it is one of many.

use std::sync::Arc;

use super::{Store, StoreError};
use crate::entity::EntityId;
use crate::handover::Parcel;
use crate::layout::{DecodeError, Fields, VERSION, put_point, put_u32};
use crate::store::component::Schema;
use crate::world::{Point, World};

/// A whole entity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entity<'a, const D: usize> {
    /// Its number.
    pub id: EntityId,
    /// Which of those that have had this number.
    pub generation: u32,
    /// Its kind: a number that the makers of the world give a meaning.
    pub kind: u32,
    /// Where it is.
    pub position: Point<D>,
    /// Where it goes, units a second.
    pub velocity: Point<D>,
    /// Its behaviour failed.
    pub frozen: bool,
    /// Its components' bytes, one after another as they were registered.
    pub components: &'a [u8],
}

/// Why bytes are not an entity's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// They cannot be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// They are of a world of other dimensions.
    #[error("the entity has {dimensions} dimensions, its world {wanted}")]
    Dimensions {
        /// What it has.
        dimensions: u8,
        /// What it should have.
        wanted: usize,
    },
    /// Other components are registered where they were written.
    #[error("the entity is made of other components than those registered here")]
    Schema,
    /// Its components have another size.
    #[error("the components have {bytes} bytes, {wanted} are registered")]
    Components {
        /// How many there are.
        bytes: usize,
        /// How many there should be.
        wanted: usize,
    },
    /// A coordinate is not a number, or infinite.
    #[error("its position or velocity is not finite")]
    NotFinite,
}

impl<'a, const D: usize> Entity<'a, D> {
    /// One without components that stands still.
    pub fn at(id: u64, position: Point<D>) -> Entity<'static, D> {
        let id = EntityId(id);
        Entity { id, generation: 0, kind: 0, position, velocity: [0.0; D], frozen: false, components: &[] }
    }

    pub(crate) fn of_parcel(parcel: &'a Parcel, schema: &Schema) -> Result<Entity<'a, D>, StateError> {
        let mut fields = Fields::versioned(&parcel.state)?;
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
        let (id, generation, frozen) = (parcel.id, parcel.generation, flags & 1 != 0);
        Ok(Entity { id, generation, kind, position, velocity, frozen, components })
    }
}

impl<const D: usize> Store<D> {
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

    /// A row as it is handed over.
    pub fn parcel(&self, row: usize) -> Parcel {
        let mut state = Vec::with_capacity(12 + 8 * D + self.schema.size());
        self.write_state(row, &mut state);
        Parcel { id: self.ids[row], generation: self.generations[row], state: Arc::from(state) }
    }

    /// Takes in what was handed over.
    pub fn insert_parcel(&mut self, parcel: &Parcel) -> Result<usize, StoreError> {
        let entity = Entity::of_parcel(parcel, &self.schema)?;
        self.insert(&entity)
    }

    /// Puts a state in the place of the one its entity has.
    pub(crate) fn overwrite_parcel(&mut self, parcel: &Parcel) -> Result<(), StoreError> {
        let entity = Entity::of_parcel(parcel, &self.schema)?;
        let row = self.row(parcel.id).ok_or(StoreError::Unknown(parcel.id))?;
        self.overwrite(row, &entity)
    }

    /// Takes in an entity, if it is in this world.
    pub fn insert_within(&mut self, entity: &Entity<'_, D>, world: &World<D>) -> Result<usize, StoreError> {
        super::finite(entity.id, "its position", &entity.position)?;
        if world.holds(&entity.position) { self.insert(entity) } else { Err(StoreError::Outside(entity.id)) }
    }

    /// Gives an entity other components; these have to be of the size registered.
    pub fn set_components(&mut self, row: usize, components: &[u8]) -> Result<(), StateError> {
        self.schema.check(components)?;
        let mut rest = components;
        for column in &mut self.components {
            rest = column.set(row, rest);
        }
        Ok(())
    }

    /// The hash of all that there is of a row. The sum of those of all rows is a region's checksum.
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

    /// The set of all entities as numbers that can be compared: id, generation, hash of the state; by id.
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
