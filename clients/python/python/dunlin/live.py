"""Replicas of states: order books, last values and regions. A replica detects errors in its state and
repairs the state.

A replica applies arrived changes only in `update()`, or in each step of `changes()`. In between, the
state does not change.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias

from . import _arguments

if TYPE_CHECKING:
    from ._dunlin import Changes, Entities, Levels, Position, Publishers, Replica

Side: TypeAlias = Literal["bid", "ask"]


class Level(NamedTuple):
    """A price and its total size, in the instrument's units."""

    price: int
    size: int


@dataclass(frozen=True, slots=True)
class Change:
    """The state has changed, from one position to another."""

    partition: int
    start: Position
    position: Position
    by: Literal["record", "merged", "snapshot"]
    """The cause of the change: a record, a record that merges several, or a snapshot."""
    append_time_ns: int | None
    event_time_ns: int | None


@dataclass(frozen=True, slots=True)
class ReplicaFault:
    """The state is wrong or incomplete. The replica has requested a snapshot, and is empty until the
    snapshot arrives."""

    partition: int
    text: str


@dataclass(frozen=True, slots=True)
class StateDeleted:
    """The topic was deleted with its state."""

    partition: int


class LiveState:
    """The base class of books, tables and regions. As a context manager, closes the replica at the end."""

    def __init__(self, topic: str, replica: Replica, kind: str, options: Mapping[str, str]) -> None:
        self.topic = topic
        self.kind = kind
        self.options = dict(options)
        self._replica = replica

    def update(self, timeout: float | None = 0.0) -> int:
        """Waits up to `timeout` seconds for a change, and applies all arrived changes. Returns their number."""
        return self._replica.update(_arguments.timeout(timeout))

    def changes(self) -> Changes[Change | ReplicaFault | Publishers | StateDeleted]:
        """Iterates the changes with `for` or `async for`. Each step applies and returns one change.

        A `Publishers` notice reports whether the state has connected publishers, and does not
        change the state."""
        return self._replica

    def next(self, timeout: float | None = None) -> Change | ReplicaFault | Publishers | StateDeleted | None:
        """Waits for the next change; `None` after `timeout` seconds."""
        return self._replica.next(_arguments.timeout(timeout))

    @property
    def is_whole(self) -> bool:
        """Whether the state is complete and without detected errors. Otherwise the state is empty, except that a table
        of several partitions has the keys of complete partitions."""
        return self._replica.is_whole

    @property
    def position(self) -> Position | None:
        """The position of the last record in the state. For a table of several partitions, the position in the first
        partition; `changes()` reports positions in all partitions."""
        return self._replica.position

    @property
    def publishers(self) -> Publishers | None:
        """The last notice about the state's publishers, as of the last update. `None` if no notice has
        arrived: either a publisher was connected from the start, or the node sends no such notices."""
        return self._replica.publishers

    @property
    def publisher_connected(self) -> bool:
        """Whether a publisher of the state is connected to the topic's owner, as of the last update."""
        publishers = self._replica.publishers
        return publishers is None or publishers.connected

    @property
    def age(self) -> float | None:
        """The time in seconds since the newest known record was appended, by this machine's clock."""
        return self._replica.age

    @property
    def append_time_ns(self) -> int | None:
        """The append time of the newest known record, in ns since the Unix epoch. After the log began a new epoch,
        `None` until a record of that epoch is known."""
        return self._replica.times_ns[0]

    @property
    def event_time_ns(self) -> int | None:
        """The event time of the last applied record, in ns since the Unix epoch. `None` if the record has no event
        time, and after a snapshot."""
        return self._replica.times_ns[1]

    @property
    def checksum(self) -> int | None:
        """The state's checksum. For a table of several partitions, the checksum of the first partition's keys."""
        return self._replica.checksum

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of records, snapshots, gaps and other events, by name."""
        return self._replica.counts

    @property
    def closed(self) -> bool:
        return self._replica.closed

    def close(self) -> None:
        """Closes the replica, and ends all waits in it."""
        self._replica.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic!r})"


def _depth(depth: int | None) -> int | None:
    return None if depth is None else _arguments.count("depth", depth, _arguments.U64_MAX)


class Book(LiveState):
    """An order book. Prices and sizes are integers in the instrument's units."""

    @property
    def bid(self) -> Level | None:
        """The best bid."""
        best = self._replica.best("bid")
        return None if best is None else Level(*best)

    @property
    def ask(self) -> Level | None:
        """The best ask."""
        best = self._replica.best("ask")
        return None if best is None else Level(*best)

    def bids(self, depth: int | None = None) -> Levels:
        """The bids, best first: `prices`, `sizes` and `table` are arrays."""
        return self._replica.levels("bid", _depth(depth))

    def asks(self, depth: int | None = None) -> Levels:
        """The asks, best first."""
        return self._replica.levels("ask", _depth(depth))

    def size_at(self, side: Side, price: int) -> int:
        """The size at a price."""
        return self._replica.size_at(side, _arguments.count("price", price, 2**63 - 1, least=-(2**63))) or 0

    @property
    def touch(self) -> Literal["open", "apart", "locked", "crossed"]:
        """The relation of the best bid to the best ask: `open` (a side is empty), `apart` (bid below ask), `locked`
        (equal) or `crossed` (bid above ask).
        """
        return self._replica.touch

    def price(self, units: int) -> Decimal:
        """Converts a price in units to a decimal number."""
        return self._decimal(units, "price_decimals")

    def size(self, units: int) -> Decimal:
        """Converts a size in units to a decimal number."""
        return self._decimal(units, "size_decimals")

    def _decimal(self, units: int, option: str) -> Decimal:
        units = _arguments.count("units", units, 2**63 - 1, least=-(2**63))
        # Unlike arithmetic, this conversion does not round to the precision of the program's decimal context.
        return Decimal(f"{units}E{-int(self.options.get(option, '0'))}")


class Table(LiveState, Mapping[bytes | str, bytes]):
    """The last value of each key, of all partitions of the topic."""

    def __getitem__(self, key: bytes | str) -> bytes:
        value = self._replica.value(_arguments.encoded("key", key))
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str | bytes | bytearray | memoryview):
            return False
        return self._replica.value(_arguments.encoded("key", key)) is not None

    def __iter__(self) -> Iterator[bytes]:
        return (key for key, _ in self._replica.items())

    def __len__(self) -> int:
        return self._replica.entries

    def snapshot(self) -> dict[bytes, bytes]:
        """A copy of all keys and values."""
        return dict(self._replica.items())


class Region(LiveState):
    """All entities of one region of a world."""

    @property
    def entities(self) -> Entities | None:
        """The entities as of the last update, in columns: `ids`, `kinds`, and for each axis
        `positions` and `velocities`. The columns are not copied, and later updates do not change
        them. `None` while the state is incomplete.
        """
        return self._replica.entities_now

    def __len__(self) -> int:
        return self._replica.entries


def open_state(topic: str, followed: tuple[Replica, str, dict[str, str]], wanted: type[Any]) -> Any:
    """Makes a book, table or region, and waits up to 5 seconds until its state is complete."""
    replica, kind, options = followed
    fitting = {"last": Table, "region": Region}.get(kind, Book)
    if fitting is not wanted:
        replica.close()
        raise ValueError(f"topic {topic!r} keeps a state of kind {kind!r}: use {fitting.__name__.lower()}()")
    made = wanted(topic, replica, kind, options)
    end = time.monotonic() + 5.0
    # Several updates may be needed, because each partition has its own state.
    try:
        while not replica.is_whole and (left := end - time.monotonic()) > 0:
            replica.update(left)
    except BaseException:
        replica.close()
        raise
    return made
