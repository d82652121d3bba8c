//! Entities of all regions of a host.

use dunlin_space::{Behaviour, Entity, EntityId, RegionId, StoreError, curve::Curve, curve::Morton};

use super::{Host, Running};

impl<const D: usize, B: Behaviour<D> + Clone> Host<D, B> {
    /// Takes in an entity that is new in the world. Its place has to be in a region of this host, and no region of this host
    /// may have its id. Ids of other processes' entities are not known here: the program gives each id once.
    pub fn spawn(&mut self, entity: &Entity<'_, D>) -> Result<(), StoreError> {
        let (id, owner) = (entity.id, self.owner_of(&entity.position));
        if entity.position.iter().all(|along| along.is_finite()) && !self.setup.world.holds(&entity.position)
        {
            return Err(StoreError::Outside(id));
        }
        let is_there = |running: &Running<D, B>| {
            let region = &running.region;
            region.store().row(id).is_some() || region.handover().staged().contains(id)
        };
        if self.regions.values().any(is_there) {
            return Err(StoreError::Duplicate(id));
        }
        match self.regions.get_mut(&owner) {
            Some(running) => running.region.spawn(entity, &mut running.out),
            None => Err(StoreError::Elsewhere { id, region: owner }),
        }
    }

    /// Takes an entity out of the world.
    pub fn despawn(&mut self, id: EntityId) -> Result<(), StoreError> {
        let here = self.regions.values_mut().find(|running| running.region.store().row(id).is_some());
        let running = here.ok_or(StoreError::Unknown(id))?;
        running.region.despawn(id, &mut running.out)
    }

    /// The region whose place a point is.
    pub fn owner_of(&self, at: &[f32; D]) -> RegionId {
        self.partition.owner(Morton::key(self.setup.world.place(at)))
    }

    /// The set of all entities here: id, generation, hash of the state; by id.
    pub fn ledger(&self) -> Vec<(EntityId, u32, u64)> {
        let mut all: Vec<_> =
            self.regions.values().flat_map(|running| running.region.store().ledger()).collect();
        all.sort_unstable();
        all
    }

    /// How many entities are here.
    pub fn len(&self) -> usize {
        self.regions.values().map(|running| running.region.store().len()).sum()
    }

    /// Whether nobody is here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
