"""Fixtures: a node that all tests share, and a separate node for each test that kills its node."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import dunlin
import pytest

PATIENCE = 120.0
"""The time limit of a wait in seconds. It is long, because no assertion depends on time."""

STEADY_MS = 20_000
"""The heartbeat interval of the shared node. It is long, because a machine under load may stop for seconds."""

_numbers = count(1)


class Node:
    """A node process that has the same port after a restart."""

    def __init__(self, folder: Path, heartbeat_ms: int, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.heartbeat_ms = heartbeat_ms
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        binary = os.environ["DUNLIN_BINARY"]
        # The tests use only one listener, so all other listeners are turned off.
        shown = subprocess.run([binary, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        listeners = set(re.findall(r"--([\w-]+) <ADDRESS\|off>", shown)) - {"listen"}
        shut = [word for listener in sorted(listeners) for word in (f"--{listener}", "off")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DUNLIN_")}
        self.process = subprocess.Popen(
            [
                *(binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--heartbeat-ms", str(self.heartbeat_ms)),
                *shut,
                *self.options,
            ],
            stdout=subprocess.PIPE,
            stderr=(self.folder / "node.log").open("a"),
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        found = re.search(r"tcp=\S+:(\d+)", ready)
        assert found, f"the node said {ready!r}, and {(self.folder / 'node.log').read_text()!r}"
        self.port = int(found[1])

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    @property
    def url(self) -> str:
        return f"dunlin://127.0.0.1:{self.port}"


@pytest.fixture(scope="session")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"), STEADY_MS)
    node.start()
    yield node
    node.kill()


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[Node]:
    yield from _serving(Node(tmp_path, STEADY_MS))


@pytest.fixture
def sharded_node(tmp_path: Path) -> Iterator[Node]:
    """A node whose tasks are in four shards."""
    yield from _serving(Node(tmp_path, STEADY_MS, "--tasks-shards", "4"))


@pytest.fixture
def brittle_node(tmp_path: Path) -> Iterator[Node]:
    """A node with a short heartbeat interval, for tests that kill the node."""
    yield from _serving(Node(tmp_path, 1000))


def _serving(node: Node) -> Iterator[Node]:
    node.start()
    yield node
    if node.process is not None and node.process.poll() is None:
        node.kill()


@pytest.fixture
def url(shared_node: Node) -> str:
    return shared_node.url


@pytest.fixture
def client(url: str) -> Iterator[dunlin.Client]:
    with dunlin.connect(url, name="pytest") as client:
        yield client


@pytest.fixture
def topic() -> str:
    """A unique topic name."""
    return f"t{next(_numbers)}"


def until(done: Callable[[], bool]) -> None:
    """Polls until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.01)


def next_record(events: dunlin.Subscription) -> dunlin.Record:
    """Returns the next record, and skips notices of class `Lagging`."""
    while True:
        event = events.next(PATIENCE)
        if not isinstance(event, dunlin.Lagging):
            assert isinstance(event, dunlin.Record), event
            return event
