//! Batches of ghosts and their encoding. A region sends the batches to its neighbours.
//!
//! ```text
//!  version u8, dimensions u8, region of the sender u32, epoch u64, tick u64, number of the batch u64,
//!  number of entities u32, then columns with one value for each entity: ids u64, kinds u32,
//!  positions f32 by axis, velocities f32 by axis
//! ```

use super::Ghost;
use crate::entity::EntityId;
use crate::handover::RegionId;
use crate::layout::{Fields, SpaceDecodeError, VERSION, put_u32, put_u64};
use crate::store::EntityStore;

/// The states of entities near a border, which a region sends to its neighbour as ghosts.
#[derive(Debug, Clone, PartialEq)]
pub struct GhostBatch<const D: usize> {
    /// The region that owns the entities.
    pub from: RegionId,
    /// Epoch of the owner of the region `from`.
    pub epoch: u64,
    /// Tick of the region `from` after which the batch was made.
    pub tick: u64,
    /// Number of the batch. The owner of the region `from` counts the batches.
    pub number: u64,
    ids: Vec<EntityId>,
    kinds: Vec<u32>,
    position: [Vec<f32>; D],
    velocity: [Vec<f32>; D],
}

impl<const D: usize> GhostBatch<D> {
    pub(crate) fn new(from: RegionId, epoch: u64, tick: u64, number: u64) -> GhostBatch<D> {
        let columns = || std::array::from_fn(|_| Vec::new());
        GhostBatch {
            from,
            epoch,
            tick,
            number,
            ids: Vec::new(),
            kinds: Vec::new(),
            position: columns(),
            velocity: columns(),
        }
    }

    /// Number of entities.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(super) fn stamp(&self) -> (u64, u64) {
        (self.epoch, self.number)
    }

    pub(super) fn truncate(&mut self, max: usize) {
        self.ids.truncate(max);
        self.kinds.truncate(max);
        self.position.iter_mut().chain(&mut self.velocity).for_each(|column| column.truncate(max));
    }

    /// All ghosts of the batch, extrapolated by `seconds`.
    pub(super) fn ghosts(&self, seconds: f32) -> impl Iterator<Item = Ghost<D>> + '_ {
        (0..self.len()).map(move |at| {
            let velocity = std::array::from_fn(|axis| self.velocity[axis][at]);
            let position = std::array::from_fn(|axis| self.position[axis][at] + velocity[axis] * seconds);
            Ghost { id: self.ids[at], kind: self.kinds[at], position, velocity }
        })
    }

    /// Encoded size of a batch with `count` entities.
    pub(crate) fn bytes_of(&self, count: usize) -> usize {
        34 + count * (12 + 8 * D)
    }

    /// Appends an encoded batch with this batch's header fields and the entities in the given rows of `store`.
    pub(crate) fn encode_rows(&self, store: &EntityStore<D>, rows: &[u32], out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, D as u8]);
        put_u32(out, self.from.0);
        put_u64(out, self.epoch);
        put_u64(out, self.tick);
        put_u64(out, self.number);
        put_u32(out, rows.len() as u32);
        put_rows(out, store.ids(), rows, |id| id.0.to_le_bytes());
        put_rows(out, store.kinds(), rows, |kind| kind.to_le_bytes());
        for column in store.positions().into_iter().chain(store.velocities()) {
            put_rows(out, column, rows, |along| along.to_le_bytes());
        }
    }

    /// Decodes a batch. Refuses the whole batch if a number is not finite.
    pub fn decode(bytes: &[u8]) -> Result<GhostBatch<D>, SpaceDecodeError> {
        let mut batch = GhostBatch::new(RegionId(0), 0, 0, 0);
        batch.read(bytes)?;
        Ok(batch)
    }

    /// Decodes into this batch and reuses the batch's memory. After an error the content is undefined.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<(), SpaceDecodeError> {
        let mut fields = Fields::versioned(bytes)?;
        let dimensions = fields.u8()?;
        if usize::from(dimensions) != D {
            return Err(SpaceDecodeError::Unknown { what: "number of dimensions", number: dimensions });
        }
        (self.from, self.epoch) = (RegionId(fields.u32()?), fields.u64()?);
        (self.tick, self.number) = (fields.u64()?, fields.u64()?);
        let count = fields.count(12 + 8 * D)?;
        let (ids, _) = fields.take(count * 8)?.as_chunks::<8>();
        self.ids.clear();
        self.ids.extend(ids.iter().map(|bytes| EntityId(u64::from_le_bytes(*bytes))));
        let (kinds, _) = fields.take(count * 4)?.as_chunks::<4>();
        self.kinds.clear();
        self.kinds.extend(kinds.iter().map(|bytes| u32::from_le_bytes(*bytes)));
        for column in self.position.iter_mut().chain(&mut self.velocity) {
            let (numbers, _) = fields.take(count * 4)?.as_chunks::<4>();
            column.clear();
            column.extend(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        }
        fields.end()?;
        let mut columns = self.position.iter().chain(&self.velocity);
        let finite =
            columns.all(|column| column.iter().fold(true, |finite, along| finite & along.is_finite()));
        if finite { Ok(()) } else { Err(SpaceDecodeError::NotFinite) }
    }
}

/// Appends the values of `column` at the given rows, each encoded by `bytes`.
fn put_rows<T, const N: usize>(out: &mut Vec<u8>, column: &[T], rows: &[u32], bytes: impl Fn(&T) -> [u8; N]) {
    let start = out.len();
    out.resize(start + rows.len() * N, 0);
    let (places, _) = out[start..].as_chunks_mut::<N>();
    places.iter_mut().zip(rows).for_each(|(place, row)| *place = bytes(&column[*row as usize]));
}
