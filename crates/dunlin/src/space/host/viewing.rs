//! The viewers of a process, and commands for its entities.

use dunlin_space::{
    Behaviour, CommandError, EntityCommand, InterestError, RegionId, SurroundingsWatch, ViewerId,
    ViewerUpdate,
};

use super::Host;

impl<const D: usize, B: Behaviour<D> + Clone> Host<D, B> {
    /// Adds a viewer to all regions of this host, and to regions that begin later.
    pub fn watch(&mut self, viewer: ViewerId, watch: SurroundingsWatch) -> Result<(), InterestError> {
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

    /// Removes a viewer. Returns whether it existed.
    pub fn unwatch(&mut self, viewer: ViewerId) -> bool {
        for running in self.regions.values_mut() {
            running.region.unwatch(viewer);
        }
        self.viewers.remove(&viewer).is_some()
    }

    /// Number of viewers.
    pub fn viewers(&self) -> usize {
        self.viewers.len()
    }

    /// Calls `tell` with the changes for each viewer since the last call, one region after another.
    pub fn send_viewer_updates(&mut self, mut tell: impl FnMut(ViewerId, &ViewerUpdate<'_>)) {
        for (id, running) in &mut self.regions {
            let (region, epoch, tick) = (*id, running.epoch(), running.region.tick_number());
            running.region.send_viewer_updates(|viewer, glimpses| {
                tell(viewer, &ViewerUpdate { region, epoch, tick, glimpses });
            });
        }
    }

    /// Applies a command to an entity of a region here. Returns the region and the last tick before the command.
    pub fn apply_client_command(
        &mut self,
        command: &EntityCommand<'_, D>,
        now_ns: u64,
    ) -> Result<(RegionId, u64), CommandError> {
        let here = self.with_entity(command.id)?;
        let tick = here.region.apply_client_command(command, now_ns, &mut here.out)?;
        Ok((here.region.handover().region(), tick))
    }

    /// Adds all viewers to a new region.
    pub(super) fn show(&mut self, region: RegionId) {
        let Some(running) = self.regions.get_mut(&region) else { return };
        for (viewer, watch) in &self.viewers {
            // This cannot fail: all regions have the same setup, so that the other regions have accepted this viewer.
            let _ = running.region.watch(*viewer, *watch);
        }
    }
}
