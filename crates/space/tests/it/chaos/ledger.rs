//! What must be true, kept by who sees everything.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_space::EntityId;

/// What is known of each entity.
#[derive(Debug, Default)]
pub struct Ledger {
    /// How many steps each has made, as everybody has to see it.
    steps: BTreeMap<EntityId, Known>,
    /// Who was held by a process that was killed without a standby, and is nowhere now.
    pub lost: BTreeSet<EntityId>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    generation: u32,
    steps: u64,
    /// How far back a kill may have thrown it.
    back: u64,
    /// A process that held it was killed, and nobody stood by.
    may_be_lost: bool,
}

impl Ledger {
    pub fn born(&mut self, id: EntityId, generation: u32) {
        self.steps.insert(id, Known { generation, steps: 0, back: 0, may_be_lost: false });
    }

    /// An owner moved it, from so many steps to one more.
    pub fn moved(&mut self, id: EntityId, from: u64) -> Result<(), String> {
        let Some(known) = self.steps.get_mut(&id) else { return Err(format!("entity {id} was never born")) };
        let back =
            known.steps.checked_sub(from).ok_or(format!("entity {id} is ahead of all who moved it"))?;
        if back > known.back {
            let Known { steps, back: may, .. } = *known;
            return Err(format!(
                "entity {id} goes on from step {from}, was at {steps}, may fall back by {may}"
            ));
        }
        (known.steps, known.back) = (from + 1, 0);
        Ok(())
    }

    /// Its owner was killed: its standby may be behind by so many ticks.
    pub fn owner_killed(&mut self, id: EntityId, ticks: u64) {
        if let Some(known) = self.steps.get_mut(&id) {
            known.back = known.back.max(ticks);
        }
    }

    /// A process that held it was killed, and nobody stood by.
    pub fn gone(&mut self, id: EntityId) {
        if let Some(known) = self.steps.get_mut(&id) {
            known.may_be_lost = true;
        }
    }

    /// Compares the set of all owners' entities with what must be there.
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
