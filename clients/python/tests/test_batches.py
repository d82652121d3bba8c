"""Tests of batches, whose columns are views of the records."""

from __future__ import annotations

import subprocess
import sys

import dunlin
import numpy as np
import pytest
from conftest import PATIENCE


def batches_of(events: dunlin.Subscription, records: int, records_max: int = 4096) -> list[dunlin.Batch]:
    found: list[dunlin.Batch] = []
    for batch in events.batches(records_max):
        assert isinstance(batch, (dunlin.Batch, dunlin.Lagging))
        if isinstance(batch, dunlin.Batch):
            found.append(batch)
        if sum(map(len, found)) >= records:
            break
    return found


def test_columns_of_a_batch_equal_the_fields_of_its_records(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, pattern=f"{topic}.>", retention_bytes=64 << 20)
    with client.publisher(f"{topic}.>") as publisher:
        for number in range(3000):
            publisher.send("x" * (number % 7), subject=f"{topic}.{number % 3}", event_time_ns=number)
    found = batches_of(client.subscribe(f"{topic}.>", start="earliest"), 3000, 1000)
    assert all(len(batch) <= 1000 for batch in found)
    assert np.concatenate([batch.seqs for batch in found]).tolist() == list(range(1, 3001))
    assert np.concatenate([batch.event_times_ns for batch in found]).tolist() == list(range(3000))
    for batch in found:
        assert batch.logs == ((topic, 0),)
        records = [batch[index] for index in range(len(batch))]
        assert [record.seq for record in records] == batch.seqs.tolist()
        assert [record.epoch for record in records] == batch.epochs.tolist()
        assert [record.append_time_ns for record in records] == batch.append_times_ns.tolist()
        assert [record.payload for record in records] == batch.payloads()
        offsets = batch.offsets.tolist()
        assert [bytes(batch.data[a:b]) for a, b in zip(offsets, offsets[1:])] == batch.payloads()
        assert batch[-1].seq == batch.seqs[-1]
        with pytest.raises(IndexError):
            batch[len(batch)]


def test_payloads_of_equal_length_form_an_array_without_a_copy(client: dunlin.Client, topic: str) -> None:
    trade = np.dtype([("price", "<i8"), ("size", "<i4"), ("side", "S4")])
    sent = np.zeros(500, trade)
    sent["price"], sent["size"], sent["side"] = np.arange(500), 7, b"buy"
    with client.publisher(topic) as publisher:
        assert publisher.send_rows(sent) == 500
    found = batches_of(client.subscribe(topic, start="earliest"), 500)
    arrays = [batch.as_array(trade) for batch in found]
    assert np.array_equal(np.concatenate(arrays), sent)
    assert not arrays[0].flags.owndata and not arrays[0].flags.writeable
    assert np.shares_memory(arrays[0], np.frombuffer(found[0].data, np.uint8))
    with pytest.raises(ValueError, match="each payload has 16 bytes"):
        found[0].as_array("<i8")


def test_array_of_payloads_of_different_lengths_is_an_error(client: dunlin.Client, topic: str) -> None:
    client.publisher(topic).publish_batch([b"1", b"22"])
    (batch,) = batches_of(client.subscribe(topic, start="earliest"), 2)
    with pytest.raises(ValueError, match="several lengths"):
        batch.as_array("u1")


def test_payload_views_outlive_the_batch_and_the_client(url: str, topic: str) -> None:
    with dunlin.connect(url) as client:
        client.publisher(topic).publish_batch([b"first", b"other"])
        events = client.subscribe(topic, start="earliest")
        (batch,) = batches_of(events, 2)
        seqs, view, record = batch.seqs, batch[1].view, batch[0]
    del batch, events, client
    assert (seqs.tolist(), bytes(view), record.payload) == ([1, 2], b"other", b"first")
    with pytest.raises(TypeError):
        view[0] = 0
    assert not seqs.flags.writeable


def test_subscription_can_switch_from_records_to_batches(client: dunlin.Client, topic: str) -> None:
    client.publisher(topic).publish_batch([str(number) for number in range(100)])
    events = client.subscribe(topic, start="earliest")
    one = events.next(PATIENCE)
    assert isinstance(one, dunlin.Record) and one.payload == b"0"
    rest = [payload for batch in batches_of(events, 99) for payload in batch.payloads()]
    assert rest == [str(number).encode() for number in range(1, 100)]


def test_batch_shows_the_topic_and_partition_of_each_record(client: dunlin.Client, topic: str) -> None:
    client.create_topic(topic, partitions=4, retention_bytes=64 << 20)
    with client.publisher(topic) as publisher:
        for number in range(400):
            publisher.send(str(number), key=str(number % 40))
    for batch in batches_of(client.subscribe(topic, start="earliest"), 400):
        for index, log in enumerate(batch.log_numbers.tolist()):
            assert batch.logs[log] == (batch[index].topic, batch[index].partition)


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import dunlin
with dunlin.connect(sys.argv[1]) as client:
    client.publisher(sys.argv[2]).publish_batch([b"a", b"bc"])
    batch = next(client.subscribe(sys.argv[2], start="earliest").batches())
    assert isinstance(batch.seqs, memoryview) and batch.seqs.tolist() == [1, 2]
    assert batch.offsets.tolist() == [0, 1, 3] and batch.payloads() == [b"a", b"bc"]
    try:
        batch.as_array("u1")
    except ImportError:
        print("fine")
"""


def test_client_works_without_numpy(url: str, topic: str) -> None:
    program = [sys.executable, "-c", WITHOUT_NUMPY, url, topic]
    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout == "fine\n"
