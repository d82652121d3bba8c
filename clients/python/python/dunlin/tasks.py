"""Tasks of a cluster, as `client.tasks`. A `dunlin.Worker` runs tasks.

    task = client.tasks.submit("shop", "thumbnail", b"...", priority=7, labels={"user": "ann"})
    print(client.tasks.why(task), client.tasks.wait(task).result)

Payloads are bytes, text, or values that JSON can represent. Ids of tasks and workers are text, as `dunlin task`, HTTP
and `$tasks` show them. `docs/tasks.md` describes the guarantees.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from . import _arguments, errors
from ._dunlin import TaskCalls
from ._ids import id_of, number_of
from .worker import encode

if TYPE_CHECKING:
    from ._dunlin import Connection

Stage: TypeAlias = Literal[
    "blocked", "delayed", "limited", "ready", "running", "stopping", "completed", "cancelled", "dead"
]
_OVER = ("completed", "cancelled", "dead")


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy: the number of retries, and random delays whose maximum grows from `base` to `cap` seconds."""

    retries: int
    base: float = 1.0
    cap: float = 60.0


def _retry_policy(retry: Retry | int | None) -> tuple[int, int, int] | None:
    """The number of retries, and the maximum of the first and of all delays in ms; `None` for the default."""
    if retry is None:
        return None
    if isinstance(retry, int) and not isinstance(retry, bool):
        retry = Retry(retry)
    if not isinstance(retry, Retry):
        raise TypeError(f"retry={retry!r}: expected a number of retries, or a Retry, not {type(retry).__name__}")
    base_ms = _arguments.seconds_ms("base of retry", retry.base, least=0)
    cap_ms = _arguments.seconds_ms("cap of retry", retry.cap, least=0)
    return _arguments.count("retry", retry.retries, 0xFFFF), base_ms, cap_ms


class NewTask:
    """A task to submit; `submit` takes the same arguments.

    `not_before` and `deadline` are times in seconds since the Unix epoch. `timeout` is the longest duration of an
    attempt in seconds, by default 300.

    Submitting a second task with the same `idempotency_key` returns the first task. The second task is refused if its
    queue, kind, payload or subject differs, or if the first task was cancelled.

    `labels` describe the task. The worker must have all labels in `needs`. `cpu_milli` (thousandths
    of a processor) and `memory_bytes` are the resources that the task needs; a worker that declares
    no resources has no limit.
    """

    __slots__ = (
        "after",
        "cpu_milli",
        "deadline_ms",
        "idempotency_key",
        "kind",
        "labels",
        "memory_bytes",
        "needs",
        "not_before_ms",
        "payload",
        "priority",
        "queue",
        "retry",
        "subject",
        "timeout_ms",
    )

    def __init__(
        self,
        kind: str,
        payload: Any = None,
        *,
        queue: str = "default",
        priority: int = 5,
        not_before: float | None = None,
        deadline: float | None = None,
        timeout: float | None = None,
        retry: Retry | int | None = None,
        idempotency_key: str | bytes = b"",
        after: str | Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        needs: Mapping[str, str] | None = None,
        cpu_milli: int = 0,
        memory_bytes: int = 0,
        subject: str = "",
    ) -> None:
        self.kind = _arguments.text("kind", kind)
        self.payload = encode(payload)
        self.queue = _arguments.text("queue", queue)
        self.priority = _arguments.count("priority", priority, 9, taken=0xFF)
        self.not_before_ms = 0 if not_before is None else _arguments.unix_ms("not_before", not_before)
        self.deadline_ms = 0 if deadline is None else _arguments.unix_ms("deadline", deadline)
        self.timeout_ms = 0 if timeout is None else _arguments.seconds_ms("timeout", timeout)
        self.retry = _retry_policy(retry)
        self.idempotency_key = _arguments.encoded("idempotency_key", idempotency_key)
        if not isinstance(after, Iterable):
            raise TypeError(f"after={after!r}: expected ids of tasks, not {type(after).__name__}")
        self.after = [number_of(task) for task in ([after] if isinstance(after, str) else after)]
        self.labels = _arguments.labels("labels", labels)
        self.needs = _arguments.labels("needs", needs)
        self.cpu_milli = _arguments.count("cpu_milli", cpu_milli, 0xFFFF_FFFF)
        self.memory_bytes = _arguments.count("memory_bytes", memory_bytes, _arguments.U64_MAX)
        self.subject = _arguments.text("subject", subject)


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """The current state of a task."""

    id: str
    tenant: str
    queue: str
    kind: str
    payload: bytes
    stage: Stage
    priority: int
    attempts: int
    """The number of attempts since the submission or restart, without those whose worker died."""
    lost: int
    """The number of workers that died while they ran the task."""
    worker: str | None
    """The id of the worker that runs the task; `None` if no worker runs it."""
    waited: float | None
    """Seconds from the submission to the start of the last attempt."""
    progress: float
    """The reported progress, 0 to 1."""
    note: str
    labels: list[tuple[str, str]]
    needs: list[tuple[str, str]]
    """Labels that the worker must have."""
    after: list[str]
    """The tasks that must be completed before this task starts."""
    result: bytes
    error: str | None
    """The error of the last attempt."""
    failure: str | None
    """The kind of the failure: failed, timedout, deadline or poisoned."""
    run: float
    """The run time in seconds."""
    cpu: float
    """The used CPU time in seconds."""
    memory_bytes: int
    """The peak memory of the last attempt as its worker reported it; 0 if unknown. A Python worker without
    `processes=True` reports the peak of its whole process since its start."""
    timeout: float
    """The longest time for an attempt, in seconds."""
    submitted: float
    """The time of submission, in seconds since the Unix epoch."""
    started: float | None
    """The start of the last attempt, in seconds since the Unix epoch."""
    not_before: float | None
    """The earliest start of the task or of its next retry, in seconds since the Unix epoch."""
    deadline: float | None
    """The time by which the task must be completed, in seconds since the Unix epoch."""
    retries: int | None
    """The maximum number of retries; `None` once the task has ended."""
    idempotency_key: bytes
    subject: str
    """The subject to which a task of kind `publish` publishes."""
    cpu_milli: int
    """Thousandths of a CPU that the task needs."""
    needs_memory_bytes: int
    """Bytes of memory that the task needs."""

    @property
    def is_over(self) -> bool:
        """Whether the task has ended."""
        return self.stage in _OVER

    @classmethod
    def _of(cls, row: dict[str, Any]) -> TaskInfo:
        task, worker, after = row["id"], row["worker"], row["after"]
        row["id"] = id_of(task)
        row["worker"] = None if worker is None else id_of(worker)
        row["after"] = [id_of(before) for before in after]
        return cls(**row)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on a tenant's tasks, which applies separately to each value of `key` (a label, or tenant, queue or kind).

    `running` limits the tasks that run at the same time. `rate` is (starts, seconds, burst), and limits how often tasks
    start. Give `running`, `rate` or both. All numbers must be above 0.
    """

    key: str
    running: int | None = None
    rate: tuple[int, float, int] | None = None

    def __post_init__(self) -> None:
        self._raw()

    def _raw(self) -> _Limit:
        key = _arguments.text("key", self.key)
        if self.running is None and self.rate is None:
            raise ValueError(f"Limit({key!r}) limits nothing: give running, rate or both")
        running = self.running
        if running is not None:
            running = _arguments.count("running", running, 0xFFFF_FFFF, least=1)
        if self.rate is None:
            return _Limit(key, running, None)
        if not isinstance(self.rate, tuple | list) or len(self.rate) != 3:
            raise TypeError(f"rate={self.rate!r}: expected (starts, seconds, burst)")
        starts, per, burst = self.rate
        starts = _arguments.count("starts of rate", starts, 0xFFFF_FFFF, least=1)
        burst = _arguments.count("burst of rate", burst, 0xFFFF_FFFF, least=1)
        return _Limit(key, running, (starts, _arguments.seconds_ms("seconds of rate", per), burst))


@dataclass(slots=True)
class _Tenant:
    name: str
    weight: int
    queued_max: int
    reserved: int
    running_max: int
    burst: int
    limits: list[_Limit] = field(default_factory=list)


@dataclass(slots=True)
class _Limit:
    key: str
    running: int | None
    rate: tuple[int, int, int] | None


class TenantInfo(NamedTuple):
    """A tenant, with the numbers of its tasks."""

    name: str
    queued: int
    running: int
    completed: int
    failed: int
    """The number of failed attempts, without those whose worker died."""
    dead: int
    cpu: float
    """CPU seconds."""


class WorkerInfo(NamedTuple):
    """The current state of a worker."""

    id: str
    name: str
    held: int
    credit: int
    """The number of free slots."""
    done: int
    is_draining: bool


class Submission(NamedTuple):
    """The result of submitting tasks together."""

    ids: list[str]
    known: list[bool]
    """For each task, whether it already existed under the same idempotency key."""
    slow_down: float
    """The time in seconds that the cluster asks the client to wait before the next submission."""


class Tasks:
    """Submits, reads and changes tasks.

    Threads may share the object. A command is sent only once. If its response is lost, the call raises
    `CommandUnknownError`: only a task with an `idempotency_key` can be submitted again safely.
    """

    def __init__(self, connection: Connection) -> None:
        self._calls = TaskCalls(connection)

    def submit(self, tenant: str, kind: str, payload: Any = None, **options: Any) -> str:
        """Submits a task with the options of `NewTask`. Returns its id. Creates the tenant if it does not exist."""
        return self.submit_all(tenant, [NewTask(kind, payload, **options)]).ids[0]

    def submit_all(self, tenant: str, tasks: Sequence[NewTask]) -> Submission:
        """Submits all of the tasks, or none if one is refused."""
        drafts = list(tasks)
        for task in drafts:
            if not isinstance(task, NewTask):
                raise TypeError(f"tasks: expected NewTask, not {task!r}")
        taken, slow_down = self._calls.submit(_arguments.text("tenant", tenant), drafts)
        return Submission([id_of(task) for task, _ in taken], [known for _, known in taken], slow_down)

    def get(self, task: str) -> TaskInfo:
        """Reads a task; raises `NoTaskError` if it is unknown or forgotten."""
        return TaskInfo._of(self._calls.get(number_of(task)))

    def list(
        self,
        tenant: str = "",
        *,
        queue: str = "",
        kind: str = "",
        stage: Stage | None = None,
        label: tuple[str, str] = ("", ""),
        whole: bool = False,
    ) -> Iterator[TaskInfo]:
        """Lists the tasks that match, page by page. With `whole`, the tasks have their payloads and results."""
        if not isinstance(label, tuple) or len(label) != 2:
            raise TypeError(f"label={label!r}: expected a tuple of key and value")
        start: int | None = 0
        while start is not None:
            rows, start = self._calls.page(tenant, queue, kind, stage, label, start, 0, whole)
            for row in rows:
                yield TaskInfo._of(row)

    def wait(self, task: str, timeout: float | None = None) -> TaskInfo:
        """Waits until a task has ended; raises `RequestTimeoutError` after `timeout` seconds."""
        timeout = _arguments.timeout(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        pause = 0.005
        while not (info := self.get(task)).is_over:
            if until is not None and time.monotonic() >= until:
                try:
                    why = self.why(task)
                except errors.Error as error:
                    why = f"the reason is unknown: {error}"
                raise errors.RequestTimeoutError(f"task {task} is {info.stage}: {why}")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)
        return info

    def why(self, task: str) -> str:
        """Returns a sentence with the state of a task, and with the reason if the task does not run."""
        return self._calls.why(number_of(task))

    def cancel(self, task: str) -> None:
        """Cancels a task and the tasks that depend on it.

        A running task continues until its worker stops it. If the task's function checks `Task.is_stopped` and raises
        an exception, the task ends as cancelled. If the function returns, the task is completed.
        """
        self._calls.cancel(number_of(task))

    def retry(self, task: str) -> None:
        """Restarts a dead letter."""
        self._calls.retry(number_of(task))

    def redrive(self, tenant: str, count: int | None = None, *, poisoned: bool = False) -> int:
        """Restarts the oldest dead letters of a tenant, `count` or all. Returns their number.

        Restarts only tasks that were dead letters when the call began. Tasks that fail again during the call stay dead
        letters.
        Without `poisoned`, skips tasks whose workers died (`failure == "poisoned"`).
        """
        return self._calls.redrive(tenant, self._count_dead(tenant, count), poisoned)

    def discard(self, tenant: str, count: int | None = None) -> int:
        """Removes the oldest dead letters of a tenant, `count` or all, and cancels dependent tasks.

        Returns their number.
        """
        left = self._count_dead(tenant, count)
        done, more = 0, True
        # One request removes only a limited number of dead letters.
        while left > done and more:
            some, more = self._calls.discard(tenant, min(left - done, 0xFFFF_FFFF))
            if some == 0:
                break
            done += some
        return done

    def _count_dead(self, tenant: str, count: int | None) -> int:
        """The number of dead letters of a tenant, at most `count`.

        If the tenant does not exist or the user has no access to it, the result is 1, and the node refuses the call
        that follows.
        """
        count = None if count is None else _arguments.count("count", count, _arguments.U64_MAX)
        found = self.tenants()
        if tenant == "":
            dead = sum(info.dead for info in found.values())
        else:
            dead = found[tenant].dead if tenant in found else 1
        return dead if count is None else min(count, dead)

    def set_tenant(
        self,
        name: str,
        *,
        weight: int = 1,
        queued_max: int = 0,
        reserved: int = 0,
        running_max: int = 0,
        burst: int = 0,
        limits: Iterable[Limit] = (),
    ) -> None:
        """Creates a tenant, or changes its share, quotas and limits, which apply to later starts."""
        most = _arguments.U64_MAX
        draft = _Tenant(
            _arguments.text("name", name),
            _arguments.count("weight", weight, 10_000, taken=0xFFFF_FFFF),
            _arguments.count("queued_max", queued_max, most),
            _arguments.count("reserved", reserved, most),
            _arguments.count("running_max", running_max, most),
            _arguments.count("burst", burst, most),
        )
        limited = set()
        for limit in limits:
            if not isinstance(limit, Limit):
                raise TypeError(f"limits: expected Limit, not {limit!r}")
            for what, value in (("running", limit.running), ("rate", limit.rate)):
                if value is not None and (limit.key, what) in limited:
                    raise ValueError(f"limits: two limits of {what} for key {limit.key!r}")
                if value is not None:
                    limited.add((limit.key, what))
            draft.limits.append(limit._raw())
        self._calls.set_tenant(draft)

    def tenants(self) -> dict[str, TenantInfo]:
        """All tenants by name."""
        return {row[0]: TenantInfo(*row) for row in self._calls.tenants()}

    def workers(self) -> Sequence[WorkerInfo]:
        """All workers."""
        return [WorkerInfo(id_of(row[0]), *row[1:]) for row in self._calls.workers()]
