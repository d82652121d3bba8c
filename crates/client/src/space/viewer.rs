//! Who is near an entity, as all processes of its world tell.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use dunlin_space::{Change, DecodeError, EntityId, Scene, Schema, StateError, Visible, Watch};

use super::line::Line;
use super::places::PlacesError;
use super::{World, subject};
use crate::asked::deadline;

/// How often it is asked which processes there are.
const LOOK: Duration = Duration::from_millis(500);
/// While nothing comes, each process is listened to so long in turn.
const TURN: Duration = Duration::from_millis(2);

/// Why a viewer sees no more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// A process does not let it.
    #[error("refused: {0}")]
    Refused(String),
    /// Who is in sight cannot be read.
    #[error("what a process tells cannot be read: {0}")]
    Unreadable(#[from] StateError),
    /// It is not known where the world is.
    #[error(transparent)]
    Places(#[from] PlacesError),
}

impl From<DecodeError> for ViewError {
    fn from(error: DecodeError) -> ViewError {
        ViewError::Unreadable(error.into())
    }
}

/// Watches around an entity, wherever that goes. Every process of the world tells of its own; one that is killed and its regions'
/// new owners, and processes that join, are found by themselves: until then those who stand still stay in sight.
///
/// Who is handed from one region to another may leave and enter in one and the same tick.
#[derive(Debug)]
pub struct Viewer<const D: usize> {
    world: World,
    watch: Watch,
    scene: Scene<D>,
    lines: BTreeMap<u64, (String, Line)>,
    changes: VecDeque<Change>,
    fresh: Vec<Change>,
    looked: Option<Instant>,
    turn: usize,
}

impl World {
    /// Watches as `watch` says; entities are made of the components of `schema`.
    pub fn watch<const D: usize>(&self, watch: Watch, schema: Schema) -> Result<Viewer<D>, ViewError> {
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
    /// The next change that is there now.
    pub fn try_next(&mut self) -> Result<Option<Change>, ViewError> {
        if self.changes.is_empty() {
            self.drain()?;
        }
        Ok(self.changes.pop_front())
    }

    /// The next change, or nothing after `timeout` without one.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Change>, ViewError> {
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

    /// All who are in sight after the last change that came, those not yet taken included.
    pub fn visible(&self) -> &HashMap<EntityId, Visible<D>> {
        self.scene.visible()
    }

    /// Processes that it listens to.
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

    /// While those who know cannot be asked, it goes on with whom it knows.
    fn look_again(&mut self) -> Result<(), ViewError> {
        match self.look() {
            Err(ViewError::Places(PlacesError::Kv(_))) => {
                self.looked = Some(Instant::now());
                Ok(())
            }
            looked => looked,
        }
    }

    fn look(&mut self) -> Result<(), ViewError> {
        let places = self.world.places()?;
        self.looked = Some(Instant::now());
        self.lines.retain(|process, (url, _)| places.processes.get(process) == Some(url));
        for (process, url) in places.processes {
            if self.lines.contains_key(&process) {
                continue;
            }
            // Who cannot be reached is tried again by the next look.
            if let Ok(client) = self.world.client.beside(&url) {
                let subject = subject(&self.world.name, process, "watch");
                self.lines.insert(process, (url, Line::new(client, subject, self.watch)));
            }
        }
        Ok(())
    }
}
