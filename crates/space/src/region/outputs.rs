//! The outputs of a region: messages, records and reports.

use crate::entity::EntityId;
use crate::handover::{EntityRefusal, RegionId};

/// The messages, records and reports that a region produces. They stay here until the region's caller takes and clears
/// them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RegionOutputs {
    /// Messages to other regions.
    pub messages: Vec<(RegionId, Vec<u8>)>,
    /// Payload of a record for the region's topic; if empty, there is no record.
    pub record: Vec<u8>,
    /// Incidents, such as a failed behaviour.
    pub reports: Vec<RegionReport>,
    /// Entities that were handed over to other regions.
    pub departed: Vec<EntityId>,
}

impl RegionOutputs {
    /// Removes all outputs, but keeps their memory.
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
    /// A behaviour panicked or returned a number that is not finite. The entity that it was to move stays where it is.
    Frozen {
        /// Id of the entity.
        id: EntityId,
        /// Whether the behaviour panicked.
        panicked: bool,
    },
    /// Another region refused to take the entity, so the entity stays in this region.
    Refused {
        /// Id of the entity.
        id: EntityId,
        /// The reason.
        why: EntityRefusal,
    },
    /// Another region lost its state. The lost state included entities that this region had handed over.
    Lost {
        /// The region that lost its state.
        to: RegionId,
        /// The lost entities.
        ids: Vec<EntityId>,
    },
    /// A new entity was removed, because another region has an entity with the same id.
    Duplicate {
        /// Id of the entity.
        id: EntityId,
        /// The region with the older entity.
        region: RegionId,
    },
    /// The limit of handovers in progress is reached, so these entities are offered again later.
    Held {
        /// The target region.
        to: RegionId,
        /// Number of entities.
        count: usize,
    },
}
