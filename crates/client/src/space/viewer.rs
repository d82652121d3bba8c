//! Shows the entities near an entity or a point. Merges the updates that all processes of the world send.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use dunlin_space::{
    EntityId, Scene, SceneChange, Schema, SpaceDecodeError, StateError, SurroundingsWatch, VisibleEntity,
};

use super::viewer_link::ViewerLink;
use super::world_owners::{PendingWorldOwners, WorldOwnersError};
use super::{World, subject};
use crate::pending_request::deadline;

/// The interval at which the viewer reads the list of processes.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);
/// How long the viewer waits for messages of one process before it turns to the next process.
const PROCESS_WAIT: Duration = Duration::from_millis(2);

/// The reason why a viewer cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The user may not watch the world, or a process's node does not accept the client's credentials.
    #[error("the node refused the viewer: {0}")]
    Refused(String),
    /// A process refused the viewer because the viewer's request is invalid, for example its radius.
    #[error("a process of the world refused the viewer: {0}")]
    Invalid(String),
    /// A process sent a malformed message.
    #[error("a process sent a malformed message: {0}")]
    Unreadable(#[from] StateError),
    /// The regions and owners of the world cannot be read.
    #[error(transparent)]
    WorldOwners(#[from] WorldOwnersError),
}

impl From<SpaceDecodeError> for ViewError {
    fn from(error: SpaceDecodeError) -> ViewError {
        ViewError::Unreadable(error.into())
    }
}

/// Receives updates about the entities around one entity of a world, even after that entity has moved to another
/// region. Every process of the world reports its own entities. The viewer finds new processes by itself, and also the
/// new owners of a dead process's regions. Until it has found the new owners, the entities of the dead process stay
/// visible.
///
/// When an entity is handed over, the viewer may report within one tick that the entity left and entered.
#[derive(Debug)]
pub struct Viewer<const D: usize> {
    world: World,
    watch: SurroundingsWatch,
    scene: Scene<D>,
    links: BTreeMap<u64, (String, ViewerLink)>,
    changes: VecDeque<SceneChange>,
    new_changes: Vec<SceneChange>,
    refreshed_at: Instant,
    /// The read of the list of processes that is under way.
    pending_owners: Option<PendingWorldOwners>,
    next_process: usize,
}

impl World {
    /// Starts to watch the entities that `watch` selects. `schema` describes the components of the entities.
    pub fn watch<const D: usize>(
        &self,
        watch: SurroundingsWatch,
        schema: Schema,
    ) -> Result<Viewer<D>, ViewError> {
        let mut viewer = Viewer::new(self.client.world(&self.name), watch, schema);
        viewer.update_links(self.world_owners()?.processes);
        Ok(viewer)
    }
}

impl<const D: usize> Viewer<D> {
    fn new(world: World, watch: SurroundingsWatch, schema: Schema) -> Viewer<D> {
        Viewer {
            world,
            watch,
            scene: Scene::new(schema),
            links: BTreeMap::new(),
            changes: VecDeque::new(),
            new_changes: Vec::new(),
            refreshed_at: Instant::now(),
            pending_owners: None,
            next_process: 0,
        }
    }

    /// Returns the next change if one has arrived, otherwise `None`.
    pub fn try_next(&mut self) -> Result<Option<SceneChange>, ViewError> {
        if self.changes.is_empty() {
            self.drain()?;
        } else {
            // Reads the list of processes here too, which also drives the connection to the node. Without this, a lost
            // connection would stay unnoticed while changes are queued.
            self.refresh()?;
        }
        Ok(self.changes.pop_front())
    }

    /// Returns the next change; `None` if none arrives within `timeout`. A process or node that does not respond does
    /// not delay the changes of other processes, and does not extend the wait.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<SceneChange>, ViewError> {
        let until = deadline(timeout);
        loop {
            if let Some(change) = self.try_next()? {
                return Ok(Some(change));
            }
            let remaining = until.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(None);
            }
            self.next_process = (self.next_process + 1) % self.links.len().max(1);
            match self.links.values_mut().nth(self.next_process) {
                Some((_, link)) => link.wait(remaining.min(PROCESS_WAIT)),
                None => std::thread::sleep(remaining.min(PROCESS_WAIT)),
            }
        }
    }

    /// All visible entities. Changes that have arrived are included, even if `next_timeout` has not returned them yet.
    pub fn visible(&self) -> &HashMap<EntityId, VisibleEntity<D>> {
        self.scene.visible()
    }

    /// The number of processes that have accepted the viewer's connection.
    pub fn processes(&self) -> usize {
        self.links.values().filter(|(_, link)| link.is_open()).count()
    }

    fn drain(&mut self) -> Result<(), ViewError> {
        self.refresh()?;
        for (_, link) in self.links.values_mut() {
            link.drain(&mut self.scene, &mut self.new_changes)?;
        }
        self.changes.extend(self.new_changes.drain(..));
        Ok(())
    }

    /// Reads the list of processes again at intervals, without waiting. If this fails, or the node does not know the
    /// world at present, the viewer keeps the processes that it knows.
    fn refresh(&mut self) -> Result<(), ViewError> {
        if self.pending_owners.is_none() && self.refreshed_at.elapsed() > REFRESH_INTERVAL {
            self.pending_owners = Some(self.world.begin_world_owners());
        }
        let Some(pending_owners) = &mut self.pending_owners else { return Ok(()) };
        let polled = pending_owners.poll();
        if !matches!(polled, Ok(None)) {
            self.pending_owners = None;
            self.refreshed_at = Instant::now();
        }
        match polled {
            Ok(Some(owners)) => self.update_links(owners.processes),
            // A node without a data directory loses its keys when it restarts. The world's processes then write them
            // again.
            Ok(None) | Err(WorldOwnersError::Kv(_) | WorldOwnersError::NoWorld(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Updates the links to processes: keeps those to `processes`, drops all others, and adds the missing ones. A new
    /// link connects only while the viewer reads it, so that a process that does not respond does not delay the others.
    fn update_links(&mut self, processes: BTreeMap<u64, String>) {
        self.links.retain(|process, (url, _)| processes.get(process) == Some(url));
        for (process, url) in processes {
            if self.links.contains_key(&process) {
                continue;
            }
            // If the address is invalid, the viewer tries again when it has read the list again.
            if let Ok(client) = self.world.client.open_node(&url) {
                let subject = subject(&self.world.name, process, "watch");
                self.links.insert(process, (url, ViewerLink::new(client, subject, self.watch)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use dunlin_wait::until;

    use super::*;
    use crate::client::{Client, ClientOptions};

    #[test]
    fn viewer_reads_the_process_list_while_changes_are_queued() {
        let client = Client::open("dunlin://127.0.0.1:1", ClientOptions::default()).unwrap();
        let watch = SurroundingsWatch::around(EntityId(1), 5.0);
        let mut viewer = Viewer::<3>::new(client.world("flock"), watch, Schema::default());
        until("the viewer reads the list of processes", || {
            viewer.changes.extend([SceneChange::Left(EntityId(1)), SceneChange::Left(EntityId(2))]);
            while viewer.changes.len() > 1 {
                assert!(viewer.try_next().unwrap().is_some());
            }
            viewer.pending_owners.is_some()
        });
    }
}
