"""Publishes several ticks, reads them back, and prints gaps.

    dunlin dev &
    python clients/python/examples/ticks.py
"""

import dunlin

with dunlin.connect() as client:
    client.create_topic("example.ticks", pattern="example.ticks.>", exist_ok=True)
    for price in range(100, 105):
        client.publish("example.ticks.BTC-USD", str(price), headers={"venue": "example"})
    with client.subscribe("example.ticks.>", start="earliest", name="ticks.py") as events:
        for event in events:
            match event:
                case dunlin.Record(subject=subject, payload=payload, seq=seq):
                    print(seq, subject, payload.decode())
                    if payload == b"104":
                        break
                case dunlin.Gap(first=first, last=last):
                    print(f"missed {first} to {last}")
                case dunlin.Lagging(behind=behind, retained=retained):
                    print(f"{behind} behind of {retained}")
                case dunlin.EpochChanged(last_seen=last_seen):
                    print(f"the node began anew; the last record seen was {last_seen}")
