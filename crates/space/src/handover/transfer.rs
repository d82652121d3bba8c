//! Ids of transfers, and the entities that a transfer contains.

use std::collections::HashSet;
use std::sync::Arc;

use crate::entity::EntityId;
use crate::layout::{Fields, SpaceDecodeError, put_bytes, put_u32, put_u64};

/// The id of a region, which is a part of the world with one owner at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RegionId(pub u32);

impl RegionId {
    /// Lists regions for a message, for example `regions 1, 2`.
    pub fn list(regions: &[RegionId]) -> String {
        let numbers: Vec<String> = regions.iter().map(|region| region.0.to_string()).collect();
        format!("{} {}", if numbers.len() == 1 { "region" } else { "regions" }, numbers.join(", "))
    }
}

/// The id of a transfer, in which one region hands over entities to another. It consists of the fencing epoch of the
/// source, which is the region that hands over the entities, and of a number. Each transfer has an id of its own, so
/// that the regions recognise repeated messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TransferId {
    /// The source's fencing epoch.
    pub epoch: u64,
    /// Number within that epoch, from 0.
    pub number: u64,
}

/// The complete state of an entity, as one region sends it to another in a handover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferredEntity {
    /// Id of the transferred entity.
    pub id: EntityId,
    /// A number that distinguishes successive entities with the same id.
    pub generation: u32,
    /// Encoded state.
    pub state: Arc<[u8]>,
}

/// The reason why a region refuses to take an entity. A refused entity stays in its present region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntityRefusal {
    /// The target already has an entity with this id. Or a third region is handing an entity with this id to the
    /// target.
    #[error("the target already has an entity with this id")]
    Held,
    /// The target is at its limit of entities.
    #[error("the target has reached its limit of entities")]
    Full,
    /// The entity's state is malformed, or has other components than the target's entities.
    #[error("the target cannot decode the entity's state")]
    Unreadable,
    /// The target is at its limit of transfers.
    #[error("the target has reached its limit of transfers in progress")]
    Busy,
}

impl EntityRefusal {
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_number(number: u8) -> Result<EntityRefusal, SpaceDecodeError> {
        match number {
            0 => Ok(EntityRefusal::Held),
            1 => Ok(EntityRefusal::Full),
            2 => Ok(EntityRefusal::Unreadable),
            3 => Ok(EntityRefusal::Busy),
            number => Err(SpaceDecodeError::Unknown { what: "refusal", number }),
        }
    }
}

/// An entity that a region refused to take, as an index in the handover's batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedEntity {
    /// Index of the entity in the batch.
    pub index: u32,
    /// The reason for the refusal.
    pub why: EntityRefusal,
}

/// Splits a batch into accepted and refused items.
pub(crate) fn split_refused<T: Clone>(batch: &[T], refused: &[RefusedEntity]) -> (Vec<T>, Vec<T>) {
    if refused.is_empty() {
        return (batch.to_vec(), Vec::new());
    }
    let refused: HashSet<u32> = refused.iter().map(|refused| refused.index).collect();
    let (mut taken, mut kept) = (Vec::with_capacity(batch.len()), Vec::new());
    for (index, item) in (0..).zip(batch) {
        if refused.contains(&index) { kept.push(item.clone()) } else { taken.push(item.clone()) }
    }
    (taken, kept)
}

/// Memory of transferred entities, bytes.
pub(crate) fn bytes_of(entities: &[TransferredEntity]) -> usize {
    entities.iter().map(|entity| size_of::<TransferredEntity>() + entity.state.len()).sum()
}

pub(crate) fn put_transfer(out: &mut Vec<u8>, transfer: TransferId) {
    put_u64(out, transfer.epoch);
    put_u64(out, transfer.number);
}

pub(crate) fn transfer(fields: &mut Fields<'_>) -> Result<TransferId, SpaceDecodeError> {
    Ok(TransferId { epoch: fields.u64()?, number: fields.u64()? })
}

pub(crate) fn put_entities(out: &mut Vec<u8>, entities: &[TransferredEntity]) {
    put_u32(out, entities.len() as u32);
    for entity in entities {
        put_u64(out, entity.id.0);
        put_u32(out, entity.generation);
        put_bytes(out, &entity.state);
    }
}

pub(crate) fn entities(fields: &mut Fields<'_>) -> Result<Vec<TransferredEntity>, SpaceDecodeError> {
    fields.list(16, |fields| {
        let (id, generation) = (EntityId(fields.u64()?), fields.u32()?);
        Ok(TransferredEntity { id, generation, state: fields.bytes()?.into() })
    })
}

pub(crate) fn put_refused(out: &mut Vec<u8>, refused: &[RefusedEntity]) {
    put_u32(out, refused.len() as u32);
    for one in refused {
        put_u32(out, one.index);
        out.push(one.why.number());
    }
}

pub(crate) fn refused(fields: &mut Fields<'_>) -> Result<Vec<RefusedEntity>, SpaceDecodeError> {
    fields.list(5, |fields| {
        Ok(RefusedEntity { index: fields.u32()?, why: EntityRefusal::from_number(fields.u8()?)? })
    })
}
