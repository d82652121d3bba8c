"""Worlds of moving entities: commands that change entities, and views of the entities near an entity.

    world = client.world("birds")
    world.command(1_000_007, velocity=(0, 0, 9))
    world.spawn(7, position=(5, 5, 5))
    with world.near(1_000_007, within=20.0) as viewer:
        for change in viewer:
            print(change.what, change.id, len(viewer.visible))

The client finds a world's processes through the node, and follows an entity to other processes. For all entities of a
region in columns, see `Client.region`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from . import _arguments
from ._dunlin import RawViewer, RawWorld

if TYPE_CHECKING:
    from ._dunlin import Connection

Point: TypeAlias = tuple[float, ...]
"""A number for each dimension of the world."""

_BYTES_MAX = 2**32 - 1
_KIND_MAX = 2**32 - 1


def _entity(number: int) -> int:
    return _arguments.count("entity", number, _arguments.U64_MAX)


def _kind(name: str, kind: int | None) -> int | None:
    return None if kind is None else _arguments.count(name, kind, _KIND_MAX)


class Entity(NamedTuple):
    """A visible entity, as last reported."""

    id: int
    kind: int
    """The kind of the entity: a number whose meaning the world's program defines."""
    region: int
    tick: int
    """The tick of this state."""
    position: Point
    velocity: Point
    """The velocity in units per second, for each axis."""


class SceneChange(NamedTuple):
    """An entity became visible, changed, or became invisible."""

    what: Literal["enter", "update", "leave"]
    id: int
    entity: Entity | None
    """The entity's current state; `None` once it is no longer visible."""


class CommandResult(NamedTuple):
    """The result of a command, a spawn or a despawn."""

    process: int
    region: int
    tick: int
    """The last tick of the region before the change."""


class Viewer:
    """Watches the entities near an entity. Iterate the viewer to receive changes. As a context manager, closes itself
    at the end.

    `visible` also includes the effects of changes that the iteration has not returned yet.
    """

    def __init__(self, raw: RawViewer) -> None:
        self._raw = raw

    def next(self, timeout: float | None = None) -> SceneChange | None:
        """Waits for the next change; `None` after `timeout` seconds."""
        row = self._raw.next(_arguments.timeout(timeout))
        if row is None:
            return None
        what, number, entity = row
        return SceneChange(what, number, None if entity is None else Entity(*entity))

    @property
    def visible(self) -> dict[int, Entity]:
        """All visible entities, by id."""
        return {row[0]: Entity(*row) for row in self._raw.visible()}

    def __iter__(self) -> Iterator[SceneChange]:
        while (change := self.next()) is not None:
            yield change

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._raw.closed

    def close(self) -> None:
        """Closes the viewer, and ends all waits in it."""
        self._raw.close()


class World:
    """A world of moving entities."""

    def __init__(self, connection: Connection, name: str, dimensions: int) -> None:
        self.name = name
        self._connection = connection
        self._raw = RawWorld(connection, name, dimensions)

    def near(
        self,
        entity: int,
        within: float,
        *,
        kind: int | None = None,
        not_kind: int | None = None,
        bytes_per_tick: int | None = None,
    ) -> Viewer:
        """Watches the entities within a distance of an entity, also while that entity moves. `kind` selects only
        entities of this kind, and `not_kind` excludes entities of this kind.

        `bytes_per_tick` limits the bytes of movements that each process sends per tick. The most urgent movements come
        first. Entities that enter or leave are not limited. Raises LookupError if the world has not begun.
        """
        limit = _BYTES_MAX if bytes_per_tick is None else bytes_per_tick
        return Viewer(
            self._raw.near(
                self._connection,
                _entity(entity),
                _arguments.distance("within", within),
                kind=_kind("kind", kind),
                not_kind=_kind("not_kind", not_kind),
                bytes_per_tick=_arguments.count("bytes_per_tick", limit, _BYTES_MAX),
            )
        )

    def command(
        self,
        entity: int,
        *,
        position: Sequence[float] | None = None,
        velocity: Sequence[float] | None = None,
        kind: int | None = None,
        timeout: float = 5.0,
    ) -> CommandResult:
        """Changes the given values of an entity in any region. When the call returns, the change is done.

        If a process is killed, changes in its last tick are lost. Repeating a command is safe. Raises LookupError for
        an entity that does not exist, and ValueError for a position outside the world.
        """
        if position is None and velocity is None and kind is None:
            raise ValueError("nothing to change: give position, velocity or kind")
        done = self._raw.command(
            _entity(entity),
            position=None if position is None else _arguments.point("position", position),
            velocity=None if velocity is None else _arguments.point("velocity", velocity),
            kind=_kind("kind", kind),
            timeout=_arguments.wait(timeout),
        )
        return CommandResult(*done)

    def spawn(
        self,
        entity: int,
        *,
        position: Sequence[float],
        velocity: Sequence[float] | None = None,
        kind: int = 0,
        timeout: float = 5.0,
    ) -> CommandResult:
        """Adds an entity without components at a position. The entity exists when this returns.

        Raises `ValueError` if the position is outside the world, or another entity of the world has this id.
        """
        done = self._raw.spawn(
            _entity(entity),
            position=_arguments.point("position", position),
            velocity=None if velocity is None else _arguments.point("velocity", velocity),
            kind=_arguments.count("kind", kind, _KIND_MAX),
            timeout=_arguments.wait(timeout),
        )
        return CommandResult(*done)

    def despawn(self, entity: int, *, timeout: float = 5.0) -> CommandResult:
        """Removes an entity from the world, in any region. Raises `LookupError` for an entity that does
        not exist."""
        return CommandResult(*self._raw.despawn(_entity(entity), timeout=_arguments.wait(timeout)))

    def __repr__(self) -> str:
        return f"World({self.name!r})"
