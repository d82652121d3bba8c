//! Entries that record the steps of handovers for a region's standby.
//!
//! Between ticks, the owner writes entries into the region's topic, and applies these entries to its own state. A
//! standby that has applied the same entries as the owner has the same handovers. Only the deadlines and the copies of
//! messages for resending are missing at the standby, because only the owner needs them.

use super::transfer::{self, RefusedEntity, RegionId, TransferId, TransferredEntity};
use crate::entity::EntityId;
use crate::layout::{Fields, SpaceDecodeError, put_u32, put_u64};

/// A record of one step of a handover, which a region's owner sends to its standby.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoverEntry {
    /// The other region of the transfer.
    pub peer: RegionId,
    /// The transfer to which the step belongs.
    pub transfer: TransferId,
    /// The step.
    pub step: HandoverStep,
}

/// A step of a handover that a region's owner records, such as the offer of entities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandoverStep {
    /// At the source: these entities stand still while they are offered to the peer.
    Leaving {
        /// The peer's epoch, as known when the entities were offered.
        addressed: u64,
        /// The entities.
        ids: Vec<EntityId>,
    },
    /// At the source: the transfer is committed. All its entities, except for these refused ones, now belong to the
    /// peer.
    Committed(Vec<RefusedEntity>),
    /// At the source: the transfer is aborted, and the source moves the entities again.
    Aborted,
    /// At the source: the transfer has ended, and the peer may forget it.
    Settled,
    /// At the target: the target has accepted some entities of the transfer and refused the others.
    Staged {
        /// Accepted entities.
        entities: Vec<TransferredEntity>,
        /// Refused entities.
        refused: Vec<RefusedEntity>,
    },
    /// At the target: the accepted entities belong to the target.
    Taken,
    /// At the target: the target will never take the entities.
    Dropped,
    /// At the target: the peer has ended all its transfers with a lower id than [`HandoverEntry::transfer`].
    PeerSettled,
}

impl HandoverEntry {
    /// Appends the encoded entry. A reader finds the end of the entry from the entry's own bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = match &self.step {
            HandoverStep::Leaving { .. } => 1,
            HandoverStep::Committed(_) => 2,
            HandoverStep::Aborted => 3,
            HandoverStep::Settled => 4,
            HandoverStep::Staged { .. } => 5,
            HandoverStep::Taken => 6,
            HandoverStep::Dropped => 7,
            HandoverStep::PeerSettled => 8,
        };
        out.push(kind);
        put_u32(out, self.peer.0);
        transfer::put_transfer(out, self.transfer);
        match &self.step {
            HandoverStep::Leaving { addressed, ids } => {
                put_u64(out, *addressed);
                put_u32(out, ids.len() as u32);
                ids.iter().for_each(|id| put_u64(out, id.0));
            }
            HandoverStep::Committed(refused) => transfer::put_refused(out, refused),
            HandoverStep::Staged { entities, refused } => {
                transfer::put_entities(out, entities);
                transfer::put_refused(out, refused);
            }
            _ => {}
        }
    }

    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<HandoverEntry, SpaceDecodeError> {
        let kind = fields.u8()?;
        let (peer, transfer) = (RegionId(fields.u32()?), transfer::transfer(fields)?);
        let step = match kind {
            1 => {
                let addressed = fields.u64()?;
                HandoverStep::Leaving { addressed, ids: fields.list(8, |fields| fields.u64().map(EntityId))? }
            }
            2 => HandoverStep::Committed(transfer::refused(fields)?),
            3 => HandoverStep::Aborted,
            4 => HandoverStep::Settled,
            5 => HandoverStep::Staged {
                entities: transfer::entities(fields)?,
                refused: transfer::refused(fields)?,
            },
            6 => HandoverStep::Taken,
            7 => HandoverStep::Dropped,
            8 => HandoverStep::PeerSettled,
            number => return Err(SpaceDecodeError::Unknown { what: "step of a handover", number }),
        };
        Ok(HandoverEntry { peer, transfer, step })
    }

    /// Decodes one whole entry.
    pub fn decode(bytes: &[u8]) -> Result<HandoverEntry, SpaceDecodeError> {
        let mut fields = Fields::plain(bytes);
        let entry = HandoverEntry::read(&mut fields)?;
        fields.end()?;
        Ok(entry)
    }
}
