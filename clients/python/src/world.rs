//! The calls on worlds that `python/dunlin/space.py` wraps: nearby entities, commands, spawns and despawns.

use std::time::{Duration, Instant};

use dunlin_client::space::{
    CommandError, CommandResult, Entity, EntityCommand, EntityId, SceneChange, Schema, SurroundingsWatch,
    ViewError, Viewer, VisibilityRule, VisibleEntity, World, WorldOwnersError, check_world_name,
};
use pyo3::exceptions::{PyLookupError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::connection::Connection;
use crate::events::timeout;
use crate::failure::{Failure, from_text};
use crate::handle::SharedHandle;
use dunlin_wire::ErrorCode;

/// The interval at which a waiting call checks for signals.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The fields of Python's `space.Entity`, in this order: id, kind, region, tick, position and velocity.
type Row<'py> = (u64, u32, u64, u64, Bound<'py, PyTuple>, Bound<'py, PyTuple>);

/// A connection to the world with a given name.
#[pyclass(frozen, module = "dunlin._dunlin")]
pub struct RawWorld {
    world: SharedHandle<World>,
    is_plane: bool,
}

/// A viewer of a world with two or three dimensions.
enum SceneViewer {
    Plane(Viewer<2>),
    Space(Viewer<3>),
}

/// A subscription to updates about the entities around one entity of a world; [`RawWorld::near`] returns it.
#[pyclass(frozen, module = "dunlin._dunlin")]
pub struct RawViewer {
    viewer: SharedHandle<SceneViewer>,
}

/// A change of a scene, and the entity that has changed. `None` instead of the entity means that the entity is no
/// longer visible.
struct EntityChange(SceneChange, Option<SceneEntity>);

/// An entity copied out of the scene. In two dimensions, position and velocity have two numbers.
struct SceneEntity {
    id: EntityId,
    kind: u32,
    region: u64,
    tick: u64,
    position: Vec<f32>,
    velocity: Vec<f32>,
}

impl SceneEntity {
    fn of<const D: usize>(id: EntityId, visible: &VisibleEntity<D>) -> SceneEntity {
        let VisibleEntity { region, tick, kind, position, velocity, .. } = visible;
        let (position, velocity) = (position.to_vec(), velocity.to_vec());
        SceneEntity { id, kind: *kind, region: region.0.into(), tick: *tick, position, velocity }
    }

    fn row(self, py: Python<'_>) -> PyResult<Row<'_>> {
        let (position, velocity) = (PyTuple::new(py, self.position)?, PyTuple::new(py, self.velocity)?);
        Ok((self.id.0, self.kind, self.region, self.tick, position, velocity))
    }
}

fn next_change<const D: usize>(
    viewer: &mut Viewer<D>,
    timeout: Duration,
) -> Result<Option<EntityChange>, Failure> {
    let Some(change) = viewer.next_timeout(timeout)? else { return Ok(None) };
    let (SceneChange::Entered(id) | SceneChange::Moved(id) | SceneChange::Left(id)) = change;
    Ok(Some(EntityChange(change, viewer.visible().get(&id).map(|entity| SceneEntity::of(id, entity)))))
}

fn visible_entities<const D: usize>(viewer: &Viewer<D>) -> Vec<SceneEntity> {
    viewer.visible().iter().map(|(id, entity)| SceneEntity::of(*id, entity)).collect()
}

impl SceneViewer {
    fn next(&mut self, timeout: Duration) -> Result<Option<EntityChange>, Failure> {
        match self {
            SceneViewer::Plane(viewer) => next_change(viewer, timeout),
            SceneViewer::Space(viewer) => next_change(viewer, timeout),
        }
    }

    fn entities(&self) -> Vec<SceneEntity> {
        match self {
            SceneViewer::Plane(viewer) => visible_entities(viewer),
            SceneViewer::Space(viewer) => visible_entities(viewer),
        }
    }
}

/// Fails if the text is no valid name of a world.
#[pyfunction(name = "_check_world")]
pub fn check_world(name: &str) -> PyResult<()> {
    check_world_name(name).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pymethods]
impl RawWorld {
    #[new]
    fn new(py: Python<'_>, connection: &Connection, name: &str, dimensions: u32) -> PyResult<RawWorld> {
        if !(2..=3).contains(&dimensions) {
            return Err(PyValueError::new_err(format!("a world has 2 or 3 dimensions, not {dimensions}")));
        }
        check_world(name)?;
        let world = SharedHandle::new(connection.client(py)?.world(name));
        connection.register_handle(&world.closer());
        Ok(RawWorld { world, is_plane: dimensions == 2 })
    }

    /// Returns a viewer, which receives updates about the entities that are at most `within` away from `entity`.
    #[pyo3(signature = (connection, entity, within, *, kind, not_kind, bytes_per_tick))]
    #[expect(clippy::too_many_arguments, reason = "as many as a viewer may choose; Python gives them names")]
    fn near(
        &self,
        py: Python<'_>,
        connection: &Connection,
        entity: u64,
        within: f32,
        kind: Option<u32>,
        not_kind: Option<u32>,
        bytes_per_tick: u32,
    ) -> PyResult<RawViewer> {
        let rule = match (kind, not_kind) {
            (None, None) => VisibilityRule::All,
            (Some(kind), None) => VisibilityRule::OfKind(kind),
            (None, Some(kind)) => VisibilityRule::NotOfKind(kind),
            _ => {
                return Err(PyValueError::new_err(
                    "kind= and not_kind= exclude each other: give only one of them",
                ));
            }
        };
        if !(within.is_finite() && within > 0.0) {
            return Err(PyValueError::new_err(format!("within={within} is not a distance above 0")));
        }
        let watch =
            SurroundingsWatch { rule, bytes_per_tick, ..SurroundingsWatch::around(EntityId(entity), within) };
        let is_plane = self.is_plane;
        let viewer = self.world.with_lock(py, move |world| {
            Ok(match is_plane {
                true => SceneViewer::Plane(world.watch(watch, Schema::default())?),
                false => SceneViewer::Space(world.watch(watch, Schema::default())?),
            })
        })?;
        let viewer = SharedHandle::new(viewer);
        connection.register_handle(&viewer.closer());
        Ok(RawViewer { viewer })
    }

    /// Changes an entity. Returns the number of the process that applied the change, the number of the entity's region,
    /// and the last tick before the change.
    #[pyo3(signature = (entity, *, position, velocity, kind, timeout))]
    fn command(
        &self,
        py: Python<'_>,
        entity: u64,
        position: Option<Vec<f32>>,
        velocity: Option<Vec<f32>>,
        kind: Option<u32>,
        timeout: f64,
    ) -> PyResult<(u64, u64, u64)> {
        let timeout = self::timeout(Some(timeout))?.unwrap_or_default();
        let id = EntityId(entity);
        let result = match self.is_plane {
            true => {
                let (position, velocity) = (point(position)?, point(velocity)?);
                let command = EntityCommand::<2> { position, velocity, kind, ..EntityCommand::of(id) };
                self.world.with_lock(py, |world| Ok(world.command(&command, timeout)?))
            }
            false => {
                let (position, velocity) = (point(position)?, point(velocity)?);
                let command = EntityCommand::<3> { position, velocity, kind, ..EntityCommand::of(id) };
                self.world.with_lock(py, |world| Ok(world.command(&command, timeout)?))
            }
        }?;
        Ok(result_place(result))
    }

    /// Spawns an entity. Returns the number of the process that spawned the entity, the number of the entity's region,
    /// and the last tick before the spawn.
    #[pyo3(signature = (entity, *, position, velocity, kind, timeout))]
    fn spawn(
        &self,
        py: Python<'_>,
        entity: u64,
        position: Vec<f32>,
        velocity: Option<Vec<f32>>,
        kind: u32,
        timeout: f64,
    ) -> PyResult<(u64, u64, u64)> {
        let timeout = self::timeout(Some(timeout))?.unwrap_or_default();
        let result = match self.is_plane {
            true => {
                let spawned = bare_entity::<2>(entity, position, velocity, kind)?;
                self.world.with_lock(py, move |world| Ok(world.spawn(&spawned, timeout)?))
            }
            false => {
                let spawned = bare_entity::<3>(entity, position, velocity, kind)?;
                self.world.with_lock(py, move |world| Ok(world.spawn(&spawned, timeout)?))
            }
        }?;
        Ok(result_place(result))
    }

    /// Removes an entity. Returns the number of the process that removed the entity, the number of the entity's region,
    /// and the last tick before the removal.
    #[pyo3(signature = (entity, *, timeout))]
    fn despawn(&self, py: Python<'_>, entity: u64, timeout: f64) -> PyResult<(u64, u64, u64)> {
        let timeout = self::timeout(Some(timeout))?.unwrap_or_default();
        let result = self.world.with_lock(py, move |world| Ok(world.despawn(EntityId(entity), timeout)?))?;
        Ok(result_place(result))
    }
}

fn result_place(result: CommandResult) -> (u64, u64, u64) {
    (result.process, result.region.0.into(), result.tick)
}

/// Returns an entity without components. Fails if a position or velocity is invalid.
fn bare_entity<const D: usize>(
    id: u64,
    position: Vec<f32>,
    velocity: Option<Vec<f32>>,
    kind: u32,
) -> PyResult<Entity<'static, D>> {
    let position = point(Some(position))?.unwrap_or([0.0; D]);
    let velocity = point(velocity)?.unwrap_or([0.0; D]);
    Ok(Entity { velocity, kind, ..Entity::at(id, position) })
}

/// Converts coordinates to an array. Fails unless there is exactly one finite number for each dimension.
fn point<const D: usize>(numbers: Option<Vec<f32>>) -> PyResult<Option<[f32; D]>> {
    let Some(numbers) = numbers else { return Ok(None) };
    let point =
        <[f32; D]>::try_from(numbers).ok().filter(|point| point.iter().all(|along| along.is_finite()));
    point
        .map(Some)
        .ok_or_else(|| PyValueError::new_err(format!("a point of this world must have {D} finite numbers")))
}

#[pymethods]
impl RawViewer {
    /// Returns the next change and its entity; `None` if there is no change within `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn next<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<(&'static str, u64, Option<Row<'py>>)>> {
        let deadline = self::timeout(timeout)?.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let timeout =
                remaining.map_or(SIGNAL_CHECK_INTERVAL, |remaining| remaining.min(SIGNAL_CHECK_INTERVAL));
            let next = self.viewer.with(py, |viewer| viewer.next(timeout))?;
            py.check_signals()?;
            match next {
                Some(EntityChange(change, entity)) => {
                    let (name, id) = match change {
                        SceneChange::Entered(id) => ("enter", id),
                        SceneChange::Moved(id) => ("update", id),
                        SceneChange::Left(id) => ("leave", id),
                    };
                    let entity = entity.map(|entity| entity.row(py)).transpose()?;
                    return Ok(Some((name, id.0, entity)));
                }
                None if remaining.is_some_and(|remaining| remaining <= SIGNAL_CHECK_INTERVAL) => {
                    return Ok(None);
                }
                None => {}
            }
        }
    }

    /// All visible entities.
    fn visible<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let entities = self.viewer.try_with(py, |viewer| Ok(viewer.entities()))?;
        let rows = entities.into_iter().map(|entity| entity.row(py)).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, rows)
    }

    #[getter]
    fn closed(&self) -> bool {
        self.viewer.is_closed()
    }

    fn close(&self, py: Python<'_>) {
        self.viewer.close(py);
    }
}

impl From<WorldOwnersError> for Failure {
    fn from(error: WorldOwnersError) -> Failure {
        match error {
            WorldOwnersError::Kv(error) => error.into(),
            WorldOwnersError::NotBegun { .. } | WorldOwnersError::NoProcess(_) => {
                Failure::Disconnected(error.to_string())
            }
            WorldOwnersError::Name(_) => Failure::Python(PyValueError::new_err(error.to_string())),
            other => Failure::Python(PyLookupError::new_err(other.to_string())),
        }
    }
}

impl From<ViewError> for Failure {
    fn from(error: ViewError) -> Failure {
        let text = error.to_string();
        match error {
            ViewError::WorldOwners(error) => error.into(),
            ViewError::Refused(why) => from_text(&why, ErrorCode::Forbidden),
            ViewError::Invalid(_) => Failure::Python(PyValueError::new_err(text)),
            _ => Failure::Refused(ErrorCode::Internal, text),
        }
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Failure {
        let text = error.to_string();
        match error {
            CommandError::WorldOwners(error) => error.into(),
            CommandError::Unknown(_) => Failure::Python(PyLookupError::new_err(text)),
            CommandError::Refused(why) => from_text(&why, ErrorCode::Forbidden),
            CommandError::Invalid(_) => Failure::Python(PyValueError::new_err(text)),
            CommandError::Busy(..) => Failure::TimedOut(text),
            CommandError::NoOwner { .. } | CommandError::NoPlace { .. } | CommandError::Disconnected(_) => {
                Failure::Disconnected(text)
            }
            CommandError::Lost(_) => Failure::Unknown(text),
            _ => Failure::Refused(ErrorCode::Internal, text),
        }
    }
}
