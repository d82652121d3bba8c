"""Runs the examples and the README's snippets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dunlin
import pytest
from conftest import PATIENCE, STEADY_MS, Node
from dunlin import errors

PACKAGE = Path(__file__).parent.parent
README = PACKAGE.parent.parent / "README.md"
FEEDS = PACKAGE.parent.parent / "docs" / "feeds.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```", (PACKAGE / "README.md").read_text(), re.M | re.S)


def output(program: list[str], node: Node) -> str:
    environment = os.environ | {"DUNLIN_URL": node.url}
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ticks.py", [f"{seq} example.ticks.BTC-USD {99 + seq}" for seq in range(1, 6)]),
        ("work_queue.py", ["12 of 12 done"]),
        ("book.py", ["best 100.00 100.02", "depth of five bids [10, 21, 33, 46, 60]", "their average price 99.98"]),
    ],
)
def test_examples_print_the_expected_lines(own_node: Node, name: str, expected: list[str]) -> None:
    assert output([sys.executable, str(PACKAGE / "examples" / name)], own_node).splitlines() == expected


class QuietExchange:
    """A mock of an exchange. It sends a few changes, and none after the topic has lost its owner."""

    def __init__(self) -> None:
        self.sides: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def book(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        bids, asks = (list(side.items()) for side in self.sides)
        return bids, asks

    def changes(self) -> Iterator[tuple[int, list[tuple[int, int]], list[tuple[int, int]]]]:
        for number in range(1, 5):
            bid, ask = (10_000 - number, number), (10_002 + number, 2 * number)
            self.sides[0].update([bid])
            self.sides[1].update([ask])
            yield number, [bid], [ask]


class AwayClient:
    """A client for which the topic has no owner when the last two records are published."""

    def __init__(self, client: dunlin.Client) -> None:
        self.create_topic = client.create_topic
        self.client = client
        self.sent: list[bytes] = []

    def publisher(self, topic: str) -> AwayClient:
        self.inner = self.client.publisher(topic)
        return self

    def publish(self, record: bytes, **options: int) -> dunlin.Receipt:
        self.sent.append(record)
        if len(self.sent) in (4, 5):
            raise errors.OwnerAwayError("the topic waits for its owner, node 3, to return")
        return self.inner.publish(record, **options)  # type: ignore[arg-type]


def test_feed_handler_republishes_its_book_after_an_owner_outage(client: dunlin.Client, topic: str) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", FEEDS.read_text(), re.M | re.S)
    names: dict[str, Any] = {}
    exec(program, names)
    waits: list[float] = []
    names["time"] = SimpleNamespace(sleep=waits.append)
    exchange, away = QuietExchange(), AwayClient(client)
    names["handle"](away, topic, exchange)
    assert waits == [1.0, 1.0]
    assert len(away.sent) == 6 and away.sent[5] == names["image"](*exchange.book())
    with client.book(topic) as book:
        assert (dict(book.bids()), dict(book.asks())) == exchange.sides


class DeletingExchange(QuietExchange):
    """A mock of an exchange. During the third change, it deletes the topic with another client."""

    def __init__(self, other: dunlin.Client, topic: str) -> None:
        super().__init__()
        self.other, self.topic = other, topic

    def changes(self) -> Iterator[tuple[int, list[tuple[int, int]], list[tuple[int, int]]]]:
        for change in super().changes():
            if change[0] == 3:
                self.other.delete_topic(self.topic)
            yield change


def test_feed_handler_recreates_its_deleted_topic(client: dunlin.Client, url: str, topic: str) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", FEEDS.read_text(), re.M | re.S)
    names: dict[str, Any] = {}
    exec(program, names)
    with dunlin.connect(url) as other:
        exchange = DeletingExchange(other, topic)
        names["handle"](client, topic, exchange)
        with other.book(topic) as book:
            assert (dict(book.bids()), dict(book.asks())) == exchange.sides
            assert book.options["price_decimals"] == "2"


def test_speed_example_reports_five_rates(own_node: Node) -> None:
    program = [sys.executable, str(PACKAGE / "examples" / "speed.py"), "20000"]
    assert output(program, own_node).count("M records/s") == 5


def test_guide_has_at_least_five_snippets() -> None:
    assert len(SNIPPETS) >= 5


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[snippet.split("\n")[0] for snippet in SNIPPETS])
def test_guide_snippets_print_the_expected_lines(own_node: Node, snippet: str) -> None:
    expected = [line.split("# prints ")[1] for line in snippet.splitlines() if "# prints " in line]
    assert expected, "a snippet says what it prints"
    assert output([sys.executable, "-c", snippet], own_node).splitlines() == expected


def test_readme_subscription_prints_a_published_record(own_node: Node) -> None:
    chapter = README.read_text().split("\n## In your language\n")[1].split("\n## ")[0]
    (program,) = re.findall(r"^```python\n(.*?)^```", chapter, re.M | re.S)
    assert "dunlin://127.0.0.1:4220" in program
    program = program.replace("dunlin://127.0.0.1:4220", own_node.url)
    reading = subprocess.Popen([sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, text=True)
    assert reading.stdout is not None
    done = threading.Event()

    def publish() -> None:
        """Publishes until the program prints a record, because its subscription is not visible from outside."""
        with dunlin.connect(own_node.url) as client:
            while not done.wait(0.02):
                client.publish("orders.eu", b'{"qty":5}')

    publishing = threading.Thread(target=publish)
    publishing.start()
    giving_up = threading.Timer(PATIENCE, reading.kill)
    giving_up.start()
    try:
        assert reading.stdout.readline() == 'orders.eu {"qty":5}\n'
    finally:
        done.set()
        giving_up.cancel()
        reading.kill()
        reading.communicate()
        publishing.join()


def test_node_runs_tasks_with_the_worker_from_the_readme(tmp_path: Path) -> None:
    chapter = README.read_text().split("\n## Tasks and workers\n")[1].split("\n## ")[0]
    (program,) = re.findall(r"^```python\n(.*?)^```", chapter, re.M | re.S)
    worker = tmp_path / "worker.py"
    worker.write_text(program)
    assert "dunlin dev --workers 'python3 worker.py' --scale 1..4" in chapter
    assert "dunlin task submit shout hello --wait " in chapter
    node = Node(tmp_path, STEADY_MS, "--workers", f"'{sys.executable}' '{worker}'", "--scale", "1..4")
    node.start()
    try:
        binary = os.environ["DUNLIN_BINARY"]
        assert output([binary, "task", "submit", "shout", "hello", "--wait"], node) == "HELLO\n"
    finally:
        node.kill()
