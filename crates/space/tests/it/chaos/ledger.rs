//! A ledger of the entities that should exist. The simulation, which sees all simulated processes, writes this ledger.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_space::EntityId;

/// The expected state of each entity in the simulated cluster.
#[derive(Debug, Default)]
pub struct ExpectedEntities {
    /// The expected generation and number of steps of each entity.
    steps: BTreeMap<EntityId, EntityRecord>,
    /// Entities of processes that were killed and had no standby.
    pub lost: BTreeSet<EntityId>,
}

#[derive(Debug, Clone, Copy)]
struct EntityRecord {
    generation: u32,
    steps: u64,
    /// Number of steps by which a killed owner may have set the entity back.
    back: u64,
    /// Whether a process without a standby was killed while it held the entity.
    may_be_lost: bool,
}

impl ExpectedEntities {
    pub fn insert(&mut self, id: EntityId, generation: u32) {
        self.steps.insert(id, EntityRecord { generation, steps: 0, back: 0, may_be_lost: false });
    }

    /// Records that an owner moved the entity from step `from` to the next.
    pub fn moved(&mut self, id: EntityId, from: u64) -> Result<(), String> {
        let Some(known) = self.steps.get_mut(&id) else { return Err(format!("entity {id} was never born")) };
        let back = known
            .steps
            .checked_sub(from)
            .ok_or(format!("entity {id} is ahead of every owner that moved it"))?;
        if back > known.back {
            let EntityRecord { steps, back: max, .. } = *known;
            return Err(format!(
                "entity {id} continues from step {from}, but was at {steps} and may fall back by {max} only"
            ));
        }
        (known.steps, known.back) = (from + 1, 0);
        Ok(())
    }

    /// Records that the entity's owner was killed, and that the owner's standby may lag by `ticks` ticks.
    pub fn owner_killed(&mut self, id: EntityId, ticks: u64) {
        if let Some(known) = self.steps.get_mut(&id) {
            known.back = known.back.max(ticks);
        }
    }

    /// Records that the entity may be lost: a process without a standby was killed while it held the entity.
    pub fn allow_loss(&mut self, id: EntityId) {
        if let Some(known) = self.steps.get_mut(&id) {
            known.may_be_lost = true;
        }
    }

    /// Compares the entities of all owners with the expected ones.
    pub fn compare(&mut self, owned: &BTreeMap<EntityId, (u32, u64)>) -> Result<(), String> {
        if let Some(id) = owned.keys().find(|id| !self.steps.contains_key(id)) {
            return Err(format!("entity {id} came from nowhere"));
        }
        for (id, known) in &self.steps {
            match owned.get(id) {
                None if known.may_be_lost => drop(self.lost.insert(*id)),
                None => return Err(format!("entity {id} is lost")),
                Some((generation, steps)) => {
                    let behind = known.steps.checked_sub(*steps).is_some_and(|behind| behind <= known.back);
                    if *generation != known.generation || !behind {
                        return Err(format!("entity {id} ended as {generation}/{steps}, not as {known:?}"));
                    }
                }
            }
        }
        Ok(())
    }
}
