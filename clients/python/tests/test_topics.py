"""Tests of topics, and of exceptions for refused requests."""

from __future__ import annotations

import inspect

import dunlin
import pytest
from conftest import next_record
from dunlin import _dunlin, errors


def test_topic_is_created_described_listed_and_deleted(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, pattern=f"{topic}.>", retention_bytes=1 << 20, retention_records=100, partitions=2)
    described = client.describe(topic)
    assert (described.pattern, described.partitions) == (f"{topic}.>", 2)
    assert (described.retention_bytes, described.retention_records) == (1 << 20, 100)
    assert (described.reducer, described.durable, described.reliable) == (None, None, False)
    assert [log.partition for log in described.logs] == [0, 1]
    assert [line.name for line in client.topics(topic)] == [topic]
    client.delete_topic(topic)
    assert client.topics(topic) == []


def test_identical_topic_is_accepted_only_with_exist_ok(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic)
    client.create_topic(topic, exist_ok=True)
    with pytest.raises(errors.TopicExistsError):
        client.create_topic(topic)


def test_topic_description_has_the_options_of_its_reducer(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, reducer="book", reducer_options={"price_decimals": 2, "tick": 5})
    described = client.describe(topic)
    assert described.reducer == "book"
    assert (described.reducer_options["price_decimals"], described.reducer_options["tick"]) == ("2", "5")


def test_error_for_an_invalid_subject_has_code_and_advice(client: dunlin.Client) -> None:
    with pytest.raises(errors.SubjectError, match="empty token") as caught:
        client.subscribe("a..b")
    assert (caught.value.code, caught.value.number, caught.value.retry) == ("SUBJECT", 20, "no")
    assert caught.value.advice == "Correct the subject or pattern."
    assert isinstance(caught.value, dunlin.RefusedError)


def test_every_error_code_has_a_class() -> None:
    classes = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, dunlin.RefusedError)]
    found = {one.code: (one.number, one.retry, one.advice) for one in classes if one.code is not None}
    assert found == {name: (number, retry, advice) for number, name, retry, advice in _dunlin.CODES}


def test_invalid_address_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="is not an address"):
        dunlin.connect("http://localhost")


def test_every_call_skips_an_unreachable_first_address(url: str, topic: str) -> None:
    for dead in ("dunlin://127.0.0.1:9", "unix:///nowhere/dunlin.sock"):
        with dunlin.connect(f"{dead},{url}") as client:
            client.create_topic(topic, exist_ok=True)
            client.publish(topic, b"one")
            assert next_record(client.subscribe(topic, start="earliest")).payload == b"one"
            assert [line.name for line in client.topics(topic)] == [topic]
            client.kv.put(topic, b"1")
            assert client.kv.get(topic) is not None
            client.tasks.workers()


def test_unreachable_node_raises_a_connection_error() -> None:
    with pytest.raises(ConnectionError) as caught:
        dunlin.connect("unix:///nowhere/dunlin.sock")
    assert isinstance(caught.value, dunlin.DisconnectedError)
    assert caught.value.retry == "reconnect"
