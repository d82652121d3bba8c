//! Clients of a process: who watches, and what is commanded of entities.

use dunlin_space::{Behaviour, Command, CommandError, InterestError, RegionId, Sight, ViewerId, Watch};

use super::Host;

impl<const D: usize, B: Behaviour<D> + Clone> Host<D, B> {
    /// Somebody watches from now on, in all regions that are here or come here.
    pub fn watch(&mut self, viewer: ViewerId, watch: Watch) -> Result<(), InterestError> {
        let max = self.setup.limits.viewers_max;
        if !self.viewers.contains_key(&viewer) && self.viewers.len() >= max as usize {
            return Err(InterestError::TooMany { max });
        }
        for running in self.regions.values_mut() {
            running.region.watch(viewer, watch)?;
        }
        self.viewers.insert(viewer, watch);
        Ok(())
    }

    /// Somebody does not watch any more.
    pub fn unwatch(&mut self, viewer: ViewerId) -> bool {
        for running in self.regions.values_mut() {
            running.region.unwatch(viewer);
        }
        self.viewers.remove(&viewer).is_some()
    }

    /// How many watch.
    pub fn viewers(&self) -> usize {
        self.viewers.len()
    }

    /// Tells each viewer what has changed for it since it was told last, region by region.
    pub fn tell_viewers(&mut self, mut tell: impl FnMut(ViewerId, &Sight<'_>)) {
        for (id, running) in &mut self.regions {
            let (region, epoch, tick) = (*id, running.epoch(), running.region.tick_number());
            running.region.tell_viewers(|viewer, glimpses| {
                tell(viewer, &Sight { region, epoch, tick, glimpses });
            });
        }
    }

    /// Changes an entity of one of its regions: which, and the last tick before it.
    pub fn obey(&mut self, command: &Command<'_, D>, now_ns: u64) -> Result<(RegionId, u64), CommandError> {
        let here = self.with_entity(command.id)?;
        let tick = here.region.obey(command, now_ns, &mut here.out)?;
        Ok((here.region.handover().region(), tick))
    }

    /// Those who watch are told of this region as well.
    pub(super) fn show(&mut self, region: RegionId) {
        let Some(running) = self.regions.get_mut(&region) else { return };
        for (viewer, watch) in &self.viewers {
            // What one region shows, another of the same setup does.
            let _ = running.region.watch(*viewer, *watch);
        }
    }
}
