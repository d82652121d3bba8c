//! What a region gives to whoever runs it.

use crate::entity::EntityId;
use crate::handover::{Refusal, RegionId};

/// What is to be sent, published and told. It is appended to; whoever runs the region takes it and clears it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outputs {
    /// Messages to other regions.
    pub messages: Vec<(RegionId, Vec<u8>)>,
    /// What changed, as the payload of a record of the region's topic; nothing if it is empty.
    pub record: Vec<u8>,
    /// What somebody should know.
    pub reports: Vec<Report>,
    /// Entities that were handed over to other regions.
    pub departed: Vec<EntityId>,
}

impl Outputs {
    /// Empties it, and keeps its memory.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.record.clear();
        self.reports.clear();
        self.departed.clear();
    }
}

/// Something that did not go as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// Its behaviour panicked, or moved it to no place: it stays where it is.
    Frozen {
        /// Which entity.
        id: EntityId,
        /// Whether it panicked.
        panicked: bool,
    },
    /// Another region did not take it, so that it stays.
    Refused {
        /// Which entity.
        id: EntityId,
        /// Why.
        why: Refusal,
    },
    /// A region that was handed these lost its past.
    Lost {
        /// Which region.
        to: RegionId,
        /// What it was handed.
        ids: Vec<EntityId>,
    },
    /// Another region had an entity of this id when this one was spawned: it was taken out again.
    Duplicate {
        /// Which entity.
        id: EntityId,
        /// The region that has the other one.
        region: RegionId,
    },
    /// Entities that ought to go found no room in the hand-overs under way; they are offered again.
    Held {
        /// Where they ought to go.
        to: RegionId,
        /// How many.
        count: usize,
    },
}
