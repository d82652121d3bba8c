//! Adds viewers to a host's regions, and applies clients' commands to entities. A viewer is a client that sees the
//! entities around one entity.

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
        for hosted in self.regions.values_mut() {
            hosted.region.watch(viewer, watch)?;
        }
        self.viewers.insert(viewer, watch);
        Ok(())
    }

    /// Removes a viewer. Returns whether the viewer existed.
    pub fn unwatch(&mut self, viewer: ViewerId) -> bool {
        for hosted in self.regions.values_mut() {
            hosted.region.unwatch(viewer);
        }
        self.viewers.remove(&viewer).is_some()
    }

    /// The number of viewers.
    pub fn viewers(&self) -> usize {
        self.viewers.len()
    }

    /// Includes the changes since the last tick, such as spawns and commands, in the next updates for viewers. If
    /// `ghosts` is set, also sends the changed entities near borders to the neighbouring regions, as ghosts. Call this
    /// while no ticks are run.
    pub fn show_changes(&mut self, ghosts: bool, now_ns: u64) {
        let is_changed = std::mem::take(&mut self.is_changed);
        if is_changed && ghosts {
            self.send_ghosts(now_ns);
        }
        if std::mem::take(&mut self.has_received) || is_changed {
            self.regions.values_mut().for_each(|hosted| hosted.region.refresh_viewers());
        }
    }

    /// For each region and each of its viewers, calls `deliver` with the changes that the viewer sees in this region
    /// since the last call.
    pub fn send_viewer_updates(&mut self, mut deliver: impl FnMut(ViewerId, &ViewerUpdate<'_>)) {
        for (id, hosted) in &mut self.regions {
            let (region, epoch, tick) = (*id, hosted.epoch(), hosted.region.tick_number());
            hosted.region.send_viewer_updates(|viewer, events| {
                deliver(viewer, &ViewerUpdate { region, epoch, tick, events });
            });
        }
    }

    /// Applies a client's command to an entity of this host. Returns the entity's region, and the last tick before the
    /// command.
    pub fn apply_client_command(
        &mut self,
        command: &EntityCommand<'_, D>,
        now_ns: u64,
    ) -> Result<(RegionId, u64), CommandError> {
        let here = self.with_entity(command.id)?;
        let tick = here.region.apply_client_command(command, now_ns, &mut here.out)?;
        Ok((here.region.handover().region(), tick))
    }

    pub(super) fn add_viewers(&mut self, region: RegionId) {
        let Some(hosted) = self.regions.get_mut(&region) else { return };
        for (viewer, watch) in &self.viewers {
            // Ignore the error: it cannot occur, because all regions have the same setup, and the other regions have
            // accepted this viewer.
            let _ = hosted.region.watch(*viewer, *watch);
        }
    }
}
