//! Encodes and decodes a snapshot of all entities, by row.
//!
//! ```text
//!  dimensions u8, hash of the schema u32, number of rows u32; then columns, each with one value for each row:
//!  ids u64, generations u32, kinds u32, flags u8, positions by axis f32, velocities by axis f32, components
//! ```

use super::{EntityStore, FROZEN, SUSPENDED, StoreError};
use crate::entity::EntityId;
use crate::layout::{Fields, SpaceDecodeError, put_u32, put_u64};
use crate::limits::RegionLimits;
use crate::region::put_column;
use crate::store::component::Schema;
use crate::store::state::{Entity, StateError};
use crate::world::Point;

impl<const D: usize> EntityStore<D> {
    pub(crate) fn write_snapshot(&self, out: &mut Vec<u8>) {
        out.push(D as u8);
        put_u32(out, self.schema_hash);
        put_u32(out, self.len() as u32);
        self.ids.iter().for_each(|id| put_u64(out, id.0));
        self.generations.iter().chain(&self.kinds).for_each(|word| put_u32(out, *word));
        out.extend_from_slice(&self.flags);
        self.position.iter().chain(&self.velocity).for_each(|column| put_column(out, column));
        for row in 0..self.len() {
            self.components.iter().for_each(|column| column.write(row, out));
        }
    }

    /// Size of a snapshot, bytes.
    pub(crate) fn snapshot_bytes(&self) -> usize {
        9 + self.len() * (17 + 8 * D + self.schema.size())
    }

    pub(crate) fn read_snapshot(
        fields: &mut Fields<'_>,
        schema: &Schema,
        limits: RegionLimits,
    ) -> Result<EntityStore<D>, StoreError> {
        let dimensions = fields.u8().map_err(StateError::from)?;
        if usize::from(dimensions) != D {
            return Err(StateError::Dimensions { dimensions, wanted: D }.into());
        }
        if fields.u32().map_err(StateError::from)? != schema.hash() {
            return Err(StateError::Schema.into());
        }
        let mut store = EntityStore::new(schema.clone(), limits);
        let rows = Rows::<D>::read(fields, schema.size()).map_err(StateError::from)?;
        for row in 0..rows.ids.len() {
            let point =
                |columns: &[Vec<f32>; D]| -> Point<D> { std::array::from_fn(|axis| columns[axis][row]) };
            let size = schema.size();
            store.insert(&Entity {
                id: rows.ids[row],
                generation: rows.generations[row],
                kind: rows.kinds[row],
                position: point(&rows.position),
                velocity: point(&rows.velocity),
                frozen: rows.flags[row] & FROZEN != 0,
                components: &rows.components[row * size..(row + 1) * size],
            })?;
            if rows.flags[row] & SUSPENDED != 0 {
                store.set_suspended(rows.ids[row], true);
            }
        }
        Ok(store)
    }
}

struct Rows<'a, const D: usize> {
    ids: Vec<EntityId>,
    generations: Vec<u32>,
    kinds: Vec<u32>,
    flags: &'a [u8],
    position: [Vec<f32>; D],
    velocity: [Vec<f32>; D],
    components: &'a [u8],
}

impl<'a, const D: usize> Rows<'a, D> {
    fn read(fields: &mut Fields<'a>, component_bytes: usize) -> Result<Rows<'a, D>, SpaceDecodeError> {
        let count = fields.count(17 + 8 * D + component_bytes)?;
        let ids = (0..count).map(|_| fields.u64().map(EntityId)).collect::<Result<_, _>>()?;
        let generations = (0..count).map(|_| fields.u32()).collect::<Result<_, _>>()?;
        let kinds = (0..count).map(|_| fields.u32()).collect::<Result<_, _>>()?;
        let flags = fields.take(count)?;
        let mut columns = || -> Result<[Vec<f32>; D], SpaceDecodeError> {
            let mut columns = std::array::from_fn(|_| Vec::new());
            for column in &mut columns {
                let (numbers, _) = fields.take(count * 4)?.as_chunks::<4>();
                *column = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            }
            Ok(columns)
        };
        let (position, velocity) = (columns()?, columns()?);
        let components = fields.take(count * component_bytes)?;
        Ok(Rows { ids, generations, kinds, flags, position, velocity, components })
    }
}
