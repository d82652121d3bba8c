"""Dunlin's client for topics, groups, keys, tasks and worlds. A subscriber receives every record, or a `Gap` that names
the missed records.

    with dunlin.connect("dunlin://localhost") as client:
        client.create_topic("ticks", exist_ok=True)
        with client.subscribe("ticks", start="earliest") as events:
            client.publish("ticks", b"one")
            for event in events:
                match event:
                    case dunlin.Record(payload=payload): print(payload)
                    case dunlin.Gap(first=first, last=last): print("missed", first, "to", last)

For asyncio, use `dunlin.aio.connect`.
"""

import atexit as _atexit

from . import aio, errors, kv, space, tasks
from ._dunlin import (
    Batch,
    Deleted,
    Entities,
    EpochChanged,
    Gap,
    Job,
    Lagging,
    Levels,
    Member,
    Position,
    Publisher,
    Publishers,
    Receipt,
    Record,
    Snapshot,
    Subscription,
    __version__,
    _end,
)
from .client import Client, Reply, connect
from .errors import (
    DisconnectedError,
    Error,
    GapError,
    RefusedError,
    RequestTimeoutError,
    UnknownOutcomeError,
)
from .live import Book, Change, Level, Region, ReplicaFault, StateDeleted, Table
from .space import Entity, SceneChange, Viewer, World
from .tasks import NewTask, TaskInfo
from .topics import TopicInfo, TopicSummary
from .worker import Task, TaskFailure, Worker

_atexit.register(_end)

__all__ = [
    "Batch",
    "Book",
    "Change",
    "Client",
    "Deleted",
    "DisconnectedError",
    "Entities",
    "Entity",
    "EpochChanged",
    "Error",
    "Gap",
    "GapError",
    "Job",
    "Lagging",
    "Level",
    "Levels",
    "Member",
    "NewTask",
    "Position",
    "Publisher",
    "Publishers",
    "Receipt",
    "Record",
    "RefusedError",
    "Region",
    "ReplicaFault",
    "Reply",
    "RequestTimeoutError",
    "SceneChange",
    "Snapshot",
    "StateDeleted",
    "Subscription",
    "Table",
    "Task",
    "TaskFailure",
    "TaskInfo",
    "TopicInfo",
    "TopicSummary",
    "UnknownOutcomeError",
    "Viewer",
    "Worker",
    "World",
    "__version__",
    "aio",
    "connect",
    "errors",
    "kv",
    "space",
    "tasks",
]
