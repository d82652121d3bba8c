"""Tests of invalid arguments. Both clients refuse each of them before they send a request; the error names the
argument.
"""

from __future__ import annotations

import array
import asyncio
import ctypes
import inspect
import math
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dunlin
import numpy as np
import pytest
from conftest import PATIENCE
from dunlin import errors, kv
from dunlin._arguments import flag
from dunlin.tasks import Limit, NewTask, Retry
from dunlin.worker import SLOTS_MAX, _RunningTasks, encode

NOT_BYTES = [100, True, 3.5, [1, 2, 3], None]
NAN, INF = math.nan, math.inf

Call = Callable[[Any, Any], Any]


def refused(given: Any, call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    """Expects an exception with this text. Its class must be `kind`, and not a subclass such as `UnicodeEncodeError`.
    """
    with pytest.raises(kind) as caught:
        call()
    assert text in str(caught.value), f"{given!r}: {caught.value}"
    assert caught.type is kind, f"{given!r}: {caught.value!r}"


def both(url: str, given: Any, call: Call, kind: type[Exception], text: str) -> None:
    """Expects the same error from the blocking client and from the asyncio client."""
    with dunlin.connect(url) as client:
        refused(given, lambda: call(client, given), kind, text)

    async def program() -> None:
        async with dunlin.aio.connect(url) as client:
            done = call(client, given)
            if inspect.isawaitable(done):
                await done

    refused(given, lambda: asyncio.run(program()), kind, text)


KEY_CALLS: list[tuple[str, Call]] = [
    ("key", lambda client, given: client.kv.put(given, "v")),
    ("value", lambda client, given: client.kv.put("config/limit", given)),
    ("key", lambda client, given: client.kv.get(given)),
    ("key", lambda client, given: client.kv.delete(given)),
    ("value", lambda client, given: client.kv.cas("config/limit", 0, given)),
    ("value", lambda client, given: client.kv.batch({"config/limit": given})),
    ("value", lambda client, given: client.kv.txn(then=[kv.Put("config/limit", given)])),
    ("key", lambda client, given: client.kv.txn([kv.unchanged(given, 0)])),
    ("start", lambda client, given: client.kv.range(given)),
    ("end", lambda client, given: client.kv.delete_range("a", given)),
    ("prefix", lambda client, given: client.kv.watch(given)),
    ("name", lambda client, given: client.kv.lock(given)),
    ("value", lambda client, given: client.kv.elect("leader", given)),
    ("name", lambda client, given: client.kv.holder(given)),
]


@pytest.mark.parametrize(("name", "call"), KEY_CALLS)
def test_keys_and_values_must_be_text_or_bytes(url: str, name: str, call: Call) -> None:
    for given in NOT_BYTES:
        expected = f"{name}={given!r}: expected str, bytes, bytearray or memoryview, not {type(given).__name__}"
        both(url, given, call, TypeError, expected)
    both(url, "\ud800", call, ValueError, f"{name}='\\ud800': UTF-8 cannot encode")


def test_kv_put_stores_text_and_buffers_and_refuses_numbers(client: dunlin.Client, topic: str) -> None:
    with pytest.raises(TypeError):
        client.kv.put(topic, 100)  # type: ignore[arg-type]
    assert client.kv.get(topic) is None
    for given in ("é", "é".encode(), bytearray("é".encode()), memoryview("é".encode())):
        client.kv.put(topic, given)  # type: ignore[arg-type]
        entry = client.kv.get(topic)
        assert entry is not None and entry.value == "é".encode()


def test_invalid_record_keys_and_credentials_raise_type_errors(client: dunlin.Client, url: str, topic: str) -> None:
    client.create_topic(topic, reducer="last")
    client.publish(topic, b"value", key=b"\1\2\3")
    with client.table(topic) as table:
        assert table[bytearray(b"\1\2\3")] == b"value"  # type: ignore[index]
        refused(0, lambda: table[[1, 2, 3]], TypeError, "key=[1, 2, 3]: expected str")  # type: ignore[index]
    for name in ("token", "password"):
        given: dict[str, Any] = {name: [1, 2, 3], "user": "ann"}
        refused(given, lambda given=given: dunlin.connect(url, **given), TypeError, f"{name}: expected str, bytes")  # type: ignore[misc]
    refused(5, lambda: NewTask("k", idempotency_key=5), TypeError, "idempotency_key=5: expected str")  # type: ignore[arg-type]


KEY_VALUES: list[tuple[Any, Call, type[Exception], str]] = [
    (-1, lambda client, given: client.kv.cas("a", given, "v"), ValueError, "expect=-1 is not a whole number"),
    ("x", lambda client, given: client.kv.cas("a", given, "v"), TypeError, "expect='x' is not a whole number"),
    (2**64, lambda client, given: client.kv.delete("a", expect=given), ValueError, f"expect={2**64} is not"),
    (-1, lambda client, given: client.kv.put("a", "v", lease=given), ValueError, "lease=-1 is not a whole number"),
    (-1, lambda client, given: client.kv.revoke(given), ValueError, "lease=-1 is not a whole number"),
    (-1, lambda client, given: client.kv.range("a", "b", limit=given), ValueError, "limit=-1 is not a whole number"),
    (NAN, lambda client, given: client.kv.lease(given), ValueError, "ttl=nan is not from 0 to"),
    (INF, lambda client, given: client.kv.lock("a", ttl=given), ValueError, "ttl=inf is not from 0 to"),
    ("ab", lambda client, given: client.kv.watch("a", start=given), TypeError, "start='ab': expected (epoch, revision)"),
    (2**70, lambda client, given: client.kv.watch("a", start=(given, 1)), ValueError, "epoch of start="),
    (1, lambda client, given: client.kv.txn([given]), TypeError, "compare: expected Compare, not 1"),
    ("ab", lambda client, given: client.kv.txn(then=given), TypeError, "then: expected Put, Delete"),
    (["ab"], lambda client, given: client.kv.batch(given), TypeError, "puts: expected pairs of key and value, not 'ab'"),
    (-1, lambda client, given: client.kv.txn([kv.unchanged("a", given)]), ValueError, "against=-1 is not"),
]


@pytest.mark.parametrize(("given", "call", "kind", "text"), KEY_VALUES)
def test_invalid_arguments_of_kv_methods_are_refused(
    url: str, given: Any, call: Call, kind: type[Exception], text: str
) -> None:
    both(url, given, call, kind, text)


def objects() -> Any:
    """An array of Python objects. The bytes of its buffer are the objects' addresses."""
    return np.array([b"a", 1], dtype=object)


def masked() -> Any:
    """An array of NumPy with a mask."""
    ma: Any = np.ma
    return ma.array([1, 2], mask=[True, False])


BUFFERS: list[tuple[Callable[[], Any], str]] = [
    (objects, "cannot be a buffer of Python objects"),
    (lambda: memoryview(objects()), "cannot be a buffer of Python objects"),
    (lambda: np.zeros(2, [("price", "<i8"), ("note", object)]), "cannot be a buffer of Python objects"),
    (lambda: memoryview(bytes(8)).cast("P"), "cannot be a buffer of pointers"),
    (lambda: ctypes.c_char_p(b"text"), "cannot be a buffer of pointers"),
    (lambda: ctypes.pointer(ctypes.c_int(1)), "cannot be a buffer of pointers"),
    (lambda: array.array("u", "text"), "cannot be an array of characters"),
    (masked, "cannot be a masked array"),
    (lambda: np.array(["2026-01-01"], "datetime64[D]"), "cannot be a NumPy time, whose unit would be lost"),
    (lambda: np.timedelta64(5, "s"), "cannot be a NumPy time, whose unit would be lost"),
]

PAYLOAD_CALLS: list[tuple[str, Call]] = [
    ("a payload", lambda client, given: client.publish("buffers", given)),
    ("a key", lambda client, given: client.publish("buffers", b"x", key=given)),
    ("the value of header", lambda client, given: client.publish("buffers", b"x", headers={"h": given})),
    ("a payload", lambda client, given: client.request("buffers", given)),
    ("a payload", lambda client, given: client.reply("_INBOX.buffers", given)),
]


@pytest.mark.parametrize(("make", "text"), BUFFERS)
def test_buffers_of_unsupported_types_are_refused_as_payloads(
    client: dunlin.Client, url: str, topic: str, make: Callable[[], Any], text: str
) -> None:
    client.create_topic(topic)
    given = make()
    for name, call in PAYLOAD_CALLS:
        both(url, given, call, TypeError, text)
        both(url, given, call, TypeError, name)

    async def call_async_publisher(name: str, argument: Any) -> None:
        async with dunlin.aio.connect(url) as client, await client.publisher(topic) as out:
            await getattr(out, name)(argument)

    refused(given, lambda: client.send(topic, given), TypeError, text)
    calls: list[tuple[str, Any]] = [("publish", given), ("send", given), ("send_rows", given)]
    with client.publisher(topic) as out:
        for name, argument in [*calls, ("send_many", [given]), ("publish_batch", [given])]:
            refused(given, partial(getattr(out, name), argument), TypeError, text)
            refused(given, partial(asyncio.run, call_async_publisher(name, argument)), TypeError, text)
    assert client.describe(topic).logs[0].last_seq == 0


def test_memoryviews_of_python_objects_are_refused(url: str, client: dunlin.Client) -> None:
    given: Any = memoryview(objects())
    for name, call in KEY_CALLS:
        both(url, given, call, TypeError, f"{name} cannot be a buffer of Python objects")
    text = "a payload or result cannot be a buffer of Python objects"
    refused(given, lambda: client.tasks.submit("t", "k", given), TypeError, text)
    refused(given, lambda: encode(given), TypeError, text)
    refused(given, lambda: NewTask("k", idempotency_key=given), TypeError, "idempotency_key cannot be a buffer")


class Frame:
    """A table like that of pandas, whose iterator returns the names of the columns."""

    def to_records(self) -> object:
        return object()

    def __iter__(self) -> Iterator[str]:
        return iter(["price", "size"])


def test_dicts_tables_and_bytes_are_refused_as_payload_lists(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic)
    with client.publisher(topic) as publisher:
        out: Any = publisher
        several: list[Any] = [{"a": b"1"}, Frame(), masked()]
        for given in several:
            expected = f"expected several payloads, not {type(given).__name__}"
            refused(given, lambda given=given: out.send_many(given), TypeError, expected)  # type: ignore[misc]
            refused(given, lambda given=given: out.publish_batch(given), TypeError, expected)  # type: ignore[misc]
        rows: list[Any] = [b"abc", bytearray(b"abc"), memoryview(b"abc"), "abc"]
        for given in rows:
            expected = f"expected an array of rows, not {type(given).__name__}"
            refused(given, lambda given=given: out.send_rows(given), TypeError, expected)  # type: ignore[misc]
        refused(5, lambda: out.send_rows(5), TypeError, "rows must be an array of rows, not int")
    assert client.describe(topic).logs[0].last_seq == 0


UNINTENDED: list[tuple[Any, Call, type[Exception], str]] = [
    (True, lambda client, given: client.subscribe("a", start=given), ValueError, "start must be"),
    (5, lambda client, given: client.kv.lock("a", lease=given), TypeError, "lease=5: expected a Lease, not int"),
    ("no", lambda client, given: client.kv.lock("a", wait=given), TypeError, "wait='no': expected True or False"),
    (
        "no",
        lambda client, given: client.work("a", "g", drop_dead_letters=given),
        TypeError,
        "drop_dead_letters='no': expected True or False, not str",
    ),
    ("", lambda client, given: client.create_topic("a", durable=given), ValueError, "use memory, written or synced"),
    (-1, lambda client, given: client.region("w", given), ValueError, "region=-1 is not a whole number"),
    (True, lambda client, given: client.region("w", given), ValueError, "region=True is not a whole number"),
]


@pytest.mark.parametrize(("given", "call", "kind", "text"), UNINTENDED)
def test_arguments_of_a_similar_type_are_refused(
    url: str, given: Any, call: Call, kind: type[Exception], text: str
) -> None:
    both(url, given, call, kind, text)


def test_booleans_of_numpy_count_as_true_or_false() -> None:
    given: list[Any] = [np.True_, np.False_]
    assert [flag("wait", one) is bool(one) for one in given] == [True, True]


def test_world_coordinates_must_be_sequences_of_numbers(client: dunlin.Client) -> None:
    world: Any = client.world("w")
    points: list[Any] = ["123", b"\1\2\3", {1.0, 2.0, 3.0}, {1: 2}, 5]
    for given in points:
        expected = f"position={given!r}: expected numbers, not {type(given).__name__}"
        refused(given, lambda given=given: world.command(1, position=given), TypeError, expected)  # type: ignore[misc]
        refused(given, lambda given=given: world.spawn(1, position=given), TypeError, expected)  # type: ignore[misc]
    flags: list[Any] = [True, np.True_]
    for given in flags:
        velocity = (1.0, 2.0, given)
        expected = f"a number of velocity={given!r}: expected a number, not {type(given).__name__}"
        refused(given, lambda velocity=velocity: world.command(1, velocity=velocity), TypeError, expected)  # type: ignore[misc]
        refused(given, lambda given=given: world.near(1, given), TypeError, f"within={given!r}: expected a distance")  # type: ignore[misc]
    for given in (NAN, INF, 0):
        refused(given, lambda given=given: world.near(1, given), ValueError, f"within={given!r} is not a distance above 0")  # type: ignore[misc]


TOPIC_OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    *(
        ({option: given}, ValueError, f"{option}={given!r} is not")
        for option in ("partitions", "retention_records", "retention_bytes", "record_bytes_max", "retention_age")
        for given in (0, -1, NAN)
    ),
    ({"retention_age": INF}, ValueError, "retention_age=inf is not"),
    ({"retention_age": "1h"}, TypeError, "retention_age='1h': expected a number of seconds, not str"),
    *(
        ({"reliable": "refuse", "reliable_wait": given}, ValueError, f"reliable_wait={given!r} is not")
        for given in (0, -1.0, NAN, INF)
    ),
    ({"reliable": "refuse", "subscribers_max": 0}, ValueError, "subscribers_max=0 is not a whole number from 1"),
    ({"reliable_wait": 5.0}, ValueError, "reliable_wait=5.0 needs reliable="),
    ({"subscribers_max": 5}, ValueError, "subscribers_max=5 needs reliable="),
    ({"reducer_options": {"tick": 1}}, ValueError, "reducer_options={'tick': 1} needs reducer="),
    ({"reducer": "book", "reducer_options": "tick"}, TypeError, "reducer_options='tick': expected a mapping"),
    ({"reducer": "book", "reducer_options": {1: 2}}, TypeError, "a key of reducer_options=1: expected str"),
    ({"reducer": "book", "reducer_options": {"tick": "\ud800"}}, ValueError, "reducer_options['tick']='\\ud800'"),
    ({"pattern": "\ud800"}, ValueError, "pattern='\\ud800': UTF-8 cannot encode"),
    ({"pattern": 5}, TypeError, "pattern=5: expected str, not int"),
]


@pytest.mark.parametrize(("options", "kind", "text"), TOPIC_OPTIONS)
def test_invalid_topic_options_create_no_topic(
    url: str, topic: str, options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    both(url, options, lambda client, given: client.create_topic(topic, **given), kind, text)
    with dunlin.connect(url) as client, pytest.raises(errors.NoTopicError):
        client.describe(topic)


def test_invalid_work_group_options_are_refused(url: str, topic: str) -> None:
    async def begin(client: dunlin.aio.AsyncClient, **options: Any) -> None:
        await client.work(topic, "g", **options)

    for given in (0, -1, NAN, INF, 1e300):
        options: dict[str, Any] = {"claim": given}

        def call(client: Any, options: Any) -> Any:
            is_async = isinstance(client, dunlin.aio.AsyncClient)
            return begin(client, **options) if is_async else client.work(topic, "g", **options)

        both(url, options, call, ValueError, f"claim={given!r} is not from 0.001 to")
        both(url, {"attempts_max": -1}, call, ValueError, "attempts_max=-1 is not a whole number")
        letters = {"dead_letter": "graves", "drop_dead_letters": True}
        both(url, letters, call, ValueError, "dead_letter='graves' and drop_dead_letters=True exclude each other")
        both(url, {"dead_letter": None}, call, TypeError, "dead_letter=None: expected str, not NoneType")


TIMEOUTS: list[Call] = [
    lambda client, given: client.request("nobody", timeout=given),
    lambda client, given: client.kv.watch("a").next(given),
    lambda client, given: client.kv.lease(9.0, keep=False).wait_lost(given),
    lambda client, given: client.book("feed").next(given),
    lambda client, given: client.book("feed").update(given),
    lambda client, given: client.tasks.wait("1", given),
    lambda client, given: client.world("w").command(1, kind=1, timeout=given),
    lambda client, given: client.world("w").despawn(1, timeout=given),
]


def test_errors_of_publishers_and_subscribers_name_the_argument(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic)
    with client.publisher(topic) as out, client.subscribe(topic) as records:
        calls: list[tuple[Call, str, Any]] = [
            (lambda _, given: dunlin.Position(given, 1), "epoch", 2**32),
            (lambda _, given: dunlin.Position(1, given), "seq", 2**64),
            (lambda _, given: out.publish("x", expect_seq=given), "expect_seq", 2**64),
            (lambda _, given: out.publish("x", event_time_ns=given), "event_time_ns", 2**64),
            (lambda _, given: out.send("x", expires_ns=given), "expires_ns", 2**64),
            (lambda _, given: records.batches(given), "records_max", 2**64),
        ]
        for call, name, above in calls:
            for given in (-1, above, NAN):
                error = f"{name}={given!r} is not a whole number from"
                refused(given, lambda given=given, call=call: call(client, given), ValueError, error)  # type: ignore[misc]
            refused("x", lambda call=call: call(client, "x"), TypeError, f"{name}='x' is not a whole number")  # type: ignore[misc]
        for given in (NAN, INF, 2**2000):
            refused(given, lambda given=given: records.next(given), ValueError, ": expected at most 8,589,934,592 seconds")  # type: ignore[misc]
        refused("x", lambda: records.next("x"), TypeError, "timeout='x': expected a number of seconds")  # type: ignore[arg-type]
        several: Any
        for several in ("abc", b"abc", 5):
            expected = f"payloads={several!r}: expected several payloads, not {type(several).__name__}"
            refused(several, lambda several=several: out.send_many(several), TypeError, expected)  # type: ignore[misc]
            refused(several, lambda several=several: out.publish_batch(several), TypeError, expected)  # type: ignore[misc]
    assert client.describe(topic).logs[0].bytes == 0


@pytest.mark.parametrize("call", TIMEOUTS)
def test_infinite_nan_or_too_long_timeouts_are_refused(client: dunlin.Client, call: Call) -> None:
    client.create_topic("feed", reducer="book", exist_ok=True)
    for given in (NAN, INF, 1e308, 2**2000):
        refused(given, lambda given=given: call(client, given), ValueError, ": expected at most 8,589,934,592 seconds")  # type: ignore[misc]
    refused("x", lambda: call(client, "x"), TypeError, "timeout='x': expected a number of seconds")


TASKS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"kind": "\ud800"}, ValueError, "kind='\\ud800': UTF-8 cannot encode the lone surrogate"),
    ({"queue": "\ud800"}, ValueError, "queue='\\ud800'"),
    ({"subject": "\ud800"}, ValueError, "subject='\\ud800'"),
    ({"labels": {"\ud800": "x"}}, ValueError, "a key of labels='\\ud800'"),
    ({"labels": {"size": 5}}, TypeError, "labels['size']=5: expected str, not int"),
    ({"labels": "gpu"}, TypeError, "labels='gpu': expected a mapping of str to str, not str"),
    ({"needs": {"gpu": "\ud800"}}, ValueError, "needs['gpu']='\\ud800'"),
    ({"retry": 1.5}, TypeError, "retry=1.5: expected a number of retries, or a Retry, not float"),
    ({"retry": Retry(1, base=-1)}, ValueError, "base of retry=-1 is not from 0 to"),
    ({"retry": Retry(1, base=NAN)}, ValueError, "base of retry=nan is not"),
    ({"retry": Retry(1, cap=INF)}, ValueError, "cap of retry=inf is not"),
    ({"timeout": NAN}, ValueError, "timeout=nan is not from 0.001 to"),
    ({"timeout": "5"}, TypeError, "timeout='5': expected a number of seconds, not str"),
    ({"deadline": "tomorrow"}, TypeError, "deadline='tomorrow': expected seconds since the Unix epoch"),
    ({"after": 5}, TypeError, "after=5: expected ids of tasks, not int"),
    ({"payload": {"a": "\ud800"}}, ValueError, "UTF-8 cannot encode the lone surrogate '\\ud800'"),
]


@pytest.mark.parametrize(("options", "kind", "text"), TASKS)
def test_error_names_the_invalid_option_of_a_task(
    client: dunlin.Client, options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    refused(options, lambda: client.tasks.submit("t", **{"kind": "k", **options}), kind, text)


def test_errors_of_client_calls_name_the_invalid_argument(client: dunlin.Client) -> None:
    tasks: Any = client.tasks
    for call in (tasks.get, tasks.why, tasks.cancel, tasks.retry, tasks.wait):
        for given in ("1" * 40, "1" * 10_000, "10000000000000000"):
            refused(given, lambda call=call, given=given: call(given), ValueError, "expected the id of a task")  # type: ignore[misc]
    refused(1, lambda: tasks.submit_all("t", [1]), TypeError, "tasks: expected NewTask, not 1")
    refused(5, lambda: tasks.submit(5, "k"), TypeError, "tenant=5: expected str, not int")
    refused(-1, lambda: tasks.redrive("t", -1), ValueError, "count=-1 is not a whole number")
    refused(NAN, lambda: tasks.discard("t", NAN), ValueError, "count=nan is not a whole number")
    refused(-1, lambda: tasks.set_tenant("t", weight=-1), ValueError, "weight=-1 is not a whole number")
    refused(5, lambda: dunlin.connect(5), TypeError, "url=5: expected str, not int")  # type: ignore[arg-type]
    refused(5, lambda: client.reply(5), TypeError, "request=5: expected a Record")  # type: ignore[arg-type]
    refused(-1, lambda: client.world("w").command(-1, kind=1), ValueError, "entity=-1 is not a whole number")


def test_argument_errors_name_the_argument_and_what_is_allowed(client: dunlin.Client, topic: str) -> None:
    for name in ("not_before", "deadline"):
        milliseconds: dict[str, Any] = {name: 1_795_904_618_638.0}
        text = f"{name}=1795904618638.0 is not a time in seconds since the Unix epoch, as time.time() gives it"
        refused(name, lambda given=milliseconds: client.tasks.submit("t", "k", **given), ValueError, text)  # type: ignore[misc]
    given: Any = {"size": 5}
    text = 'the value of header "size" must be bytes, str or a buffer, not int'
    refused(given, lambda: client.publish(topic, b"x", headers=given), TypeError, text)
    key: Any = 5
    refused(key, lambda: client.publish(topic, b"x", key=key), TypeError, "a key must be bytes, str or a buffer")
    level: Any = "x"
    refused(level, lambda: client.create_topic(topic, durable=level), ValueError, "use memory, written or synced")
    with pytest.raises(errors.NoTopicError, match="publish to a subject, which has no wildcards"):
        client.publish(f"{topic}.*", b"x")


def test_empty_zero_or_duplicate_task_limits_are_refused(client: dunlin.Client) -> None:
    refused(0, lambda: Limit("kind", running=0), ValueError, "running=0 is not a whole number from 1")
    refused(None, lambda: Limit("kind"), ValueError, "Limit('kind') limits nothing")
    for rate in ((0, 1.0, 1), (1, 0.0, 1), (1, NAN, 1), (1, INF, 1), (1, 1.0, 0)):
        refused(rate, lambda rate=rate: Limit("kind", rate=rate), ValueError, " of rate=")  # type: ignore[misc]
    refused(0, lambda: Limit("kind", rate=(1, 1.0)), TypeError, "expected (starts, seconds, burst)")  # type: ignore[arg-type]
    set_tenant: Any = client.tasks.set_tenant
    twice = [Limit("kind", running=1), Limit("kind", running=2)]
    refused(twice, lambda: set_tenant("t", limits=twice), ValueError, "limits: two limits of running for key 'kind'")
    refused("kind", lambda: set_tenant("t", limits="kind"), TypeError, "limits: expected Limit, not 'k'")
    # The same key may have two limits: one on the number of running tasks, and one on the rate of starts.
    set_tenant("t", limits=[Limit("kind", running=1), Limit("kind", rate=(1, 1.0, 1))])


@pytest.fixture
def working() -> Iterator[Callable[[dunlin.Worker], None]]:
    """Runs workers until the end of the test."""
    begun: list[tuple[dunlin.Worker, threading.Thread]] = []

    def work(worker: dunlin.Worker) -> None:
        thread = threading.Thread(target=worker.run)
        thread.start()
        begun.append((worker, thread))

    yield work
    for worker, thread in begun:
        worker.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_worker_accepts_one_string_as_its_queue_or_tenant(
    client: dunlin.Client, url: str, topic: str, working: Callable[[dunlin.Worker], None]
) -> None:
    worker = dunlin.Worker(url, slots=1, queues="bulk", tenants=f"tenant-{topic}")
    worker.task(f"echo-{topic}")(lambda task: task.payload)
    working(worker)
    task = client.tasks.submit(f"tenant-{topic}", f"echo-{topic}", "hello", queue="bulk")
    assert client.tasks.wait(task, PATIENCE).result == b"hello"


WORKERS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"queues": 5}, TypeError, "queues=5: expected strings, not int"),
    ({"queues": b"abc"}, TypeError, "queues=b'abc': expected strings, not bytes"),
    ({"tenants": ("\ud800",)}, ValueError, "tenants='\\ud800'"),
    ({"labels": "gpu"}, TypeError, "labels='gpu': expected a mapping of str to str, not str"),
    ({"labels": {"gpu": 1}}, TypeError, "labels['gpu']=1: expected str, not int"),
    ({"slots": 10**6}, ValueError, "slots=1000000 is above SLOTS_MAX = 10,000"),
    ({"slots": -1}, ValueError, "slots=-1 is not a whole number"),
    ({"cpu_milli": -1}, ValueError, "cpu_milli=-1 is not a whole number"),
    ({"memory_bytes": 2**70}, ValueError, f"memory_bytes={2**70} is not a whole number"),
    ({"ttl": NAN}, ValueError, "ttl=nan is not from 0.001 to"),
    ({"ttl": 0}, ValueError, "ttl=0 is not from 0.001 to"),
    ({"name": "\ud800"}, ValueError, "name='\\ud800'"),
]


@pytest.mark.parametrize(("options", "kind", "text"), WORKERS)
def test_invalid_worker_options_are_refused_at_construction(
    options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    refused(options, lambda: dunlin.Worker(**options), kind, text)
    assert SLOTS_MAX == 10_000


def test_worker_ends_its_threads_if_one_of_them_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def start_three(thread: threading.Thread) -> None:
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        start(thread)
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", start_three)
    functions: dict[str, Callable[..., Any]] = {"k": lambda task: None}
    with pytest.raises(RuntimeError, match="slots=10: the system starts no more than 3 threads"):
        _RunningTasks(None, functions, 10, False)  # type: ignore[arg-type]
    for thread in started:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_encode_refuses_lone_surrogates_in_keys_and_values() -> None:
    for given in ("\ud800", {"a": "\ud800"}, {"\udfff": 1}, ["x", ["\udc00\ud800"]]):
        refused(given, lambda given=given: encode(given), ValueError, "UTF-8 cannot encode the lone surrogate")  # type: ignore[misc]
    # These texts contain no lone surrogate: an escaped backslash, a character beyond 16 bits, and a pair of surrogates.
    assert encode({"a": "\\ud800"}) == b'{"a":"\\\\ud800"}'
    assert encode(["\U0001f426", "\ud83d\udc26"]) == b'["\\ud83d\\udc26","\\ud83d\\udc26"]'
    assert encode({"a": "é"}) == b'{"a":"\\u00e9"}'


def test_long_arguments_are_shortened_in_error_texts(client: dunlin.Client) -> None:
    with pytest.raises(TypeError) as caught:
        client.kv.put("a", list(range(1_000_000)))  # type: ignore[arg-type]
    assert len(str(caught.value)) < 200
