//! Counts the entities in the states of a world's regions, each entity once.
//!
//! The states of different regions may belong to different ticks. An entity that is being handed over may therefore be
//! in two of the states. It may also be in none of them, if the source's state is from after the removal and the
//! target's state from before the insertion.

use std::collections::{BTreeMap, HashMap};

use crate::entity::EntityId;
use crate::handover::RegionId;
use crate::region::RegionState;

/// The entities of a world by region. Each entity counts once, even during a handover.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    entities: HashMap<EntityId, EntityLocation>,
    regions: BTreeMap<RegionId, RegionEntityCounts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EntityLocation {
    region: RegionId,
    tick: u64,
    in_handover: bool,
}

/// The counts of a region's entities: those that the region moves, and those that are being handed over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegionEntityCounts {
    /// Number of entities that the region moves.
    pub active: usize,
    /// Number of entities that are being handed over and do not move.
    pub in_handover: usize,
}

impl Census {
    /// Counts the entities in the states of a world's regions. An entity in two states belongs to the region whose
    /// state has the later tick.
    pub fn of<'a, const D: usize>(states: impl IntoIterator<Item = &'a RegionState<D>>) -> Census {
        let mut entities: HashMap<EntityId, EntityLocation> = HashMap::new();
        let mut in_handover = Vec::new();
        for state in states {
            let (region, tick) = (state.handover().region(), state.tick());
            for id in state.store().ids() {
                let found =
                    entities.entry(*id).or_insert(EntityLocation { region, tick, in_handover: false });
                if found.tick < tick {
                    (found.region, found.tick) = (region, tick);
                }
            }
            in_handover.extend(state.handover().in_doubt().into_iter().map(|id| (id, region, tick)));
        }
        for (id, region, tick) in in_handover {
            entities.entry(id).or_insert(EntityLocation { region, tick, in_handover: true });
        }
        let mut regions: BTreeMap<RegionId, RegionEntityCounts> = BTreeMap::new();
        for found in entities.values() {
            let count = regions.entry(found.region).or_default();
            *(if found.in_handover { &mut count.in_handover } else { &mut count.active }) += 1;
        }
        Census { entities, regions }
    }

    /// How many entities there are.
    pub fn len(&self) -> usize {
        self.entities.len()
    }

    /// Whether there are no entities.
    pub fn is_empty(&self) -> bool {
        self.entities.is_empty()
    }

    /// Region of an entity, and whether the entity is being handed over; `None` if no state has the entity.
    pub fn find(&self, id: EntityId) -> Option<(RegionId, bool)> {
        self.entities.get(&id).map(|found| (found.region, found.in_handover))
    }

    /// How many entities of a region move, and how many are being handed over.
    pub fn headcount(&self, region: RegionId) -> RegionEntityCounts {
        self.regions.get(&region).copied().unwrap_or_default()
    }

    /// The number of entities that are in the earlier census but not in this one. Such an entity was despawned. Or it
    /// was in no state, because reading the states for this census took longer than its handover.
    pub fn missing_count(&self, earlier: &Census) -> usize {
        earlier.entities.keys().filter(|id| !self.entities.contains_key(*id)).count()
    }
}
