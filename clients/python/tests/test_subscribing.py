"""Tests of subscriptions, which deliver every record in order, or a gap."""

from __future__ import annotations

import threading

import dunlin
import pytest
from conftest import PATIENCE, next_record, until
from dunlin import errors


def fill(client: dunlin.Client, topic: str, records: int, record_bytes: int = 1000) -> None:
    with client.publisher(topic) as publisher:
        publisher.send_many(bytes(record_bytes) for _ in range(records))


def test_subscription_starts_after_a_position_or_at_a_time(client: dunlin.Client, topic: str) -> None:
    for number in range(5):
        client.publish(topic, str(number))
    with client.subscribe(topic, start="earliest") as events:
        read = [next_record(events) for _ in range(3)]
    text = str(read[-1].position)
    with client.subscribe(topic, start=dunlin.Position.parse(text)) as events:
        assert next_record(events).payload == b"3"
    with client.subscribe(topic, start=read[1].append_time_ns) as events:
        assert next_record(events).append_time_ns >= read[1].append_time_ns
    with client.subscribe(topic) as events:
        assert events.next(timeout=0) is None
        client.publish(topic, b"new")
        assert next_record(events).payload == b"new"


def test_positions_compare_by_value_and_are_parsed_from_text() -> None:
    first, second = dunlin.Position(7, 1), dunlin.Position(7, 2)
    assert first < second and first != second and first == dunlin.Position.parse("7-1")
    assert len({first, second, dunlin.Position(7, 1)}) == 2
    assert (str(second), repr(second)) == ("7-2", "Position(7, 2)")
    match second:
        case dunlin.Position(epoch, seq):
            assert (epoch, seq) == (7, 2)
    with pytest.raises(ValueError):
        dunlin.Position.parse("7")


def test_gaps_account_for_every_record_not_delivered(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, retention_bytes=64 << 10)
    with client.subscribe(topic, start="earliest") as events:
        published = 0
        seen, missed = 0, 0
        while missed == 0:
            # Publishes more bytes than the client has credit for and the topic retains, so that a gap occurs.
            fill(client, topic, 5000)
            published += 5000
            while seen + missed < published:
                match events.next(PATIENCE):
                    case dunlin.Record(seq=seq):
                        seen += 1
                        assert seq == seen + missed
                    case dunlin.Gap(topic=of, first=first, last=last, records=records) as gap:
                        assert (of, first, records) == (topic, seen + missed + 1, last - first + 1), gap
                        missed += records
                    case dunlin.Lagging(behind=behind, retained=retained):
                        assert behind > 0 and retained > 0
                    case other:
                        raise AssertionError(other)


def test_records_iterator_raises_at_a_gap_and_resumes(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, retention_bytes=64 << 10)
    fill(client, topic, 1)
    events = client.subscribe(topic, start="earliest")
    first = next_record(events).position
    fill(client, topic, 5000)
    late = client.subscribe(topic, start=first).records()
    with pytest.raises(dunlin.GapError) as caught:
        next(late)
    gap = caught.value.notice
    assert isinstance(gap, dunlin.Gap)
    assert gap.first == 2
    assert next(late).seq == gap.last + 1


def test_gap_ends_a_subscription_that_is_set_to_fail_on_gaps(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, retention_bytes=64 << 10)
    first = client.publish(topic, b"first").position
    fill(client, topic, 5000)
    events = client.subscribe(topic, start=first, on_gap="fail")
    told = events.next(PATIENCE)
    while isinstance(told, dunlin.Lagging):
        told = events.next(PATIENCE)
    assert isinstance(told, dunlin.Gap)
    for _ in range(2):
        with pytest.raises(errors.LostError):
            events.next(PATIENCE)


def test_deleted_topic_is_reported_after_its_last_record(client: dunlin.Client, topic: str) -> None:
    last = client.publish(topic, b"last").position
    events = client.subscribe(topic, start="earliest")
    client.delete_topic(topic)
    assert next_record(events).payload == b"last"
    deleted = events.next(PATIENCE)
    assert isinstance(deleted, dunlin.Deleted) and deleted.last == last
    with pytest.raises(errors.ClosedError):
        events.next(PATIENCE)


def test_wildcard_subscriptions_read_later_topics(client: dunlin.Client, topic: str) -> None:
    with client.subscribe(f"{topic}.*") as events:
        for name in ("a", "b"):
            client.publish(f"{topic}.{name}", name)
        seen = {record.subject: record.payload for record in (next_record(events) for _ in range(2))}
    assert seen == {f"{topic}.a": b"a", f"{topic}.b": b"b"}


def test_waiting_thread_lets_other_threads_run(client: dunlin.Client, topic: str) -> None:
    events = client.subscribe(topic)
    # If the waiting call held the interpreter's lock, this thread could not publish.
    publisher = threading.Thread(target=lambda: client.publish(topic, b"now"))
    publisher.start()
    assert next_record(events).payload == b"now"
    publisher.join()


def test_closing_a_subscription_ends_the_wait_of_another_thread(client: dunlin.Client, topic: str) -> None:
    events = client.subscribe(topic)
    seen: list[object] = []
    waiting = threading.Event()

    def read() -> None:
        waiting.set()
        seen.extend(events)
        seen.append("done")

    reader = threading.Thread(target=read)
    reader.start()
    waiting.wait()
    events.close()
    reader.join(PATIENCE)
    assert seen == ["done"]
    assert events.closed and list(events) == []
    with pytest.raises(errors.HandleClosedError):
        events.next(0)


def test_closing_a_client_closes_its_open_handles(url: str, topic: str) -> None:
    with dunlin.connect(url) as client:
        events = client.subscribe(topic)
        publisher = client.publisher(topic)
    assert client.closed and events.closed
    for used in (lambda: publisher.publish(b""), lambda: client.publish(topic, b""), lambda: client.topics()):
        with pytest.raises(errors.HandleClosedError):
            used()


def test_second_thread_reading_a_subscription_gets_a_busy_error(client: dunlin.Client, topic: str) -> None:
    events = client.subscribe(topic)
    read: list[object] = []

    def wait() -> None:
        while not read:
            try:
                read.append(events.next(PATIENCE))
            except errors.BusyError:
                pass

    reader = threading.Thread(target=wait)
    reader.start()

    def is_busy() -> bool:
        try:
            events.next(0)
        except errors.BusyError:
            return True
        return False

    until(is_busy)
    client.publish(topic, b"")
    reader.join()
    assert isinstance(read[0], dunlin.Record)


def test_invalid_subscription_arguments_are_value_errors(client: dunlin.Client, topic: str) -> None:
    with pytest.raises(ValueError, match="start must be"):
        client.subscribe(topic, start="begin")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on_gap must be"):
        client.subscribe(topic, on_gap="stop")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="records_max=0 is not a whole number"):
        client.subscribe(topic).batches(0)
