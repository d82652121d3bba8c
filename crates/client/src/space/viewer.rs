//! The entities near an entity or a point, merged from all processes of the world.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use dunlin_space::{
    EntityId, Scene, SceneChange, Schema, SpaceDecodeError, StateError, SurroundingsWatch, VisibleEntity,
};

use super::line::ViewerLink;
use super::places::WorldMapError;
use super::{World, subject};
use crate::pending_request::deadline;

/// The interval at which the viewer reads the list of processes.
const LOOK: Duration = Duration::from_millis(500);
/// How long the viewer waits for messages of one process before it continues with the next.
const TURN: Duration = Duration::from_millis(2);

/// The reason why a viewer cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The user may not watch the world.
    #[error("refused: {0}")]
    Refused(String),
    /// A process refused the viewer because its request is invalid, for example its radius.
    #[error("refused: {0}")]
    Invalid(String),
    /// The message of a process is malformed.
    #[error("a process sent a malformed message: {0}")]
    Unreadable(#[from] StateError),
    /// The regions and owners of the world cannot be read.
    #[error(transparent)]
    WorldMap(#[from] WorldMapError),
}

impl From<SpaceDecodeError> for ViewError {
    fn from(error: SpaceDecodeError) -> ViewError {
        ViewError::Unreadable(error.into())
    }
}

/// Receives updates about the entities around one entity of a world, also when that entity changes its region.
/// Every process of the world reports its own entities. The viewer finds new processes, and new owners of a dead
/// process's regions, by itself; until then the last known entities stay visible.
///
/// For an entity that is handed over, the viewer may report that it leaves and enters within one tick.
#[derive(Debug)]
pub struct Viewer<const D: usize> {
    world: World,
    watch: SurroundingsWatch,
    scene: Scene<D>,
    lines: BTreeMap<u64, (String, ViewerLink)>,
    changes: VecDeque<SceneChange>,
    fresh: Vec<SceneChange>,
    looked: Option<Instant>,
    turn: usize,
}

impl World {
    /// Starts to watch. `schema` describes the components of the entities.
    pub fn watch<const D: usize>(
        &self,
        watch: SurroundingsWatch,
        schema: Schema,
    ) -> Result<Viewer<D>, ViewError> {
        let mut viewer = Viewer {
            world: self.client.world(&self.name),
            watch,
            scene: Scene::new(schema),
            lines: BTreeMap::new(),
            changes: VecDeque::new(),
            fresh: Vec::new(),
            looked: None,
            turn: 0,
        };
        viewer.look()?;
        Ok(viewer)
    }
}

impl<const D: usize> Viewer<D> {
    /// Returns the next change if one has arrived.
    pub fn try_next(&mut self) -> Result<Option<SceneChange>, ViewError> {
        if self.changes.is_empty() {
            self.drain()?;
        }
        Ok(self.changes.pop_front())
    }

    /// Returns the next change; `None` after `timeout`.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<SceneChange>, ViewError> {
        let until = deadline(timeout);
        loop {
            if let Some(change) = self.try_next()? {
                return Ok(Some(change));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.turn = (self.turn + 1) % self.lines.len().max(1);
            match self.lines.values_mut().nth(self.turn) {
                Some((_, line)) => line.wait(left.min(TURN)),
                None => std::thread::sleep(left.min(TURN)),
            }
        }
    }

    /// All visible entities, including changes that have arrived and that `next_timeout` has not returned yet.
    pub fn visible(&self) -> &HashMap<EntityId, VisibleEntity<D>> {
        self.scene.visible()
    }

    /// The number of processes to which the viewer is connected.
    pub fn processes(&self) -> usize {
        self.lines.len()
    }

    fn drain(&mut self) -> Result<(), ViewError> {
        if self.looked.is_none_or(|looked| looked.elapsed() > LOOK) {
            self.look_again()?;
        }
        for (_, line) in self.lines.values_mut() {
            line.drain(&mut self.scene, &mut self.fresh)?;
        }
        self.changes.extend(self.fresh.drain(..));
        Ok(())
    }

    /// Reads the list of processes again. If this fails, the viewer keeps the processes that it knows.
    fn look_again(&mut self) -> Result<(), ViewError> {
        match self.look() {
            Err(ViewError::WorldMap(WorldMapError::Kv(_))) => {
                self.looked = Some(Instant::now());
                Ok(())
            }
            looked => looked,
        }
    }

    fn look(&mut self) -> Result<(), ViewError> {
        let places = self.world.world_map()?;
        self.looked = Some(Instant::now());
        self.lines.retain(|process, (url, _)| places.processes.get(process) == Some(url));
        for (process, url) in places.processes {
            if self.lines.contains_key(&process) {
                continue;
            }
            // If a process cannot be reached, the next call tries it again.
            if let Ok(client) = self.world.client.beside(&url) {
                let subject = subject(&self.world.name, process, "watch");
                self.lines.insert(process, (url, ViewerLink::new(client, subject, self.watch)));
            }
        }
        Ok(())
    }
}
