//! What a client sees: everybody within a radius of one entity, as far as a rule lets it, for so many bytes a tick.
//!
//! Invariants:
//! - Who may not be seen is not sent: the rule is applied here, at the source.
//! - Who comes into sight is entered, and who goes out of it is left, at once, whatever it costs. Only updates wait: those that
//!   waited longest and are nearest go first.
//! - A viewer that takes in its messages knows exactly the ids that are within its sight; each is where it was told last.
//!
//! What a viewer is told begins with [`Glimpse::Begin`], also where nobody is in sight: whoever it knew of this region is not there.
//!
//! A viewer may watch around an entity that is a neighbour's: each region tells it of its own, and all together are what is within its
//! sight. An entity that is entered is sent whole. Limit: [`Limits::viewers_max`](crate::Limits).

mod answer;
mod ask;
mod scene;
mod viewer;

use std::collections::{BTreeMap, HashMap};

use crate::entity::EntityId;
use crate::index::{Grid, Index};
use crate::shape::{Ball, distance_sq};
use crate::store::Store;
use crate::world::{Point, World};

pub use answer::{Answer, Denial, Sight};
pub use ask::{Ask, Command};
pub use scene::{Change, Scene, Visible};
pub use viewer::{Glimpse, GlimpseError, Rule, ViewerId, Watch};

use viewer::{Seen, Viewer};

/// All viewers of a region.
#[derive(Debug)]
pub struct Interests<const D: usize> {
    viewers_max: u32,
    viewers: BTreeMap<ViewerId, Viewer>,
    /// Somebody watches who was told nothing yet.
    fresh: bool,
    grid: Grid<D>,
    found: Vec<u32>,
    waiting: Vec<(f32, u32)>,
}

/// Why somebody does not become a viewer.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InterestError {
    /// There are as many as there may be.
    #[error("there would be more than {max} viewers")]
    TooMany {
        /// The limit.
        max: u32,
    },
    /// It is no distance.
    #[error("a viewer sees {0} far: it has to be a number above 0")]
    Radius(f32),
    /// It is further than regions know of each other.
    #[error("a viewer sees {radius} far: regions know no more than {strip} of each other")]
    Far {
        /// What was asked for.
        radius: f32,
        /// How far beyond its border a region's entities are seen by others.
        strip: f32,
    },
}

impl<const D: usize> Interests<D> {
    /// Without viewers, for sights of about this radius.
    pub fn new(world: World<D>, radius: f32, viewers_max: u32) -> Interests<D> {
        let (found, waiting) = (Vec::new(), Vec::new());
        Interests {
            viewers_max,
            viewers: BTreeMap::new(),
            fresh: false,
            grid: Grid::new(world, radius),
            found,
            waiting,
        }
    }

    /// Somebody watches from now on; what it was told before is forgotten, unless it watches the same already.
    pub fn watch(&mut self, viewer: ViewerId, watch: Watch) -> Result<(), InterestError> {
        let radius = watch.radius;
        if !(radius.is_finite() && radius > 0.0) {
            return Err(InterestError::Radius(radius));
        }
        if !self.viewers.contains_key(&viewer) && self.viewers.len() >= self.viewers_max as usize {
            return Err(InterestError::TooMany { max: self.viewers_max });
        }
        let same = self.viewers.get(&viewer).is_some_and(|known| known.watch.is(&watch));
        if !same {
            self.viewers.insert(viewer, Viewer::new(watch));
            self.fresh = true;
        }
        Ok(())
    }

    /// Whether somebody watches who was told nothing yet.
    pub(crate) fn has_fresh(&self) -> bool {
        self.fresh
    }

    /// Around whom viewers watch.
    pub(crate) fn centers(&self) -> impl Iterator<Item = EntityId> {
        self.viewers.values().map(|viewer| viewer.watch.center)
    }

    /// Somebody does not watch any more.
    pub fn forget(&mut self, viewer: ViewerId) -> bool {
        self.viewers.remove(&viewer).is_some()
    }

    /// How many watch.
    pub fn len(&self) -> usize {
        self.viewers.len()
    }

    /// Whether nobody watches.
    pub fn is_empty(&self) -> bool {
        self.viewers.is_empty()
    }

    /// Tells each viewer, as bytes of [`Glimpse`]s, what has changed for it after a tick. Whoever has nothing to be told is
    /// left out.
    pub fn tell(&mut self, store: &Store<D>, tick: u64, tell: impl FnMut(ViewerId, &[u8])) {
        self.tell_beside(store, &HashMap::new(), tick, tell);
    }

    /// The same where others than the store's may be watched around.
    pub(crate) fn tell_beside(
        &mut self,
        store: &Store<D>,
        beside: &HashMap<EntityId, Point<D>>,
        tick: u64,
        mut tell: impl FnMut(ViewerId, &[u8]),
    ) {
        if self.viewers.is_empty() {
            return;
        }
        self.fresh = false;
        self.grid.rebuild(store.positions());
        let mut viewers = std::mem::take(&mut self.viewers);
        let mut bytes = Vec::new();
        for (id, viewer) in &mut viewers {
            bytes.clear();
            self.look(viewer, store, beside, tick, &mut bytes);
            if !bytes.is_empty() {
                tell(*id, &bytes);
            }
        }
        self.viewers = viewers;
    }

    fn look(
        &mut self,
        viewer: &mut Viewer,
        store: &Store<D>,
        beside: &HashMap<EntityId, Point<D>>,
        tick: u64,
        bytes: &mut Vec<u8>,
    ) {
        let watch = viewer.watch;
        if !std::mem::replace(&mut viewer.begun, true) {
            Glimpse::begin(bytes);
        }
        // Whoever is not here, nor near, sees nobody here.
        let own = store.row(watch.center).map(|row| store.position(row));
        let center = own.or_else(|| beside.get(&watch.center).copied());
        self.found.clear();
        if let Some(center) = center {
            self.grid.within(&Ball { center, radius: watch.radius }, &mut self.found);
            self.found.retain(|row| watch.shows(store.ids()[*row as usize], store.kinds()[*row as usize]));
        }
        for row in &self.found {
            let id = store.ids()[*row as usize];
            let seen = viewer.seen.entry(id).or_insert_with(|| {
                Glimpse::enter(store, *row as usize, bytes);
                Seen { told: tick, looked: tick }
            });
            seen.looked = tick;
        }
        let mut left: Vec<EntityId> = Vec::new();
        viewer.seen.retain(|id, seen| {
            let here = seen.looked == tick;
            if !here {
                left.push(*id);
            }
            here
        });
        left.sort_unstable();
        left.into_iter().for_each(|id| Glimpse::leave(id, bytes));
        if let Some(center) = center {
            self.update(viewer, store, tick, &center, bytes);
        }
    }

    /// Spends what is left of the viewer's bytes on those who waited longest and are nearest.
    fn update(
        &mut self,
        viewer: &mut Viewer,
        store: &Store<D>,
        tick: u64,
        center: &Point<D>,
        bytes: &mut Vec<u8>,
    ) {
        let watch = viewer.watch;
        let room = (watch.bytes_per_tick as usize).saturating_sub(bytes.len()) / Glimpse::update_bytes(D);
        self.waiting.clear();
        for row in &self.found {
            let Some(seen) = viewer.seen.get(&store.ids()[*row as usize]) else { continue };
            if seen.told < tick {
                let age = (tick - seen.told) as f32;
                let far = distance_sq(center, &store.position(*row as usize)).sqrt() / watch.radius;
                self.waiting.push((age * (1.125 - far.min(1.0)), *row));
            }
        }
        let by_urgency = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if room < self.waiting.len() && room > 0 {
            self.waiting.select_nth_unstable_by(room - 1, by_urgency);
        }
        self.waiting.truncate(room);
        self.waiting.sort_unstable_by(by_urgency);
        for (_, row) in &self.waiting {
            let row = *row as usize;
            Glimpse::update(store, row, bytes);
            if let Some(seen) = viewer.seen.get_mut(&store.ids()[row]) {
                seen.told = tick;
            }
        }
    }
}
