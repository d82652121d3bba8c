"""Worlds of moving entities: who is near one of them, and what it is to do.

    world = client.world("birds")
    world.command(1_000_007, velocity=(0, 0, 9))
    world.spawn(7, position=(5, 5, 5))
    with world.near(1_000_007, within=20.0) as sight:
        for seen in sight:
            print(seen.what, seen.id, len(sight.visible))

The processes of a world are found through the node, wherever an entity goes. All entities of one region, as columns, are
`Client.region`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ._dunlin import RawSight, RawWorld

if TYPE_CHECKING:
    from ._dunlin import Connection

Point: TypeAlias = tuple[float, ...]
"""A number for each dimension of the world."""

_BYTES_MAX = 2**32 - 1


class Entity(NamedTuple):
    """Somebody in sight, as it was told last."""

    id: int
    kind: int
    """Its kind: a number that the makers of the world give a meaning."""
    region: int
    tick: int
    """The tick after which it was so."""
    position: Point
    velocity: Point
    """Units a second."""


class Seen(NamedTuple):
    """Somebody came into sight, was told of again, or went out of sight."""

    what: Literal["enter", "update", "leave"]
    id: int
    entity: Entity | None
    """How it is now; `None` once it is out of sight."""


class Commanded(NamedTuple):
    """Where a command, a spawn or a despawn was carried out."""

    process: int
    region: int
    tick: int
    """The last tick before it."""


class Sight:
    """Who is near an entity, as long as it is open: iterate it. A context manager; close it when done.

    `visible` is how it stands, changes that are not yet taken included.
    """

    def __init__(self, raw: RawSight) -> None:
        self._raw = raw

    def next(self, timeout: float | None = None) -> Seen | None:
        """The next that happens; `None` after `timeout` seconds without anything."""
        row = self._raw.next(timeout)
        if row is None:
            return None
        what, number, entity = row
        return Seen(what, number, None if entity is None else Entity(*entity))

    @property
    def visible(self) -> dict[int, Entity]:
        """All who are in sight, by their numbers."""
        return {row[0]: Entity(*row) for row in self._raw.visible()}

    def __iter__(self) -> Iterator[Seen]:
        while (seen := self.next()) is not None:
            yield seen

    def __enter__(self) -> Sight:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._raw.closed

    def close(self) -> None:
        """Ends it; whoever waits in it is done."""
        self._raw.close()


class World:
    """A world, by its name."""

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
    ) -> Sight:
        """Who is at most so far from an entity, wherever that goes: of one `kind`, or of all but `not_kind`.

        With `bytes_per_tick` each process tells no more than that of those who move, the most urgent first; who comes and who
        goes is told beyond it. A world that nobody began is a LookupError.
        """
        limit = _BYTES_MAX if bytes_per_tick is None else bytes_per_tick
        return Sight(
            self._raw.near(self._connection, entity, within, kind=kind, not_kind=not_kind, bytes_per_tick=limit)
        )

    def command(
        self,
        entity: int,
        *,
        position: Sequence[float] | None = None,
        velocity: Sequence[float] | None = None,
        kind: int | None = None,
        timeout: float = 5.0,
    ) -> Commanded:
        """Changes an entity, wherever it is; what is left out stays as it is. It is done when this returns.

        What the owner did in its last tick before it was killed is gone with it; to command the same again does no harm. An
        entity that is nowhere is a LookupError.
        """
        if position is None and velocity is None and kind is None:
            raise ValueError("nothing is commanded: give position, velocity or kind")
        done = self._raw.command(
            entity,
            position=None if position is None else list(position),
            velocity=None if velocity is None else list(velocity),
            kind=kind,
            timeout=timeout,
        )
        return Commanded(*done)

    def spawn(
        self,
        entity: int,
        *,
        position: Sequence[float],
        velocity: Sequence[float] | None = None,
        kind: int = 0,
        timeout: float = 5.0,
    ) -> Commanded:
        """Spawns an entity at a place of the world, without components. It is there when this returns.

        An id that another entity of the world has is refused (`RefusedError`).
        """
        done = self._raw.spawn(
            entity,
            position=list(position),
            velocity=None if velocity is None else list(velocity),
            kind=kind,
            timeout=timeout,
        )
        return Commanded(*done)

    def despawn(self, entity: int, *, timeout: float = 5.0) -> Commanded:
        """Takes an entity out of the world, wherever it is. An entity that is nowhere is a LookupError."""
        return Commanded(*self._raw.despawn(entity, timeout=timeout))

    def __repr__(self) -> str:
        return f"World({self.name!r})"
