//! Outputs of a region.

use crate::entity::EntityId;
use crate::handover::{EntityRefusal, RegionId};

/// The messages, records and reports that a region produces, until its caller takes and clears them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RegionOutputs {
    /// Messages to other regions.
    pub messages: Vec<(RegionId, Vec<u8>)>,
    /// Payload of a record of the region's topic; no record if empty.
    pub record: Vec<u8>,
    /// Incidents, such as a failed behaviour.
    pub reports: Vec<RegionReport>,
    /// Entities that were handed over to other regions.
    pub departed: Vec<EntityId>,
}

impl RegionOutputs {
    /// Removes everything and keeps the memory.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.record.clear();
        self.reports.clear();
        self.departed.clear();
    }
}

/// An incident that a region reports, such as a failed behaviour or a lost entity.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegionReport {
    /// A behaviour panicked or returned a position that is not finite; the entity stays where it is.
    Frozen {
        /// Id of the entity.
        id: EntityId,
        /// Whether the behaviour panicked.
        panicked: bool,
    },
    /// Another region refused the entity, which stays here.
    Refused {
        /// Id of the entity.
        id: EntityId,
        /// The reason.
        why: EntityRefusal,
    },
    /// Another region lost its state, which included entities that this region had handed over to it.
    Lost {
        /// The region.
        to: RegionId,
        /// The lost entities.
        ids: Vec<EntityId>,
    },
    /// A new entity had the id of an entity in another region. The new entity was removed.
    Duplicate {
        /// Id of the entity.
        id: EntityId,
        /// The region with the older entity.
        region: RegionId,
    },
    /// Entities cannot be handed over yet, because of the limit of handovers in progress; they are offered again.
    Held {
        /// The target region.
        to: RegionId,
        /// Number of entities.
        count: usize,
    },
}
