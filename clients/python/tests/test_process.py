"""Tests of signals, forked processes, and a node that is killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import dunlin
import pytest
from conftest import PATIENCE, Node, next_record, until
from dunlin import errors

T = TypeVar("T")


def steadily(call: Callable[[], T]) -> T:
    """Repeats a call while it fails because the node is unreachable, or because the machine is too slow."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except (dunlin.DisconnectedError, dunlin.UnknownOutcomeError):
            assert time.monotonic() < end, "the node stays away"


WAITING = """
import signal, sys, dunlin
# A background job may have been started with the signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
client = dunlin.connect(sys.argv[1])
events = client.subscribe(sys.argv[2])
try:
    print("waiting", flush=True)
    WAIT
except KeyboardInterrupt:
    client.publish(sys.argv[2], b"still there")
    print("interrupted", events.next(60).payload, flush=True)
"""


@pytest.mark.parametrize(
    "wait",
    [
        "next(iter(events))",
        "events.next(1000)",
        "silent = client.subscribe('t.silent'); client.request('t.silent', b'', timeout=1000)",
        "held = client.kv.lock(sys.argv[2]); held.acquire(); client.kv.lock(sys.argv[2]).acquire()",
        "next(client.kv.watch(sys.argv[2]))",
    ],
)
def test_ctrl_c_ends_a_wait_but_not_the_client(url: str, topic: str, wait: str) -> None:
    program = [sys.executable, "-c", WAITING.replace("WAIT", wait), url, topic]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "waiting\n"
        # If the process sleeps, it usually waits for the record. The assertions hold even if it does not wait.
        until(lambda: Path(f"/proc/{waiting.pid}/stat").read_text().rpartition(") ")[2].startswith("S"))
        waiting.send_signal(signal.SIGINT)
        said, _ = waiting.communicate(timeout=PATIENCE)
        assert (said, waiting.returncode) == ("interrupted b'still there'\n", 0)


ENDING = """
import sys, threading, dunlin
events = dunlin.connect(sys.argv[1]).subscribe(sys.argv[2])
begun = threading.Event()
def wait() -> None:
    begun.set()
    events.next()
threading.Thread(target=wait, daemon=True).start()
begun.wait()
"""


def test_program_ends_while_a_thread_waits_for_records(url: str, topic: str) -> None:
    program = [sys.executable, "-c", ENDING, url, topic]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ended.stderr == ""


FORKING = """
import os, sys, dunlin
client = dunlin.connect(sys.argv[1])
events = client.subscribe(sys.argv[2])
publisher = client.publisher(sys.argv[2])
publisher.send(b"of the parent")
child = os.fork()
if child == 0:
    refused = 0
    for used in (lambda: client.topics(), lambda: events.next(0), lambda: publisher.flush()):
        try:
            used()
        except dunlin.errors.ForkedError:
            refused += 1
    # The child sends no message on the parent's connection, now or when these objects are dropped.
    client._connection.close()
    events.close()
    del client, events, publisher
    with dunlin.connect(sys.argv[1]) as own:
        own.publish(sys.argv[2], b"of the child")
    os._exit(0 if refused == 3 else 1)
_, status = os.waitpid(child, 0)
publisher.flush()
seen = {events.next(60).payload for _ in range(2)}
print(os.waitstatus_to_exitcode(status), sorted(seen), client.connections)
"""


def test_forked_child_leaves_the_connection_of_its_parent_intact(url: str, topic: str) -> None:
    program = [sys.executable, "-c", FORKING, url, topic]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ended.stdout == "0 [b'of the child', b'of the parent'] 1\n", ended.stderr


def test_calls_fail_while_the_node_is_down_and_succeed_afterwards(brittle_node: Node) -> None:
    client = dunlin.connect(brittle_node.url)
    events = client.subscribe("t", start="earliest")
    client.send("t", b"before")
    steadily(client.flush)
    before = steadily(lambda: next_record(events))
    assert before.payload == b"before"
    brittle_node.kill()
    # Each call tries to connect again, and raises an exception.
    for _ in range(2):
        with pytest.raises(dunlin.DisconnectedError):
            events.next()
    with pytest.raises(dunlin.UnknownOutcomeError):
        client.publish("t", b"meanwhile")
    brittle_node.start()
    steadily(client.flush)
    changed = steadily(lambda: events.next(PATIENCE))
    while not isinstance(changed, dunlin.EpochChanged):
        changed = steadily(lambda: events.next(PATIENCE))
    assert (changed.old, changed.last_seen, changed.known_through) == (before.epoch, 1, None)
    assert steadily(lambda: next_record(events)).payload == b"meanwhile"
    assert client.connections >= 2


def test_idle_subscription_resumes_after_a_restart(own_node: Node) -> None:
    client = dunlin.connect(own_node.url)
    records = client.subscribe("t", start="earliest").records()
    client.publish("t", b"before")
    assert next(records).payload == b"before"
    own_node.kill()
    own_node.start()
    with dunlin.connect(own_node.url) as other:
        other.publish("t", b"after")
    # The end of the old epoch is unknown. Therefore, `records()` raises an error once, and then continues.
    with pytest.raises(dunlin.GapError) as caught:
        next(records)
    assert isinstance(caught.value.notice, dunlin.EpochChanged)
    assert next(records).payload == b"after"


def test_pending_async_read_fails_when_the_node_is_killed(brittle_node: Node) -> None:
    async def program() -> None:
        async with dunlin.aio.connect(brittle_node.url) as client:
            events = aiter(await client.subscribe("t"))
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            brittle_node.kill()
            with pytest.raises(dunlin.DisconnectedError):
                await waiting
            brittle_node.start()
            waiting = asyncio.ensure_future(anext(events))
            while not waiting.done():
                try:
                    await client.publish("t", b"again")
                except dunlin.Error:
                    pass
                await asyncio.wait([waiting], timeout=0.05)
            assert isinstance(await waiting, (dunlin.Record, dunlin.EpochChanged))

    asyncio.run(asyncio.wait_for(program(), PATIENCE))


def test_durable_topics_need_a_data_directory(client: dunlin.Client, topic: str) -> None:
    with pytest.raises(errors.TopicConfigError):
        client.create_topic(topic, durable=True)


AT_THE_END = """
import sys, threading, dunlin
waiting = dunlin.connect(sys.argv[1]).subscribe("nobody.publishes")
asking = dunlin.connect(sys.argv[1])
begun = threading.Semaphore(0)
def wait() -> None:
    while True:
        waiting.next(0.01)
        begun.release()
def ask() -> None:
    while True:
        asking.kv.get("end")
        begun.release()
for target in (wait, ask, ask):
    threading.Thread(target=target, daemon=True).start()
for _ in range(100):
    begun.acquire()
print("done", flush=True)
"""


def test_program_ends_without_error_while_threads_wait(url: str) -> None:
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", AT_THE_END, url], capture_output=True, text=True, timeout=PATIENCE)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
