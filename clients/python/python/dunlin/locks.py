"""Leases, and the locks and elections that depend on them. `client.kv` makes these objects.

`docs/control.md` describes the guarantees.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from . import _arguments, errors
from ._arguments import encoded

if TYPE_CHECKING:
    from ._dunlin import Keys, RawLease, RawLock
    from .kv import Bytes


class Lease:
    """A lease, which ends `ttl` seconds after its last renewal. Keys and locks that depend on it end with it.

    As a context manager, revokes the lease at the end. The client regards a lease as lost before the cluster ends it.
    A program that was paused for longer than `ttl` has lost its lease: `check` then raises `NoLeaseError`.
    """

    def __init__(self, raw: RawLease) -> None:
        self._raw = raw

    @property
    def id(self) -> int:
        """The lease's number."""
        return self._raw.id

    @property
    def ttl(self) -> float:
        """The time to live after each renewal, in seconds."""
        return self._raw.ttl

    @property
    def is_alive(self) -> bool:
        """Whether the lease certainly exists."""
        try:
            self._raw.check()
        except errors.Error:
            return False
        return True

    def check(self) -> None:
        """Raises `NoLeaseError` unless the lease certainly exists."""
        self._raw.check()

    def keep_alive(self) -> None:
        """Renews the lease. Only leases made with `keep=False` need this: a thread renews the others."""
        self._raw.keep_alive()

    def wait_lost(self, timeout: float | None = None) -> str | None:
        """Waits until the lease is lost and returns the reason; `None` after `timeout` seconds."""
        return self._raw.wait_lost(_arguments.timeout(timeout))

    def leave(self) -> int:
        """Stops renewing the lease without revoking it, and returns its number.

        The lease ends unless another handle renews it.
        """
        self._raw.leave()
        return self.id

    def close(self) -> None:
        """Revokes the lease, with all keys and locks that depend on it, and waits for the response.

        Without a connection, waits at most until the lease's time to live has passed.
        """
        try:
            self._raw.close()
        except (errors.DisconnectedError, errors.UnknownOutcomeError):
            # The time to live has passed.
            pass

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            try:
                self.close()
            except errors.Error:
                # The exception of the `with` block is more important than this one.
                pass

    def __repr__(self) -> str:
        return f"Lease({self.id}, ttl={self.ttl})"


class Lock:
    """A lock or an election: one lease at a time holds it, in the order of the requests.

    As a context manager, waits for the lock, and releases it at the end. `token` grows with each
    holder. Pass the token to the resources that the lock protects: they must refuse a token that is
    lower than the highest token so far. Only one thread at a time can acquire or hold a `Lock`;
    another thread receives `BusyError`.
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
        self._acquiring = threading.Lock()

    def acquire(self) -> int:
        """Waits for the lock as long as its lease lives, and returns its token.

        Without `wait`, raises `LockHeldError` if another lease holds the lock. Raises `BusyError` if this object
        already holds the lock, or another thread waits for it.
        """
        if not self._acquiring.acquire(blocking=False):
            raise errors.BusyError("another thread is acquiring the lock: call `client.kv.lock` for each thread")
        try:
            if self.is_held:
                raise errors.BusyError("the lock is held already: call `client.kv.lock` for each thread")
            return self._acquire()
        finally:
            self._acquiring.release()

    def _acquire(self) -> int:
        # Otherwise the token of an earlier holding would make `is_held` true during the wait.
        self._token = 0
        try:
            if self._lease is None or self._ttl is not None:
                self._lease = Lease(self._keys.lease(self._ttl or 0.0, True))
            self._raw = self._keys.lock(self._name, self._value, self._lease._raw)
            if self._is_abandoned:
                raise errors.HandleClosedError("the lock was closed")
            self._token = self._raw.acquire(self._wait)
        except BaseException:
            self._let_go()
            raise
        return self._token

    @property
    def token(self) -> int:
        """The fencing token, which grows with each holder; 0 before the lock is held.

        After a restart of a node without a data directory, tokens begin again at low numbers."""
        return self._token

    @property
    def lease(self) -> Lease:
        """The lease that holds the lock."""
        if self._lease is None:
            raise errors.HandleClosedError("the lock is not held")
        return self._lease

    @property
    def is_held(self) -> bool:
        """Whether the lock is certainly held: its lease is certainly alive."""
        held = self._raw is not None and not self._raw.closed and self._token > 0
        return held and self._lease is not None and self._lease.is_alive

    def proclaim(self, value: Bytes) -> None:
        """Changes the value that other clients see. Raises `LockNotHeldError` if the lock is lost."""
        if self._raw is None:
            raise errors.HandleClosedError("the lock is not held")
        self._raw.proclaim(encoded("value", value))

    def release(self) -> None:
        """Releases the lock. Raises `LockNotHeldError` or `NoLeaseError` if the lock was already lost.

        If the lock depends on a lease of the caller and no node confirms the release, raises `DisconnectedError` or
        `UnknownOutcomeError`: that lease may hold the lock until the lease ends.
        """
        raw = self._raw
        try:
            if raw is not None and not raw.closed:
                raw.release()
                if self._lease is not None and self._ttl is not None:
                    self._lease.close()
        except (errors.DisconnectedError, errors.UnknownOutcomeError):
            # The lease that was made for this lock is not renewed any more. The lock is released when that lease ends.
            if self._ttl is None:
                raise
        finally:
            self._let_go()

    def _abandon(self) -> None:
        """Ends the wait of the thread that acquires the lock."""
        self._is_abandoned = True
        self._let_go()

    def _let_go(self) -> None:
        """Closes the lock, and the lease if it was made for this lock, without waiting for the node."""
        if self._raw is not None:
            self._raw.close()
        if self._lease is not None and self._ttl is not None:
            self._lease._raw.abandon()

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
                # The exception of the `with` block is more important than this one.
                pass

    def __repr__(self) -> str:
        return f"Lock({self._name!r}, token={self._token})"
