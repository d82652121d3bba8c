"""Keys and values that the cluster agrees on, their changes, leases, locks and elections.

    kv = client.kv
    revision = kv.put("config/limit", "100")
    try:
        kv.cas("config/limit", revision, "200")
    except errors.KeyMovedError as moved:
        print("somebody wrote it in revision", moved.modified)

Keys are bytes, or text that stands for its UTF-8; what is read is bytes. `docs/control.md` says what is promised.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from . import errors
from ._asyncio import next_of
from ._dunlin import Keys

if TYPE_CHECKING:
    from ._dunlin import Connection, RawChange, RawEntry, RawLease, RawLock, RawStep, RawWatch

Bytes: TypeAlias = bytes | str
"""Bytes, or text that stands for its UTF-8."""


def _bytes(given: Bytes) -> bytes:
    return given.encode() if isinstance(given, str) else bytes(given)


def prefix_end(prefix: Bytes) -> bytes:
    """The first key after all that begin with `prefix`; empty where there is none."""
    cut = _bytes(prefix).rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else b""


class Entry(NamedTuple):
    """A key and what it holds."""

    key: bytes
    value: bytes
    created: int
    """The revision that created it. Of a lock's holder it is the token."""
    modified: int
    """The revision that last wrote it."""
    version: int
    """How often it was written since it was created."""
    lease: int
    """It goes when this lease ends; 0 for none."""


class Page(NamedTuple):
    """Some keys of a range, in order."""

    revision: int
    """The last revision when they were looked for."""
    entries: list[Entry]
    more: bool
    """There are more after the last of them."""


class Written(NamedTuple):
    """What was changed."""

    revision: int
    """The revision; the last there was where nothing was changed."""
    keys: int
    """Keys written or deleted."""


@dataclass(frozen=True, slots=True)
class WasPut:
    """A key was written; this is what it holds now."""

    entry: Entry

    @property
    def key(self) -> bytes:
        return self.entry.key

    @property
    def value(self) -> bytes:
        return self.entry.value


@dataclass(frozen=True, slots=True)
class WasDeleted:
    """A key was deleted, or went with its lease."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """What one revision changed of the keys that are watched."""

    epoch: int
    revision: int
    events: tuple[WasPut | WasDeleted, ...]


# ---- Transactions


@dataclass(frozen=True, slots=True)
class Compare:
    """What has to be so of a key. Of a key that is not there all numbers are 0, and its value equals none."""

    key: Bytes
    what: Literal["version", "created", "modified", "lease", "value"]
    is_: Literal["==", "!=", "<", ">"]
    against: int | Bytes

    def _raw(self) -> tuple[bytes, str, str, int | bytes]:
        against = self.against if isinstance(self.against, int) else _bytes(self.against)
        return _bytes(self.key), self.is_, self.what, against


def unchanged(key: Bytes, revision: int) -> Compare:
    """The key was last written by this revision; 0 for a key that is not there."""
    return Compare(key, "modified", "==", revision)


def holds(key: Bytes, value: Bytes) -> Compare:
    """The key has this value."""
    return Compare(key, "value", "==", value)


@dataclass(frozen=True, slots=True)
class Put:
    """Writes a key."""

    key: Bytes
    value: Bytes
    lease: Lease | int = 0

    def _raw(self) -> RawStep:
        return "put", _bytes(self.key), _bytes(self.value), _number(self.lease)


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a key, if it is there."""

    key: Bytes

    def _raw(self) -> RawStep:
        return "delete", _bytes(self.key), b"", 0


@dataclass(frozen=True, slots=True)
class DeleteRange:
    """Deletes the keys from `start` up to, not including, `end`."""

    start: Bytes
    end: Bytes

    def _raw(self) -> RawStep:
        return "delete_range", _bytes(self.start), _bytes(self.end), 0


@dataclass(frozen=True, slots=True)
class Get:
    """Reads a key."""

    key: Bytes

    def _raw(self) -> RawStep:
        return "get", _bytes(self.key), b"", 0


@dataclass(frozen=True, slots=True)
class Range:
    """Reads the keys from `start` up to, not including, `end`; as many as may be where `limit` is 0."""

    start: Bytes
    end: Bytes
    limit: int = 0

    def _raw(self) -> RawStep:
        return "range", _bytes(self.start), _bytes(self.end), self.limit


Step: TypeAlias = Put | Delete | DeleteRange | Get | Range
"""One step of a transaction; it sees what those before it did."""


class Transacted(NamedTuple):
    """What a transaction did."""

    revision: int
    """The revision; the last there was where nothing was changed."""
    succeeded: bool
    """All that was compared was so: `then` was done."""
    results: list[int | Page]
    """Of each step how many keys it changed, or what it read."""


# ---- Watching, leases, locks


class Watch:
    """Tells what changes, revision by revision: iterate it with `for` or `async for`. One thread at a time.

    After `DisconnectedError` the next step goes on where it was. `CompactedError` ends it: history was given up before it
    came to it, or revisions have begun anew; read the keys, and watch on from the revision after that answer's.
    """

    def __init__(self, raw: RawWatch) -> None:
        self._raw = raw

    def next(self, timeout: float | None = None) -> Change | None:
        """The next change; `None` after `timeout` seconds without one."""
        return _change(self._raw.next(timeout))

    @property
    def revision(self) -> int:
        """The last revision that was seen, of whatever keys; 0 before there was one."""
        return self._raw.revision

    @property
    def closed(self) -> bool:
        return self._raw.closed

    def close(self) -> None:
        """Ends it; whoever waits in it is done."""
        self._raw.close()

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Change:
        try:
            change = self.next()
        except errors.HandleClosedError:
            change = None
        if change is None:
            raise StopIteration
        return change

    def __aiter__(self) -> Watch:
        return self

    def __anext__(self) -> Awaitable[Change]:
        return next_of(self)

    def _try_next(self) -> Change | None:
        try:
            return _change(self._raw._try_next())
        except errors.HandleClosedError:
            raise StopAsyncIteration from None

    def _wait(self) -> Future[None]:
        return self._raw._wait()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Lease:
    """What is tied to it goes when it ends: `ttl` seconds after it was last kept alive, which a thread does.

    A context manager; it is revoked at the end. Its holder counts it as lost before the cluster ends it.
    """

    def __init__(self, raw: RawLease) -> None:
        self._raw = raw

    @property
    def id(self) -> int:
        """Its number."""
        return self._raw.id

    @property
    def ttl(self) -> float:
        """How long it lives after it was kept alive, seconds."""
        return self._raw.ttl

    @property
    def is_alive(self) -> bool:
        """Whether it is sure to live still."""
        try:
            self._raw.check()
        except errors.Error:
            return False
        return True

    def check(self) -> None:
        """Raises `NoLeaseError` where it is not sure to live still."""
        self._raw.check()

    def keep_alive(self) -> None:
        """Has it live on, for who does not leave that to the thread."""
        self._raw.keep_alive()

    def wait_lost(self, timeout: float | None = None) -> str | None:
        """Waits until it is lost, and says why; `None` if it is not after `timeout` seconds."""
        return self._raw.wait_lost(timeout)

    def leave(self) -> int:
        """It is kept alive no more, nor revoked: it ends by its time, or somebody else keeps it alive. Its number."""
        self._raw.leave()
        return self.id

    def close(self) -> None:
        """Revokes it, and with it goes what is tied to it."""
        self._raw.close()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Lease({self.id}, ttl={self.ttl})"


def _number(lease: Lease | int) -> int:
    return lease.id if isinstance(lease, Lease) else lease


class Lock:
    """A lock, or the office of who is elected: one holder at most, in the order in which they came.

    A context manager: entered, it waits for the lock, and left, gives it back. `token` grows from holder to holder; show it
    to whatever the lock guards, which refuses one that is lower than the highest it was shown.
    """

    def __init__(self, keys: Keys, name: bytes, value: bytes, lease: Lease | float, wait: bool) -> None:
        self._keys = keys
        self._name = name
        self._value = value
        self._wait = wait
        self._ttl = None if isinstance(lease, Lease) else lease
        self._lease = lease if isinstance(lease, Lease) else None
        self._raw: RawLock | None = None
        self._token = 0
        self._is_abandoned = False

    def acquire(self) -> int:
        """Waits for the lock as long as its lease lives; its token. `LockHeldError` where it was asked not to wait."""
        try:
            if self._lease is None or self._ttl is not None:
                self._lease = Lease(self._keys.lease(self._ttl or 0.0, True))
            self._raw = self._keys.lock(self._name, self._value, self._lease._raw)
            if self._is_abandoned:
                raise errors.HandleClosedError("it was closed")
            self._token = self._raw.acquire(self._wait)
        except BaseException:
            self._let_go()
            raise
        return self._token

    @property
    def token(self) -> int:
        """Its token; 0 before it was held."""
        return self._token

    @property
    def lease(self) -> Lease:
        """Under which it is held."""
        if self._lease is None:
            raise errors.HandleClosedError("it is not held")
        return self._lease

    @property
    def is_held(self) -> bool:
        """Whether it is sure to be held still, as far as its lease says."""
        held = self._raw is not None and not self._raw.closed and self._token > 0
        return held and self._lease is not None and self._lease.is_alive

    def proclaim(self, value: Bytes) -> None:
        """Changes what others see of the holder; `LockNotHeldError` where it is not held any more."""
        if self._raw is None:
            raise errors.HandleClosedError("it is not held")
        self._raw.proclaim(_bytes(value))

    def release(self) -> None:
        """Gives it to who waits for it longest. `LockNotHeldError`, or `NoLeaseError`, where it was lost before."""
        raw = self._raw
        try:
            if raw is not None and not raw.closed:
                raw.release()
        except (errors.DisconnectedError, errors.UnknownOutcomeError):
            # It goes with its lease, at the latest.
            pass
        finally:
            self._let_go()

    def _abandon(self) -> None:
        """Nobody wants it any more; a thread that waits for it is told so."""
        self._is_abandoned = True
        self._let_go()

    def _let_go(self) -> None:
        """Without an answer from anybody."""
        if self._raw is not None:
            self._raw.close()
        if self._lease is not None and self._ttl is not None:
            self._lease.close()

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.release()
        else:
            try:
                self.release()
            except errors.Error:
                # What went wrong inside is what there is to tell.
                pass

    def __repr__(self) -> str:
        return f"Lock({self._name!r}, token={self._token})"


class Kv:
    """Keys and values of the cluster that the node is part of, as `client.kv`. Threads may share it.

    What changes something is sent once: where its answer is lost, `CommandUnknownError` is raised, and whoever asked reads what
    there is. What is read is as fresh as all that was answered to anybody before, but through `stale`.
    """

    def __init__(self, connection: Connection, stale: bool = False) -> None:
        self._connection = connection
        self._keys = Keys(connection, stale)

    @property
    def stale(self) -> Kv:
        """The same, whose questions are answered as the node has it, which may be late, without a word to the others."""
        return Kv(self._connection, stale=True)

    def get(self, key: Bytes) -> Entry | None:
        """What a key holds; `None` where there is none."""
        found = self._keys.get(_bytes(key))
        return None if found is None else Entry(*found)

    def put(self, key: Bytes, value: Bytes, *, lease: Lease | int = 0) -> int:
        """Writes a key, which goes when `lease` ends; the revision."""
        return self._keys.put(_bytes(key), _bytes(value), _number(lease), None)

    def cas(self, key: Bytes, expect: int, value: Bytes, *, lease: Lease | int = 0) -> int:
        """Writes a key if it was last written by revision `expect`, 0 for a key that is not there; else `KeyMovedError`."""
        return self._keys.put(_bytes(key), _bytes(value), _number(lease), expect)

    def delete(self, key: Bytes, *, expect: int | None = None) -> Written:
        """Deletes a key, if it is there; with `expect` only if that revision wrote it last, else `KeyMovedError`."""
        return Written(*self._keys.delete(_bytes(key), expect))

    def delete_range(self, start: Bytes, end: Bytes) -> Written:
        """Deletes the keys from `start` up to, not including, `end`, to the last where that is empty.

        At most as many as the cluster deletes at once: none are left when it says that it deleted none.
        """
        return Written(*self._keys.delete_range(_bytes(start), _bytes(end)))

    def batch(self, puts: Mapping[str, Bytes] | Mapping[bytes, Bytes] | Iterable[tuple[Bytes, Bytes]]) -> int:
        """Writes all of these in one revision."""
        pairs: Iterable[tuple[Bytes, Bytes]] = puts.items() if isinstance(puts, Mapping) else puts
        return self.txn(then=[Put(key, value) for key, value in pairs]).revision

    def range(self, start: Bytes, end: Bytes = b"", *, limit: int = 0) -> Page:
        """The first keys from `start` up to, not including, `end`, to the last where that is empty.

        As many as may be where `limit` is 0. The next page begins with the last key and a zero byte behind.
        """
        return _page(*self._keys.range(_bytes(start), _bytes(end), limit))

    def prefix(self, prefix: Bytes, *, page: int = 0) -> Iterator[Entry]:
        """All keys that begin with `prefix`, asked for page by page; what changes meanwhile is in the pages after it."""
        start, end = _bytes(prefix), prefix_end(prefix)
        while True:
            found = self.range(start, end, limit=page)
            yield from found.entries
            if not found.more or not found.entries:
                return
            start = found.entries[-1].key + b"\0"

    def txn(
        self,
        compare: Iterable[Compare] = (),
        then: Iterable[Step] = (),
        otherwise: Iterable[Step] = (),
    ) -> Transacted:
        """`then` where all that is compared is so, else `otherwise`, in one revision."""
        done = self._keys.transact(
            [one._raw() for one in compare], [step._raw() for step in then], [step._raw() for step in otherwise]
        )
        revision, succeeded, results = done
        pages = [one if isinstance(one, int) else _page(revision, *one) for one in results]
        return Transacted(revision, succeeded, pages)

    def revision(self) -> tuple[int, int]:
        """The epoch of revisions, and the last of them. In another epoch keys may be others than before."""
        return self._keys.revision()

    def watch(self, prefix: Bytes = b"", *, start: tuple[int, int] | Literal["oldest"] | None = None) -> Watch:
        """Watches all keys that begin with `prefix`: from a revision of an epoch, from the oldest that is held, or from now on.

        `revision()` gives both numbers, and so does each `Change`. In a later epoch revisions have begun anew, and the same number is
        another revision: the watch raises `CompactedError` then.
        """
        if start is None or start == "oldest":
            return Watch(self._keys.watch(_bytes(prefix), None if start is None else (0, 0)))
        if isinstance(start, int):
            raise ValueError(f"revision {start} of which epoch? Give both, as `revision()` does: start=(epoch, {start})")
        epoch, revision = start
        if revision < 1:
            raise ValueError(f"revisions begin with 1, not {revision}")
        return Watch(self._keys.watch(_bytes(prefix), (epoch, revision)))

    def lease(self, ttl: float, *, keep: bool = True) -> Lease:
        """A lease that ends `ttl` seconds after it was last kept alive; a thread does that unless told not to."""
        return Lease(self._keys.lease(ttl, keep))

    def revoke(self, lease: int) -> None:
        """Ends a lease by its number, and with it what is tied to it."""
        self._keys.revoke(lease)

    def lock(
        self, name: Bytes, *, value: Bytes = b"", lease: Lease | None = None, ttl: float = 10.0, wait: bool = True
    ) -> Lock:
        """A lock: `with kv.lock("gate") as lock`. `value` is what others see of the holder.

        It is held under `lease`, or under one of its own that lives `ttl` seconds after its last sign of life. Without
        `wait`, `LockHeldError` where another holds it.
        """
        return Lock(self._keys, _bytes(name), _bytes(value), lease or ttl, wait)

    def elect(self, name: Bytes, value: Bytes, *, lease: Lease | None = None, ttl: float = 10.0) -> Lock:
        """An election: `with kv.elect("leader", "host-1:8080") as elected`, entered by who is elected.

        It is a lock whose value says how to reach the holder; `holder` tells others.
        """
        return self.lock(name, value=value, lease=lease, ttl=ttl)

    def holder(self, name: Bytes) -> Entry | None:
        """Who holds a lock, or is elected: their value, their lease, and as `created` their token."""
        return self.get(b"$lock/" + _bytes(name))


def _page(revision: int, rows: list[RawEntry], more: bool) -> Page:
    return Page(revision, [Entry(*row) for row in rows], more)


def _change(raw: RawChange | None) -> Change | None:
    if raw is None:
        return None
    epoch, revision, rows = raw
    return Change(epoch, revision, tuple(_event(row) for row in rows))


def _event(row: tuple[Any, ...]) -> WasPut | WasDeleted:
    return WasDeleted(*row) if len(row) == 1 else WasPut(Entry(*row))
