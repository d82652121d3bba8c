//! What a region's standby has to know of its hand-overs.
//!
//! The owner writes entries into the region's topic, among the ticks, and lives by them itself: an owner and a standby that
//! have enacted the same entries hold the same, apart from what only matters to the owner while it lives (deadlines, copies to
//! send again).

use super::parcel::{self, Parcel, Refused, RegionId, Transfer};
use crate::entity::EntityId;
use crate::layout::{DecodeError, Fields, put_u32, put_u64};

/// One step of a hand-over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The region on the other side.
    pub peer: RegionId,
    /// The transfer it is about.
    pub transfer: Transfer,
    /// What happens.
    pub step: Step,
}

/// What happens to a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// At the source: these stand still and are being offered to the peer.
    Leaving {
        /// The peer's epoch, as known then.
        addressed: u64,
        /// Which.
        ids: Vec<EntityId>,
    },
    /// At the source: all but the refused belong to the peer from here on.
    Committed(Vec<Refused>),
    /// At the source: they go on where they are.
    Aborted,
    /// At the source: it is over, and the peer need not remember it.
    Settled,
    /// At the target: these could be taken; the refused are not among them.
    Staged {
        /// What was prepared.
        parcels: Vec<Parcel>,
        /// What was not.
        refused: Vec<Refused>,
    },
    /// At the target: they belong here from here on.
    Taken,
    /// At the target: they will not be taken.
    Dropped,
    /// At the target: the peer's transfers before this one are over.
    Passed,
}

impl Entry {
    /// Appends its bytes; they know their end.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = match &self.step {
            Step::Leaving { .. } => 1,
            Step::Committed(_) => 2,
            Step::Aborted => 3,
            Step::Settled => 4,
            Step::Staged { .. } => 5,
            Step::Taken => 6,
            Step::Dropped => 7,
            Step::Passed => 8,
        };
        out.push(kind);
        put_u32(out, self.peer.0);
        parcel::put_transfer(out, self.transfer);
        match &self.step {
            Step::Leaving { addressed, ids } => {
                put_u64(out, *addressed);
                put_u32(out, ids.len() as u32);
                ids.iter().for_each(|id| put_u64(out, id.0));
            }
            Step::Committed(refused) => parcel::put_refused(out, refused),
            Step::Staged { parcels, refused } => {
                parcel::put_parcels(out, parcels);
                parcel::put_refused(out, refused);
            }
            _ => {}
        }
    }

    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Entry, DecodeError> {
        let kind = fields.u8()?;
        let (peer, transfer) = (RegionId(fields.u32()?), parcel::transfer(fields)?);
        let step = match kind {
            1 => {
                let addressed = fields.u64()?;
                Step::Leaving { addressed, ids: fields.list(8, |fields| fields.u64().map(EntityId))? }
            }
            2 => Step::Committed(parcel::refused(fields)?),
            3 => Step::Aborted,
            4 => Step::Settled,
            5 => Step::Staged { parcels: parcel::parcels(fields)?, refused: parcel::refused(fields)? },
            6 => Step::Taken,
            7 => Step::Dropped,
            8 => Step::Passed,
            number => return Err(DecodeError::Unknown { what: "step of a hand-over", number }),
        };
        Ok(Entry { peer, transfer, step })
    }

    /// Reads one whole entry.
    pub fn decode(bytes: &[u8]) -> Result<Entry, DecodeError> {
        let mut fields = Fields::plain(bytes);
        let entry = Entry::read(&mut fields)?;
        fields.end()?;
        Ok(entry)
    }
}
