"""The results of `topics()` and `describe()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._dunlin import Position


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic of a list. A count is `None` if a responsible node does not answer."""

    name: str
    pattern: str
    partitions: int
    reliable: bool
    records: int | None
    bytes: int | None
    appended: int | None
    readers: int | None


@dataclass(frozen=True, slots=True)
class Log:
    """One partition of a topic."""

    partition: int
    first: Position
    last_seq: int
    bytes: int
    last_append_ns: int | None


@dataclass(frozen=True, slots=True)
class Reader:
    """One subscription of a topic."""

    name: str
    partition: int
    position: Position
    behind: int
    lost: int
    registered: bool


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group of a topic."""

    name: str
    kind: str
    members: int
    waiting: int
    claimed: int


@dataclass(frozen=True, slots=True)
class Topic:
    """Describes a topic."""

    name: str
    pattern: str
    partitions: int
    retention_bytes: int
    retention_records: int | None
    retention_age: float | None
    record_bytes_max: int
    reliable: bool
    durable: str | None
    reducer: str | None
    reducer_options: dict[str, str]
    publishers: int | None
    readers_total: int | None
    logs: tuple[Log, ...]
    readers: tuple[Reader, ...]
    groups: tuple[GroupSummary, ...]


def described(found: dict[str, Any]) -> Topic:
    """Makes a description from the native module's dictionary."""
    logs = tuple(Log(*log) for log in found.pop("logs"))
    readers = tuple(Reader(*reader) for reader in found.pop("readers"))
    groups = tuple(GroupSummary(*group) for group in found.pop("groups"))
    return Topic(**found, logs=logs, readers=readers, groups=groups)
