//! What clients ask of a world.
//!
//! ```text
//!  version u8, kind u8
//!   1 watch    viewer u64, center u64, radius f32, bytes a tick u32, rule u8 (0 all, 1 of a kind, 2 not of a kind), kind u32
//!   2 forget   viewer u64
//!   3 command  id u64, D u8, what u8 (1 position, 2 velocity, 4 kind, 8 components): position, velocity: f32 each, kind u32, components: bytes
//! ```

use super::{Rule, ViewerId, Watch};
use crate::entity::EntityId;
use crate::layout::{DecodeError, Fields, VERSION, put_bytes, put_point, put_u32, put_u64};
use crate::world::Point;

/// One thing that is asked.
#[derive(Debug, Clone)]
pub enum Ask<'a, const D: usize> {
    /// To be told who is within sight.
    Watch(ViewerId, Watch),
    /// Not to be told any more.
    Forget(ViewerId),
    /// That an entity is changed.
    Command(Command<'a, D>),
}

/// How an entity is to be from now on; what is left out stays as it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Command<'a, const D: usize> {
    /// Which.
    pub id: EntityId,
    /// Where it is.
    pub position: Option<Point<D>>,
    /// How fast it is.
    pub velocity: Option<Point<D>>,
    /// What it is.
    pub kind: Option<u32>,
    /// Its components, all of them.
    pub components: Option<&'a [u8]>,
}

const POSITION: u8 = 1;
const VELOCITY: u8 = 2;
const KIND: u8 = 4;
const COMPONENTS: u8 = 8;

impl<'a, const D: usize> Ask<'a, D> {
    /// Appends its bytes. A predicate stays where it is: who asks for one asks for everybody. So does whom it may see, which the world says.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        match self {
            Ask::Watch(viewer, watch) => {
                out.push(1);
                put_u64(out, viewer.0);
                put_u64(out, watch.center.0);
                out.extend_from_slice(&watch.radius.to_le_bytes());
                put_u32(out, watch.bytes_per_tick);
                let (rule, kind) = match watch.rule {
                    Rule::OfKind(kind) => (1, kind),
                    Rule::NotOfKind(kind) => (2, kind),
                    Rule::All | Rule::Where(_) => (0, 0),
                };
                out.push(rule);
                put_u32(out, kind);
            }
            Ask::Forget(viewer) => {
                out.push(2);
                put_u64(out, viewer.0);
            }
            Ask::Command(command) => {
                out.push(3);
                command.encode(out);
            }
        }
    }

    /// Reads it again.
    pub fn decode(bytes: &'a [u8]) -> Result<Ask<'a, D>, DecodeError> {
        let mut fields = Fields::versioned(bytes)?;
        let ask = match fields.u8()? {
            1 => {
                let (viewer, center) = (ViewerId(fields.u64()?), EntityId(fields.u64()?));
                let (radius, bytes_per_tick) = (fields.f32()?, fields.u32()?);
                let rule = match (fields.u8()?, fields.u32()?) {
                    (0, _) => Rule::All,
                    (1, kind) => Rule::OfKind(kind),
                    (2, kind) => Rule::NotOfKind(kind),
                    (number, _) => return Err(DecodeError::Unknown { what: "rule", number }),
                };
                Ask::Watch(viewer, Watch { center, radius, rule, allowed: Rule::All, bytes_per_tick })
            }
            2 => Ask::Forget(ViewerId(fields.u64()?)),
            3 => Ask::Command(Command::read(&mut fields)?),
            number => return Err(DecodeError::Unknown { what: "ask", number }),
        };
        fields.end()?;
        Ok(ask)
    }
}

impl<'a, const D: usize> Command<'a, D> {
    /// One that changes nothing yet.
    pub fn of(id: EntityId) -> Command<'a, D> {
        Command { id, position: None, velocity: None, kind: None, components: None }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.id.0);
        let what = |is: bool, bit: u8| if is { bit } else { 0 };
        out.push(D as u8);
        out.push(
            what(self.position.is_some(), POSITION)
                | what(self.velocity.is_some(), VELOCITY)
                | what(self.kind.is_some(), KIND)
                | what(self.components.is_some(), COMPONENTS),
        );
        self.position.iter().chain(&self.velocity).for_each(|point| put_point(out, point));
        self.kind.iter().for_each(|kind| put_u32(out, *kind));
        self.components.iter().for_each(|bytes| put_bytes(out, bytes));
    }

    fn read(fields: &mut Fields<'a>) -> Result<Command<'a, D>, DecodeError> {
        let (id, dimensions, what) = (EntityId(fields.u64()?), fields.u8()?, fields.u8()?);
        if usize::from(dimensions) != D {
            return Err(DecodeError::Unknown { what: "number of dimensions", number: dimensions });
        }
        if what & !(POSITION | VELOCITY | KIND | COMPONENTS) != 0 {
            return Err(DecodeError::Unknown { what: "change of an entity", number: what });
        }
        let has = |bit: u8| what & bit != 0;
        Ok(Command {
            id,
            position: has(POSITION).then(|| fields.point()).transpose()?,
            velocity: has(VELOCITY).then(|| fields.point()).transpose()?,
            kind: has(KIND).then(|| fields.u32()).transpose()?,
            components: has(COMPONENTS).then(|| fields.bytes()).transpose()?,
        })
    }
}
