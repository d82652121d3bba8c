"""Measures how many records of 64 bytes a Python program publishes and reads per second, one by one and in batches.

    dunlin dev &
    python clients/python/examples/speed.py [RECORDS]
"""

import sys
import time

import dunlin
import numpy as np

RECORDS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
PAYLOAD = bytes(range(64))


def told(what: str, began: float) -> None:
    print(f"{what:<36} {RECORDS / (time.perf_counter() - began) / 1e6:6.2f} M records/s")


with dunlin.connect() as client:
    client.create_topic("example.speed", retention_bytes=RECORDS * 96 + (64 << 20))
    try:
        with client.publisher("example.speed") as publisher:
            began = time.perf_counter()
            for _ in range(RECORDS):
                publisher.send(PAYLOAD)
            publisher.flush()
            told("published one by one", began)
        client.delete_topic("example.speed")
        client.create_topic("example.speed", retention_bytes=RECORDS * 96 + (64 << 20))
        rows = np.tile(np.frombuffer(PAYLOAD, np.uint8), (4096, 1))
        with client.publisher("example.speed") as publisher:
            began = time.perf_counter()
            for at in range(0, RECORDS, len(rows)):
                publisher.send_rows(rows[: RECORDS - at])
            publisher.flush()
            told("published as rows of an array", began)

        began, seen = time.perf_counter(), 0
        for record in client.subscribe("example.speed", start="earliest").records():
            seen += 1
            if record.seq == RECORDS:
                break
        told("read one by one", began)
        assert seen == RECORDS

        began, sizes = time.perf_counter(), 0
        for record in client.subscribe("example.speed", start="earliest").records():
            sizes += len(record.payload)
            if record.seq == RECORDS:
                break
        told("read one by one, with payloads", began)
        assert sizes == RECORDS * 64

        began, seen, same = time.perf_counter(), 0, 0
        first = int.from_bytes(PAYLOAD[:8], "little")
        for batch in client.subscribe("example.speed", start="earliest").batches():
            if isinstance(batch, dunlin.Batch):
                seen += len(batch)
                same += int((batch.as_array([("first", "<u8"), ("rest", "V56")])["first"] == first).sum())
            if seen == RECORDS:
                break
        told("read in batches, compared by NumPy", began)
        assert same == RECORDS
    finally:
        client.delete_topic("example.speed")
