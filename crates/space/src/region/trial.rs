//! Checks whether records fit a region's state, without changing the state.
//!
//! A trial remembers what the records would change: the ids that they insert and remove, and a changed copy of the
//! handovers if a record changes handovers.

use std::collections::HashSet;

use super::state::{RecordError, RegionState, Sections, Step, check_window};
use crate::entity::EntityId;
use crate::handover::{Handover, HandoverEffect, HandoverEntry, HandoverStep, TransferredEntity};
use crate::store::{Entity, EntityStore, StoreError};

/// Maximum number of other regions and transfers in the state of a region's topic. A region with 100 neighbours has far
/// fewer. The maximum bounds the copy that a trial makes: if a record contains a step of a handover, the trial copies
/// all regions and transfers.
const TRANSFERS_MAX: usize = 1 << 16;

/// Checks records one after another. Each record is checked against the state as it would be after the records that
/// were checked before.
pub(crate) struct RecordTrial<'a, const D: usize> {
    state: &'a RegionState<D>,
    handover: Option<Handover>,
    /// Upper bound of the number of regions and transfers in `handover`.
    transfers: usize,
    inserted: HashSet<EntityId>,
    removed: HashSet<EntityId>,
    /// Whether any record was checked before.
    has_records: bool,
    /// Whether a checked record replaces the whole state. The batch with this record must then contain no other record.
    replaces_state: bool,
}

impl<const D: usize> RegionState<D> {
    pub(crate) fn trial(&self) -> RecordTrial<'_, D> {
        RecordTrial {
            state: self,
            handover: None,
            transfers: 0,
            inserted: HashSet::new(),
            removed: HashSet::new(),
            has_records: false,
            replaces_state: false,
        }
    }
}

impl<const D: usize> RecordTrial<'_, D> {
    /// Checks a record against the state and the records before it.
    pub(crate) fn follow(&mut self, record: &[u8]) -> Result<(), RecordError> {
        let mut sections = Sections::new(record);
        if self.replaces_state {
            return Err(RecordError::NotAlone);
        }
        let mut first = !std::mem::replace(&mut self.has_records, true);
        while let Some(step) = sections.next::<D>()? {
            match step {
                Step::HandoverEntry(entry) => self.apply_entry(entry)?,
                Step::Insert(entity) => self.insert(&entity)?,
                Step::Put(entity) => {
                    self.check_exists(entity.id)?;
                    Entity::<D>::decode(&entity, self.state.store().schema()).map_err(StoreError::from)?;
                }
                Step::Remove(id) => self.remove(id)?,
                Step::Sort(window) => check_window(window, self.len())?,
                Step::Tick(_) => {}
                Step::Moved(moved) => moved.check(self.len())?,
                Step::Frozen(id, _) => self.check_exists(id)?,
                Step::Whole(snapshot) => {
                    if !first || !sections.is_empty() {
                        return Err(RecordError::NotAlone);
                    }
                    check_transfers(self.state.read(snapshot)?.handover().transfer_count())?;
                    self.replaces_state = true;
                }
            }
            first = false;
        }
        Ok(())
    }

    fn store(&self) -> &EntityStore<D> {
        self.state.store()
    }

    fn len(&self) -> usize {
        self.store().len() + self.inserted.len() - self.removed.len()
    }

    fn contains(&self, id: EntityId) -> bool {
        self.inserted.contains(&id) || (self.store().row(id).is_some() && !self.removed.contains(&id))
    }

    fn check_exists(&self, id: EntityId) -> Result<(), RecordError> {
        if self.contains(id) { Ok(()) } else { Err(StoreError::Unknown(id).into()) }
    }

    fn insert(&mut self, entity: &TransferredEntity) -> Result<(), RecordError> {
        Entity::<D>::decode(entity, self.store().schema()).map_err(StoreError::from)?;
        if self.contains(entity.id) {
            return Err(StoreError::Duplicate(entity.id).into());
        }
        let max = self.store().limits().entities_max;
        if self.len() >= max as usize {
            return Err(StoreError::Full { max }.into());
        }
        // The id of an entity that is removed and inserted again is still an id of the store.
        if !self.removed.remove(&entity.id) {
            self.inserted.insert(entity.id);
        }
        Ok(())
    }

    fn remove(&mut self, id: EntityId) -> Result<(), RecordError> {
        self.check_exists(id)?;
        if !self.inserted.remove(&id) {
            self.removed.insert(id);
        }
        Ok(())
    }

    fn apply_entry(&mut self, entry: HandoverEntry) -> Result<(), RecordError> {
        let mut effects = Vec::new();
        let handover = self.handover.get_or_insert_with(|| {
            self.transfers = self.state.handover().transfer_count();
            self.state.handover().clone()
        });
        if matches!(entry.step, HandoverStep::Leaving { .. } | HandoverStep::Staged { .. }) {
            // The step may add a transfer, and a region that is not in the state yet.
            self.transfers += 2;
            check_transfers(self.transfers)?;
        }
        handover.follow(entry, &mut effects);
        for effect in effects {
            match effect {
                HandoverEffect::Suspend(ids) | HandoverEffect::Release(ids) => {
                    ids.into_iter().try_for_each(|id| self.check_exists(id))?;
                }
                HandoverEffect::Depart(ids) => ids.into_iter().try_for_each(|id| self.remove(id))?,
                HandoverEffect::Admit(entities) => {
                    entities.iter().try_for_each(|entity| self.insert(entity))?
                }
                HandoverEffect::Send { .. }
                | HandoverEffect::Write(_)
                | HandoverEffect::Refused(_)
                | HandoverEffect::Lost { .. } => {}
            }
        }
        Ok(())
    }
}

fn check_transfers(count: usize) -> Result<(), RecordError> {
    let max = TRANSFERS_MAX;
    if count > max { Err(RecordError::Transfers { max }) } else { Ok(()) }
}
