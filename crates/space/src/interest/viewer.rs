//! Viewers, and the events that they receive.
//!
//! ```text
//!  event:    1 enter   id u64, generation u32, state: bytes
//!            2 update  id u64, position, velocity: f32 each
//!            3 leave   id u64
//!            4 begin   the viewer discards everything that this region sent before
//! ```

use std::collections::HashMap;

use crate::entity::EntityId;
use crate::layout::{Fields, SpaceDecodeError, put_bytes, put_point, put_u32, put_u64};
use crate::store::EntityStore;
use crate::world::Point;

/// The id of a client that sees the entities around one entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewerId(pub u64);

/// A viewer's request to see the entities around one entity.
#[derive(Debug, Clone, Copy)]
pub struct SurroundingsWatch {
    /// The entity around which the viewer sees other entities.
    pub center: EntityId,
    /// Radius of sight.
    pub radius: f32,
    /// Entities that the viewer wants to see.
    pub rule: VisibilityRule,
    /// The rule that says which entities the viewer may see at all. The world sets this rule; requests do not contain
    /// it.
    pub allowed: VisibilityRule,
    /// Budget of bytes for each tick. `Enter` and `Leave` are sent even if they exceed the budget.
    pub bytes_per_tick: u32,
}

impl SurroundingsWatch {
    /// Watches everything within a radius of an entity, without a byte budget.
    pub fn around(center: EntityId, radius: f32) -> SurroundingsWatch {
        SurroundingsWatch {
            center,
            radius,
            rule: VisibilityRule::All,
            allowed: VisibilityRule::All,
            bytes_per_tick: u32::MAX,
        }
    }

    /// Whether both watches are equal.
    pub(super) fn equals(&self, other: &SurroundingsWatch) -> bool {
        let numbers =
            |watch: &SurroundingsWatch| (watch.center, watch.radius.to_bits(), watch.bytes_per_tick);
        self.rule.equals(&other.rule)
            && self.allowed.equals(&other.allowed)
            && numbers(self) == numbers(other)
    }

    pub(super) fn allows(&self, id: EntityId, kind: u32) -> bool {
        self.allowed.allows(id, kind) && self.rule.allows(id, kind)
    }
}

/// A rule that selects the entities that a viewer may see.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum VisibilityRule {
    /// The viewer may see all entities.
    All,
    /// The viewer sees only entities of this kind. A kind can stand for a team, for example.
    OfKind(u32),
    /// The viewer sees only entities of other kinds than this one.
    NotOfKind(u32),
    /// The viewer may see the entities whose id and kind this predicate accepts.
    Where(fn(EntityId, u32) -> bool),
}

impl VisibilityRule {
    fn equals(&self, other: &VisibilityRule) -> bool {
        match (self, other) {
            (VisibilityRule::All, VisibilityRule::All) => true,
            (VisibilityRule::OfKind(own), VisibilityRule::OfKind(others)) => own == others,
            (VisibilityRule::NotOfKind(own), VisibilityRule::NotOfKind(others)) => own == others,
            (VisibilityRule::Where(own), VisibilityRule::Where(others)) => {
                std::ptr::fn_addr_eq(*own, *others)
            }
            _ => false,
        }
    }

    fn allows(&self, id: EntityId, kind: u32) -> bool {
        match self {
            VisibilityRule::All => true,
            VisibilityRule::OfKind(shown) => kind == *shown,
            VisibilityRule::NotOfKind(hidden) => kind != *hidden,
            VisibilityRule::Where(shown) => shown(id, kind),
        }
    }
}

/// The state of a viewer in one region: the viewer's request, and the entities that the viewer knows.
#[derive(Debug)]
pub(super) struct ViewerState {
    pub(super) watch: SurroundingsWatch,
    pub(super) seen: HashMap<EntityId, KnownEntity>,
    /// Whether `Begin` was sent.
    pub(super) has_begun: bool,
}

/// An entity that a viewer knows of.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownEntity {
    /// The number of the last update that contained the entity.
    pub(super) updated_in: u64,
    /// The number of the last update at which the entity was in sight.
    pub(super) visible_in: u64,
}

impl ViewerState {
    pub(super) fn new(watch: SurroundingsWatch) -> ViewerState {
        ViewerState { watch, seen: HashMap::new(), has_begun: false }
    }
}

/// An event that a region sends to a viewer: an entity appeared, moved or disappeared, or the region begins again.
#[derive(Debug, Clone, PartialEq)]
pub enum ViewerEvent<'a, const D: usize> {
    /// An entity came into sight.
    Enter {
        /// Id of the entity.
        id: EntityId,
        /// A number that distinguishes successive entities with the same id.
        generation: u32,
        /// Encoded state of the entity, as in handovers.
        state: &'a [u8],
    },
    /// An entity in sight has moved.
    Update {
        /// Id of the entity.
        id: EntityId,
        /// New position.
        position: Point<D>,
        /// New velocity.
        velocity: Point<D>,
    },
    /// An entity went out of sight.
    Leave {
        /// Id of the entity.
        id: EntityId,
    },
    /// The viewer discards everything that the sending region has sent before.
    Begin,
}

/// The reason why bytes are not events for a viewer.
pub type ViewerEventError = SpaceDecodeError;

const BEGIN: u8 = 4;

impl<'a, const D: usize> ViewerEvent<'a, D> {
    /// Decodes all events of one update.
    pub fn decode_all(bytes: &'a [u8]) -> impl Iterator<Item = Result<ViewerEvent<'a, D>, ViewerEventError>> {
        let mut fields = Fields::plain(bytes);
        let mut failed = false;
        std::iter::from_fn(move || {
            if failed || fields.is_empty() {
                return None;
            }
            let read = ViewerEvent::read(&mut fields);
            failed = read.is_err();
            Some(read)
        })
    }

    fn read(fields: &mut Fields<'a>) -> Result<ViewerEvent<'a, D>, SpaceDecodeError> {
        let kind = fields.u8()?;
        if kind == BEGIN {
            return Ok(ViewerEvent::Begin);
        }
        let id = EntityId(fields.u64()?);
        match kind {
            1 => Ok(ViewerEvent::Enter { id, generation: fields.u32()?, state: fields.bytes()? }),
            2 => Ok(ViewerEvent::Update { id, position: fields.point()?, velocity: fields.point()? }),
            3 => Ok(ViewerEvent::Leave { id }),
            number => Err(SpaceDecodeError::Unknown { what: "glimpse", number }),
        }
    }
}

impl ViewerEvent<'_, 0> {
    pub(super) const fn update_bytes(dimensions: usize) -> usize {
        9 + 8 * dimensions
    }

    pub(super) fn encode_enter<const D: usize>(store: &EntityStore<D>, row: usize, out: &mut Vec<u8>) {
        out.push(1);
        put_u64(out, store.ids()[row].0);
        put_u32(out, store.generation(row));
        let mut state = Vec::new();
        store.write_state(row, &mut state);
        put_bytes(out, &state);
    }

    pub(super) fn encode_update<const D: usize>(store: &EntityStore<D>, row: usize, out: &mut Vec<u8>) {
        out.push(2);
        put_u64(out, store.ids()[row].0);
        put_point(out, &store.position(row));
        put_point(out, &store.velocity(row));
    }

    pub(super) fn encode_begin(out: &mut Vec<u8>) {
        out.push(BEGIN);
    }

    pub(super) fn encode_leave(id: EntityId, out: &mut Vec<u8>) {
        out.push(3);
        put_u64(out, id.0);
    }
}
