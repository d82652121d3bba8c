"""Publishes an order book, follows the book, and reads it with NumPy.

    dunlin dev &
    python clients/python/examples/book.py
"""

import struct

import dunlin
import numpy as np

BID, ASK = 1, 2


def level(side: int, price: int, size: int) -> bytes:
    """Encodes the entry of a price level, as docs/feeds.md describes it."""
    return struct.pack("<BB6xqq", 1, side, price, size)


with dunlin.connect() as client:
    client.create_topic("example.book", reducer="book", reducer_options={"price_decimals": 2}, exist_ok=True)
    for step in range(10):
        client.send("example.book", level(BID, 10_000 - step, 10 + step) + level(ASK, 10_002 + step, 20 + step))
    client.flush()
    with client.book("example.book") as book:
        while len(book.bids()) < 10:
            book.update(timeout=1.0)
        assert book.bid is not None and book.ask is not None
        bids = book.bids(5)
        depth = np.cumsum(bids.sizes)
        print("best", book.price(book.bid.price), book.price(book.ask.price))
        print("depth of five bids", depth.tolist())
        print("their average price", book.price(int(np.average(bids.prices, weights=bids.sizes).round())))
