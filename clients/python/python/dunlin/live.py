"""Live state: order books, last values and regions of entities that are right, or say that they are not, and heal by themselves.

A book or a table takes in what has come when it is told to: by `update()`, or by each step of `changes()`. What it
shows stays the same in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias

if TYPE_CHECKING:
    from ._dunlin import Changes, Entities, Levels, Position, Publishers, Replica

Side: TypeAlias = Literal["bid", "ask"]


class Level(NamedTuple):
    """All there is at one price, in the instrument's units."""

    price: int
    size: int


@dataclass(frozen=True, slots=True)
class Change:
    """The state is another: it went from one position to the next."""

    partition: int
    start: Position
    position: Position
    by: Literal["record", "merged", "snapshot"]
    """What brought it there: the next record, one that merges several, or the state itself."""
    append_time_ns: int | None
    event_time_ns: int | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """The state is wrong, or not whole. It has asked to be brought back, and shows nothing until then."""

    partition: int
    text: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The topic was deleted, and its state with it."""

    partition: int


class Live:
    """What books and tables have in common. A context manager; close it when done."""

    def __init__(self, topic: str, replica: Replica, kind: str, options: Mapping[str, str]) -> None:
        self.topic = topic
        self.kind = kind
        self.options = dict(options)
        self._replica = replica

    def update(self, timeout: float | None = 0.0) -> int:
        """Takes in everything that is there, waiting up to `timeout` seconds for the first of it; how many changes."""
        return self._replica.update(timeout)

    def changes(self) -> Changes[Change | Trouble | Publishers | Forgotten]:
        """Each change as it is taken in, for `for` or `async for`: the state is then what that change made it.

        A `Publishers` among them says whether a publisher of the state is connected; the state stays as it is."""
        return self._replica

    def next(self, timeout: float | None = None) -> Change | Trouble | Publishers | Forgotten | None:
        """The next change; `None` after `timeout` seconds without one."""
        return self._replica.next(timeout)

    @property
    def is_whole(self) -> bool:
        """Whether the state is right, as far as anybody can see. While it is not, it shows nothing."""
        return self._replica.is_whole

    @property
    def position(self) -> Position | None:
        """Where the state stands."""
        return self._replica.position

    @property
    def publishers(self) -> Publishers | None:
        """What the topic's owner said last of the state's publishers, as of the last update. `None` while it has said nothing:
        one has been connected since this began, or the node is older than the question."""
        return self._replica.publishers

    @property
    def publisher_connected(self) -> bool:
        """Whether a publisher of the state is connected to the topic's owner, as of the last update."""
        publishers = self._replica.publishers
        return publishers is None or publishers.connected

    @property
    def age(self) -> float | None:
        """Seconds since the newest record that is known was appended, by this machine's clock."""
        return self._replica.age

    @property
    def append_time_ns(self) -> int | None:
        """When the newest record that is known was appended, ns since the Unix epoch. `None` when the topic has begun anew, until
        the time of a record of it is known."""
        return self._replica.times_ns[0]

    @property
    def event_time_ns(self) -> int | None:
        """The publisher's time of the last record taken in, ns since the Unix epoch. `None` where that record has none, and after a
        snapshot."""
        return self._replica.times_ns[1]

    @property
    def checksum(self) -> int | None:
        """What the state adds up to."""
        return self._replica.checksum

    @property
    def counts(self) -> dict[str, int]:
        """What has happened so far: records, snapshots, gaps, holes, resyncs and more."""
        return self._replica.counts

    @property
    def closed(self) -> bool:
        return self._replica.closed

    def close(self) -> None:
        """Ends it; whoever waits in it is done."""
        self._replica.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic!r})"


class Book(Live):
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
        """The bids, the best first: `prices`, `sizes` and `table` are arrays."""
        return self._replica.levels("bid", depth)

    def asks(self, depth: int | None = None) -> Levels:
        """The asks, the best first."""
        return self._replica.levels("ask", depth)

    def size_at(self, side: Side, price: int) -> int:
        """How much there is at a price."""
        return self._replica.size_at(side, price) or 0

    @property
    def touch(self) -> Literal["open", "apart", "locked", "crossed"]:
        """How the best prices stand: a side is empty, bid below ask, the same, or crossed."""
        return self._replica.touch

    def price(self, units: int) -> Decimal:
        """A price as people write it."""
        return Decimal(units).scaleb(-int(self.options.get("price_decimals", "0")))

    def size(self, units: int) -> Decimal:
        """A size as people write it."""
        return Decimal(units).scaleb(-int(self.options.get("size_decimals", "0")))


class Table(Live, Mapping[bytes | str, bytes]):
    """The last value of each key."""

    def __getitem__(self, key: bytes | str) -> bytes:
        value = self._replica.value(key.encode() if isinstance(key, str) else key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        key = key.encode() if isinstance(key, str) else key
        return isinstance(key, bytes) and self._replica.value(key) is not None

    def __iter__(self) -> Iterator[bytes]:
        return (key for key, _ in self._replica.items())

    def __len__(self) -> int:
        return self._replica.entries

    def snapshot(self) -> dict[bytes, bytes]:
        """All keys and values at once."""
        return dict(self._replica.items())


class Region(Live):
    """All entities of one region of a world of moving things."""

    @property
    def entities(self) -> Entities | None:
        """All of them as of the last update, as columns: `ids`, `kinds`, and for each axis `positions` and `velocities`. They
        are not copied, and stay as they are while anybody holds them. `None` while the region is not known whole."""
        return self._replica.entities_now

    def __len__(self) -> int:
        return self._replica.entries


def live(topic: str, followed: tuple[Replica, str, dict[str, str]], wanted: type[Any]) -> Any:
    """A book, a table or a region of what the extension module follows, whole if that takes no more than 5 seconds."""
    replica, kind, options = followed
    fitting = {"last": Table, "region": Region}.get(kind, Book)
    if fitting is not wanted:
        replica.close()
        raise ValueError(f"topic {topic!r} keeps a state of kind {kind!r}: use {fitting.__name__.lower()}()")
    made = wanted(topic, replica, kind, options)
    replica.update(5.0)
    return made
