"""Tests of tasks and workers, with a real node and worker processes. No assertion depends on time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import dunlin
import pytest
from conftest import PATIENCE, Node, until
from dunlin import errors
from dunlin._slots import ProcessSlot, _restart_peak_memory, _task_memory_bytes
from dunlin.tasks import Limit, NewTask, Retry
from dunlin.worker import _RunningTasks

WORKER = Path(__file__).with_name("tasks_worker.py")
_tenants = count(1)


@pytest.fixture
def tenant() -> str:
    return f"tenant-{next(_tenants)}"


@pytest.fixture
def client(own_node: Node) -> Iterator[dunlin.Client]:
    with dunlin.connect(own_node.url) as client:
        yield client


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(own_node: Node, tmp_path: Path) -> Iterator[Start]:
    """Returns a function that starts a worker. At the end, workers that still run are killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, str(WORKER), *options],
            env={**os.environ, "DUNLIN_URL": own_node.url},
            stderr=(tmp_path / "workers.log").open("a"),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("options", [(), ("--processes",)])
def test_task_functions_of_every_kind_return_results(
    client: dunlin.Client, tenant: str, start: Start, options: tuple[str, ...]
) -> None:
    start(*options)
    tasks = client.tasks
    upper = tasks.submit_all(tenant, [NewTask("upper", f"task {number}") for number in range(50)])
    total = tasks.submit(tenant, "sum", [1, 2, 3])
    for number, task in enumerate(upper.ids):
        done = tasks.wait(task, PATIENCE)
        assert (done.stage, done.result) == ("completed", f"TASK {number}".encode())
        assert done.memory_bytes > 1_000_000
    assert json.loads(tasks.wait(total, PATIENCE).result) == {"sum": 6, "attempt": 1}
    retry = Retry(5, base=0.01, cap=0.02)
    flaky = tasks.wait(tasks.submit(tenant, "flaky", retry=retry), PATIENCE)
    assert (flaky.stage, flaky.result, flaky.attempts) == ("completed", b"at last", 3)
    hopeless = tasks.wait(tasks.submit(tenant, "hopeless", retry=retry), PATIENCE)
    assert (hopeless.stage, hopeless.attempts) == ("dead", 1)
    assert hopeless.error is not None and "there is no way" in hopeless.error and "tasks_worker.py" in hopeless.error
    burnt = tasks.wait(tasks.submit(tenant, "burn", "0.1"), PATIENCE)
    assert 0.09 <= burnt.cpu <= burnt.run + 0.05, "what it took of a processor is told"
    account = tasks.tenants()[tenant]
    assert (account.completed, account.dead, account.queued, account.running) == (53, 1, 0, 0)


def test_dead_process_fails_only_its_task_which_is_retried(
    client: dunlin.Client, tenant: str, start: Start
) -> None:
    worker = start("--processes")
    crash = client.tasks.submit(tenant, "crash", retry=Retry(3, base=0.01, cap=0.02))
    done = client.tasks.wait(crash, PATIENCE)
    assert (done.stage, done.result, done.attempts) == ("completed", b"survived", 2)
    assert worker.poll() is None, "the worker lives on"


def test_warm_worker_joins_only_after_it_is_told_to_work(own_node: Node) -> None:
    line, stdin = socket.socketpair()
    line.settimeout(PATIENCE)
    told = {"DUNLIN_URL": own_node.url, "DUNLIN_WORKER_NAME": "warm", "DUNLIN_WORKER_WARM": "1", "DUNLIN_END_WITH_STDIN": "1"}
    with dunlin.connect(own_node.url) as client:
        worker = subprocess.Popen([sys.executable, str(WORKER)], env={**os.environ, **told}, stdin=stdin.fileno())
        try:
            stdin.close()
            assert line.recv(64) == b"prepared\n"
            assert "warm" not in [found.name for found in client.tasks.workers()]
            line.sendall(b"work\n")
            assert client.tasks.wait(client.tasks.submit("pool", "upper", "a"), PATIENCE).result == b"A"
            assert "warm" in [found.name for found in client.tasks.workers()]
            line.close()
            assert worker.wait(PATIENCE) == 1, "it ends with the node that started it"
        finally:
            worker.kill()
            worker.wait()


def test_cancelled_tasks_stop_in_processes_and_coroutines(
    client: dunlin.Client, tenant: str, start: Start, tmp_path: Path
) -> None:
    start("--processes")
    for kind in ("slow", "aslow"):
        path = tmp_path / kind
        task = client.tasks.submit(tenant, kind, str(path))
        until(Path(f"{path}.begun").exists)
        client.tasks.cancel(task)
        assert client.tasks.wait(task, PATIENCE).stage == "cancelled"
    until((tmp_path / "aslow.cancelled").exists)
    # The slots are free again, so another task can run.
    assert client.tasks.wait(client.tasks.submit(tenant, "upper", "a"), PATIENCE).result == b"A"


def test_sigterm_lets_a_worker_finish_its_tasks_and_end(
    client: dunlin.Client, tenant: str, start: Start, tmp_path: Path
) -> None:
    worker = start()
    task = client.tasks.submit(tenant, "slow", str(tmp_path / "slow"))
    until((tmp_path / "slow.begun").exists)
    worker.send_signal(signal.SIGTERM)
    until(lambda: all(found.is_draining for found in client.tasks.workers()))
    later = client.tasks.submit(tenant, "upper", "later")
    assert worker.poll() is None, "it still has a task"
    (tmp_path / "slow").touch()
    assert client.tasks.wait(task, PATIENCE).result == b"done"
    assert worker.wait(PATIENCE) == 0
    assert client.tasks.get(later).stage == "ready", "it took nothing new"
    assert "no worker serves kind upper" in client.tasks.why(later)


def test_task_of_a_killed_worker_restarts_with_a_higher_token(
    client: dunlin.Client, tenant: str, start: Start, tmp_path: Path
) -> None:
    first = start()
    task = client.tasks.submit(tenant, "slow", str(tmp_path / "slow"))
    begun = tmp_path / "slow.begun"
    # The worker creates the file before it writes the token, so this waits for both.
    until(lambda: begun.exists() and len(begun.read_text().split()) == 1)
    first.kill()
    start()
    until(lambda: len(begun.read_text().split()) == 2)
    tokens = [int(token) for token in begun.read_text().split()]
    assert tokens[0] < tokens[1]
    (tmp_path / "slow").touch()
    done = client.tasks.wait(task, PATIENCE)
    assert (done.stage, done.attempts, done.lost) == ("completed", 1, 1)


def test_worker_reconnects_to_a_restarted_node(own_node: Node, tenant: str, start: Start, tmp_path: Path) -> None:
    worker = start()
    with dunlin.connect(own_node.url) as client:
        assert client.tasks.wait(client.tasks.submit(tenant, "upper", "a"), PATIENCE).result == b"A"
    own_node.kill()
    own_node.start()
    with dunlin.connect(own_node.url) as client:
        assert client.tasks.wait(client.tasks.submit(tenant, "upper", "b"), PATIENCE).result == b"B"
    assert worker.poll() is None


def test_invalid_task_calls_raise_the_matching_error_class(client: dunlin.Client, tenant: str) -> None:
    tasks = client.tasks
    with pytest.raises(errors.NoTaskError) as refused:
        tasks.get("4d")
    assert refused.value.task == "4d"
    for unreadable in ("", "it", "-1", "1_0", 77):
        with pytest.raises(ValueError, match="expected the id of a task"):
            tasks.get(unreadable)  # type: ignore[arg-type]
    with pytest.raises(errors.BadTaskError):
        tasks.submit(tenant, "upper", priority=12)
    for name, wrong in (("priority", -1), ("priority", 300), ("cpu_milli", -1), ("memory_bytes", 2**64), ("retry", 70_000)):
        with pytest.raises(ValueError, match=f"{name}={wrong} is not a whole number from 0 to"):
            tasks.submit(tenant, "upper", **{name: wrong})
    with pytest.raises(errors.TaskTooLargeError, match="the tenant is too long: name_bytes_max = 255, but the size is 300"):
        tasks.submit("t" * 300, "upper")
    with pytest.raises(errors.TaskTooLargeError, match="run_bytes_max = 16777216, but the size is 178"):
        tasks.submit(tenant, "upper", b"x" * (17 << 20))
    with pytest.raises(errors.BadTaskError, match="waits for task abc123, which is not known"):
        tasks.submit(tenant, "upper", after="abc123")
    with pytest.raises(errors.BadTaskError):
        tasks.submit(tenant, "upper", deadline=1.0)
    task = tasks.submit(tenant, "upper", labels={"user": "ann"}, idempotency_key="once")
    again = tasks.submit_all(tenant, [NewTask("upper", idempotency_key="once")])
    assert (again.ids, again.known) == ([task], [True])
    assert [found.id for found in tasks.list(tenant, label=("user", "ann"))] == [task]
    assert [found.id for found in tasks.list(tenant, stage="dead")] == []
    tasks.cancel(task)
    with pytest.raises(errors.TaskOverError):
        tasks.cancel(task)
    with pytest.raises(ValueError, match="expected one of blocked, delayed"):
        list(tasks.list(stage="asleep"))  # type: ignore[arg-type]
    with pytest.raises(errors.RequestTimeoutError):
        tasks.wait(tasks.submit(tenant, "nobody does this"), 0.05)
    with pytest.raises(ValueError):
        dunlin.Worker().run()


def test_calls_and_errors_use_the_same_task_and_worker_ids(
    client: dunlin.Client, tenant: str, start: Start, tmp_path: Path
) -> None:
    start()
    tasks = client.tasks
    first = tasks.submit(tenant, "slow", str(tmp_path / "slow"))
    second = tasks.submit(tenant, "whoami", after=first)
    until((tmp_path / "slow.begun").exists)
    assert f" {first} " in tasks.why(second)
    assert tasks.get(first).worker in [worker.id for worker in tasks.workers()]
    (tmp_path / "slow").touch()
    done = tasks.wait(second, PATIENCE)
    assert (done.id, done.after, done.result) == (second, [first], second.encode())
    with pytest.raises(errors.TaskOverError) as over:
        tasks.cancel(second)
    assert over.value.task == second and f"task {second} " in str(over.value)


def test_task_goes_to_a_worker_with_the_labels_it_needs(client: dunlin.Client, tenant: str, start: Start) -> None:
    start()
    tasks = client.tasks
    assert tasks.wait(tasks.submit(tenant, "upper", "a"), PATIENCE).result == b"A"
    task = tasks.submit(tenant, "upper", "b", needs={"gpu": "a100"}, cpu_milli=500, memory_bytes=1 << 20)
    assert "no worker has label gpu=a100" in tasks.why(task)
    assert tasks.get(task).needs == [("gpu", "a100")]
    start("--gpu=a100")
    assert tasks.wait(task, PATIENCE).result == b"B"


def test_changed_limits_apply_to_tasks_already_waiting(client: dunlin.Client, tenant: str) -> None:
    tasks = client.tasks
    tasks.set_tenant(tenant, limits=[Limit("user", running=1), Limit("user", rate=(1, 3600.0, 2))])
    of_ann = [NewTask("upper", labels={"user": "ann"}) for _ in range(3)]
    ids = tasks.submit_all(tenant, of_ann).ids
    assert [tasks.get(task).stage for task in ids] == ["ready", "limited", "limited"]
    tasks.set_tenant(tenant, limits=[Limit("user", rate=(1, 3600.0, 2))])
    assert [tasks.get(task).stage for task in ids] == ["ready", "ready", "limited"]
    assert "tasks with user ann may start in" in tasks.why(ids[2])
    tasks.set_tenant(tenant)
    assert tasks.get(ids[2]).stage == "ready"


_ODD = ("refused", "surrogate", "odd", "exit", "interrupt", "nan", "unsendable", "lone")


@pytest.mark.parametrize(("kind", "options"), [("raise", ()), ("raise", ("--processes",)), ("araise", ())])
def test_task_that_raises_any_exception_fails_and_frees_its_slot(
    client: dunlin.Client, tenant: str, start: Start, kind: str, options: tuple[str, ...]
) -> None:
    start(*options)
    # There are more tasks than slots, so the test also checks that each slot becomes free again.
    for what in _ODD * 2:
        done = client.tasks.wait(client.tasks.submit(tenant, kind, what, retry=0), PATIENCE)
        assert (done.stage, done.failure) == ("dead", "failed"), what
        assert done.error, what
    after = client.tasks.wait(client.tasks.submit(tenant, "upper", "well"), PATIENCE)
    assert after.result == b"WELL"


def test_task_options_out_of_range_are_refused(client: dunlin.Client, tenant: str) -> None:
    submit = client.tasks.submit
    for wrong in ({"not_before": time.time() * 1000}, {"deadline": time.time() * 1_000_000}):
        with pytest.raises(ValueError, match="seconds since the Unix epoch"):
            submit(tenant, "x", **wrong)
    with pytest.raises(errors.RefusedError, match="milliseconds since 1970"):
        submit(tenant, "x", not_before=time.time() / 1000)
    for wrong in (
        {"not_before": -1.0},
        {"not_before": float("nan")},
        {"timeout": 0.0},
        {"timeout": float("inf")},
        {"timeout": 1e9},
        {"payload": float("nan")},
    ):
        with pytest.raises(ValueError):
            submit(tenant, "x", **wrong)
    with pytest.raises(TypeError):
        submit(tenant, "x", retry=True)
    with pytest.raises(ValueError):
        dunlin.Worker(slots=-1)


def test_idempotency_key_of_a_different_task_is_refused(client: dunlin.Client, tenant: str) -> None:
    submit = client.tasks.submit
    task = submit(tenant, "mail", "x", idempotency_key="order-17", timeout=90.0, retry=7)
    assert submit(tenant, "mail", "x", idempotency_key="order-17") == task
    with pytest.raises(errors.RefusedError, match="differs from it in queue, kind, payload or subject"):
        submit(tenant, "mail", "y", idempotency_key="order-17")
    info = client.tasks.get(task)
    assert (info.idempotency_key, info.timeout, info.retries) == (b"order-17", 90.0, 7)
    assert abs(info.submitted - time.time()) < PATIENCE
    client.tasks.cancel(task)
    with pytest.raises(errors.TaskOverError, match="cancelled"):
        submit(tenant, "mail", "x", idempotency_key="order-17")


def test_worker_that_cannot_connect_restores_signal_handlers() -> None:
    def refuse() -> dunlin.Client:
        raise RuntimeError("no credentials")

    worker = dunlin.Worker(connect=refuse)
    worker.task("upper")(lambda task: task.payload)
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    with pytest.raises(RuntimeError, match="no credentials"):
        worker.run()
    assert [signal.getsignal(number) for number in numbers] == before


def test_each_task_of_several_shards_gets_its_own_result(sharded_node: Node) -> None:
    slots = 8
    all_run = threading.Barrier(slots)
    worker = dunlin.Worker(sharded_node.url, slots=slots)

    @worker.task("greet")
    def greet(task: dunlin.Task) -> str:
        # Shards assign the same tokens, so tasks with equal tokens run at the same time here.
        all_run.wait(PATIENCE)
        return f"hello {task.tenant}"

    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        with dunlin.connect(sharded_node.url) as client:
            submitted = {name: client.tasks.submit(name, "greet") for name in (f"t{n}" for n in range(slots))}
            results = {name: client.tasks.wait(task, PATIENCE).result for name, task in submitted.items()}
    finally:
        worker.stop()
        thread.join()
    assert results == {name: f"hello {name}".encode() for name in submitted}


class _StoppedAttachment:
    """A mock of a worker's attachment, for which all tasks have to stop."""

    def __init__(self) -> None:
        self.checks = 0
        self.failed = threading.Event()

    def is_stopped(self, _token: int) -> bool:
        self.checks += 1
        return True

    def fail(self, *_report: object) -> None:
        self.failed.set()


def test_stopped_coroutine_is_cancelled_once_and_cleans_up() -> None:
    attachment: Any = _StoppedAttachment()
    cleaned_up = threading.Event()

    async def function(_task: dunlin.Task) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            first = attachment.checks
            while attachment.checks < first + 2:
                await asyncio.sleep(0)
            cleaned_up.set()

    running = _RunningTasks(attachment, {"k": function}, 1, False)
    running.begin(dunlin.Task("11", 1, "k", "tenant", b"", 1, 60.0, attachment))
    assert attachment.failed.wait(PATIENCE)
    until(lambda: running.is_idle)
    running.end()
    assert cleaned_up.is_set()


def test_real_time_signal_to_a_process_fails_only_its_task() -> None:
    slot = ProcessSlot()
    number = signal.SIGRTMIN + 1
    result = slot.run(signal.raise_signal, (number,), lambda: False)
    assert result.error == f"the task's process was ended by signal {number}"
    assert slot.run(abs, (-1,), lambda: False).value == 1
    slot.end()


def test_reused_process_reports_memory_of_its_latest_task_only() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
        can_restart_peak = True
    except OSError:
        # The system does not permit it. The peak of the whole process is then reported.
        can_restart_peak = False
    slot = ProcessSlot()
    bytes_used = 128 << 20
    large = slot.run(eval, (f"len(b'x' * {bytes_used})",), lambda: False)
    assert large.value == bytes_used
    assert large.memory_bytes > bytes_used
    small = slot.run(abs, (-1,), lambda: False)
    assert small.memory_bytes > 0 and (small.memory_bytes < bytes_used) == can_restart_peak
    slot.end()


def test_memory_is_measured_without_access_to_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError

    monkeypatch.setattr("dunlin._slots.open", refuse, raising=False)
    _restart_peak_memory()
    assert _task_memory_bytes() > 0


def test_memory_use_of_a_task_in_a_killed_process_is_unknown() -> None:
    slot = ProcessSlot()
    assert slot.run(signal.raise_signal, (signal.SIGKILL,), lambda: False).memory_bytes == 0
    slot.end()


def test_task_may_close_the_standard_output_of_its_process() -> None:
    slot = ProcessSlot()
    for program in ("import sys; sys.stdout.close()", "import sys; sys.stdout = None", ""):
        assert slot.run(exec, (program,), lambda: False).error is None
    slot.end()


def test_dead_letters_of_an_unknown_tenant_are_refused(client: dunlin.Client, tenant: str) -> None:
    calls: list[Callable[[], int]] = [
        lambda: client.tasks.redrive(tenant),
        lambda: client.tasks.discard(tenant),
    ]
    for call in calls:
        with pytest.raises(errors.TenantUnknownError):
            call()


def test_wait_for_a_task_times_out_even_if_no_reason_is_known(
    client: dunlin.Client, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def why(task: str) -> str:
        raise errors.DisconnectedError("the node is away")

    task = client.tasks.submit(tenant, "nobody does this")
    monkeypatch.setattr(client.tasks, "why", why)
    with pytest.raises(errors.RequestTimeoutError, match="the reason is unknown: the node is away"):
        client.tasks.wait(task, 0)
