"""The worker of `recordings.py`: parses a piece of recorded market data, and returns counts and a checksum."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from decimal import Decimal, InvalidOperation
from typing import Any

import dunlin

worker = dunlin.Worker(slots=2, ttl=2.0)


def digest(path: str, first: int, last: int) -> dict[str, Any]:
    """Parses the bytes of a file from `first` up to and excluding `last`.

    Returns the counts, the number of malformed lines, and the checksum.
    """
    with open(path, "rb") as file:
        file.seek(first)
        piece = file.read(last - first)
    lines = piece.splitlines()
    found = markets(lines) if piece.startswith(b"{") else orders(lines)
    return {**found, "lines": len(lines), "bytes": len(piece), "crc": zlib.crc32(piece)}


def markets(lines: list[bytes]) -> dict[str, Any]:
    """Counts the changes of markets, runners and prices. Each line is a message of a betting exchange."""
    found: Counter[str] = Counter()
    for line in lines:
        try:
            for market in json.loads(line)["mc"]:
                found["markets"] += 1
                for runner in market.get("rc", ()):
                    found["runners"] += 1
                    found["prices"] += sum(len(value) for value in runner.values() if isinstance(value, list))
        except (ValueError, KeyError, TypeError):
            found["broken"] += 1
    return dict(found)


def orders(lines: list[bytes]) -> dict[str, Any]:
    """Counts created, changed and deleted orders, and sums their volume. Each line is an order event of a currency
    exchange."""
    found: Counter[str] = Counter()
    volume = Decimal(0)
    for line in lines:
        try:
            _id, _at, _at_exchange, price, amount, action, _direction = line.decode().split(",")
            volume += Decimal(price) * Decimal(amount)
            found[action] += 1
        except (ValueError, InvalidOperation):
            found["broken"] += 1
    return {**found, "volume": str(volume)}


@worker.task("digest")
def run(task: dunlin.Task) -> dict[str, Any]:
    piece = task.json()
    return digest(piece["path"], piece["first"], piece["last"])


if __name__ == "__main__":
    worker.run()
