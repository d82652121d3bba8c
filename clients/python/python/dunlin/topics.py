"""The results of `topics()` and `describe()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._dunlin import Position


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """One topic in a list of topics. A count is `None` if a node that holds some of the records does not respond."""

    name: str
    pattern: str
    partitions: int
    reliable: bool
    records: int | None
    bytes: int | None
    appended: int | None
    subscribers: int | None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition of a topic."""

    partition: int
    first: Position
    last_seq: int
    bytes: int
    last_append_ns: int | None


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """One subscription of a topic."""

    name: str
    partition: int
    position: Position
    lag: int
    missed: int
    registered: bool


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """One group of a topic.

    ``pending_dead_letters`` is the number of dead letters that the topic for dead letters has not stored yet.
    ``dead_letter_error`` is the reason why the dead letters' topic refused a dead letter that still waits.
    """

    name: str
    kind: str
    members: int
    waiting: int
    claimed: int
    pending_dead_letters: int
    dead_letter_error: str | None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """The description of a topic."""

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
    subscribers_total: int | None
    logs: tuple[PartitionInfo, ...]
    subscribers: tuple[SubscriptionInfo, ...]
    groups: tuple[GroupInfo, ...]


def topic_info(found: dict[str, Any]) -> TopicInfo:
    """Converts the dictionary of the native module to a description."""
    logs = tuple(PartitionInfo(*log) for log in found.pop("logs"))
    subscribers = tuple(SubscriptionInfo(*subscriber) for subscriber in found.pop("subscribers"))
    groups = tuple(GroupInfo(*group) for group in found.pop("groups"))
    return TopicInfo(**found, logs=logs, subscribers=subscribers, groups=groups)
