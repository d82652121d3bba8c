"""A region of a world as columns, against one that is running."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import dunlin
import numpy
import pytest

from conftest import until

ENTITIES = 500
EDGE = 1_000.0


@pytest.fixture
def world_url() -> Iterator[str]:
    """The node of a world of one process and one region."""
    command = [os.environ["DUNLIN_BINARY"], "space", "run", "birds", "--processes", "1", "--no-standby"]
    options = ["--flock", str(ENTITIES), "--edge", str(EDGE), "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.kill()


def test_a_region_is_columns_that_stay_as_they_were(world_url: str) -> None:
    with dunlin.connect(world_url) as client:
        until(lambda: b"space/birds/began/1" in {entry.key for entry in client.kv.prefix("space/birds/")})
        with client.region("birds", 1) as region:
            until(lambda: region.update(0.1) > 0 and len(region) == ENTITIES)
            first = region.entities
            assert first is not None and len(first) == ENTITIES
            ids, kinds = first.ids, first.kinds
            assert ids.dtype == numpy.uint64 and kinds.dtype == numpy.uint32
            assert sorted(ids) == list(range(1_000_000, 1_000_000 + ENTITIES))
            assert len(first.positions) == len(first.velocities) == 3
            x = first.positions[0]
            assert x.dtype == numpy.float32 and not x.flags.writeable and not x.flags.owndata
            assert all(0.0 <= along.min() and along.max() <= EDGE for along in first.positions)
            before, tick = x.copy(), first.tick
            until(lambda: region.update(0.1) > 0 and region.entities is not None and region.entities.tick > tick + 10)
            now = region.entities
            assert now is not None
            assert (x == before).all() and first.tick == tick
            assert (now.positions[0] != before).any()
            assert (numpy.abs(numpy.stack(now.velocities)).max(axis=0) > 0).all()
        with pytest.raises(ValueError, match="use region()"):
            client.table("space.birds.region.1")
