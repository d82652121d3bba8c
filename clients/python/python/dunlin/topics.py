"""Topics, as `topics()` and `describe()` tell of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._dunlin import Position


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A line of the list of topics. A count is `None` where a node that would have to say does not answer."""

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
    """One partition."""

    partition: int
    first: Position
    last_seq: int
    bytes: int
    last_append_ns: int | None


@dataclass(frozen=True, slots=True)
class Reader:
    """One reader, the slowest first."""

    name: str
    partition: int
    position: Position
    behind: int
    lost: int
    registered: bool


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group."""

    name: str
    kind: str
    members: int
    waiting: int
    claimed: int


@dataclass(frozen=True, slots=True)
class Topic:
    """All about a topic."""

    name: str
    pattern: str
    partitions: int
    retention_bytes: int
    retention_records: int | None
    retention_age: float | None
    record_bytes_max: int
    reliable: bool
    durable: str | None
    fold: str | None
    fold_options: dict[str, str]
    publishers: int | None
    readers_total: int | None
    logs: tuple[Log, ...]
    readers: tuple[Reader, ...]
    groups: tuple[GroupSummary, ...]


def described(found: dict[str, Any]) -> Topic:
    """A description out of what the extension module gives."""
    logs = tuple(Log(*log) for log in found.pop("logs"))
    readers = tuple(Reader(*reader) for reader in found.pop("readers"))
    groups = tuple(GroupSummary(*group) for group in found.pop("groups"))
    return Topic(**found, logs=logs, readers=readers, groups=groups)
