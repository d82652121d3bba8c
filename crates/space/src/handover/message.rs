//! Messages between the two sides of a handover.
//!
//! ```text
//!  0         1      2        6         14              30               46
//!  +---------+------+--------+---------+---------------+----------------+------------+
//!  | version | kind | from   | epoch   | settled       | transfer       | what kind  |
//!  | u8      | u8   | u32    | u64     | u64, u64      | u64, u64       | says       |
//!  +---------+------+--------+---------+---------------+----------------+------------+
//! ```
//! `settled` is the sender's oldest transfer to the receiver that is not over; the receiver may forget
//! earlier ones.

use super::parcel::{self, Parcel, Refused, RegionId, Transfer};
use crate::layout::{DecodeError, Fields, VERSION, put_u32, put_u64};

/// A message between two regions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The sender's region.
    pub from: RegionId,
    /// Epoch of the sender. Receivers drop messages of an older epoch than the known one.
    pub epoch: u64,
    /// All transfers from the sender to the receiver before this one are over.
    pub settled: Transfer,
    /// The transfer.
    pub transfer: Transfer,
    /// The content.
    pub saying: Saying,
}

/// Content of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saying {
    /// From the source: take these entities.
    Prepare(Vec<Parcel>),
    /// From the target: it and its standby can take all except the refused entities.
    Prepared(Vec<Refused>),
    /// From the source: the entities belong to the target.
    Commit,
    /// From the target: it has all except the refused entities, and its standby knows.
    Taken(Vec<Refused>),
    /// From the source: the entities stay with the source.
    Abort,
    /// From a source that took over: asks for the result of the transfer.
    AskTarget {
        /// Epoch of the target that the predecessor addressed.
        addressed: u64,
    },
    /// From the target, in response to `AskTarget`: the transfer was not taken and never will be.
    NotTaken,
    /// From the target: asks for the source's decision.
    AskSource,
    /// From a target that lost its state: the transfer is unknown.
    Unknown,
    /// From the source: nothing besides the `settled` field of every message.
    Settled,
}

/// Summary of a message between regions, without decoding it: for carriers and counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heading {
    /// A source offers entities.
    Prepare {
        /// The source.
        from: RegionId,
        /// The transfer.
        transfer: Transfer,
        /// Number of entities.
        entities: u32,
    },
    /// A target has taken a transfer's entities.
    Taken {
        /// The target.
        from: RegionId,
        /// The transfer.
        transfer: Transfer,
    },
    /// A batch of ghosts.
    Ghosts {
        /// Number of ghosts.
        count: u32,
        /// Tick of the batch.
        tick: u64,
    },
    /// Any other message.
    Other,
}

/// Offset of the transfer, behind the channel's byte.
const TRANSFER_AT: usize = 1 + 30;
const GHOST_TICK_AT: usize = 1 + 2 + 4 + 8;
const GHOST_COUNT_AT: usize = GHOST_TICK_AT + 16;

impl Heading {
    /// Summarises a message as a region sends it.
    pub fn of(bytes: &[u8]) -> Heading {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let transfer = || Some(Transfer { epoch: number(TRANSFER_AT)?, number: number(TRANSFER_AT + 8)? });
        let from = || word(3).map(RegionId);
        let known = match bytes {
            [crate::region::HANDOVER, VERSION, 1, ..] => from()
                .zip(transfer())
                .zip(word(TRANSFER_AT + 16))
                .map(|((from, transfer), entities)| Heading::Prepare { from, transfer, entities }),
            [crate::region::HANDOVER, VERSION, 4, ..] => {
                from().zip(transfer()).map(|(from, transfer)| Heading::Taken { from, transfer })
            }
            [crate::region::GHOSTS, VERSION, ..] => number(GHOST_TICK_AT)
                .zip(word(GHOST_COUNT_AT))
                .map(|(tick, count)| Heading::Ghosts { count, tick }),
            _ => None,
        };
        known.unwrap_or(Heading::Other)
    }
}

impl Message {
    /// Appends the encoded message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = match &self.saying {
            Saying::Prepare(_) => 1,
            Saying::Prepared(_) => 2,
            Saying::Commit => 3,
            Saying::Taken(_) => 4,
            Saying::Abort => 5,
            Saying::AskTarget { .. } => 6,
            Saying::NotTaken => 7,
            Saying::AskSource => 8,
            Saying::Unknown => 9,
            Saying::Settled => 10,
        };
        out.extend_from_slice(&[VERSION, kind]);
        put_u32(out, self.from.0);
        put_u64(out, self.epoch);
        parcel::put_transfer(out, self.settled);
        parcel::put_transfer(out, self.transfer);
        match &self.saying {
            Saying::Prepare(parcels) => parcel::put_parcels(out, parcels),
            Saying::Prepared(refused) | Saying::Taken(refused) => parcel::put_refused(out, refused),
            Saying::AskTarget { addressed } => put_u64(out, *addressed),
            _ => {}
        }
    }

    /// Decodes a message.
    pub fn decode(bytes: &[u8]) -> Result<Message, DecodeError> {
        let mut fields = Fields::versioned(bytes)?;
        let kind = fields.u8()?;
        let (from, epoch) = (RegionId(fields.u32()?), fields.u64()?);
        let (settled, transfer) = (parcel::transfer(&mut fields)?, parcel::transfer(&mut fields)?);
        let saying = match kind {
            1 => Saying::Prepare(parcel::parcels(&mut fields)?),
            2 => Saying::Prepared(parcel::refused(&mut fields)?),
            3 => Saying::Commit,
            4 => Saying::Taken(parcel::refused(&mut fields)?),
            5 => Saying::Abort,
            6 => Saying::AskTarget { addressed: fields.u64()? },
            7 => Saying::NotTaken,
            8 => Saying::AskSource,
            9 => Saying::Unknown,
            10 => Saying::Settled,
            number => return Err(DecodeError::Unknown { what: "message", number }),
        };
        fields.end()?;
        Ok(Message { from, epoch, settled, transfer, saying })
    }
}
