//! What clients ask of a region: to be told who is within sight, and to change entities.

use std::collections::{HashMap, HashSet};

use super::{Outputs, Region};
use crate::behaviour::Behaviour;
use crate::interest::{Command, InterestError, Interests, ViewerId, Watch};
use crate::store::{Entity, StoreError};

impl<const D: usize, B: Behaviour<D>> Region<D, B> {
    /// Somebody watches from now on. In a world of several regions as far as the strip: further they do not know of each other.
    pub fn watch(&mut self, viewer: ViewerId, watch: Watch) -> Result<(), InterestError> {
        let (radius, strip) = (watch.radius, self.setup.strip);
        if self.partition.regions().len() > 1 && radius > strip {
            return Err(InterestError::Far { radius, strip });
        }
        let (world, max) = (self.setup.world, self.setup.limits.viewers_max);
        self.interests.get_or_insert_with(|| Interests::new(world, radius, max)).watch(viewer, watch)
    }

    /// Somebody does not watch any more.
    pub fn unwatch(&mut self, viewer: ViewerId) -> bool {
        let known = self.interests.as_mut().is_some_and(|interests| interests.forget(viewer));
        self.interests.take_if(|interests| interests.is_empty());
        known
    }

    /// Tells each viewer, as bytes of [`Glimpse`](crate::Glimpse)s, what has changed for it since it was told last, of this region's own.
    pub fn tell_viewers(&mut self, tell: impl FnMut(ViewerId, &[u8])) {
        let Some(interests) = &mut self.interests else { return };
        let (store, tick) = (self.state.store(), self.state.tick());
        let elsewhere: HashSet<_> = interests.centers().filter(|id| store.row(*id).is_none()).collect();
        let mut beside = HashMap::new();
        if !elsewhere.is_empty() {
            let ticks_max = u64::from(self.setup.ghost_ticks_max);
            self.ghosts.each(tick, self.setup.seconds(), ticks_max, |ghost| {
                if elsewhere.contains(&ghost.id) {
                    beside.insert(ghost.id, ghost.position);
                }
            });
        }
        interests.tell_beside(store, &beside, tick, tell);
    }

    /// Changes what a client commands of an entity; all else stays as it is.
    pub fn obey(&mut self, command: &Command<'_, D>, out: &mut Outputs) -> Result<(), StoreError> {
        let store = self.state.store();
        let row = store.row(command.id).ok_or(StoreError::Unknown(command.id))?;
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
        self.command(&entity, out)
    }
}
