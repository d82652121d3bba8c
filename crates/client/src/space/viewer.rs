//! A viewer, which shows the entities near an entity or a point. It merges the updates of all processes of the world.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use dunlin_space::{
    EntityId, Scene, SceneChange, Schema, SpaceDecodeError, StateError, SurroundingsWatch, VisibleEntity,
};

use super::viewer_link::ViewerLink;
use super::world_owners::{PendingWorldOwners, WorldOwnersError};
use super::{World, subject};
use crate::pending_request::deadline;

/// The interval at which the viewer reads the list of the world's processes again.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);
/// How long the viewer waits for messages of one process, before it waits for those of the next process.
const PROCESS_WAIT: Duration = Duration::from_millis(2);

/// Why a viewer cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The user may not watch the world, or the node of a process does not accept the client's credentials.
    #[error("the node refused the viewer: {0}")]
    Refused(String),
    /// A process refused the viewer because its request is invalid: its radius, for example.
    #[error("a process of the world refused the viewer: {0}")]
    Invalid(String),
    /// A process sent a malformed message.
    #[error("a process sent a malformed message: {0}")]
    Unreadable(#[from] StateError),
    /// The owners of the world's regions cannot be read.
    #[error(transparent)]
    WorldOwners(#[from] WorldOwnersError),
}

impl From<SpaceDecodeError> for ViewError {
    fn from(error: SpaceDecodeError) -> ViewError {
        ViewError::Unreadable(error.into())
    }
}

/// Receives updates about the entities around one entity of a world, even after that entity has moved to another
/// region. Every process of the world reports its own entities. The viewer finds new processes by itself, including
/// those that take over the regions of a dead process. The entities of a dead process stay visible until the viewer has
/// found the process that takes over.
///
/// When an entity is handed over, the viewer may report that the entity left, and within the same tick that it entered
/// again.
#[derive(Debug)]
pub struct Viewer<const D: usize> {
    world: World,
    watch: SurroundingsWatch,
    scene: Scene<D>,
    links: BTreeMap<u64, (String, ViewerLink)>,
    changes: VecDeque<SceneChange>,
    new_changes: Vec<SceneChange>,
    refreshed_at: Instant,
    /// The read of the list of processes that is in progress, if any.
    pending_owners: Option<PendingWorldOwners>,
    next_process: usize,
}

impl World {
    /// Starts to watch the entities that `watch` selects. `schema` describes the components that entities of the world
    /// have.
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
            // Even if changes are available, `refresh` drives the connection to the node. Otherwise, a lost connection
            // would stay unnoticed as long as there are changes.
            self.refresh()?;
        }
        Ok(self.changes.pop_front())
    }

    /// Returns the next change; `None` if none arrives within `timeout`. If a process or a node does not respond, this
    /// neither delays the changes of other processes nor extends the wait.
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

    /// Returns all visible entities. The result includes all changes that have arrived, even those that `next_timeout`
    /// has not returned yet.
    pub fn visible(&self) -> &HashMap<EntityId, VisibleEntity<D>> {
        self.scene.visible()
    }

    /// Whether the viewer is connected to this process, so that the process sends its entities.
    pub fn is_connected_to(&self, process: u64) -> bool {
        self.links.get(&process).is_some_and(|(_, link)| link.is_open())
    }

    /// Returns the number of processes that have accepted the viewer.
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

    /// Reads the list of processes again from time to time, without waiting. If the read fails, or the node does not
    /// know the world at present, the viewer keeps the processes that it knows.
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
            // After a restart, a node without a data directory has no keys until the world's processes write them
            // again.
            Ok(None) | Err(WorldOwnersError::Kv(_) | WorldOwnersError::NoWorld(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Makes the links match the list `processes`: drops links to other processes, and adds missing ones. A new link
    /// connects only when the viewer reads it, so that a process that does not respond does not delay the others.
    fn update_links(&mut self, processes: BTreeMap<u64, String>) {
        self.links.retain(|process, (url, _)| processes.get(process) == Some(url));
        for (process, url) in processes {
            if self.links.contains_key(&process) {
                continue;
            }
            // If the address is invalid, the viewer tries again after the next read of the list.
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
