"""The client for asyncio.

Subscriptions, members, books and tables are the same objects as in the blocking client. `async for` iterates them, and
one thread waits for events of all of them. Other calls that wait run on threads of a pool.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

from . import client as sync
from . import errors
from ._dunlin import CancellableCall, Job, Member, Publisher, Receipt, Record, Subscription
from .client import Client, Reply, Wait
from .kv import Bytes, Change, Compare, Entry, Kv, Page, Step, TransactionResult, Watch, WriteResult
from .live import Book, Region, Table
from .locks import Lease, Lock
from .topics import TopicInfo, TopicSummary

if TYPE_CHECKING:
    from ._dunlin import Deleted, EpochChanged, Event, Gap, Payload

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", Subscription, Member, Watch, Lease)

_THREADS_MAX = 1024
_REQUESTS_MAX = 768
"""The maximum number of concurrent requests. Further requests wait, so that the pool has threads left for responders.
"""
_UNANSWERED_BYTES_MAX = 512 << 10


class _Caller:
    """Runs calls that wait on threads of a pool. A cancelled call releases its thread within 100 ms."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="dunlin")
        self._has_ended = False
        self.requests = asyncio.Semaphore(_REQUESTS_MAX)

    async def __call__(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        abandonable = CancellableCall()
        try:
            return await self._start(partial(abandonable.run, partial(call, *args, **options)))
        except asyncio.CancelledError:
            abandonable.abandon()
            raise

    async def leave(self, release: Callable[..., object], *args: Any) -> None:
        """Runs a call that releases or closes something. If the task is cancelled, the call runs nevertheless, but
        waits for the node for about 100 ms at most. Then the cancellation continues.
        """
        abandonable = CancellableCall()
        released = self._start(partial(abandonable.run, partial(release, *args)))
        cancelled: asyncio.CancelledError | None = None
        while not released.done():
            try:
                # Unlike `await released`, this does not cancel the call together with the task.
                await asyncio.wait([released])
            except asyncio.CancelledError as error:
                abandonable.abandon()
                cancelled = error
        if cancelled is not None:
            raise cancelled from released.exception()
        released.result()

    def _start(self, run: Callable[[], T]) -> asyncio.Future[T]:
        if self._has_ended:
            # The pool has ended with the client. The call raises HandleClosedError, or closes an object again.
            return self.apart(run)
        return asyncio.get_running_loop().run_in_executor(self._threads, run)

    def apart(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Runs a call on a separate thread outside of the pool, because the call may wait for calls in the pool."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="dunlin-wait")
        try:
            return asyncio.get_running_loop().run_in_executor(thread, call)
        finally:
            # The thread ends after the call.
            thread.shutdown(wait=False)

    def end(self) -> None:
        self._has_ended = True
        self._threads.shutdown(wait=False)


class _Enterable(ABC, Generic[T]):
    """An object that one task at a time can enter with `async with`."""

    _is_entered = False

    async def __aenter__(self) -> T:
        if self._is_entered:
            raise errors.BusyError("another `async with` has entered this object: call the client again for each task")
        self._is_entered = True
        try:
            return await self._enter()
        except BaseException:
            self._is_entered = False
            raise

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self._leave(*error)
        finally:
            self._is_entered = False

    @abstractmethod
    async def _enter(self) -> T: ...

    @abstractmethod
    async def _leave(self, *error: Any) -> None: ...


class _OpenCall(_Enterable[S]):
    """A call that opens a handle. Await it, enter it with `async with`, or iterate it with `async for`."""

    def __init__(self, caller: _Caller, begin: Callable[[], S]) -> None:
        self._caller = caller
        self._begin: Callable[[], S] = begin
        self._begun: S | None = None

    def __await__(self) -> Generator[Any, None, S]:
        return self._caller(self._begin).__await__()

    async def _enter(self) -> S:
        self._begun = begun = await self
        return begun

    async def _leave(self, *error: Any) -> None:
        if self._begun is not None:
            await self._caller.leave(self._begun.__exit__, *error)


class SubscribeCall(_OpenCall[Subscription]):
    """A call that opens a subscription."""

    async def __aiter__(self) -> AsyncIterator[Event]:
        async with self as events:
            async for event in events:
                yield event


class JoinCall(_OpenCall[Member]):
    """A call that joins a group."""

    async def __aiter__(self) -> AsyncIterator[Job | Gap | EpochChanged | Deleted]:
        async with self as jobs:
            async for job in jobs:
                yield job


class WatchCall(_OpenCall[Watch]):
    """A call that opens a watch of keys."""

    async def __aiter__(self) -> AsyncIterator[Change]:
        async with self as changes:
            async for change in changes:
                yield change


class LeaseCall(_OpenCall[Lease]):
    """A call that creates a lease: `async with kv.lease(10) as lease`."""


class LockCall(_Enterable["LockCall"]):
    """A call that acquires a lock: `async with kv.lock("gate") as lock`. Cancelling the task ends the wait.

    Only one task at a time can enter this object; another task receives `BusyError`.
    """

    def __init__(self, caller: _Caller, begin: Callable[[], Lock]) -> None:
        self._caller = caller
        self._begin = begin
        self._lock = begin()

    async def _enter(self) -> LockCall:
        # Each `async with` uses a new lock, because the thread of a cancelled call may still use the previous lock.
        self._lock = lock = self._begin()
        try:
            await self._caller.apart(lock.acquire)
        except asyncio.CancelledError:
            # Ends the wait of the thread that acquires the lock.
            await self._caller.leave(lock._abandon)
            raise
        return self

    async def _leave(self, *error: Any) -> None:
        await self._caller.leave(self._lock.__exit__, *error)

    @property
    def token(self) -> int:
        """The fencing token, which grows with each holder.

        After a restart of a node without a data directory, tokens begin again at low numbers."""
        return self._lock.token

    @property
    def lease(self) -> Lease:
        """The lease that holds the lock."""
        return self._lock.lease

    @property
    def is_held(self) -> bool:
        """Whether the lock is certainly held: its lease is certainly alive."""
        return self._lock.is_held

    async def proclaim(self, value: Bytes) -> None:
        """Changes the value that other clients see."""
        await self._caller(self._lock.proclaim, value)


class AsyncKv:
    """`Kv` for asyncio: the methods take the same arguments, and their results are awaited."""

    def __init__(self, caller: _Caller, kv: Kv) -> None:
        self._caller = caller
        self._kv = kv

    @property
    def sync(self) -> Kv:
        """The `Kv` with blocking calls."""
        return self._kv

    @property
    def stale(self) -> AsyncKv:
        """The same keys with stale reads: the node answers from its own state."""
        return AsyncKv(self._caller, self._kv.stale)

    async def get(self, key: Bytes) -> Entry | None:
        """Reads a key."""
        return await self._caller(self._kv.get, key)

    async def put(self, key: Bytes, value: Bytes, *, lease: Lease | int = 0) -> int:
        """Writes a key. Returns the revision."""
        return await self._caller(self._kv.put, key, value, lease=lease)

    async def cas(self, key: Bytes, expect: int, value: Bytes, *, lease: Lease | int = 0) -> int:
        """Writes a key if `expect` is the revision of its last write."""
        return await self._caller(self._kv.cas, key, expect, value, lease=lease)

    async def delete(self, key: Bytes, *, expect: int | None = None) -> WriteResult:
        """Deletes a key, if it exists."""
        return await self._caller(self._kv.delete, key, expect=expect)

    async def delete_range(self, start: Bytes, end: Bytes) -> WriteResult:
        """Deletes keys from `start` up to and excluding `end`."""
        return await self._caller(self._kv.delete_range, start, end)

    async def batch(self, puts: Mapping[str, Bytes] | Mapping[bytes, Bytes] | Iterable[tuple[Bytes, Bytes]]) -> int:
        """Writes several keys in one revision."""
        return await self._caller(self._kv.batch, puts)

    async def range(self, start: Bytes, end: Bytes = b"", *, limit: int = 0) -> Page:
        """Reads the first keys from `start` up to and excluding `end`."""
        return await self._caller(self._kv.range, start, end, limit=limit)

    async def prefix(self, prefix: Bytes, *, page: int = 0) -> AsyncIterator[Entry]:
        """Reads all keys that begin with `prefix`, page by page: `async for entry in kv.prefix("jobs/")`."""
        entries = self._kv.prefix(prefix, page=page)
        while (entry := await self._caller(next, entries, None)) is not None:
            yield entry

    async def txn(
        self, compare: Iterable[Compare] = (), then: Iterable[Step] = (), otherwise: Iterable[Step] = ()
    ) -> TransactionResult:
        """Runs `then` if all comparisons hold, else `otherwise`, in one revision."""
        return await self._caller(self._kv.txn, compare, then, otherwise)

    async def revision(self) -> tuple[int, int]:
        """Reads the epoch and the last revision."""
        return await self._caller(self._kv.revision)

    def watch(self, prefix: Bytes = b"", *, start: tuple[int, int] | Literal["oldest"] | None = None) -> WatchCall:
        """Watches all keys that begin with `prefix`: `async for change in kv.watch("jobs/")`."""
        return WatchCall(self._caller, partial(self._kv.watch, prefix, start=start))

    def lease(self, ttl: float, *, keep: bool = True) -> LeaseCall:
        """Creates a lease that a thread renews."""
        return LeaseCall(self._caller, partial(self._kv.lease, ttl, keep=keep))

    async def revoke(self, lease: int) -> None:
        """Revokes a lease by its number."""
        await self._caller(self._kv.revoke, lease)

    def lock(
        self, name: Bytes, *, value: Bytes = b"", lease: Lease | None = None, ttl: float = 10.0, wait: bool = True
    ) -> LockCall:
        """A lock: `async with kv.lock("gate") as lock`."""
        return LockCall(self._caller, partial(self._kv.lock, name, value=value, lease=lease, ttl=ttl, wait=wait))

    def elect(self, name: Bytes, value: Bytes, *, lease: Lease | None = None, ttl: float = 10.0) -> LockCall:
        """An election: `async with kv.elect("leader", "host-1:8080") as elected`."""
        return self.lock(name, value=value, lease=lease, ttl=ttl)

    async def holder(self, name: Bytes) -> Entry | None:
        """The holder of a lock, or the leader of an election."""
        return await self._caller(self._kv.holder, name)


class AsyncPublisher:
    """A `Publisher` for asyncio: calls that wait are awaited."""

    def __init__(self, caller: _Caller, publisher: Publisher) -> None:
        self._caller = caller
        self._publisher = publisher
        # The number of calls on threads of the pool. They may wait for the node, and the publisher's other calls wait
        # for them.
        self._pool_calls = 0
        # Sends that cannot begin at once take turns, in the order of their calls.
        self._send_turn = asyncio.Lock()
        self._delayed_sends = 0

    async def _call(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        self._pool_calls += 1
        try:
            return await self._caller(call, *args, **options)
        finally:
            self._pool_calls -= 1

    async def publish(self, payload: Payload, **options: Any) -> Receipt:
        """Publishes and waits for the node's response. Takes the same keywords as `Publisher.publish`."""
        return await self._call(self._publisher.publish, payload, **options)

    async def send(self, payload: Payload, **options: Any) -> None:
        """Publishes without waiting for the response, unless too many bytes are unanswered. Takes the same keywords
        as `Publisher.send`."""
        if self._can_send():
            self._publisher.send(payload, **options)
            return
        self._delayed_sends += 1
        try:
            async with self._send_turn:
                if self._pool_calls == 0 and not self._has_room():
                    await self.flush()
                if self._pool_calls == 0:
                    self._publisher.send(payload, **options)
                else:
                    # On this thread, the call would wait for the calls of other tasks and stop the event loop.
                    await self._call(self._publisher.send, payload, **options)
        finally:
            self._delayed_sends -= 1

    def _can_send(self) -> bool:
        """Whether `send` can begin at once, without waiting for the node or other calls."""
        return self._pool_calls == 0 and self._delayed_sends == 0 and self._has_room()

    def _has_room(self) -> bool:
        return self._publisher.unanswered_bytes < _UNANSWERED_BYTES_MAX

    async def send_many(self, payloads: Iterable[Payload]) -> int:
        """Like `send`, for many payloads. Returns their number."""
        return await self._call(self._publisher.send_many, payloads)

    async def send_rows(self, rows: Any) -> int:
        """Like `send`, for each row of an array."""
        return await self._call(self._publisher.send_rows, rows)

    async def publish_batch(self, payloads: Iterable[Payload]) -> Receipt:
        """Publishes all payloads as one append: all of them or none."""
        return await self._call(self._publisher.publish_batch, payloads)

    async def flush(self) -> Receipt | None:
        """Waits until all sent records are answered."""
        return await self._call(self._publisher.flush)

    async def close(self) -> None:
        self._pool_calls += 1
        try:
            await self._caller.leave(self._publisher.close)
        finally:
            self._pool_calls -= 1

    async def __aenter__(self) -> AsyncPublisher:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _ConnectCall(_Enterable["AsyncClient"]):
    """A call that connects a client. Await it, or enter it with `async with`."""

    def __init__(self, begin: Callable[[], Client]) -> None:
        self._begin: Callable[[], Client] = begin
        self._client: AsyncClient | None = None

    async def _connect(self) -> AsyncClient:
        caller = _Caller()
        try:
            return AsyncClient(caller, await caller(self._begin))
        except BaseException:
            caller.end()
            raise

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._connect().__await__()

    async def _enter(self) -> AsyncClient:
        self._client = client = await self._connect()
        return client

    async def _leave(self, *_: Any) -> None:
        if self._client is not None:
            await self._client.close()


def connect(
    url: str | None = None,
    *,
    name: str = "",
    tenant: str = "",
    token: bytes | str = b"",
    user: str = "",
    password: bytes | str = b"",
    ca: str | os.PathLike[str] | None = None,
    client_cert: str | os.PathLike[str] | None = None,
    client_key: str | os.PathLike[str] | None = None,
    wait: Wait = "parked",
) -> _ConnectCall:
    """Connects to a node: `async with dunlin.aio.connect(url) as client`. Takes the arguments of `dunlin.connect`."""
    connect = partial(sync.connect, url, name=name, tenant=tenant, token=token, wait=wait)
    connect = partial(connect, user=user, password=password)
    return _ConnectCall(partial(connect, ca=ca, client_cert=client_cert, client_key=client_key))


class AsyncClient:
    """A `Client` for asyncio: calls that wait are awaited. Methods take the same arguments as those of `Client`."""

    def __init__(self, caller: _Caller, client: Client) -> None:
        self._caller = caller
        self._client = client

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits until the node has answered all sent records, and closes the connection. Does nothing if it is closed.
        """
        try:
            await self._caller.leave(self._client.close)
        finally:
            self._caller.end()

    @property
    def sync(self) -> Client:
        """The `Client` with blocking calls, for the same connection."""
        return self._client

    @property
    def kv(self) -> AsyncKv:
        """Keys and values, leases, locks and elections of the node's cluster."""
        return AsyncKv(self._caller, self._client.kv)

    async def publish(self, subject: str, payload: Payload, **options: Any) -> Receipt:
        """Publishes one record and waits for the receipt."""
        return await self._caller(self._client.publish, subject, payload, **options)

    async def flush(self) -> None:
        """Waits until all sent records are answered."""
        await self._caller(self._client.flush)

    async def publisher(self, subject: str, *, quiet: bool = False) -> AsyncPublisher:
        """Makes a publisher to a subject, or to a topic's pattern."""
        return AsyncPublisher(self._caller, await self._caller(self._client.publisher, subject, quiet=quiet))

    def subscribe(self, pattern: str, **options: Any) -> SubscribeCall:
        """Subscribes to all subjects that match `pattern`: `async for event in client.subscribe(...)`."""
        return SubscribeCall(self._caller, partial(self._client.subscribe, pattern, **options))

    def share(self, topic: str, group: str, **options: Any) -> JoinCall:
        """Joins a share group of a topic: each record goes to one member, at most once."""
        return JoinCall(self._caller, partial(self._client.share, topic, group, **options))

    def work(self, topic: str, group: str, **options: Any) -> JoinCall:
        """Joins a work group of a topic: each record is delivered until a member acknowledges it."""
        return JoinCall(self._caller, partial(self._client.work, topic, group, **options))

    async def ack(self, *jobs: Job) -> None:
        """Acknowledges the jobs."""
        await asyncio.gather(*(self._caller(job.ack) for job in jobs))

    async def nack(self, job: Job, delay: float = 0.0) -> None:
        """Returns a job to the group, which delivers the job again, but not before `delay` seconds have passed."""
        await self._caller(job.nack, delay)

    async def renew(self, job: Job) -> None:
        """Restarts a job's claim, which then lasts for its whole duration from now."""
        await self._caller(job.renew)

    async def book(self, topic: str, *, conflate: bool = False, name: str = "") -> Book:
        """Follows the order book of a topic: `async for change in book.changes()`."""
        return await self._caller(self._client.book, topic, conflate=conflate, name=name)

    async def table(self, topic: str, *, conflate: bool = False, name: str = "") -> Table:
        """Follows the last value of each key of a topic: `async for change in table.changes()`."""
        return await self._caller(self._client.table, topic, conflate=conflate, name=name)

    async def region(self, world: str, region: int, *, name: str = "") -> Region:
        """Follows all entities of a region of a world: `async for change in region.changes()`."""
        return await self._caller(self._client.region, world, region, name=name)

    async def request(self, subject: str, payload: Payload = b"", **options: Any) -> Reply:
        """Publishes a request and waits for the first reply."""
        async with self._caller.requests:
            return await self._caller(self._client.request, subject, payload, **options)

    async def reply(self, request: Record | str, payload: Payload = b"", **options: Any) -> None:
        """Sends a reply to a request: to an inbox, or to a subject that matches the pattern `within`."""
        await self._caller(self._client.reply, request, payload, **options)

    async def create_topic(self, name: str, **options: Any) -> None:
        """Creates a topic."""
        await self._caller(self._client.create_topic, name, **options)

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic with all its records."""
        await self._caller(self._client.delete_topic, name)

    async def topics(self, pattern: str = "") -> list[TopicSummary]:
        """Lists the topics whose names match `pattern`, in order of name."""
        return await self._caller(self._client.topics, pattern)

    async def describe(self, topic: str) -> TopicInfo:
        """Describes a topic."""
        return await self._caller(self._client.describe, topic)
