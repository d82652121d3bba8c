"""Tests of keys and values, watches, leases, locks and elections, with a real node."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import dunlin
import pytest
from conftest import PATIENCE, Node, until
from dunlin import errors, kv
from test_async import run


def test_key_is_put_read_swapped_and_deleted(client: dunlin.Client, topic: str) -> None:
    key = f"{topic}/a"
    assert client.kv.get(key) is None
    first = client.kv.put(key, "1")
    with pytest.raises(errors.KeyMovedError) as moved:
        client.kv.cas(key, first + 1000, "2")
    assert (moved.value.modified, moved.value.code, moved.value.retry) == (first, "KEY_MOVED", "no")
    second = client.kv.cas(key, first, b"2")
    entry = client.kv.get(key)
    assert entry == kv.Entry(key.encode(), b"2", first, second, 2, 0)
    assert client.kv.stale.get(key) == entry
    with pytest.raises(errors.KeyMovedError):
        client.kv.cas(key, 0, "new")
    with pytest.raises(errors.KeyMovedError):
        client.kv.delete(key, expect=first)
    assert client.kv.delete(key, expect=second).keys == 1
    assert client.kv.delete(key).keys == 0
    with pytest.raises(errors.BadKeyError):
        client.kv.put("", "nameless")
    with pytest.raises(errors.BadKeyError):
        client.kv.put("$lock/mine", "the system's")
    with pytest.raises(errors.KeyTooLargeError) as large:
        client.kv.put("k" * 5000, "")
    assert large.value.numbers[:2] == (5000, 4096)


def test_key_ranges_are_read_in_pages(client: dunlin.Client, topic: str) -> None:
    keys = [f"{topic}/{number:03}" for number in range(250)]
    client.kv.batch({key: "v" for key in keys})
    assert client.kv.batch([(f"{topic}0", "after")]) > 0
    page = client.kv.range(f"{topic}/", f"{topic}0", limit=100)
    assert page.more and [entry.key.decode() for entry in page.entries] == keys[:100]
    assert len({entry.modified for entry in page.entries}) == 1, "one revision"
    assert [entry.key.decode() for entry in client.kv.prefix(f"{topic}/", page=33)] == keys
    assert client.kv.delete_range(f"{topic}/", kv.prefix_end(f"{topic}/")).keys == 250
    assert list(client.kv.prefix(f"{topic}/")) == []
    assert kv.prefix_end(b"a\xff\xff") == b"b" and kv.prefix_end(b"\xff") == b"" and kv.prefix_end("") == b""


def test_transaction_runs_exactly_one_branch(client: dunlin.Client, topic: str) -> None:
    a, b = f"{topic}/a", f"{topic}/b"
    compare = [kv.unchanged(a, 0), kv.Compare(b, "version", "<", 1)]
    then: list[kv.Step] = [kv.Put(a, "1"), kv.Put(b, "2"), kv.Get(a)]
    otherwise: list[kv.Step] = [kv.Range(topic, topic + "0", limit=1), kv.Delete(a), kv.DeleteRange(topic, topic + "0")]
    done = client.kv.txn(compare, then, otherwise)
    assert done.succeeded and done.results[:2] == [1, 1]
    (read,) = done.results[2:]
    assert isinstance(read, kv.Page) and read.entries[0].value == b"1" and not read.more
    again = client.kv.txn(compare, then, otherwise)
    assert not again.succeeded and again.revision == done.revision + 1
    (read, *counts) = again.results
    assert isinstance(read, kv.Page) and [entry.key for entry in read.entries] == [a.encode()] and read.more
    assert counts == [1, 1]
    client.kv.put(a, "x")
    assert client.kv.txn([kv.holds(a, "x")]).succeeded
    assert not client.kv.txn([kv.holds(a, "y")]).succeeded
    with pytest.raises(ValueError, match="cannot be compared"):
        client.kv.txn([kv.Compare(a, "version", "==", "x")])


def test_watch_delivers_every_revision_from_its_start(client: dunlin.Client, topic: str) -> None:
    with client.kv.watch(f"{topic}/") as now:
        first = client.kv.put(f"{topic}/a", "1")
        client.kv.put("other" + topic, "2")
        client.kv.batch([(f"{topic}/a", "3"), (f"{topic}/b", "4")])
        client.kv.delete(f"{topic}/a")
        changes = [next(now) for _ in range(3)]
        assert now.next(0.01) is None
    assert [change.revision for change in changes] == [first, first + 2, first + 3]
    assert [event.key.decode()[-1] for event in changes[1].events] == ["a", "b"]
    match changes[0].events, changes[2].events:
        case (kv.PutEvent(entry),), (kv.DeleteEvent(key),):
            assert (entry.value, key.decode()) == (b"1", f"{topic}/a")
        case other:
            raise AssertionError(other)
    assert list(now) == [], "it was closed"
    epoch, _ = client.kv.revision()
    with client.kv.watch(f"{topic}/", start=(epoch, first + 1)) as later:
        assert [next(later), next(later)] == changes[1:]
    with client.kv.watch(f"{topic}/", start="oldest") as oldest:
        assert next(oldest) == changes[0]
    with pytest.raises(errors.AheadError):
        client.kv.watch(start=(epoch, first + 1_000_000))
    with pytest.raises(ValueError):
        client.kv.watch(start=(epoch, 0))
    with pytest.raises(ValueError, match="needs its epoch"):
        client.kv.watch(start=first)  # type: ignore[arg-type]
    with client.kv.watch(start=(epoch - 1, first)) as before, pytest.raises(errors.CompactedError):
        next(before)


def test_compacted_error_gives_the_oldest_watchable_revision(tmp_path_factory: pytest.TempPathFactory) -> None:
    node = Node(tmp_path_factory.mktemp("short"), 20_000, "--kv-history-bytes", "64KiB")
    node.start()
    try:
        with dunlin.connect(node.url) as client:
            for _ in range(200):
                last = client.kv.put("a", bytes(2000))
            epoch, _ = client.kv.revision()
            with client.kv.watch(start=(epoch, 2)) as watch, pytest.raises(errors.CompactedError) as compacted:
                next(watch)
            oldest = compacted.value.oldest
            assert 100 < oldest <= last
            with client.kv.watch(start=(epoch, oldest)) as watch:
                assert next(watch).revision == oldest
    finally:
        node.kill()


def test_watch_raises_when_revisions_restart_in_a_new_epoch(brittle_node: Node) -> None:
    with dunlin.connect(brittle_node.url) as client:
        for number in range(3):
            client.kv.put("a", str(number))
        epoch, _ = client.kv.revision()
        watch = client.kv.watch("a", start=(epoch, 2))
        assert [next(watch).revision, next(watch).revision] == [2, 3]
        brittle_node.kill()
        brittle_node.start()
        end = time.monotonic() + PATIENCE
        while True:
            try:
                assert time.monotonic() < end and watch.next(1) is None
            except dunlin.DisconnectedError:
                continue
            except errors.CompactedError as anew:
                assert "restarted" in str(anew)
                break


def test_ending_a_renewed_lease_deletes_its_keys(client: dunlin.Client, topic: str) -> None:
    with client.kv.lease(1.0) as lease:
        client.kv.put(topic, "here", lease=lease)
        # The wait is several times as long as the time to live.
        assert lease.wait_lost(3.5) is None
        lease.check()
        entry = client.kv.get(topic)
        assert entry is not None and entry.lease == lease.id
    assert client.kv.get(topic) is None
    assert not lease.is_alive
    unkept = client.kv.lease(1.0, keep=False)
    client.kv.put(topic, "here", lease=unkept.id)
    unkept.keep_alive()
    assert unkept.wait_lost(PATIENCE) is not None and not unkept.is_alive
    with pytest.raises(errors.NoLeaseError) as lost:
        unkept.check()
    assert lost.value.lease == unkept.id
    until(lambda: client.kv.get(topic) is None)
    with pytest.raises(errors.NoLeaseError):
        client.kv.put(topic, "late", lease=unkept)
    left = client.kv.lease(60.0)
    number = left.leave()
    client.kv.put(topic, "still", lease=number)
    client.kv.revoke(number)
    assert client.kv.get(topic) is None


def test_other_clients_do_not_see_keys_of_a_closed_lease(url: str, client: dunlin.Client, topic: str) -> None:
    with dunlin.connect(url) as other:
        for _ in range(20):
            with client.kv.lease(60.0) as lease:
                client.kv.put(topic, "here", lease=lease)
            assert other.kv.get(topic) is None
            with client.kv.lock(topic, ttl=60.0) as lock:
                client.kv.put(topic, "here", lease=lock.lease)
            assert other.kv.get(topic) is None
        lease.close()
        with pytest.raises(KeyError), client.kv.lease(60.0) as lease:
            client.kv.put(topic, "here", lease=lease)
            raise KeyError(topic)
        assert other.kv.get(topic) is None


def test_lease_is_lost_when_its_node_is_killed(brittle_node: Node) -> None:
    with dunlin.connect(brittle_node.url) as client, client.kv.lease(2.0) as lease:
        assert lease.is_alive
        brittle_node.kill()
        assert lease.wait_lost(PATIENCE) is not None
        with pytest.raises(errors.NoLeaseError):
            lease.check()


def test_lock_has_one_holder_and_a_growing_token(url: str, topic: str) -> None:
    inside, most, tokens = 0, 0, list[int]()
    guard = threading.Lock()

    def worker() -> None:
        nonlocal inside, most
        with dunlin.connect(url) as client:
            for _ in range(5):
                with client.kv.lock(topic, value="me") as lock:
                    with guard:
                        inside += 1
                        most = max(most, inside)
                        tokens.append(lock.token)
                    assert lock.is_held
                    time.sleep(0.002)
                    with guard:
                        inside -= 1

    workers = [threading.Thread(target=worker) for _ in range(4)]
    for one in workers:
        one.start()
    for one in workers:
        one.join(PATIENCE)
    assert (most, len(tokens)) == (1, 20)
    assert tokens == sorted(set(tokens))


def test_error_for_a_held_lock_names_the_current_holder(url: str, client: dunlin.Client, topic: str) -> None:
    with dunlin.connect(url) as other, client.kv.lease(60.0) as lease:
        with client.kv.elect(topic, "host-1", lease=lease) as elected:
            with pytest.raises(errors.LockHeldError) as held, other.kv.lock(topic, wait=False):
                raise AssertionError("it was held")
            assert (held.value.holder, held.value.token) == (lease.id, elected.token)
            holder = other.kv.holder(topic)
            assert holder is not None
            assert (holder.value, holder.lease, holder.created) == (b"host-1", lease.id, elected.token)
            elected.proclaim("host-2")
            holder = other.kv.holder(topic)
            assert holder is not None and holder.value == b"host-2"
        assert other.kv.holder(topic) is None
        # The lock is lost while it is held; releasing it raises an exception.
        with pytest.raises((errors.LockNotHeldError, errors.NoLeaseError)):
            with client.kv.lock(topic, lease=lease) as lock:
                client.kv.revoke(lease.id)
                with pytest.raises(errors.RefusedError):
                    lock.proclaim("nobody")
        with other.kv.lock(topic) as lock:
            assert lock.token > elected.token


def test_asyncio_client_supports_all_key_operations(url: str, topic: str) -> None:
    async def program() -> None:
        async with dunlin.aio.connect(url) as client:
            keys = client.kv
            async with keys.watch(f"{topic}/") as changes:
                waiting = asyncio.ensure_future(anext(changes))
                await asyncio.sleep(0)
                revision = await keys.put(f"{topic}/a", "1")
                change = await waiting
                assert change.revision == revision
            async for change in keys.watch(f"{topic}/", start=(change.epoch, revision)):
                assert change.events[0].key == f"{topic}/a".encode()
                break
            with pytest.raises(errors.KeyMovedError):
                await keys.cas(f"{topic}/a", 0, "2")
            await keys.batch((f"{topic}/{number}", "x") for number in range(20))
            assert len([entry async for entry in keys.prefix(f"{topic}/", page=7)]) == 21
            assert (await keys.txn([kv.unchanged(f"{topic}/a", revision)], [kv.Delete(f"{topic}/a")])).succeeded
            assert await keys.get(f"{topic}/a") is None and await keys.stale.get(f"{topic}/1") is not None
            async with keys.lease(10.0) as lease:
                await keys.put(f"{topic}/tied", "x", lease=lease)
            assert await keys.get(f"{topic}/tied") is None
            assert (await keys.delete_range(f"{topic}/", f"{topic}0")).keys == 20
            assert not lease.is_alive
            assert (await keys.range(f"{topic}/", f"{topic}0")).entries == []

    run(program())


def test_more_coroutines_than_threads_can_wait_for_a_lock(url: str, topic: str) -> None:
    async def program() -> None:
        inside = 0
        tokens = []
        async with dunlin.aio.connect(url) as client, client.kv.lease(60.0) as lease:

            async def task(number: int) -> None:
                nonlocal inside
                async with client.kv.lease(60.0) as own, client.kv.lock(topic, lease=own) as lock:
                    inside += 1
                    assert inside == 1
                    tokens.append(lock.token)
                    await client.kv.put(f"{topic}/{number}", "x", lease=lease)
                    inside -= 1

            await asyncio.gather(*(task(number) for number in range(40)))
        assert len(tokens) == 40 and tokens == sorted(set(tokens))

    run(program())


def test_cancelled_lock_request_is_removed_from_the_queue(url: str, topic: str) -> None:
    async def program() -> None:
        async with dunlin.aio.connect(url) as client, client.kv.lease(60.0) as lease:
            async with client.kv.lock(topic):
                breaking_off = client.kv.lock(topic, lease=lease, value="gone")
                entering = asyncio.ensure_future(breaking_off.__aenter__())
                # After this loop, the other call usually waits. The assertions hold even if it does not wait.
                for _ in range(20):
                    await client.kv.get(topic)
                entering.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await entering
            async with client.kv.lock(topic) as lock:
                assert lock.is_held

    run(program())


def test_entering_an_open_async_handle_again_raises_busy_error(url: str, topic: str) -> None:
    async def program() -> None:
        async with dunlin.aio.connect(url) as client:
            opening: list[Any] = [dunlin.aio.connect(url), client.kv.lease(60.0), client.subscribe(topic)]
            for call in opening:
                async with call:
                    with pytest.raises(errors.BusyError):
                        await call.__aenter__()
            # The refused `async with` has not released the first lock, which can be acquired again after its end.
            repeated = client.kv.lock(topic)
            for _ in range(2):
                async with repeated as lock:
                    with pytest.raises(errors.BusyError):
                        await repeated.__aenter__()
                    assert lock.is_held

    run(program())


def test_acquiring_a_held_lock_raises_a_busy_error(client: dunlin.Client, topic: str) -> None:
    lock = client.kv.lock(topic)
    for _ in range(2):
        with lock:
            with pytest.raises(errors.BusyError):
                lock.acquire()
            assert lock.is_held


def test_cancelled_lock_request_can_be_repeated(url: str, topic: str) -> None:
    async def program() -> None:
        async with dunlin.aio.connect(url) as client:
            repeated = client.kv.lock(topic)
            async with client.kv.lock(topic):
                entering = asyncio.ensure_future(repeated.__aenter__())
                # After this loop, the call has usually begun. The assertions hold even if it has not begun.
                for _ in range(20):
                    await client.kv.get(topic)
                entering.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await entering
            async with repeated as lock:
                assert lock.is_held and lock.token > 0

    run(program())


def test_lock_is_not_held_while_it_is_acquired_again(client: dunlin.Client, topic: str) -> None:
    seen: list[tuple[bool, int]] = []
    lock = client.kv.lock(topic)
    keys: Any = lock._keys

    class WatchedLock:
        def __init__(self, raw: Any) -> None:
            self._raw = raw

        def acquire(self, wait: bool) -> Any:
            seen.append((lock.is_held, lock.token))
            return self._raw.acquire(wait)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._raw, name)

    class WatchedKeys:
        def lease(self, ttl: float, keep: bool) -> Any:
            return keys.lease(ttl, keep)

        def lock(self, name: bytes, value: bytes, lease: Any) -> Any:
            return WatchedLock(keys.lock(name, value, lease))

    watched: Any = WatchedKeys()
    lock._keys = watched
    for _ in range(2):
        with lock:
            assert lock.is_held and lock.token > 0
    assert seen == [(False, 0), (False, 0)]


def test_unconfirmed_release_under_a_shared_lease_is_an_error(brittle_node: Node) -> None:
    with dunlin.connect(brittle_node.url) as client:
        lease = client.kv.lease(60.0)
        shared, own = client.kv.lock("shared", lease=lease), client.kv.lock("own", ttl=60.0)
        shared.acquire()
        own.acquire()
        brittle_node.kill()
        with pytest.raises((errors.DisconnectedError, errors.UnknownOutcomeError)):
            shared.release()
        # The lease of this lock is not renewed any more, so the lock is released when that lease ends.
        own.release()
        assert not shared.is_held and not own.is_held
        lease.leave()
