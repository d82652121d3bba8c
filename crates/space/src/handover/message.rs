//! Messages between the source and the target of a handover.
//!
//! ```text
//!  0         1      2        6         14              30               46
//!  +---------+------+--------+---------+---------------+----------------+------------+
//!  | version | kind | from   | epoch   | settled       | transfer       | content    |
//!  | u8      | u8   | u32    | u64     | u64, u64      | u64, u64       | by kind    |
//!  +---------+------+--------+---------+---------------+----------------+------------+
//! ```
//! `settled` is the id of the oldest transfer from the sender to the receiver that has not ended. The receiver may
//! forget all transfers with lower ids.

use super::transfer::{self, RefusedEntity, RegionId, TransferId, TransferredEntity};
use crate::layout::{Fields, SpaceDecodeError, VERSION, put_u32, put_u64};

/// A message between two regions about a handover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoverMessage {
    /// The sender's region.
    pub from: RegionId,
    /// Epoch of the sender. A receiver drops a message whose epoch is lower than the sender's latest epoch that the
    /// receiver knows.
    pub epoch: u64,
    /// All transfers from the sender to the receiver with an id below this one have ended.
    pub settled: TransferId,
    /// The transfer that the message is about.
    pub transfer: TransferId,
    /// The content.
    pub body: MessageBody,
}

/// The content of a message about a handover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageBody {
    /// From the source: asks the target to take these entities.
    Prepare(Vec<TransferredEntity>),
    /// From the target: the target can take all offered entities except for these refused ones. The target's standby
    /// knows this.
    Prepared(Vec<RefusedEntity>),
    /// From the source: the entities belong to the target.
    Commit,
    /// From the target: the target has taken all offered entities except for these refused ones. The target's standby
    /// knows this.
    Taken(Vec<RefusedEntity>),
    /// From the source: the entities stay with the source.
    Abort,
    /// From an owner that took over the source: asks for the result of the transfer.
    QueryTarget {
        /// Epoch of the target to which the previous owner of the source sent the offer.
        addressed: u64,
    },
    /// From the target, in response to `QueryTarget`: the transfer was not taken and never will be.
    NotTaken,
    /// From the target: asks whether the source has committed or aborted the transfer.
    QuerySource,
    /// From a target that has lost its state, and therefore does not know the transfer.
    Unknown,
    /// From the source: no further content. Such a message is sent only for the field `settled`, which every message
    /// has.
    Settled,
}

/// The kind of a message between regions, and a few of the message's fields. These are read without decoding the whole
/// message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageSummary {
    /// The source region offers entities.
    Prepare {
        /// The source.
        from: RegionId,
        /// The transfer.
        transfer: TransferId,
        /// Number of entities.
        entities: u32,
    },
    /// A target has taken a transfer's entities.
    Taken {
        /// The target.
        from: RegionId,
        /// The transfer.
        transfer: TransferId,
    },
    /// The message contains a batch of ghosts.
    Ghosts {
        /// Number of ghosts.
        count: u32,
        /// Tick of the batch.
        tick: u64,
    },
    /// The message is of any other kind.
    Other,
}

/// Offset of the transfer's id in a message about a handover. The first byte of a message names the channel.
const TRANSFER_AT: usize = 1 + 30;
/// Offset of the tick in a message with a batch of ghosts.
const GHOST_TICK_AT: usize = 1 + 2 + 4 + 8;
/// Offset of the number of ghosts in a message with a batch of ghosts.
const GHOST_COUNT_AT: usize = GHOST_TICK_AT + 16;

impl MessageSummary {
    /// Summarises the bytes of a message between regions.
    pub fn of(bytes: &[u8]) -> MessageSummary {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let transfer = || Some(TransferId { epoch: number(TRANSFER_AT)?, number: number(TRANSFER_AT + 8)? });
        let from = || word(3).map(RegionId);
        let known = match bytes {
            [crate::region::HANDOVER, VERSION, 1, ..] => from()
                .zip(transfer())
                .zip(word(TRANSFER_AT + 16))
                .map(|((from, transfer), entities)| MessageSummary::Prepare { from, transfer, entities }),
            [crate::region::HANDOVER, VERSION, 4, ..] => {
                from().zip(transfer()).map(|(from, transfer)| MessageSummary::Taken { from, transfer })
            }
            [crate::region::GHOSTS, VERSION, ..] => number(GHOST_TICK_AT)
                .zip(word(GHOST_COUNT_AT))
                .map(|(tick, count)| MessageSummary::Ghosts { count, tick }),
            _ => None,
        };
        known.unwrap_or(MessageSummary::Other)
    }
}

impl HandoverMessage {
    /// Appends the encoded message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = match &self.body {
            MessageBody::Prepare(_) => 1,
            MessageBody::Prepared(_) => 2,
            MessageBody::Commit => 3,
            MessageBody::Taken(_) => 4,
            MessageBody::Abort => 5,
            MessageBody::QueryTarget { .. } => 6,
            MessageBody::NotTaken => 7,
            MessageBody::QuerySource => 8,
            MessageBody::Unknown => 9,
            MessageBody::Settled => 10,
        };
        out.extend_from_slice(&[VERSION, kind]);
        put_u32(out, self.from.0);
        put_u64(out, self.epoch);
        transfer::put_transfer(out, self.settled);
        transfer::put_transfer(out, self.transfer);
        match &self.body {
            MessageBody::Prepare(entities) => transfer::put_entities(out, entities),
            MessageBody::Prepared(refused) | MessageBody::Taken(refused) => {
                transfer::put_refused(out, refused)
            }
            MessageBody::QueryTarget { addressed } => put_u64(out, *addressed),
            _ => {}
        }
    }

    /// Decodes a message.
    pub fn decode(bytes: &[u8]) -> Result<HandoverMessage, SpaceDecodeError> {
        let mut fields = Fields::versioned(bytes)?;
        let kind = fields.u8()?;
        let (from, epoch) = (RegionId(fields.u32()?), fields.u64()?);
        let (settled, transfer) = (transfer::transfer(&mut fields)?, transfer::transfer(&mut fields)?);
        let body = match kind {
            1 => MessageBody::Prepare(transfer::entities(&mut fields)?),
            2 => MessageBody::Prepared(transfer::refused(&mut fields)?),
            3 => MessageBody::Commit,
            4 => MessageBody::Taken(transfer::refused(&mut fields)?),
            5 => MessageBody::Abort,
            6 => MessageBody::QueryTarget { addressed: fields.u64()? },
            7 => MessageBody::NotTaken,
            8 => MessageBody::QuerySource,
            9 => MessageBody::Unknown,
            10 => MessageBody::Settled,
            number => return Err(SpaceDecodeError::Unknown { what: "message", number }),
        };
        fields.end()?;
        Ok(HandoverMessage { from, epoch, settled, transfer, body })
    }
}
