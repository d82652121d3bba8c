//! What is handed over, and how it is named.

use std::collections::HashSet;
use std::sync::Arc;

use crate::entity::EntityId;
use crate::layout::{DecodeError, Fields, put_bytes, put_u32, put_u64};

/// A region: a stretch of the curve with one owner at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RegionId(pub u32);

/// The token of one hand-over of a batch: the fencing epoch of the source when it began, and its number towards this target.
/// The source gives each out once, so that whatever comes twice is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Transfer {
    /// The source's fencing epoch.
    pub epoch: u64,
    /// Counted from 0 within that.
    pub number: u64,
}

/// A whole entity on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// Which.
    pub id: EntityId,
    /// Which of those that have had this id.
    pub generation: u32,
    /// All there is of it, in the store's bytes.
    pub state: Arc<[u8]>,
}

/// Why a target does not take an entity. The source keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The target has it already, or is being handed it by somebody else: an id is there twice.
    #[error("the target has an entity of this id")]
    Held,
    /// The target has as many entities as it may.
    #[error("the target is full")]
    Full,
    /// Its state cannot be read, or is not of what the target's entities are made.
    #[error("the target cannot read its state")]
    Unreadable,
    /// There are as many hand-overs under way as there may be.
    #[error("the target is handed too much at once")]
    Busy,
}

impl Refusal {
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_number(number: u8) -> Result<Refusal, DecodeError> {
        match number {
            0 => Ok(Refusal::Held),
            1 => Ok(Refusal::Full),
            2 => Ok(Refusal::Unreadable),
            3 => Ok(Refusal::Busy),
            number => Err(DecodeError::Unknown { what: "refusal", number }),
        }
    }
}

/// An entity of a batch that is refused, by its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Its place in the batch.
    pub index: u32,
    /// Why.
    pub why: Refusal,
}

/// Those of a batch that are not refused, and those that are.
pub(crate) fn part<T: Clone>(batch: &[T], refused: &[Refused]) -> (Vec<T>, Vec<T>) {
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

pub(crate) fn put_transfer(out: &mut Vec<u8>, transfer: Transfer) {
    put_u64(out, transfer.epoch);
    put_u64(out, transfer.number);
}

pub(crate) fn transfer(fields: &mut Fields<'_>) -> Result<Transfer, DecodeError> {
    Ok(Transfer { epoch: fields.u64()?, number: fields.u64()? })
}

pub(crate) fn put_parcels(out: &mut Vec<u8>, parcels: &[Parcel]) {
    put_u32(out, parcels.len() as u32);
    for parcel in parcels {
        put_u64(out, parcel.id.0);
        put_u32(out, parcel.generation);
        put_bytes(out, &parcel.state);
    }
}

pub(crate) fn parcels(fields: &mut Fields<'_>) -> Result<Vec<Parcel>, DecodeError> {
    fields.list(16, |fields| {
        let (id, generation) = (EntityId(fields.u64()?), fields.u32()?);
        Ok(Parcel { id, generation, state: fields.bytes()?.into() })
    })
}

pub(crate) fn put_refused(out: &mut Vec<u8>, refused: &[Refused]) {
    put_u32(out, refused.len() as u32);
    for one in refused {
        put_u32(out, one.index);
        out.push(one.why.number());
    }
}

pub(crate) fn refused(fields: &mut Fields<'_>) -> Result<Vec<Refused>, DecodeError> {
    fields.list(5, |fields| Ok(Refused { index: fields.u32()?, why: Refusal::from_number(fields.u8()?)? }))
}
