"""Tests of the permissions for keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import dunlin
import pytest
from conftest import STEADY_MS, Node
from dunlin import errors, kv

ANA, BOB, ROOT = ("dunlin_" + letter * 43 for letter in "abr")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Node]:
    users = tmp_path / "users.toml"
    digest = {token: hashlib.sha256(token.encode()).hexdigest() for token in (ANA, BOB, ROOT)}
    users.write_text(
        f"""
        [users.ana]
        tokens = ["sha256:{digest[ANA]}"]
        keys = ["a/*", "$lock/a/*"]
        keys_deny = ["a/secret*"]
        publish = ["orders.>"]
        [users.root]
        tokens = ["sha256:{digest[ROOT]}"]
        keys = ["*"]
        [tenants.bcorp]
        [users.bob]
        tokens = ["sha256:{digest[BOB]}"]
        tenant = "bcorp"
        tasks = ["submit"]
        """
    )
    node = Node(tmp_path, STEADY_MS, "--auth-users-file", str(users))
    node.start()
    yield node
    node.kill()


def test_user_reaches_only_its_permitted_keys(guarded: Node) -> None:
    with dunlin.connect(guarded.url, token=ANA) as ana, dunlin.connect(guarded.url, token=ROOT) as root:
        ana.kv.put("a/1", "x")
        assert ana.kv.get("a/1") is not None
        assert len(ana.kv.range("a/", "a/s").entries) == 1
        with ana.kv.lock("a/gate") as lock:
            assert lock.is_held
        for key in ("b/1", "a", "a/secret", "$lock/b"):
            calls: tuple[Callable[[], object], ...] = (
                lambda: ana.kv.get(key),
                lambda: ana.kv.stale.get(key),
                lambda: ana.kv.put(key, ""),
                lambda: ana.kv.cas(key, 0, ""),
                lambda: ana.kv.delete(key),
                lambda: ana.kv.txn(then=[kv.Put("a/2", ""), kv.Get(key)]),
                lambda: ana.kv.txn([kv.unchanged(key, 0)]),
                lambda: ana.kv.watch(key, start="oldest"),
            )
            for call in calls:
                with pytest.raises(errors.ForbiddenError) as refused:
                    call()
                assert refused.value.code == "FORBIDDEN"
        calls = (
            lambda: ana.kv.range(""),
            lambda: list(ana.kv.prefix("a/")),
            lambda: ana.kv.delete_range("a/", "a0"),
            lambda: ana.kv.watch("a/"),
            lambda: ana.kv.holder("gate"),
            lambda: ana.kv.lock("gate").acquire(),
            lambda: ana.publish("other", ""),
            lambda: ana.subscribe("orders.>"),
        )
        for call in calls:
            with pytest.raises(errors.ForbiddenError):
                call()
        assert [entry.key for entry in root.kv.prefix("")] == [b"a/1"], "nothing that was refused was done"
        with ana.kv.watch("a/2") as watch:
            root.kv.put("a/secret", "hidden")
            both = root.kv.batch({"b/1": "hidden", "a/2": "seen", "a/secret": "hidden"})
            change = next(watch)
            assert (change.revision, [event.key for event in change.events]) == (both, [b"a/2"])


def test_tenant_may_not_manage_dead_letters_of_another(guarded: Node) -> None:
    with dunlin.connect(guarded.url, token=BOB) as bob:
        bob.tasks.submit("bcorp", "mail")
        assert (bob.tasks.redrive("bcorp"), bob.tasks.discard("bcorp")) == (0, 0)
        calls: list[Callable[[], int]] = [
            lambda: bob.tasks.redrive("acme"),
            lambda: bob.tasks.discard("acme"),
        ]
        for call in calls:
            with pytest.raises(errors.ForbiddenError):
                call()
