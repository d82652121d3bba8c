//! Interest management: sends each viewer the entities within a radius of the entity at the viewer's center. Rules and
//! a byte budget for each tick limit what a viewer receives.
//!
//! Invariants:
//! - Rules apply at the source: a viewer receives no data about an entity that the viewer may not see.
//! - `Enter` and `Leave` are sent immediately, whatever their size. Only updates wait. The urgency of an entity's
//!   update grows with the time since its last update, and falls with the distance from the center.
//! - A viewer that applies all its events knows exactly the entities within its sight, each at the position that the
//!   region sent last.
//!
//! Every viewer first receives [`ViewerEvent::Begin`], even if no entity is in sight. The viewer then
//! discards all entities of this region.
//!
//! The entity at a viewer's center may belong to a neighbouring region. Each region sends its own entities to the
//! viewer, so that the viewer receives all entities within sight. `Enter` contains the whole entity. At most
//! [`RegionLimits::viewers_max`](crate::RegionLimits) viewers exist.

mod request;
mod response;
mod scene;
mod viewer;

use std::collections::{BTreeMap, HashMap};

use crate::entity::EntityId;
use crate::index::{Grid, SpatialIndex};
use crate::shape::{Ball, distance_sq};
use crate::store::EntityStore;
use crate::world::{Point, WorldBox};

pub use request::{EntityCommand, WorldRequest};
pub use response::{ViewerUpdate, WorldRefusal, WorldResponse};
pub use scene::{Scene, SceneChange, VisibleEntity};
pub use viewer::{SurroundingsWatch, ViewerEvent, ViewerEventError, ViewerId, VisibilityRule};

use viewer::{KnownEntity, ViewerState};

/// Maximum number of cells of the grid that finds entities for viewers. The grid is rebuilt after each tick, and the
/// time for this grows with the number of cells.
const CELLS_MAX: usize = 1 << 18;

/// The viewers of a region, and the entities that each viewer has in sight.
#[derive(Debug)]
pub struct Interests<const D: usize> {
    world: WorldBox<D>,
    viewers_max: u32,
    viewers: BTreeMap<ViewerId, ViewerState>,
    /// Whether some viewers have not received their first update yet.
    has_new_viewers: bool,
    grid: Grid<D>,
    /// The radius of sight for which the grid's cells have the best size.
    grid_radius: f32,
    found: Vec<u32>,
    waiting: Vec<(f32, u32)>,
}

/// The reason why a region refuses a viewer.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InterestError {
    /// The region's limit of viewers is reached.
    #[error("the region has reached its limit of {max} viewers")]
    TooMany {
        /// The limit.
        max: u32,
    },
    /// The radius is not a positive number.
    #[error("the radius of a viewer is {0}: use a number above 0")]
    Radius(f32),
    /// The radius exceeds the width of the strip along borders, so the region does not know all entities within the
    /// radius.
    #[error(
        "the radius of a viewer is {radius}: in a world of several regions use at most the strip width {strip}"
    )]
    Far {
        /// The requested radius.
        radius: f32,
        /// Width of the strip along borders.
        strip: f32,
    },
}

impl<const D: usize> Interests<D> {
    /// Creates the state for the viewers of a region, at first without viewers. Searches are fastest for viewers whose
    /// radius of sight is about `radius`.
    pub fn new(world: WorldBox<D>, radius: f32, viewers_max: u32) -> Interests<D> {
        let (found, waiting) = (Vec::new(), Vec::new());
        Interests {
            world,
            viewers_max,
            viewers: BTreeMap::new(),
            has_new_viewers: false,
            grid: Grid::with_cells_max(world, radius, CELLS_MAX),
            grid_radius: radius,
            found,
            waiting,
        }
    }

    /// Adds a viewer, or replaces the watch of a viewer that exists. If the new watch differs, the viewer receives
    /// [`ViewerEvent::Begin`] and all visible entities again. An equal watch changes nothing.
    pub fn watch(&mut self, viewer: ViewerId, watch: SurroundingsWatch) -> Result<(), InterestError> {
        let radius = watch.radius;
        if !(radius.is_finite() && radius > 0.0) {
            return Err(InterestError::Radius(radius));
        }
        if !self.viewers.contains_key(&viewer) && self.viewers.len() >= self.viewers_max as usize {
            return Err(InterestError::TooMany { max: self.viewers_max });
        }
        if radius < self.grid_radius / 2.0 {
            // With smaller cells, the search for a viewer with a small radius checks fewer entities.
            (self.grid, self.grid_radius) = (Grid::with_cells_max(self.world, radius, CELLS_MAX), radius);
        }
        let same = self.viewers.get(&viewer).is_some_and(|known| known.watch.equals(&watch));
        if !same {
            self.viewers.insert(viewer, ViewerState::new(watch));
            self.has_new_viewers = true;
        }
        Ok(())
    }

    /// Whether some viewers have not received their first update.
    pub(crate) fn has_new_viewers(&self) -> bool {
        self.has_new_viewers
    }

    /// The entities at the centers of the viewers' surroundings.
    pub(crate) fn centers(&self) -> impl Iterator<Item = EntityId> {
        self.viewers.values().map(|viewer| viewer.watch.center)
    }

    /// Removes a viewer; returns whether the viewer existed.
    pub fn remove(&mut self, viewer: ViewerId) -> bool {
        self.viewers.remove(&viewer).is_some()
    }

    /// Number of viewers.
    pub fn len(&self) -> usize {
        self.viewers.len()
    }

    /// Whether there are no viewers.
    pub fn is_empty(&self) -> bool {
        self.viewers.is_empty()
    }

    /// Calls `send` with the changes of each viewer, as encoded [`ViewerEvent`]s. Skips viewers without changes.
    /// `number` normally grows by 1 with each tick. A call may repeat the previous number, for example to serve a new
    /// viewer at once. Entities that have left the sight between two calls with one number are reported with the next
    /// number.
    pub fn send_updates(&mut self, store: &EntityStore<D>, number: u64, send: impl FnMut(ViewerId, &[u8])) {
        self.send_updates_with_neighbours(store, &HashMap::new(), number, send);
    }

    /// Like [`Interests::send_updates`], but a viewer's center may be an entity of a neighbouring region whose position
    /// is in `beside`.
    pub(crate) fn send_updates_with_neighbours(
        &mut self,
        store: &EntityStore<D>,
        beside: &HashMap<EntityId, Point<D>>,
        number: u64,
        mut send: impl FnMut(ViewerId, &[u8]),
    ) {
        if self.viewers.is_empty() {
            return;
        }
        self.has_new_viewers = false;
        self.grid.rebuild(store.positions());
        let mut viewers = std::mem::take(&mut self.viewers);
        let mut bytes = Vec::new();
        for (id, viewer) in &mut viewers {
            bytes.clear();
            self.update_viewer(viewer, store, beside, number, &mut bytes);
            if !bytes.is_empty() {
                send(*id, &bytes);
            }
        }
        self.viewers = viewers;
    }

    fn update_viewer(
        &mut self,
        viewer: &mut ViewerState,
        store: &EntityStore<D>,
        beside: &HashMap<EntityId, Point<D>>,
        number: u64,
        bytes: &mut Vec<u8>,
    ) {
        let watch = viewer.watch;
        if !std::mem::replace(&mut viewer.has_begun, true) {
            ViewerEvent::encode_begin(bytes);
        }
        // If this region has neither the center nor a ghost of it, the viewer sees nothing.
        let own = store.row(watch.center).map(|row| store.position(row));
        let center = own.or_else(|| beside.get(&watch.center).copied());
        self.found.clear();
        if let Some(center) = center {
            self.grid.within(&Ball { center, radius: watch.radius }, &mut self.found);
            self.found.retain(|row| watch.allows(store.ids()[*row as usize], store.kinds()[*row as usize]));
        }
        for row in &self.found {
            let id = store.ids()[*row as usize];
            let seen = viewer.seen.entry(id).or_insert_with(|| {
                ViewerEvent::encode_enter(store, *row as usize, bytes);
                KnownEntity { updated_in: number, visible_in: number }
            });
            seen.visible_in = number;
        }
        let mut left: Vec<EntityId> = Vec::new();
        viewer.seen.retain(|id, seen| {
            let here = seen.visible_in == number;
            if !here {
                left.push(*id);
            }
            here
        });
        left.sort_unstable();
        left.into_iter().for_each(|id| ViewerEvent::encode_leave(id, bytes));
        if let Some(center) = center {
            self.update(viewer, store, number, &center, bytes);
        }
    }

    /// Uses the viewer's remaining bytes for the most urgent updates. The urgency of an entity grows with the time
    /// since its last update, and falls with the distance from the center.
    fn update(
        &mut self,
        viewer: &mut ViewerState,
        store: &EntityStore<D>,
        number: u64,
        center: &Point<D>,
        bytes: &mut Vec<u8>,
    ) {
        let watch = viewer.watch;
        let room = (watch.bytes_per_tick as usize).saturating_sub(bytes.len()) / ViewerEvent::update_bytes(D);
        self.waiting.clear();
        for row in &self.found {
            let Some(seen) = viewer.seen.get(&store.ids()[*row as usize]) else { continue };
            if seen.updated_in < number {
                let age = (number - seen.updated_in) as f32;
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
            ViewerEvent::encode_update(store, row, bytes);
            if let Some(seen) = viewer.seen.get_mut(&store.ids()[row]) {
                seen.updated_in = number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extreme_radii_of_viewers_do_not_make_the_grid_too_large() {
        let mut interests = Interests::new(WorldBox::<3>::cube(1_000.0).unwrap(), 1e30, 3);
        let mut cells = |viewer, radius| {
            interests.watch(ViewerId(viewer), SurroundingsWatch::around(EntityId(1), radius)).unwrap();
            interests.grid.cell_count()
        };
        assert_eq!(cells(1, 1e30), 1);
        assert_eq!(cells(2, 25.0), 40 * 40 * 40);
        assert!((1_000..=CELLS_MAX).contains(&cells(3, f32::MIN_POSITIVE)));
    }
}
