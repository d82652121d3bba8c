//! Somebody who watches, and what it is told.
//!
//! ```text
//!  glimpse:  1 enter   id u64, generation u32, state: bytes
//!            2 update  id u64, position, velocity: f32 each
//!            3 leave   id u64
//!            4 begin   what the region told this viewer before is over
//! ```

use std::collections::HashMap;

use crate::entity::EntityId;
use crate::layout::{DecodeError, Fields, put_bytes, put_point, put_u32, put_u64};
use crate::store::Store;
use crate::world::Point;

/// Who watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewerId(pub u64);

/// What somebody watches.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    /// Around whom.
    pub center: EntityId,
    /// How far.
    pub radius: f32,
    /// Whom it wants to see.
    pub rule: Rule,
    /// Whom it may see, as the world has it; it is not part of what is asked for.
    pub allowed: Rule,
    /// How many bytes it is told in a tick; who comes and who goes is told beyond that.
    pub bytes_per_tick: u32,
}

impl Watch {
    /// So far around somebody, all that may be seen, without a bound of bytes.
    pub fn around(center: EntityId, radius: f32) -> Watch {
        Watch { center, radius, rule: Rule::All, allowed: Rule::All, bytes_per_tick: u32::MAX }
    }

    /// Whether it is the same.
    pub(super) fn is(&self, other: &Watch) -> bool {
        let numbers = |watch: &Watch| (watch.center, watch.radius.to_bits(), watch.bytes_per_tick);
        self.rule.is(&other.rule) && self.allowed.is(&other.allowed) && numbers(self) == numbers(other)
    }

    pub(super) fn shows(&self, id: EntityId, kind: u32) -> bool {
        self.allowed.shows(id, kind) && self.rule.shows(id, kind)
    }
}

/// Whom a viewer may see.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Rule {
    /// Everybody.
    All,
    /// Those of a kind: a team, or an owner's.
    OfKind(u32),
    /// All but those of a kind.
    NotOfKind(u32),
    /// Whom this says, by id and kind.
    Where(fn(EntityId, u32) -> bool),
}

impl Rule {
    fn is(&self, other: &Rule) -> bool {
        match (self, other) {
            (Rule::All, Rule::All) => true,
            (Rule::OfKind(own), Rule::OfKind(others)) => own == others,
            (Rule::NotOfKind(own), Rule::NotOfKind(others)) => own == others,
            (Rule::Where(own), Rule::Where(others)) => std::ptr::fn_addr_eq(*own, *others),
            _ => false,
        }
    }

    fn shows(&self, id: EntityId, kind: u32) -> bool {
        match self {
            Rule::All => true,
            Rule::OfKind(shown) => kind == *shown,
            Rule::NotOfKind(hidden) => kind != *hidden,
            Rule::Where(shown) => shown(id, kind),
        }
    }
}

#[derive(Debug)]
pub(super) struct Viewer {
    pub(super) watch: Watch,
    pub(super) seen: HashMap<EntityId, Seen>,
    /// It was told that what it knew is over.
    pub(super) begun: bool,
}

/// An entity that a viewer knows of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// The tick after which it was told where it is.
    pub(super) told: u64,
    /// The tick after which it was last in sight.
    pub(super) looked: u64,
}

impl Viewer {
    pub(super) fn new(watch: Watch) -> Viewer {
        Viewer { watch, seen: HashMap::new(), begun: false }
    }
}

/// One thing that a viewer is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Glimpse<'a, const D: usize> {
    /// Somebody is in sight from now on.
    Enter {
        /// Who.
        id: EntityId,
        /// Which of those with this id.
        generation: u32,
        /// All there is of it, as it is handed over.
        state: &'a [u8],
    },
    /// Somebody in sight has moved.
    Update {
        /// Who.
        id: EntityId,
        /// Where it is.
        position: Point<D>,
        /// How fast it is.
        velocity: Point<D>,
    },
    /// Somebody is out of sight.
    Leave {
        /// Who.
        id: EntityId,
    },
    /// What the region told this viewer before is over.
    Begin,
}

/// Why bytes are no glimpses.
pub type GlimpseError = DecodeError;

const BEGIN: u8 = 4;

impl<'a, const D: usize> Glimpse<'a, D> {
    /// Reads all that a viewer was told at once.
    pub fn decode_all(bytes: &'a [u8]) -> impl Iterator<Item = Result<Glimpse<'a, D>, GlimpseError>> {
        let mut fields = Fields::plain(bytes);
        let mut failed = false;
        std::iter::from_fn(move || {
            if failed || fields.is_empty() {
                return None;
            }
            let read = Glimpse::read(&mut fields);
            failed = read.is_err();
            Some(read)
        })
    }

    fn read(fields: &mut Fields<'a>) -> Result<Glimpse<'a, D>, DecodeError> {
        let kind = fields.u8()?;
        if kind == BEGIN {
            return Ok(Glimpse::Begin);
        }
        let id = EntityId(fields.u64()?);
        match kind {
            1 => Ok(Glimpse::Enter { id, generation: fields.u32()?, state: fields.bytes()? }),
            2 => Ok(Glimpse::Update { id, position: fields.point()?, velocity: fields.point()? }),
            3 => Ok(Glimpse::Leave { id }),
            number => Err(DecodeError::Unknown { what: "glimpse", number }),
        }
    }
}

impl Glimpse<'_, 0> {
    pub(super) const fn update_bytes(dimensions: usize) -> usize {
        9 + 8 * dimensions
    }

    pub(super) fn enter<const D: usize>(store: &Store<D>, row: usize, out: &mut Vec<u8>) {
        out.push(1);
        put_u64(out, store.ids()[row].0);
        put_u32(out, store.generation(row));
        let mut state = Vec::new();
        store.write_state(row, &mut state);
        put_bytes(out, &state);
    }

    pub(super) fn update<const D: usize>(store: &Store<D>, row: usize, out: &mut Vec<u8>) {
        out.push(2);
        put_u64(out, store.ids()[row].0);
        put_point(out, &store.position(row));
        put_point(out, &store.velocity(row));
    }

    pub(super) fn begin(out: &mut Vec<u8>) {
        out.push(BEGIN);
    }

    pub(super) fn leave(id: EntityId, out: &mut Vec<u8>) {
        out.push(3);
        put_u64(out, id.0);
    }
}
