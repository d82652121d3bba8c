//! What the two sides of a hand-over say to each other.
//!
//! ```text
//!  0         1      2        6         14              30               46
//!  +---------+------+--------+---------+---------------+----------------+------------+
//!  | version | kind | from   | epoch   | settled       | transfer       | what kind  |
//!  | u8      | u8   | u32    | u64     | u64, u64      | u64, u64       | says       |
//!  +---------+------+--------+---------+---------------+----------------+------------+
//! ```
//! `settled` is the oldest of the sender's transfers to the receiver that is not over, so that the receiver can forget those
//! before it.

use super::parcel::{self, Parcel, Refused, RegionId, Transfer};
use crate::layout::{DecodeError, Fields, VERSION, put_u32, put_u64};

/// A message, and who it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The sender's region.
    pub from: RegionId,
    /// The epoch in which the sender owns it. A region's messages of an older epoch than one that is known are dropped.
    pub epoch: u64,
    /// All transfers from the sender to the receiver before this are over.
    pub settled: Transfer,
    /// The transfer it is about.
    pub transfer: Transfer,
    /// What it says.
    pub saying: Saying,
}

/// What a message says of its transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saying {
    /// Source: take these.
    Prepare(Vec<Parcel>),
    /// Target: I could, all but the refused, and so could my standby.
    Prepared(Vec<Refused>),
    /// Source: they are yours.
    Commit,
    /// Target: I have them, all but the refused, and my standby knows it.
    Taken(Vec<Refused>),
    /// Source: they stay mine.
    Abort,
    /// A source that took over: what came of it? Its predecessor spoke to this epoch of the target.
    AskTarget {
        /// The target's epoch as the predecessor knew it.
        addressed: u64,
    },
    /// Target, so asked: I did not take them, and never shall.
    NotTaken,
    /// Target: what came of it?
    AskSource,
    /// Target, restarted without a past: I know nothing of it.
    Unknown,
    /// Source: nothing more than what stands in every message.
    Settled,
}

/// What can be told of a message between regions without reading it whole, for whoever carries and counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heading {
    /// A source offers so many entities.
    Prepare {
        /// The source.
        from: RegionId,
        /// The transfer.
        transfer: Transfer,
        /// How many.
        entities: u32,
    },
    /// A target has what this transfer gave it.
    Taken {
        /// Who says so.
        from: RegionId,
        /// The transfer.
        transfer: Transfer,
    },
    /// So many ghosts.
    Ghosts {
        /// How many.
        count: u32,
        /// After which tick.
        tick: u64,
    },
    /// Anything else.
    Other,
}

/// Where a hand-over's transfer stands, behind the channel's byte; and a batch of ghosts' tick and count.
const TRANSFER_AT: usize = 1 + 30;
const GHOST_TICK_AT: usize = 1 + 2 + 4 + 8;
const GHOST_COUNT_AT: usize = GHOST_TICK_AT + 16;

impl Heading {
    /// Of a message as a region gives it out.
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
    /// Appends its bytes.
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

    /// Reads it again.
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
