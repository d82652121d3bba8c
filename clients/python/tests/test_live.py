"""Tests of books and tables, which compare them with models."""

from __future__ import annotations

import random
import struct
from decimal import Decimal, localcontext
from typing import Any, Literal

import dunlin
import numpy as np
import pytest
from conftest import PATIENCE, Node, until
from dunlin.live import open_state

SIDES = {"bid": 1, "ask": 2}


def level(side: str, price: int, size: int) -> bytes:
    """Encodes an entry of a book; size 0 removes the level."""
    return struct.pack("<BB6xqq", 1 if size else 2, SIDES[side], price, size)


def test_book_equals_a_model_that_gets_the_same_records(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, reducer="book", reducer_options={"price_decimals": 2})
    client.publish(topic, level("bid", 10_000, 5) + level("ask", 10_025, 7))
    with client.book(topic) as book:
        assert book.is_whole and book.kind == "book"
        assert (book.bid, book.ask, book.touch) == ((10_000, 5), (10_025, 7), "apart")
        assert book.price(10_025) == Decimal("100.25")
        best: Any = book.bids().prices[0]
        assert book.price(best) == Decimal("100.00")
        with localcontext() as context:
            context.prec = 3
            assert book.price(-1_234_567) == Decimal("-12345.67")
        with pytest.raises(ValueError, match=r"units=1\.5 is not a whole number"):
            book.size(1.5)  # type: ignore[arg-type]
        model = {"bid": {10_000: 5}, "ask": {10_025: 7}}
        draw = random.Random(7)
        for _ in range(300):
            side = draw.choice(["bid", "ask"])
            price = (10_000 - draw.randrange(20)) if side == "bid" else (10_025 + draw.randrange(20))
            size = draw.choice([0, draw.randrange(1, 100)])
            client.send(topic, level(side, price, size))
            model[side].pop(price, None) if size == 0 else model[side].update({price: size})
        client.flush()
        last = client.publish(topic, level("bid", 9_000, 1)).position
        model["bid"][9_000] = 1
        while book.position != last:
            book.update(PATIENCE)
        bids, asks = book.bids(), book.asks()
        assert [tuple(row) for row in bids.table.tolist()] == sorted(model["bid"].items(), reverse=True)
        assert [tuple(row) for row in asks.table.tolist()] == sorted(model["ask"].items())
        assert list(bids) == sorted(model["bid"].items(), reverse=True)
        assert book.bid == bids[0] and book.size_at("bid", 9_000) == 1 and book.size_at("bid", 1) == 0
        assert len(book.asks(3)) == min(3, len(model["ask"]))
        assert book.age is not None and book.append_time_ns is not None


def test_columns_of_book_levels_share_memory_and_are_read_only(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, reducer="book")
    client.publish(topic, b"".join(level("ask", price, price * 10) for price in range(1, 6)))
    with client.book(topic) as book:
        asks, bids = book.asks(), book.bids()
        assert asks.prices.tolist() == [1, 2, 3, 4, 5]
        assert (asks.prices * asks.sizes).sum() == sum(10 * price * price for price in range(1, 6))
        assert np.shares_memory(asks.prices, asks.table) and not asks.prices.flags.writeable
        assert np.shares_memory(asks.table, asks.table)
        assert (len(bids), bids.prices.tolist(), bids.table.shape, book.bid) == (0, [], (0, 2), None)
        client.publish(topic, level("ask", 1, 0))
        until(lambda: book.update() > 0)
        # An update does not change arrays that were read before it.
        assert asks.prices.tolist() == [1, 2, 3, 4, 5] and book.asks().prices.tolist() == [2, 3, 4, 5]


def test_book_includes_a_change_when_the_change_is_delivered(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, reducer="book")
    client.publish(topic, level("bid", 100, 1))
    with client.book(topic) as book:
        for size in range(2, 12):
            client.send(topic, level("bid", 100, size), event_time_ns=size)
        client.flush()
        for size in range(2, 12):
            change = book.next(PATIENCE)
            assert isinstance(change, dunlin.Change) and change.by == "record"
            assert (change.event_time_ns, book.event_time_ns) == (size, size)
            assert book.bid == (100, size) and change.position == book.position
        assert book.counts["records"] >= 10 and book.counts["refused"] == 0


def test_conflated_book_skips_intermediate_changes(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, reducer="book")
    client.publish(topic, level("bid", 100, 1))
    with client.book(topic, conflate=True) as book:
        for size in range(2, 2000):
            client.send(topic, level("bid", 100, size))
        client.flush()
        changes = 0
        while book.bid != (100, 1999):
            assert book.next(PATIENCE) is not None
            changes += 1
        assert 0 < changes < 1998


def test_book_has_no_event_time_if_its_snapshot_has_none(brittle_node: Node) -> None:
    def publish(price: int, event_time_ns: int | None) -> None:
        with dunlin.connect(brittle_node.url) as publishing:
            publishing.create_topic("book", reducer="book", exist_ok=True)
            publishing.publish("book", level("bid", price, 1), event_time_ns=event_time_ns)

    publish(100, 1)
    with dunlin.connect(brittle_node.url) as client, client.book("book") as book:
        publish(101, 2)
        until(lambda: book.update(0.1) >= 0 and book.event_time_ns == 2)
        appended = book.append_time_ns
        brittle_node.kill()
        brittle_node.start()
        publish(200, None)
        until(lambda: updated(book) and book.bid == (200, 1))
        assert book.event_time_ns is None and book.append_time_ns != appended


def updated(book: dunlin.Book) -> bool:
    """Applies arrived changes. Returns `False` if the node is unreachable."""
    try:
        return book.update(0.1) >= 0
    except dunlin.DisconnectedError:
        return False


def test_book_shows_whether_a_publisher_is_connected(url: str, client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, reducer="book")
    with dunlin.connect(url) as publishing:
        publishing.publish(topic, level("bid", 100, 1))
    with client.book(topic) as book:
        until(lambda: book.update(0.1) >= 0 and not book.publisher_connected)
        told = book.publishers
        assert told is not None and not told.connected and told.last_append_ns is not None
        assert told.since_ns >= told.last_append_ns and book.append_time_ns == told.last_append_ns
        client.publish(topic, level("bid", 100, 2))
        until(lambda: book.update(0.1) >= 0 and book.publisher_connected)
        assert book.bid == (100, 2)


def test_refused_record_leaves_the_book_unchanged(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, reducer="book")
    client.publish(topic, level("bid", 100, 1))
    with pytest.raises(dunlin.errors.ReducerError, match="size -3 is not above zero"):
        client.publish(topic, level("bid", 100, -3))
    with client.book(topic) as book:
        assert book.bid == (100, 1)


def test_send_many_sends_all_records_except_a_refused_one(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, reducer="book")
    count = 50_000
    payloads = [level("bid", 100, -3 if number == 200 else number) for number in range(1, count + 1)]
    publisher = client.publisher(topic)
    # The refusal may arrive before or after the last record is sent.
    with pytest.raises(dunlin.errors.ReducerError):
        publisher.send_many(payloads)
        publisher.flush()
    rows = np.frombuffer(b"".join(payloads), np.uint8).reshape(count, -1)
    with pytest.raises(dunlin.errors.ReducerError):
        publisher.send_rows(rows)
        publisher.flush()
    publisher.close()
    assert client.describe(topic).logs[0].last_seq == 2 * (count - 1)


def test_table_holds_the_last_value_of_each_key(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, reducer="last", partitions=3)
    for number in range(60):
        client.publish(topic, str(number), key=f"k{number % 20}")
    client.publish(topic, b"", key="k0")
    expected = {f"k{number % 20}".encode(): str(number).encode() for number in range(41, 60)}
    with client.table(topic) as table:
        until(lambda: table.update() > 0 or dict(table) == expected)
        until(lambda: table.update() >= 0 and table.snapshot() == expected)
        assert table["k5"] == table[b"k5"] == b"45" and table.get("k0") is None
        assert "k5" in table and b"k0" not in table
        keys: list[Any] = [bytearray(b"k5"), memoryview(b"k5")]
        for key in keys:
            assert key in table and table[key] == table["k5"]
        other: Any = 5
        assert other not in table
        assert len(table) == 19 and set(table) == set(expected)
        with pytest.raises(KeyError):
            table["k0"]
        client.publish(topic, b"new", key="k5")
        until(lambda: table.update() >= 0 and table["k5"] == b"new")


def test_wrong_kind_of_state_is_a_value_error(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, reducer="last")
    with pytest.raises(ValueError, match=r"use table\(\)"):
        client.book(topic)
    client.create_topic(f"{topic}.plain")
    with pytest.raises(ValueError, match="keeps no state"):
        client.table(f"{topic}.plain")


def test_book_of_several_partitions_is_refused(client: dunlin.Client, topic: str) -> None:
    kinds: list[Literal["book", "orders"]] = ["book", "orders"]
    for kind in kinds:
        client.create_topic(f"{topic}.{kind}", reducer=kind, partitions=2)
        with pytest.raises(ValueError, match="has 2 partitions, each with a state"):
            client.book(f"{topic}.{kind}")


def test_whole_table_has_the_keys_of_all_partitions(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, reducer="last", partitions=64)
    for number in range(200):
        client.send(topic, b"x", key=f"k{number}")
    client.flush()
    with client.table(topic) as table:
        until(lambda: table.update() >= 0 and table.is_whole)
        assert len(table) == 200


def test_book_and_table_read_every_subject_of_their_topic(client: dunlin.Client, topic: str) -> None:
    client.create_topic(f"{topic}.book", reducer="book", pattern=f"{topic}.levels.>")
    client.publish(f"{topic}.levels.a", level("bid", 10, 1))
    client.publish(f"{topic}.levels.b", level("bid", 11, 1))
    with client.book(f"{topic}.book") as book:
        until(lambda: book.update() >= 0 and list(book.bids()) == [(11, 1), (10, 1)])
    client.create_topic(f"{topic}.last", reducer="last", pattern=f"{topic}.values.>")
    client.publish(f"{topic}.values.a", b"x", key="k")
    with client.table(f"{topic}.last") as table:
        until(lambda: table.update() >= 0 and table.snapshot() == {b"k": b"x"})


def test_subscription_from_snapshot_begins_with_the_state(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, reducer="book")
    at = client.publish(topic, level("bid", 100, 1)).position
    with client.subscribe(topic, start="snapshot") as events:
        snapshot = events.next(PATIENCE)
        assert isinstance(snapshot, dunlin.Snapshot)
        assert snapshot.position == at and len(snapshot.data) == 16 + 16
        with pytest.raises(ValueError, match="book"):
            events.records()


def test_replica_is_closed_if_its_state_cannot_be_opened() -> None:
    class LostReplica:
        is_whole = False
        is_closed = False

        def update(self, timeout: float) -> int:
            raise dunlin.DisconnectedError("the node is away")

        def close(self) -> None:
            self.is_closed = True

    replica: Any = LostReplica()
    with pytest.raises(dunlin.DisconnectedError):
        open_state("book", (replica, "book", {}), dunlin.Book)
    assert replica.is_closed
