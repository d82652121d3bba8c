"""Tests of the asyncio client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import dunlin
import pytest
from conftest import PATIENCE
from dunlin import errors, kv
from dunlin.aio import AsyncPublisher, _Caller
from test_live import level


def run(program) -> None:  # type: ignore[no-untyped-def]
    asyncio.run(asyncio.wait_for(program, PATIENCE))


def test_async_for_loop_yields_records_and_notices(url: str, topic: str) -> None:
    async def program() -> None:
        async with dunlin.aio.connect(url) as client:
            await client.create_topic(topic, retention_bytes=64 << 10)
            first = (await client.publish(topic, b"first")).position
            async with await client.publisher(topic) as publisher:
                assert await publisher.send_many(bytes(1000) for _ in range(5000)) == 5000
            seen = 1
            async for event in client.subscribe(topic, start=first):
                match event:
                    case dunlin.Gap(first=first_missing, records=records):
                        assert first_missing == seen + 1
                        seen += records
                    case dunlin.Record(seq=seq):
                        seen += 1
                        assert seq == seen
                if seen == 5001:
                    break

    run(program())


def test_published_record_wakes_a_pending_read(url: str, topic: str) -> None:
    async def program() -> None:
        async with dunlin.aio.connect(url) as client:
            async with client.subscribe(topic) as events:
                reading = asyncio.ensure_future(anext(aiter(events)))
                await asyncio.sleep(0)
                assert not reading.done()
                await client.publish(topic, b"now", headers={"a": "b"})
                record = await reading
                assert isinstance(record, dunlin.Record) and record.payload == b"now"

    run(program())


def test_cancelled_read_loses_no_record(url: str, topic: str) -> None:
    async def program() -> None:
        async with dunlin.aio.connect(url) as client:
            events = aiter(await client.subscribe(topic))
            for number in range(20):
                waiting = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0.001 * (number % 3))
                waiting.cancel()
                await client.publish(topic, str(number))
                try:
                    # The call may have finished before it was cancelled.
                    record = await waiting
                except asyncio.CancelledError:
                    record = await anext(events)
                assert isinstance(record, dunlin.Record) and record.payload == str(number).encode()

    run(program())


def test_many_async_subscriptions_wait_at_the_same_time(url: str, topic: str) -> None:
    async def read(client: dunlin.aio.AsyncClient, name: str, ready: asyncio.Semaphore) -> list[bytes]:
        seen = []
        async with client.subscribe(name) as events:
            ready.release()
            async for record in events.records():
                seen.append(record.payload)
                if len(seen) == 10:
                    return seen
        raise AssertionError("it ended")

    async def program() -> None:
        async with dunlin.aio.connect(url) as client:
            ready = asyncio.Semaphore(0)
            names = [f"{topic}.{number}" for number in range(50)]
            reading = [asyncio.ensure_future(read(client, name, ready)) for name in names]
            for _ in names:
                await ready.acquire()
            for number in range(10):
                await asyncio.gather(*(client.publish(name, str(number)) for name in names))
            assert await asyncio.gather(*reading) == [[str(number).encode() for number in range(10)]] * 50

    run(program())


def test_close_ends_a_loop_over_the_subscription(url: str, topic: str) -> None:
    async def program() -> None:
        async with dunlin.aio.connect(url) as client:
            events = await client.subscribe(topic)

            async def read() -> list[object]:
                return [event async for event in events]

            reading = asyncio.ensure_future(read())
            await asyncio.sleep(0)
            events.close()
            assert await reading == []

    run(program())


def test_async_client_supports_batches_groups_and_requests(url: str, topic: str) -> None:
    async def program() -> None:
        async with dunlin.aio.connect(url) as client:
            async with await client.publisher(topic) as publisher:
                for number in range(100):
                    await publisher.send(str(number))
                receipt = await publisher.flush()
                assert receipt is not None and receipt.position.seq == 100
            seen: list[bytes] = []
            async with client.subscribe(topic, start="earliest") as events:
                async for batch in events.batches(30):
                    assert isinstance(batch, dunlin.Batch) and len(batch) <= 30
                    seen += batch.payloads()
                    if len(seen) == 100:
                        break
            assert seen == [str(number).encode() for number in range(100)]

            done = 0
            async for job in client.work(topic, "crew", prefetch=5):
                assert isinstance(job, dunlin.Job)
                if job.payload == b"0" and job.attempt == 1:
                    await client.nack(job)
                    continue
                await client.ack(job)
                done += 1
                if done == 100:
                    break

            requests = await client.subscribe(f"{topic}.up")

            async def answer() -> None:
                async for request in requests.records():
                    await client.reply(request, request.payload.upper())

            answering = asyncio.ensure_future(answer())
            replies = await asyncio.gather(*(client.request(f"{topic}.up", f"r{n}", timeout=PATIENCE) for n in range(20)))
            assert [reply.payload for reply in replies] == [f"R{n}".encode() for n in range(20)]
            answering.cancel()

    run(program())


def test_async_book_shows_each_published_change(url: str, topic: str) -> None:
    async def program() -> None:
        async with dunlin.aio.connect(url) as client:
            await client.create_topic(topic, reducer="book")
            await client.publish(topic, level("bid", 100, 1))
            book = await client.book(topic)
            changes = aiter(book.changes())
            for size in range(2, 20):
                waiting = asyncio.ensure_future(anext(changes))
                await client.publish(topic, level("bid", 100, size))
                change = await waiting
                assert isinstance(change, dunlin.Change) and book.bid == (100, size)
            book.close()
            with pytest.raises(StopAsyncIteration):
                await anext(changes)

    run(program())


def test_async_errors_equal_those_of_the_blocking_client(url: str) -> None:
    async def program() -> None:
        with pytest.raises(ConnectionError):
            await dunlin.aio.connect("unix:///nowhere/dunlin.sock")
        async with dunlin.aio.connect(url) as client:
            with pytest.raises(errors.SubjectError):
                await client.subscribe("a..b")
            with pytest.raises(errors.NoTopicError):
                await client.describe("no.such.topic")

    run(program())


def test_closed_async_client_raises_handle_closed(url: str, topic: str) -> None:
    async def program() -> None:
        async with dunlin.aio.connect(url) as client:
            publisher = await client.publisher(topic)
            async with client.subscribe(topic):
                await client.close()
            await client.close()
            await publisher.close()
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: client.publish(topic, b"late"),
                lambda: publisher.publish(b"late"),
                lambda: client.topics(),
                lambda: client.kv.get("key"),
            ]
            for call in calls:
                with pytest.raises(errors.HandleClosedError):
                    await call()
            with pytest.raises(errors.HandleClosedError):
                async with client.kv.lock("gate"):
                    pass

    run(program())


def test_client_can_reply_to_its_own_pending_requests(url: str, topic: str) -> None:
    async def echo_by_itself() -> None:
        async with dunlin.aio.connect(url) as client, client.subscribe(topic) as requests:

            async def serve() -> None:
                async for one in requests:
                    assert isinstance(one, dunlin.Record)
                    await client.reply(one, one.payload)

            serving = asyncio.ensure_future(serve())
            calls = (client.request(topic, str(number), timeout=PATIENCE) for number in range(100))
            replies = await asyncio.gather(*calls)
            assert [reply.payload for reply in replies] == [str(number).encode() for number in range(100)]
            serving.cancel()

    asyncio.run(echo_by_itself())


def test_cancelled_calls_free_their_threads(url: str, topic: str) -> None:
    async def cancelled() -> None:
        async with dunlin.aio.connect(url) as client, client.subscribe(topic) as requests:
            asking = [asyncio.ensure_future(client.request(topic, b"?", timeout=1000)) for _ in range(1200)]
            # The largest number of concurrent waits.
            arriving = aiter(requests)
            for _ in range(dunlin.aio._REQUESTS_MAX):
                await anext(arriving)
            for one in asking:
                one.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            assert await asyncio.wait_for(client.kv.get("nothing"), PATIENCE) is None

    asyncio.run(cancelled())


def test_cancelled_release_still_frees_locks_and_leases(url: str, topic: str) -> None:
    async def program() -> None:
        async with dunlin.aio.connect(url) as client, dunlin.aio.connect(url) as other:

            def cancel_soon() -> None:
                task = asyncio.current_task()
                assert task is not None
                asyncio.get_running_loop().call_soon(task.cancel)

            async def hold_lock() -> None:
                async with client.kv.lock(topic, ttl=10 * PATIENCE):
                    cancel_soon()

            async def hold_lease() -> None:
                async with client.kv.lease(10 * PATIENCE) as lease:
                    await client.kv.put(f"{topic}/held", b"", lease=lease)
                    cancel_soon()

            async with other.kv.watch(f"{topic}/") as changes:
                for _ in range(20):
                    # A kept task keeps its lock and its lease, so that the garbage collector cannot release them.
                    tasks = [asyncio.create_task(hold_lock()), asyncio.create_task(hold_lease())]
                    await asyncio.wait(tasks)
                    assert all(task.cancelled() for task in tasks)
                    async with other.kv.lock(topic):
                        pass
                    written, deleted = await anext(changes), await anext(changes)
                    assert isinstance(written.events[0], kv.PutEvent)
                    assert isinstance(deleted.events[0], kv.DeleteEvent)

    run(program())


def test_cancelled_close_still_closes_publishers_and_clients(url: str, topic: str) -> None:
    async def program() -> None:
        client = await dunlin.aio.connect(url)
        publisher = await client.publisher(topic)
        for handle in (publisher, client):
            closing = asyncio.create_task(handle.close())
            asyncio.get_running_loop().call_soon(closing.cancel)
            await asyncio.wait([closing])
            assert closing.cancelled()
            with pytest.raises(errors.HandleClosedError):
                await publisher.publish(b"late")
        assert client.sync.closed

    run(program())


class BusyPublisher:
    """A publisher whose `publish` waits until the event loop continues, as it waits for a node that is paused."""

    unanswered_bytes = 0

    def __init__(self) -> None:
        self.is_publishing = threading.Event()
        self.has_continued = threading.Event()
        self.sent: list[bytes] = []

    def publish(self, payload: bytes) -> None:
        self.is_publishing.set()
        assert self.has_continued.wait(PATIENCE)

    def send(self, payload: bytes) -> None:
        # The calls of a publisher take turns.
        if self.is_publishing.is_set() and not self.has_continued.is_set():
            assert threading.current_thread() is not threading.main_thread(), "the event loop waits"
            assert self.has_continued.wait(PATIENCE)
        self.sent.append(payload)

    def close(self) -> None:
        self.publish(b"")


def test_send_during_a_waiting_publish_keeps_the_loop_running() -> None:
    async def program() -> None:
        raw: Any = BusyPublisher()
        caller = _Caller()
        publisher = AsyncPublisher(caller, raw)
        await publisher.send(b"before")
        publishing = asyncio.create_task(publisher.publish(b"waits"))
        await asyncio.to_thread(raw.is_publishing.wait)
        sending = [asyncio.create_task(publisher.send(str(number).encode())) for number in range(20)]
        await asyncio.sleep(0)
        raw.has_continued.set()
        await asyncio.gather(publishing, *sending)
        assert raw.sent == [b"before", *(str(number).encode() for number in range(20))]
        caller.end()

    run(program())


def test_send_while_close_waits_does_not_block_the_event_loop() -> None:
    async def program() -> None:
        raw: Any = BusyPublisher()
        caller = _Caller()
        publisher = AsyncPublisher(caller, raw)
        closing = asyncio.create_task(publisher.close())
        await asyncio.to_thread(raw.is_publishing.wait)
        sending = asyncio.create_task(publisher.send(b"late"))
        await asyncio.sleep(0)
        raw.has_continued.set()
        await asyncio.gather(closing, sending)
        assert raw.sent == [b"late"]
        caller.end()

    run(program())
