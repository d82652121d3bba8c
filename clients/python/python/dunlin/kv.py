"""Keys and values of the cluster, watches, leases, locks and elections.

    kv = client.kv
    revision = kv.put("config/limit", "100")
    try:
        kv.cas("config/limit", revision, "200")
    except errors.KeyMovedError as moved:
        print("somebody wrote it in revision", moved.modified)

Keys are bytes, or text encoded as UTF-8; reads return bytes. `docs/control.md` describes the guarantees.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from . import _arguments, errors
from ._arguments import encoded
from ._asyncio import next_of
from ._dunlin import Keys
from .locks import Lease as Lease
from .locks import Lock as Lock

if TYPE_CHECKING:
    from ._dunlin import Connection, RawChange, RawEntry, RawStep, RawWatch

Bytes: TypeAlias = bytes | str
"""Bytes, or text encoded as UTF-8."""


def prefix_end(prefix: Bytes) -> bytes:
    """The first key after all keys that begin with `prefix`; empty if there is no such key."""
    cut = encoded("prefix", prefix).rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else b""


class Entry(NamedTuple):
    """A key with its value."""

    key: bytes
    value: bytes
    created: int
    """The revision that created the key. For a lock's holder, this number is the token."""
    modified: int
    """The revision of the last write."""
    version: int
    """The number of writes since the key was created."""
    lease: int
    """The lease on which the key depends; 0 for none. The key is deleted when the lease ends."""


class Page(NamedTuple):
    """The keys of a range, in order, or the first of them."""

    revision: int
    """The last revision at the time of the read."""
    entries: list[Entry]
    more: bool
    """Whether the range has more keys after the last entry."""


class WriteResult(NamedTuple):
    """The result of a write."""

    revision: int
    """The revision of the write; the last revision if nothing changed."""
    keys: int
    """The number of keys written or deleted."""


@dataclass(frozen=True, slots=True)
class PutEvent:
    """A key was written."""

    entry: Entry

    @property
    def key(self) -> bytes:
        return self.entry.key

    @property
    def value(self) -> bytes:
        return self.entry.value


@dataclass(frozen=True, slots=True)
class DeleteEvent:
    """A key was deleted, possibly because its lease has ended."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of watched keys in one revision."""

    epoch: int
    revision: int
    events: tuple[PutEvent | DeleteEvent, ...]


# ---- Transactions


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of a transaction. For a missing key, all numbers are 0, and its value is equal to no value."""

    key: Bytes
    what: Literal["version", "created", "modified", "lease", "value"]
    is_: Literal["==", "!=", "<", ">"]
    against: int | Bytes

    def _raw(self) -> tuple[bytes, str, str, int | bytes]:
        against: int | bytes
        if isinstance(self.against, int):
            against = _arguments.count("against", self.against, _arguments.U64_MAX)
        else:
            against = encoded("against", self.against)
        return encoded("key", self.key), self.is_, self.what, against


def unchanged(key: Bytes, revision: int) -> Compare:
    """A comparison: `revision` is the key's last revision, 0 if the key does not exist."""
    return Compare(key, "modified", "==", revision)


def holds(key: Bytes, value: Bytes) -> Compare:
    """A comparison: the key has this value."""
    return Compare(key, "value", "==", value)


@dataclass(frozen=True, slots=True)
class Put:
    """Writes a key."""

    key: Bytes
    value: Bytes
    lease: Lease | int = 0

    def _raw(self) -> RawStep:
        return "put", encoded("key", self.key), encoded("value", self.value), _number(self.lease)


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a key, if it exists."""

    key: Bytes

    def _raw(self) -> RawStep:
        return "delete", encoded("key", self.key), b"", 0


@dataclass(frozen=True, slots=True)
class DeleteRange:
    """Deletes keys from `start` up to and excluding `end`."""

    start: Bytes
    end: Bytes

    def _raw(self) -> RawStep:
        return "delete_range", encoded("start", self.start), encoded("end", self.end), 0


@dataclass(frozen=True, slots=True)
class Get:
    """Reads a key."""

    key: Bytes

    def _raw(self) -> RawStep:
        return "get", encoded("key", self.key), b"", 0


@dataclass(frozen=True, slots=True)
class Range:
    """Reads keys from `start` up to and excluding `end`. A `limit` of 0 means the largest possible number of keys."""

    start: Bytes
    end: Bytes
    limit: int = 0

    def _raw(self) -> RawStep:
        return "range", encoded("start", self.start), encoded("end", self.end), _limit(self.limit)


Step: TypeAlias = Put | Delete | DeleteRange | Get | Range
"""A step of a transaction. Each step sees the changes of earlier steps."""
_STEPS = (Put, Delete, DeleteRange, Get, Range)


class TransactionResult(NamedTuple):
    """The result of a transaction."""

    revision: int
    """The revision of the write; the last revision if nothing changed."""
    succeeded: bool
    """Whether all comparisons held, so that `then` ran and not `otherwise`."""
    results: list[int | Page]
    """For each step, the number of changed keys, or the keys that the step read."""


# ---- Watching


class Watch:
    """A watch of keys, which receives changes, revision by revision. Iterate it with `for` or `async for`, in one
    thread at a time.

    After `DisconnectedError`, the next call continues without missing a change. `CompactedError` ends the watch: the
    next revision has left the history, or revisions have restarted in a new epoch. Then read the keys, and begin a new
    watch from the revision after that of the read.
    """

    def __init__(self, raw: RawWatch) -> None:
        self._raw = raw

    def next(self, timeout: float | None = None) -> Change | None:
        """Waits for the next change; `None` after `timeout` seconds."""
        return _change(self._raw.next(_arguments.timeout(timeout)))

    @property
    def revision(self) -> int:
        """The last revision that the watch has received, even if it changed other keys; 0 before the first revision."""
        return self._raw.revision

    @property
    def closed(self) -> bool:
        return self._raw.closed

    def close(self) -> None:
        """Closes the watch, and ends all waits in it."""
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


def _number(lease: Lease | int) -> int:
    return lease.id if isinstance(lease, Lease) else _arguments.count("lease", lease, _arguments.U64_MAX)


def _ttl(ttl: float) -> float:
    """Checks that a time to live is a number. The node checks its range."""
    return _arguments.seconds("ttl", ttl, least=0)


def _revision(expect: int) -> int:
    return _arguments.count("expect", expect, _arguments.U64_MAX)


def _limit(limit: int, name: str = "limit") -> int:
    return _arguments.count(name, limit, 0xFFFF_FFFF)


def _raw_of(name: str, parts: Iterable[Any], kinds: tuple[type[Any], ...]) -> list[Any]:
    """Converts the comparisons or steps of a transaction to their form in the native module."""
    parts = list(parts)
    for part in parts:
        if not isinstance(part, kinds):
            expected = ", ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"{name}: expected {expected}, not {_arguments.shown(part)}")
    return [part._raw() for part in parts]


def _pairs(puts: Iterable[Any]) -> Iterator[Put]:
    for pair in puts:
        # A string of two characters can also be unpacked, but is not a pair.
        if isinstance(pair, str | bytes) or len(pair) != 2:
            raise TypeError(f"puts: expected pairs of key and value, not {_arguments.shown(pair)}")
        yield Put(*pair)


class Kv:
    """Keys and values of the node's cluster, as `client.kv`. Threads may share the object.

    A command is sent only once. If its response is lost, the call raises `CommandUnknownError`: the node
    may carry out the command even after later reads. Only a conditional write (`cas`, `delete` with `expect`,
    `txn` with `compare`) can be repeated safely. Reads are linearizable, except through `stale`.
    """

    def __init__(self, connection: Connection, stale: bool = False) -> None:
        self._connection = connection
        self._keys = Keys(connection, stale)

    @property
    def stale(self) -> Kv:
        """The same keys with stale reads: the node answers from its own state, without asking the leader."""
        return Kv(self._connection, stale=True)

    def get(self, key: Bytes) -> Entry | None:
        """Reads a key; `None` if it does not exist."""
        found = self._keys.get(encoded("key", key))
        return None if found is None else Entry(*found)

    def put(self, key: Bytes, value: Bytes, *, lease: Lease | int = 0) -> int:
        """Writes a key, and returns the revision. With `lease`, the key is deleted when the lease ends."""
        return self._keys.put(encoded("key", key), encoded("value", value), _number(lease), None)

    def cas(self, key: Bytes, expect: int, value: Bytes, *, lease: Lease | int = 0) -> int:
        """Writes a key if `expect` is the revision of the key's last write (0 for a missing key).

        Otherwise raises `KeyMovedError`.
        """
        return self._keys.put(encoded("key", key), encoded("value", value), _number(lease), _revision(expect))

    def delete(self, key: Bytes, *, expect: int | None = None) -> WriteResult:
        """Deletes a key, if it exists. With `expect`, raises `KeyMovedError` unless it is the key's last revision."""
        expect = None if expect is None else _revision(expect)
        return WriteResult(*self._keys.delete(encoded("key", key), expect))

    def delete_range(self, start: Bytes, end: Bytes) -> WriteResult:
        """Deletes keys from `start` up to and excluding `end`; an empty `end` means all keys from `start` on.

        One call deletes a limited number of keys: repeat the call until it reports 0 keys.
        """
        return WriteResult(*self._keys.delete_range(encoded("start", start), encoded("end", end)))

    def batch(self, puts: Mapping[str, Bytes] | Mapping[bytes, Bytes] | Iterable[tuple[Bytes, Bytes]]) -> int:
        """Writes several keys in one revision."""
        return self.txn(then=_pairs(puts.items() if isinstance(puts, Mapping) else puts)).revision

    def range(self, start: Bytes, end: Bytes = b"", *, limit: int = 0) -> Page:
        """Reads the first keys from `start` up to and excluding `end`; an empty `end` means all keys from `start` on.

        A `limit` of 0 means the largest possible number. The next page starts at the last key with a zero byte
        appended.
        """
        return _page(*self._keys.range(encoded("start", start), encoded("end", end), _limit(limit)))

    def prefix(self, prefix: Bytes, *, page: int = 0) -> Iterator[Entry]:
        """Reads all keys that begin with `prefix`, page by page. Later pages may include changes
        made after the first page was read."""
        start, end, page = encoded("prefix", prefix), prefix_end(prefix), _limit(page, "page")
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
    ) -> TransactionResult:
        """Runs the steps `then` if all comparisons hold, otherwise the steps `otherwise`, in one revision."""
        done = self._keys.transact(
            _raw_of("compare", compare, (Compare,)),
            _raw_of("then", then, _STEPS),
            _raw_of("otherwise", otherwise, _STEPS),
        )
        revision, succeeded, results = done
        pages = [one if isinstance(one, int) else _page(revision, *one) for one in results]
        return TransactionResult(revision, succeeded, pages)

    def revision(self) -> tuple[int, int]:
        """Reads the epoch and the last revision. If the epoch has changed, keys may differ from those read before."""
        return self._keys.revision()

    def watch(self, prefix: Bytes = b"", *, start: tuple[int, int] | Literal["oldest"] | None = None) -> Watch:
        """Watches all keys that begin with `prefix`. `start` is the epoch and the revision of the first change, or
        "oldest"; by default, the watch begins with the next change.

        `revision()` and each `Change` have both numbers. In a later epoch, the same number means another
        revision, and the watch raises `CompactedError`.
        """
        if start is None or start == "oldest":
            return Watch(self._keys.watch(encoded("prefix", prefix), None if start is None else (0, 0)))
        if isinstance(start, int):
            raise ValueError(f"revision {start} needs its epoch, as `revision()` returns it: start=(epoch, {start})")
        if not isinstance(start, tuple | list) or len(start) != 2:
            raise TypeError(f'start={start!r}: expected (epoch, revision), "oldest" or None')
        epoch = _arguments.count("epoch of start", start[0], 0xFFFF_FFFF)
        revision = _arguments.count("revision of start", start[1], _arguments.U64_MAX)
        if revision < 1:
            raise ValueError(f"revision {revision} does not exist: revisions begin with 1")
        return Watch(self._keys.watch(encoded("prefix", prefix), (epoch, revision)))

    def lease(self, ttl: float, *, keep: bool = True) -> Lease:
        """Creates a lease that ends `ttl` seconds after its last renewal. With `keep`, a thread renews it."""
        return Lease(self._keys.lease(_ttl(ttl), keep))

    def revoke(self, lease: int) -> None:
        """Revokes a lease by its number, with all keys and locks that depend on it."""
        self._keys.revoke(_number(lease))

    def lock(
        self, name: Bytes, *, value: Bytes = b"", lease: Lease | None = None, ttl: float = 10.0, wait: bool = True
    ) -> Lock:
        """A lock: `with kv.lock("gate") as lock`. While the lock is held, other clients can read `value`.

        The lock depends on `lease`, or on a new lease with a time to live of `ttl` seconds. Without
        `wait`, acquiring the lock raises `LockHeldError` if another lease holds it.
        """
        if lease is not None and not isinstance(lease, Lease):
            raise TypeError(f"lease={_arguments.shown(lease)}: expected a Lease, not {type(lease).__name__}")
        owner = _ttl(ttl) if lease is None else lease
        return Lock(self._keys, encoded("name", name), encoded("value", value), owner, _arguments.flag("wait", wait))

    def elect(self, name: Bytes, value: Bytes, *, lease: Lease | None = None, ttl: float = 10.0) -> Lock:
        """An election: `with kv.elect("leader", "host-1:8080") as elected` waits until this candidate is elected.

        An election is a lock whose value is usually the leader's address. `holder` returns this value.
        """
        return self.lock(name, value=value, lease=lease, ttl=ttl)

    def holder(self, name: Bytes) -> Entry | None:
        """Reads the holder of a lock or the leader of an election: its value, its lease and, as `created`, its token.
        """
        return self.get(b"$lock/" + encoded("name", name))


def _page(revision: int, rows: list[RawEntry], more: bool) -> Page:
    return Page(revision, [Entry(*row) for row in rows], more)


def _change(raw: RawChange | None) -> Change | None:
    if raw is None:
        return None
    epoch, revision, rows = raw
    return Change(epoch, revision, tuple(_event(row) for row in rows))


def _event(row: tuple[Any, ...]) -> PutEvent | DeleteEvent:
    return DeleteEvent(*row) if len(row) == 1 else PutEvent(Entry(*row))
