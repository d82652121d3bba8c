//! Responses of a world's process to clients' [requests](super::WorldRequest), and the encoding of these responses.
//!
//! ```text
//!  version u8, kind u8
//!   1 done      region u32, tick u64                 the change takes effect in the next tick
//!   2 refused   reason u8, text in UTF-8 up to the end
//!     absent    reason u8 (not here), a zero byte, (region u32, epoch u64) up to the end
//!   3 watching
//!   4 sight     region u32, epoch u64, tick u64, events up to the end
//! ```
//!
//! Earlier versions of Dunlin send no `absent`, but a text, which never begins with a zero byte. Earlier clients ignore
//! the text of this reason.

use crate::handover::RegionId;
use crate::layout::{Fields, SpaceDecodeError, VERSION, put_u32, put_u64};

/// A response of a world's process to a client's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorldResponse<'a> {
    /// The command was carried out.
    Done {
        /// The entity's region.
        region: RegionId,
        /// The last tick before the change.
        tick: u64,
    },
    /// The request was refused.
    Refused {
        /// The reason.
        why: WorldRefusal,
        /// The reason as text.
        text: &'a str,
    },
    /// The process does not have the entity of the request.
    Absent {
        /// The regions that the process runs under a valid lease, each with its epoch. The response says nothing about
        /// other regions.
        regions: Vec<(RegionId, u64)>,
    },
    /// The viewer was added and will receive updates.
    Watching,
    /// An update for a viewer.
    ViewerUpdate(ViewerUpdate<'a>),
}

/// The reason why a world's process refused a client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorldRefusal {
    /// The entity is not in a region of this process.
    NotHere,
    /// The entity is being handed over; its new owner accepts commands afterwards.
    Leaving,
    /// The region has no owner at present. Its entities do not move until it has one.
    NoOwner,
    /// The request is not valid.
    Wrong,
    /// The process is overloaded; retry later.
    Busy,
}

/// An update for a viewer, which one region sends after a tick. It contains the changes in the viewer's sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewerUpdate<'a> {
    /// The region that sends the update.
    pub region: RegionId,
    /// Epoch of the region's owner.
    pub epoch: u64,
    /// The tick after which the region sends the update.
    pub tick: u64,
    /// Encoded [`ViewerEvent`](super::ViewerEvent)s.
    pub events: &'a [u8],
}

const REFUSALS: [WorldRefusal; 5] = [
    WorldRefusal::NotHere,
    WorldRefusal::Leaving,
    WorldRefusal::NoOwner,
    WorldRefusal::Wrong,
    WorldRefusal::Busy,
];

impl<'a> WorldResponse<'a> {
    /// Appends the encoded response.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        match self {
            WorldResponse::Done { region, tick } => {
                out.push(1);
                put_u32(out, region.0);
                put_u64(out, *tick);
            }
            WorldResponse::Refused { why, text } => {
                out.push(2);
                out.push(*why as u8);
                out.extend_from_slice(text.as_bytes());
            }
            WorldResponse::Absent { regions } => {
                out.extend_from_slice(&[2, WorldRefusal::NotHere as u8, 0]);
                for (region, epoch) in regions {
                    put_u32(out, region.0);
                    put_u64(out, *epoch);
                }
            }
            WorldResponse::Watching => out.push(3),
            WorldResponse::ViewerUpdate(update) => {
                out.push(4);
                put_u32(out, update.region.0);
                put_u64(out, update.epoch);
                put_u64(out, update.tick);
                out.extend_from_slice(update.events);
            }
        }
    }

    /// Decodes a response.
    pub fn decode(bytes: &'a [u8]) -> Result<WorldResponse<'a>, SpaceDecodeError> {
        let mut fields = Fields::versioned(bytes)?;
        match fields.u8()? {
            1 => {
                let (region, tick) = (RegionId(fields.u32()?), fields.u64()?);
                fields.end()?;
                Ok(WorldResponse::Done { region, tick })
            }
            2 => {
                let number = fields.u8()?;
                let why = REFUSALS.get(usize::from(number)).copied();
                let why = why.ok_or(SpaceDecodeError::Unknown { what: "refusal", number })?;
                if why == WorldRefusal::NotHere && fields.rest().first() == Some(&0) {
                    let (_, mut regions) = (fields.u8()?, Vec::new());
                    while !fields.is_empty() {
                        regions.push((RegionId(fields.u32()?), fields.u64()?));
                    }
                    return Ok(WorldResponse::Absent { regions });
                }
                let text = std::str::from_utf8(fields.rest()).unwrap_or("no readable text");
                Ok(WorldResponse::Refused { why, text })
            }
            3 => fields.end().map(|()| WorldResponse::Watching),
            4 => {
                let (region, epoch, tick) = (RegionId(fields.u32()?), fields.u64()?, fields.u64()?);
                Ok(WorldResponse::ViewerUpdate(ViewerUpdate { region, epoch, tick, events: fields.rest() }))
            }
            number => Err(SpaceDecodeError::Unknown { what: "answer", number }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interest_response_is_read_back_as_written() {
        let refused = |why| WorldResponse::Refused { why, text: "no" };
        let update = ViewerUpdate { region: RegionId(3), epoch: 8, tick: 9, events: &[4] };
        let others = [
            WorldResponse::Done { region: RegionId(1), tick: 7 },
            WorldResponse::Watching,
            WorldResponse::ViewerUpdate(update),
            WorldResponse::Absent { regions: vec![] },
            WorldResponse::Absent { regions: vec![(RegionId(2), 9), (RegionId(5), u64::MAX)] },
        ];
        for response in REFUSALS.map(refused).into_iter().chain(others) {
            let mut bytes = Vec::new();
            response.encode(&mut bytes);
            assert_eq!(WorldResponse::decode(&bytes), Ok(response));
            assert!(WorldResponse::decode(&bytes[..1]).is_err());
        }
        assert!(WorldResponse::decode(&[VERSION, 2, 9]).is_err());
        assert!(WorldResponse::decode(&[VERSION, 1, 0]).is_err());
        assert!(WorldResponse::decode(&[VERSION, 2, 0, 0, 1]).is_err());
    }
}
