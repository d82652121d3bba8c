"""Tests of publishing: records arrive unchanged, and receipts have the records' positions."""

from __future__ import annotations

import array
import threading
from typing import Any

import dunlin
import numpy as np
import pytest
from conftest import next_record
from dunlin import errors


def test_all_fields_of_a_record_arrive(client: dunlin.Client, topic: str) -> None:
    headers: dict[str, bytes | str] = {"a": "1", "b": b"\x02"}
    receipt = client.publish(
        topic, b"\x00\xff", key="k", headers=headers, reply="r.1", event_time_ns=7, expires_ns=2**62
    )
    assert (receipt.partition, receipt.duplicate, receipt.acknowledged) == (0, False, "memory")
    with client.subscribe(topic, start="earliest") as events:
        record = next_record(events)
    assert (record.subject, record.topic, record.partition) == (topic, topic, 0)
    assert (record.payload, bytes(record.view), len(record)) == (b"\x00\xff", b"\x00\xff", 2)
    assert (record.key, record.reply, record.event_time_ns, record.expires_ns) == (b"k", "r.1", 7, 2**62)
    assert record.headers == (("a", b"1"), ("b", b"\x02"))
    assert (record.header("b"), record.header("c")) == (b"\x02", None)
    assert record.position == receipt.position
    assert (record.epoch, record.seq, record.prev_seq) == (receipt.position.epoch, 1, 0)
    assert record.append_time_ns > 1_700_000_000 * 10**9


def test_invalid_reply_subject_is_refused(client: dunlin.Client, topic: str) -> None:
    for reply in ("r 0\r\n\r\nMSG admin.cmd 2 4\r\nevil\r\nMSG chat 1 z", "a b", "a\x7f", "a.*", "a..b"):
        with pytest.raises((dunlin.Error, ValueError)):
            client.publish(topic, b"x", reply=reply)
    assert client.publish(topic, b"good", reply="a.b").position.seq == 1


def test_repeated_headers_of_a_record_are_kept(client: dunlin.Client, topic: str) -> None:
    client.publish(topic, b"", headers=[("a", "1"), ("a", "2")])
    with client.subscribe(topic, start="earliest") as events:
        assert next_record(events).headers == (("a", b"1"), ("a", b"2"))


def test_payload_may_be_any_bytes_like_object(client: dunlin.Client, topic: str) -> None:
    numbers = np.arange(4, dtype=np.uint16)
    given: list[tuple[Any, bytes]] = [
        (b"bytes", b"bytes"),
        ("täxt", "täxt".encode()),
        (bytearray(b"array"), b"array"),
        (memoryview(b"a view")[2:], b"view"),
        (array.array("I", [1]), b"\1\0\0\0"),
        (numbers, numbers.tobytes()),
        (numbers[::2], numbers[::2].tobytes()),
        (np.asfortranarray(numbers.reshape(2, 2)), numbers.tobytes()),
        (np.zeros(1, [("OP", "<i8"), ("z", "<c8")]), bytes(16)),
        (np.array("é"), b"\xe9\0\0\0"),
        (b"", b""),
    ]
    for payload, _ in given:
        client.send(topic, payload)
    client.flush()
    with client.subscribe(topic, start="earliest") as events:
        assert [next_record(events).payload for _ in given] == [expected for _, expected in given]
    with pytest.raises(TypeError, match="not int"):
        client.publish(topic, 5)  # type: ignore[arg-type]


def test_sent_records_arrive_in_order(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, retention_bytes=64 << 20)
    with client.publisher(topic) as publisher:
        for number in range(1000):
            publisher.send(str(number))
        assert publisher.send_many(str(number) for number in range(1000, 5000)) == 4000
        rows = np.arange(5000, 5010, dtype=np.int64).reshape(5, 2)
        assert publisher.send_rows(rows) == 5
        receipt = publisher.flush()
    assert receipt is not None and receipt.position.seq == 5005
    with client.subscribe(topic, start="earliest") as events:
        assert [int(next_record(events).payload) for _ in range(5000)] == list(range(5000))
        assert [next_record(events).payload for _ in range(5)] == [row.tobytes() for row in rows]


def test_batch_is_appended_whole_or_not_at_all(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, record_bytes_max=1024)
    publisher = client.publisher(topic)
    assert publisher.publish_batch([b"1", b"2", b"3"]).position.seq == 3
    with pytest.raises(errors.RecordTooLargeError) as caught:
        publisher.publish_batch([b"4", bytes(4096)])
    assert caught.value.code == "RECORD_TOO_LARGE"
    assert publisher.publish(b"4").position.seq == 4


def test_publish_with_an_outdated_expected_sequence_is_refused(client: dunlin.Client, topic: str) -> None:
    assert client.publish(topic, b"1", expect_seq=0).position.seq == 1
    with pytest.raises(errors.SeqMovedError):
        client.publish(topic, b"2", expect_seq=0)
    assert client.publish(topic, b"2", expect_seq=1).position.seq == 2


def test_one_publisher_serves_all_subjects_of_a_pattern(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, pattern=f"{topic}.>")
    with client.publisher(f"{topic}.>") as publisher:
        publisher.send(b"1", subject=f"{topic}.eu.1")
        publisher.send(b"2", subject=f"{topic}.us")
        with pytest.raises(ValueError, match="does not match the publisher's pattern"):
            publisher.send(b"3", subject="elsewhere")
        with pytest.raises(ValueError, match="needs the subject of each record"):
            publisher.send(b"3")
    with client.subscribe(f"{topic}.*.1", start="earliest") as narrow:
        assert next_record(narrow).subject == f"{topic}.eu.1"
    with client.subscribe(f"{topic}.>", start="earliest") as wide:
        assert [next_record(wide).subject for _ in range(2)] == [f"{topic}.eu.1", f"{topic}.us"]


def test_threads_share_a_publisher(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, retention_bytes=64 << 20)
    publisher = client.publisher(topic)

    def send(thread: int) -> None:
        for number in range(500):
            publisher.send(f"{thread} {number}")

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    publisher.flush()
    with client.subscribe(topic, start="earliest") as events:
        seen = [next_record(events).payload.decode().split() for _ in range(2000)]
    for thread in range(4):
        assert [int(number) for of, number in seen if int(of) == thread] == list(range(500))


def test_client_publishes_to_more_subjects_than_it_caches(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, pattern=f"{topic}.>")
    # The number of subjects is larger than the number of publishers that the client keeps open.
    for number in range(300):
        client.send(f"{topic}.{number}", str(number))
    client.flush()
    with client.subscribe(f"{topic}.>", start="earliest") as events:
        seen = [next_record(events) for _ in range(300)]
    assert {record.subject: record.payload for record in seen} == {
        f"{topic}.{number}": str(number).encode() for number in range(300)
    }


def test_threads_publish_to_more_subjects_than_the_client_caches(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, pattern=f"{topic}.>")
    failed: list[BaseException] = []

    def publish() -> None:
        try:
            for number in range(300):
                client.publish(f"{topic}.{number}", b"x")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == []
    assert client.describe(topic).logs[0].last_seq == 4 * 300


def test_flush_raises_an_earlier_error_despite_later_publishes(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, reducer="book")
    client.create_topic(f"{topic}.many", pattern=f"{topic}.many.>")
    client.send(topic, b"no entry of a book")
    for number in range(300):
        client.publish(f"{topic}.many.{number}", b"x")
    with pytest.raises(errors.ReducerError):
        client.flush()
    client.flush()


def test_closing_a_client_raises_the_error_of_a_refused_record(client: dunlin.Client, url: str, topic: str) -> None:
    client.create_topic(topic, reducer="book")
    other = dunlin.connect(url)
    publisher = other.publisher(topic)
    publisher.send(b"no entry of a book")
    with pytest.raises(errors.ReducerError):
        other.close()
    assert other.closed
    with pytest.raises(errors.HandleClosedError):
        publisher.flush()
