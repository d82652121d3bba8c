"""Tests of worlds: regions as columns, commands, and viewers, with a running world."""

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
    """Starts a world with one process and one region. Yields the URL of its node."""
    command = [os.environ["DUNLIN_BINARY"], "space", "run", "birds", "--processes", "1", "--no-standby"]
    options = ["--flock", str(ENTITIES), "--edge", str(EDGE), "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.kill()


def test_region_updates_do_not_change_earlier_entity_arrays(world_url: str) -> None:
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


def test_viewer_follows_an_entity_that_obeys_commands(world_url: str) -> None:
    one = 1_000_007
    with dunlin.connect(world_url) as client:
        until(lambda: b"space/birds/began/1" in {entry.key for entry in client.kv.prefix("space/birds/")})
        world = client.world("birds")
        with world.near(one, within=2 * EDGE) as viewer:
            change = next(iter(viewer))
            assert change.what == "enter" and change.entity is not None and change.entity.id == change.id
            until(lambda: (viewer.next(0.1) and None) or len(viewer.visible) == ENTITIES)
            assert set(viewer.visible) == set(range(1_000_000, 1_000_000 + ENTITIES))
            done = world.command(one, kind=77)
            assert done.process > 0 and done.region == 1
            assert world.command(one, position=(1.0, 2.0, 3.0)).tick >= done.tick
        # A new viewer for the new kind reports this entity, and no entities of other kinds.
        with world.near(one, within=2 * EDGE, kind=77) as viewer:
            until(lambda: (viewer.next(0.1) and None) or set(viewer.visible) == {one})
            entity = viewer.visible[one]
            assert entity.kind == 77 and len(entity.position) == len(entity.velocity) == 3
        with pytest.raises(dunlin.Error):
            viewer.next(0.1)


def test_spawned_entity_is_visible_until_despawned(world_url: str) -> None:
    with dunlin.connect(world_url) as client:
        until(lambda: b"space/birds/began/1" in {entry.key for entry in client.kv.prefix("space/birds/")})
        world = client.world("birds")
        assert world.spawn(7, position=(1.0, 2.0, 3.0), kind=78).region == 1
        with world.near(7, within=2 * EDGE, kind=78) as viewer:
            until(lambda: (viewer.next(0.1) and None) or set(viewer.visible) == {7})
        with pytest.raises(ValueError, match="3 finite numbers"):
            world.spawn(8, position=(1.0, 2.0))
        assert world.despawn(7).region == 1
        with pytest.raises(LookupError, match="no region of the world has entity 7"):
            world.despawn(7)


def test_invalid_changes_of_a_world_raise_value_errors(world_url: str) -> None:
    with dunlin.connect(world_url) as client:
        until(lambda: b"space/birds/began/1" in {entry.key for entry in client.kv.prefix("space/birds/")})
        world = client.world("birds")
        world.spawn(9, position=(1.0, 2.0, 3.0))
        with pytest.raises(ValueError, match="entity 9 is already in region 1"):
            world.spawn(9, position=(1.0, 2.0, 3.0))
        with pytest.raises(ValueError, match="outside of the world"):
            world.spawn(10, position=(1e12, 2.0, 3.0))
        with pytest.raises(ValueError, match="outside of the world"):
            world.command(9, position=(1e12, 2.0, 3.0))
        world.despawn(9)


def test_unknown_entities_and_worlds_raise_lookup_errors(world_url: str) -> None:
    with dunlin.connect(world_url) as client:
        until(lambda: b"space/birds/began/1" in {entry.key for entry in client.kv.prefix("space/birds/")})
        world = client.world("birds")
        with pytest.raises(LookupError, match="no region of the world has entity 5"):
            world.command(5, kind=1)
        with pytest.raises(LookupError, match='there is no world "fish"'):
            client.world("fish").near(1, within=1.0)
        for name in ("a b", "", "a.b"):
            with pytest.raises(ValueError, match="cannot name a world"):
                client.world(name)
            with pytest.raises(ValueError, match="cannot name a world"):
                client.region(name, 1)
        with pytest.raises(LookupError, match="no region of the world has entity 5"):
            world.command(5, kind=1, timeout=1e9)
        with pytest.raises(ValueError, match="timeout=1000000000000000.0: expected at most"):
            world.command(5, kind=1, timeout=1e15)
        with pytest.raises(ValueError, match="nothing to change"):
            world.command(1_000_000)
        with pytest.raises(ValueError, match="3 finite numbers"):
            world.command(1_000_000, velocity=(1.0, 2.0))
        with pytest.raises(ValueError, match="3 finite numbers"):
            world.command(1_000_000, velocity=(1.0, 2.0, float("nan")))
        with pytest.raises(ValueError, match="above 0"):
            world.near(1_000_000, within=-1.0)
        with pytest.raises(ValueError, match="2 or 3 dimensions"):
            client.world("birds", dimensions=4)
