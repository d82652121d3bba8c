//! Handles the viewers of a region, and clients' commands for its entities.

use std::collections::HashMap;

use super::{Region, RegionOutputs, StepError};
use crate::behaviour::Behaviour;
use crate::entity::EntityId;
use crate::interest::{EntityCommand, InterestError, Interests, SurroundingsWatch, ViewerId};
use crate::store::{Entity, StoreError};
use crate::world::Point;

/// Number of ticks for which a region keeps the last position of a viewer's center. The position is needed after the
/// center's entity was handed over: the new region may not yet have sent the entity back as a ghost.
const PASSING_TICKS: u64 = 2;

/// Highest velocity along an axis that clients may set, units a second. Behaviours add the velocities of entities in
/// sight; an infinite sum would freeze all entities that see the fast entities.
const SPEED_MAX: f32 = 1e18;

/// A region's viewers, and the entities at their centers.
#[derive(Debug)]
pub(super) struct RegionViewers<const D: usize> {
    interests: Interests<D>,
    /// For entities of this region that are the center of a viewer: the last position in this region, and the tick of
    /// this position.
    centers: HashMap<EntityId, (Point<D>, u64)>,
    /// The tick of the last updates for viewers; `None` if the next call of [`Region::send_viewer_updates`] sends
    /// updates in any case.
    last_update_tick: Option<u64>,
    /// Number of updates so far.
    updates: u64,
}

/// The reason why a region refused a client's command for an entity.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The entity is not in this region, the entity is being handed over, or the entity's new state is not valid.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The region has no valid lease.
    #[error(transparent)]
    Step(#[from] StepError),
}

impl<const D: usize, B: Behaviour<D>> Region<D, B> {
    /// Adds a viewer. In a world of several regions, refuses a radius above the strip's width.
    pub fn watch(&mut self, viewer: ViewerId, watch: SurroundingsWatch) -> Result<(), InterestError> {
        let (radius, strip) = (watch.radius, self.setup.strip);
        if self.partition.regions().len() > 1 && radius > strip {
            return Err(InterestError::Far { radius, strip });
        }
        let (world, max) = (self.setup.world, self.setup.limits.viewers_max);
        let begin = || {
            let interests = Interests::new(world, radius, max);
            RegionViewers { interests, centers: HashMap::new(), last_update_tick: None, updates: 0 }
        };
        // Creates no grid for an invalid radius.
        if !(radius.is_finite() && radius > 0.0) {
            return Err(InterestError::Radius(radius));
        }
        self.viewers.get_or_insert_with(begin).interests.watch(viewer, watch)
    }

    /// Removes a viewer; returns whether there was one.
    pub fn unwatch(&mut self, viewer: ViewerId) -> bool {
        let known = self.viewers.as_mut().is_some_and(|viewers| viewers.interests.remove(viewer));
        self.viewers.take_if(|viewers| viewers.interests.is_empty());
        known
    }

    /// Makes the next call of [`Region::send_viewer_updates`] send updates even if no tick was made since the last
    /// updates.
    pub fn refresh_viewers(&mut self) {
        if let Some(viewers) = &mut self.viewers {
            viewers.last_update_tick = None;
        }
    }

    /// Calls `send` for each viewer with the changes since the viewer's last update. The changes are encoded
    /// [`ViewerEvent`](crate::ViewerEvent)s about this region's entities. If there was no tick since the last call,
    /// only new viewers receive updates.
    pub fn send_viewer_updates(&mut self, send: impl FnMut(ViewerId, &[u8])) {
        let Some(viewers) = &mut self.viewers else { return };
        let (store, tick) = (self.state.store(), self.state.tick());
        let is_due = viewers.last_update_tick.replace(tick) != Some(tick);
        if !is_due && !viewers.interests.has_new_viewers() {
            return;
        }
        viewers.updates += u64::from(is_due);
        let RegionViewers { interests, centers, updates, .. } = viewers;
        centers.retain(|_, (_, last)| *last + PASSING_TICKS >= tick);
        let mut beside = HashMap::new();
        for id in interests.centers() {
            match store.row(id) {
                Some(row) => _ = centers.insert(id, (store.position(row), tick)),
                None => _ = beside.insert(id, centers.get(&id).map(|(at, _)| *at)),
            }
        }
        if !beside.is_empty() {
            let ticks_max = u64::from(self.setup.ghost_ticks_max);
            self.ghosts.for_each(tick, self.setup.seconds(), ticks_max, |ghost| {
                if let Some(at) = beside.get_mut(&ghost.id) {
                    *at = Some(ghost.position);
                }
            });
        }
        let beside = beside.into_iter().filter_map(|(id, at)| Some((id, at?))).collect();
        interests.send_updates_with_neighbours(store, &beside, *updates, send);
    }

    /// Applies a client's command. Only the fields that the command contains change. Returns the number of the last
    /// tick before the change.
    pub fn apply_client_command(
        &mut self,
        command: &EntityCommand<'_, D>,
        now_ns: u64,
        out: &mut RegionOutputs,
    ) -> Result<u64, CommandError> {
        let store = self.state.store();
        let row = store.row(command.id).ok_or(StoreError::Unknown(command.id))?;
        self.check_authority(now_ns)?;
        let mut own = Vec::new();
        store.write_components(row, &mut own);
        let entity = Entity {
            id: command.id,
            generation: store.generation(row),
            kind: command.kind.unwrap_or(store.kinds()[row]),
            position: command.position.unwrap_or(store.position(row)),
            velocity: command.velocity.unwrap_or(store.velocity(row)),
            frozen: store.is_frozen(row),
            components: command.components.unwrap_or(&own),
        };
        if command.position.is_some() || command.velocity.is_some() {
            self.check_velocity(&entity)?;
        }
        self.command(&entity, out)?;
        Ok(self.state.tick())
    }

    /// Inserts an entity for a client, between two ticks. Returns the last tick before the spawn.
    pub fn spawn_for_client(
        &mut self,
        entity: &Entity<'_, D>,
        now_ns: u64,
        out: &mut RegionOutputs,
    ) -> Result<u64, CommandError> {
        self.check_authority(now_ns)?;
        self.check_velocity(entity)?;
        self.spawn(entity, out)?;
        Ok(self.state.tick())
    }

    /// Removes an entity for a client, between two ticks. Returns the last tick before the removal.
    pub fn despawn_for_client(
        &mut self,
        id: EntityId,
        now_ns: u64,
        out: &mut RegionOutputs,
    ) -> Result<u64, CommandError> {
        self.check_authority(now_ns)?;
        self.despawn(id, out)?;
        Ok(self.state.tick())
    }

    /// Refuses a velocity that is so small that adding it to an `f32` position changes nothing: the entity would never
    /// move. Also refuses a velocity above [`SPEED_MAX`].
    fn check_velocity(&self, entity: &Entity<'_, D>) -> Result<(), StoreError> {
        let (at, velocity, seconds) = (&entity.position, &entity.velocity, self.setup.seconds());
        if velocity.iter().any(|along| along.is_finite() && along.abs() > SPEED_MAX) {
            return Err(StoreError::TooFast { id: entity.id, speed_max: SPEED_MAX });
        }
        let moves = |axis: usize| at[axis] + velocity[axis] * seconds != at[axis];
        if velocity.iter().all(|along| *along == 0.0) || (0..D).any(moves) {
            return Ok(());
        }
        let spacing = at.iter().map(|along| along.abs().next_up() - along.abs()).fold(0.0, f32::max);
        Err(StoreError::TooSlow { id: entity.id, spacing, speed_min: spacing / seconds })
    }
}
