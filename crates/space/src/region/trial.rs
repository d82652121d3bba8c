//! Checks whether records fit a state, without changing it.
//!
//! A trial keeps the changes: inserted and removed ids, and a copy of the handovers if a record changes them.

use std::collections::HashSet;

use super::state::{RecordError, RegionState, Sections, Step, check_window};
use crate::entity::EntityId;
use crate::handover::{Handover, HandoverEffect, HandoverEntry, Parcel};
use crate::store::{Entity, EntityStore, StoreError};

/// Checks records one after another against a state and the records before them.
pub(crate) struct RecordTrial<'a, const D: usize> {
    state: &'a RegionState<D>,
    handover: Option<Handover>,
    come: HashSet<EntityId>,
    gone: HashSet<EntityId>,
    /// Whether any record was checked before.
    any: bool,
    /// Whether a checked record replaces the whole state. No other record may then be in the same batch.
    anew: bool,
}

impl<const D: usize> RegionState<D> {
    pub(crate) fn trial(&self) -> RecordTrial<'_, D> {
        RecordTrial {
            state: self,
            handover: None,
            come: HashSet::new(),
            gone: HashSet::new(),
            any: false,
            anew: false,
        }
    }
}

impl<const D: usize> RecordTrial<'_, D> {
    /// Checks a record against the state and the records before it.
    pub(crate) fn follow(&mut self, record: &[u8]) -> Result<(), RecordError> {
        let mut sections = Sections::new(record);
        if self.anew {
            return Err(RecordError::NotAlone);
        }
        let mut first = !std::mem::replace(&mut self.any, true);
        while let Some(step) = sections.next::<D>()? {
            match step {
                Step::HandoverEntry(entry) => self.enter(entry)?,
                Step::Insert(parcel) => self.insert(&parcel)?,
                Step::Put(parcel) => {
                    self.expect(parcel.id)?;
                    Entity::<D>::of_parcel(&parcel, self.state.store().schema()).map_err(StoreError::from)?;
                }
                Step::Remove(id) => self.remove(id)?,
                Step::Sort(window) => check_window(window, self.len())?,
                Step::Tick(_) => {}
                Step::Moved(moved) => moved.check(self.len())?,
                Step::Frozen(id, _) => self.expect(id)?,
                Step::Whole(snapshot) => {
                    if !first || !sections.is_empty() {
                        return Err(RecordError::NotAlone);
                    }
                    drop(self.state.read(snapshot)?);
                    self.anew = true;
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
        self.store().len() + self.come.len() - self.gone.len()
    }

    fn has(&self, id: EntityId) -> bool {
        self.come.contains(&id) || (self.store().row(id).is_some() && !self.gone.contains(&id))
    }

    fn expect(&self, id: EntityId) -> Result<(), RecordError> {
        if self.has(id) { Ok(()) } else { Err(StoreError::Unknown(id).into()) }
    }

    fn insert(&mut self, parcel: &Parcel) -> Result<(), RecordError> {
        Entity::<D>::of_parcel(parcel, self.store().schema()).map_err(StoreError::from)?;
        if self.has(parcel.id) {
            return Err(StoreError::Duplicate(parcel.id).into());
        }
        let max = self.store().limits().entities_max;
        if self.len() >= max as usize {
            return Err(StoreError::Full { max }.into());
        }
        // An entity that was removed and inserted again counts as an entity in the store.
        if !self.gone.remove(&parcel.id) {
            self.come.insert(parcel.id);
        }
        Ok(())
    }

    fn remove(&mut self, id: EntityId) -> Result<(), RecordError> {
        self.expect(id)?;
        if !self.come.remove(&id) {
            self.gone.insert(id);
        }
        Ok(())
    }

    fn enter(&mut self, entry: HandoverEntry) -> Result<(), RecordError> {
        let mut effects = Vec::new();
        let handover = self.handover.get_or_insert_with(|| self.state.handover().clone());
        handover.follow(entry, &mut effects);
        for effect in effects {
            match effect {
                HandoverEffect::Suspend(ids) | HandoverEffect::Release(ids) => {
                    ids.into_iter().try_for_each(|id| self.expect(id))?;
                }
                HandoverEffect::Depart(ids) => ids.into_iter().try_for_each(|id| self.remove(id))?,
                HandoverEffect::Admit(parcels) => {
                    parcels.iter().try_for_each(|parcel| self.insert(parcel))?
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
