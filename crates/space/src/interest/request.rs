//! Requests of clients to a world, and their encoding.
//!
//! ```text
//!  version u8, kind u8
//!   1 watch    viewer u64, center u64, radius f32, bytes a tick u32, rule u8, kind u32
//!   2 forget   viewer u64
//!   3 command  id u64, D u8, flags u8, position, velocity: f32 each, kind u32, components: bytes
//!   4 spawn    id u64, D u8, kind u32, position, velocity: f32 each, components: bytes
//!   5 despawn  id u64
//! ```
//!
//! - `center`: the entity at the center of the viewer's surroundings.
//! - `rule`: the viewer sees all entities (0), only entities of the kind `kind` (1), or only entities of other kinds
//!   (2).
//! - `D`: the number of dimensions. A position and a velocity have `D` coordinates each.
//! - `flags`: the fields that a command changes: position (1), velocity (2), kind (4), components (8). The request has
//!   no bytes for fields that do not change.

use super::{SurroundingsWatch, ViewerId, VisibilityRule};
use crate::entity::EntityId;
use crate::layout::{Fields, SpaceDecodeError, VERSION, put_bytes, put_point, put_u32, put_u64};
use crate::store::Entity;
use crate::world::Point;

/// A client's request to a world: add or remove a viewer, or change, add or remove an entity.
#[derive(Debug, Clone)]
pub enum WorldRequest<'a, const D: usize> {
    /// Adds a viewer.
    Watch(ViewerId, SurroundingsWatch),
    /// Removes a viewer.
    Unwatch(ViewerId),
    /// Changes an entity.
    EntityCommand(EntityCommand<'a, D>),
    /// Adds an entity with an id that is new in the world.
    Spawn(Entity<'a, D>),
    /// Removes an entity from the world.
    Despawn(EntityId),
}

/// A client's command that changes an entity. Fields that are `None` stay unchanged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EntityCommand<'a, const D: usize> {
    /// Id of the entity.
    pub id: EntityId,
    /// New position.
    pub position: Option<Point<D>>,
    /// New velocity.
    pub velocity: Option<Point<D>>,
    /// New kind.
    pub kind: Option<u32>,
    /// New bytes of all components.
    pub components: Option<&'a [u8]>,
}

const POSITION: u8 = 1;
const VELOCITY: u8 = 2;
const KIND: u8 = 4;
const COMPONENTS: u8 = 8;

impl<'a, const D: usize> WorldRequest<'a, D> {
    /// Appends the encoded request to `out`. The rule `Where` contains a function, which cannot be encoded, so this
    /// rule is encoded as `All`. A watch's field `allowed` is left out, because the world sets this field.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        match self {
            WorldRequest::Watch(viewer, watch) => {
                out.push(1);
                put_u64(out, viewer.0);
                put_u64(out, watch.center.0);
                out.extend_from_slice(&watch.radius.to_le_bytes());
                put_u32(out, watch.bytes_per_tick);
                let (rule, kind) = match watch.rule {
                    VisibilityRule::OfKind(kind) => (1, kind),
                    VisibilityRule::NotOfKind(kind) => (2, kind),
                    VisibilityRule::All | VisibilityRule::Where(_) => (0, 0),
                };
                out.push(rule);
                put_u32(out, kind);
            }
            WorldRequest::Unwatch(viewer) => {
                out.push(2);
                put_u64(out, viewer.0);
            }
            WorldRequest::EntityCommand(command) => {
                out.push(3);
                command.encode(out);
            }
            WorldRequest::Spawn(entity) => {
                out.push(4);
                put_u64(out, entity.id.0);
                out.push(D as u8);
                put_u32(out, entity.kind);
                put_point(out, &entity.position);
                put_point(out, &entity.velocity);
                put_bytes(out, entity.components);
            }
            WorldRequest::Despawn(id) => {
                out.push(5);
                put_u64(out, id.0);
            }
        }
    }

    /// Decodes a request.
    pub fn decode(bytes: &'a [u8]) -> Result<WorldRequest<'a, D>, SpaceDecodeError> {
        let mut fields = Fields::versioned(bytes)?;
        let request = match fields.u8()? {
            1 => {
                let (viewer, center) = (ViewerId(fields.u64()?), EntityId(fields.u64()?));
                let (radius, bytes_per_tick) = (fields.f32()?, fields.u32()?);
                let rule = match (fields.u8()?, fields.u32()?) {
                    (0, _) => VisibilityRule::All,
                    (1, kind) => VisibilityRule::OfKind(kind),
                    (2, kind) => VisibilityRule::NotOfKind(kind),
                    (number, _) => return Err(SpaceDecodeError::Unknown { what: "rule", number }),
                };
                WorldRequest::Watch(
                    viewer,
                    SurroundingsWatch { center, radius, rule, allowed: VisibilityRule::All, bytes_per_tick },
                )
            }
            2 => WorldRequest::Unwatch(ViewerId(fields.u64()?)),
            3 => WorldRequest::EntityCommand(EntityCommand::read(&mut fields)?),
            4 => {
                let id = EntityId(fields.u64()?);
                check_dimensions::<D>(fields.u8()?)?;
                let (kind, position, velocity) = (fields.u32()?, fields.point()?, fields.point()?);
                let components = fields.bytes()?;
                WorldRequest::Spawn(Entity {
                    id,
                    generation: 0,
                    kind,
                    position,
                    velocity,
                    frozen: false,
                    components,
                })
            }
            5 => WorldRequest::Despawn(EntityId(fields.u64()?)),
            number => return Err(SpaceDecodeError::Unknown { what: "ask", number }),
        };
        fields.end()?;
        Ok(request)
    }
}

impl<'a, const D: usize> EntityCommand<'a, D> {
    /// Creates a command that does not change any field yet.
    pub fn of(id: EntityId) -> EntityCommand<'a, D> {
        EntityCommand { id, position: None, velocity: None, kind: None, components: None }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.id.0);
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        out.push(D as u8);
        out.push(
            flag(self.position.is_some(), POSITION)
                | flag(self.velocity.is_some(), VELOCITY)
                | flag(self.kind.is_some(), KIND)
                | flag(self.components.is_some(), COMPONENTS),
        );
        self.position.iter().chain(&self.velocity).for_each(|point| put_point(out, point));
        self.kind.iter().for_each(|kind| put_u32(out, *kind));
        self.components.iter().for_each(|bytes| put_bytes(out, bytes));
    }

    fn read(fields: &mut Fields<'a>) -> Result<EntityCommand<'a, D>, SpaceDecodeError> {
        let (id, dimensions, flags) = (EntityId(fields.u64()?), fields.u8()?, fields.u8()?);
        check_dimensions::<D>(dimensions)?;
        if flags & !(POSITION | VELOCITY | KIND | COMPONENTS) != 0 {
            return Err(SpaceDecodeError::Unknown { what: "change of an entity", number: flags });
        }
        let has = |bit: u8| flags & bit != 0;
        Ok(EntityCommand {
            id,
            position: has(POSITION).then(|| fields.point()).transpose()?,
            velocity: has(VELOCITY).then(|| fields.point()).transpose()?,
            kind: has(KIND).then(|| fields.u32()).transpose()?,
            components: has(COMPONENTS).then(|| fields.bytes()).transpose()?,
        })
    }
}

fn check_dimensions<const D: usize>(dimensions: u8) -> Result<(), SpaceDecodeError> {
    if usize::from(dimensions) == D {
        return Ok(());
    }
    Err(SpaceDecodeError::Unknown { what: "number of dimensions", number: dimensions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spawn_and_despawn_requests_are_read_back_as_written() {
        let position = [1.0, 2.0, 3.0];
        let entity = Entity { kind: 4, velocity: [0.5; 3], components: &[9, 8], ..Entity::at(7, position) };
        let mut bytes = Vec::new();
        WorldRequest::Spawn(entity).encode(&mut bytes);
        assert!(matches!(WorldRequest::<3>::decode(&bytes), Ok(WorldRequest::Spawn(read)) if read == entity));
        assert!(matches!(
            WorldRequest::<2>::decode(&bytes),
            Err(SpaceDecodeError::Unknown { number: 3, .. })
        ));
        for end in 0..bytes.len() {
            assert!(WorldRequest::<3>::decode(&bytes[..end]).is_err(), "{end}");
        }
        bytes.clear();
        WorldRequest::<3>::Despawn(EntityId(7)).encode(&mut bytes);
        assert!(matches!(WorldRequest::<3>::decode(&bytes), Ok(WorldRequest::Despawn(EntityId(7)))));
    }
}
