//! Adds, finds and removes entities in the regions of a host.

use dunlin_space::{
    Behaviour, CommandError, Entity, EntityId, RegionId, RegionReport, StoreError, curve::Curve,
    curve::MortonCurve,
};

use super::{Host, HostedRegion};

/// The status of an entity in a region of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntityStatus {
    /// The region owns the entity.
    Own,
    /// The region is handing the entity over to another region.
    Leaving,
    /// Another region is handing the entity over to this one.
    Coming,
}

impl<const D: usize, B: Behaviour<D> + Clone> Host<D, B> {
    /// Adds a new entity. Returns an error if no region of this host owns its position, if this region has no lease, or
    /// if a region of this host has an entity with the same id. After this call, the caller asks other processes about
    /// the id, and removes the entity again if one of them has an entity with this id.
    pub fn spawn(&mut self, entity: &Entity<'_, D>) -> Result<(), StoreError> {
        let region = self.region_for(entity)?;
        let Some(hosted) = self.regions.get_mut(&region) else { return Ok(()) };
        hosted.check_authority()?;
        hosted.region.spawn(entity, &mut hosted.out)?;
        self.spawned.push(entity.id);
        self.unconfirmed.insert(entity.id);
        Ok(())
    }

    /// Adds a new entity for a client. Returns the entity's region, and the last tick before the entity was added.
    pub fn spawn_for_client(
        &mut self,
        entity: &Entity<'_, D>,
        now_ns: u64,
    ) -> Result<(RegionId, u64), CommandError> {
        let region = self.region_for(entity)?;
        let Some(hosted) = self.regions.get_mut(&region) else {
            return Err(StoreError::Elsewhere { id: entity.id, region }.into());
        };
        let tick = hosted.region.spawn_for_client(entity, now_ns, &mut hosted.out)?;
        self.spawned.push(entity.id);
        self.unconfirmed.insert(entity.id);
        Ok((region, tick))
    }

    /// Returns the region of this host that has to own a new entity, or the reason why the entity cannot be added.
    pub fn region_for(&self, entity: &Entity<'_, D>) -> Result<RegionId, StoreError> {
        let (id, region) = (entity.id, self.owner_of(&entity.position));
        if entity.position.iter().all(|coordinate| coordinate.is_finite())
            && !self.setup.world.contains(&entity.position)
        {
            return Err(StoreError::Outside(id));
        }
        if self.find_entity(id).is_some() {
            return Err(StoreError::Duplicate(id));
        }
        match self.regions.contains_key(&region) {
            true => Ok(region),
            false => Err(StoreError::Elsewhere { id, region }),
        }
    }

    /// Finds the entity with this id in the regions of this host. Returns the region, and the entity's status there.
    pub fn find_entity(&self, id: EntityId) -> Option<(RegionId, EntityStatus)> {
        self.find_entity_where(id, |_| true)
    }

    /// Like [`Host::find_entity`], but searches only regions for which `filter` returns `true`.
    pub fn find_entity_where(
        &self,
        id: EntityId,
        filter: impl Fn(RegionId) -> bool,
    ) -> Option<(RegionId, EntityStatus)> {
        let status_in = |hosted: &HostedRegion<D, B>| {
            let region = &hosted.region;
            match region.store().row(id) {
                Some(row) if region.store().is_suspended(row) => Some(EntityStatus::Leaving),
                Some(_) => Some(EntityStatus::Own),
                None => region.handover().staged().contains(id).then_some(EntityStatus::Coming),
            }
        };
        let searched = self.regions.iter().filter(|(region, _)| filter(**region));
        let mut all = searched.filter_map(|(region, hosted)| Some((*region, status_in(hosted)?)));
        let first = all.next()?;
        // During a handover between two regions of this host, both regions know the entity. Prefer the region that
        // still has the entity over the one that is to receive it.
        Some(all.fold(first, |first, other| if first.1 == EntityStatus::Coming { other } else { first }))
    }

    /// Takes the ids of the entities that were spawned since the last call.
    pub fn take_spawned(&mut self) -> Vec<EntityId> {
        std::mem::take(&mut self.spawned)
    }

    /// Removes an entity. Returns an error if its region has no lease, or hands the entity over.
    pub fn despawn(&mut self, id: EntityId) -> Result<(), StoreError> {
        let hosted = self.with_entity(id)?;
        hosted.check_authority()?;
        hosted.region.despawn(id, &mut hosted.out)
    }

    /// Removes an entity for a client. Returns the entity's region, and the last tick before the removal.
    pub fn despawn_for_client(&mut self, id: EntityId, now_ns: u64) -> Result<(RegionId, u64), CommandError> {
        let hosted = self.with_entity(id)?;
        let tick = hosted.region.despawn_for_client(id, now_ns, &mut hosted.out)?;
        Ok((hosted.region.handover().region(), tick))
    }

    /// Whether the entity was spawned here, has not been handed over, and has an id that is not known to be unique yet.
    /// A handed-over entity does not count: an entity with this id at another process may be the same entity.
    pub fn is_unconfirmed(&self, id: EntityId) -> bool {
        self.unconfirmed.contains(&id)
    }

    /// Whether a region of this host has an [unconfirmed](Host::is_unconfirmed) entity.
    pub fn has_unconfirmed(&self, region: RegionId) -> bool {
        let is_there = |hosted: &HostedRegion<D, B>| {
            self.unconfirmed.iter().any(|id| hosted.region.store().row(*id).is_some())
        };
        self.regions.get(&region).is_some_and(is_there)
    }

    /// Notes that the entity's id is unique.
    pub fn confirm_unique(&mut self, id: EntityId) {
        self.unconfirmed.remove(&id);
    }

    /// Removes an [unconfirmed](Host::is_unconfirmed) entity, because the region `other` has an entity with the same
    /// id. Returns `false`, and removes nothing, if the entity's region has no lease, for example because the region is
    /// being released: its next owner might still have the entity. Call it again later.
    pub fn remove_duplicate(&mut self, id: EntityId, other: RegionId) -> bool {
        if !self.unconfirmed.contains(&id) {
            return true;
        }
        // After a takeover, `other` may be a region of this host, too.
        let all = self.regions.iter_mut().filter(|(region, _)| **region != other);
        let found = all.map(|(_, hosted)| hosted).find(|hosted| hosted.region.store().row(id).is_some());
        if let Some(hosted) = found {
            if hosted.check_authority().is_err() {
                return false;
            }
            if hosted.region.despawn(id, &mut hosted.out).is_ok() {
                hosted.out.reports.push(RegionReport::Duplicate { id, region: other });
            }
        }
        self.unconfirmed.remove(&id);
        true
    }

    pub(super) fn with_entity(&mut self, id: EntityId) -> Result<&mut HostedRegion<D, B>, StoreError> {
        let is_arriving = self.regions.values().any(|hosted| hosted.region.handover().staged().contains(id));
        let here = self.regions.values_mut().find(|hosted| hosted.region.store().row(id).is_some());
        // The previous region may already have given up an entity that is still arriving here.
        here.ok_or(if is_arriving { StoreError::Leaving(id) } else { StoreError::Unknown(id) })
    }

    /// The region whose part of the world contains the point.
    pub fn owner_of(&self, at: &[f32; D]) -> RegionId {
        self.partition.owner(MortonCurve::key(self.setup.world.grid_point(at)))
    }

    /// The id, the generation and the state's hash of each entity of this host, sorted by id.
    pub fn ledger(&self) -> Vec<(EntityId, u32, u64)> {
        let mut all: Vec<_> =
            self.regions.values().flat_map(|hosted| hosted.region.store().ledger()).collect();
        all.sort_unstable();
        all
    }

    /// The number of entities of this host.
    pub fn len(&self) -> usize {
        self.regions.values().map(|hosted| hosted.region.store().len()).sum()
    }

    /// Whether this host has no entities.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
