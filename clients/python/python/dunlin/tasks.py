"""Tasks of a cluster: submitted, looked at, ended, as `client.tasks`. `dunlin.Worker` does them.

    task = client.tasks.submit("shop", "thumbnail", b"...", priority=7, labels={"user": "ann"})
    print(client.tasks.why(task), client.tasks.wait(task).result)

Payloads are bytes, text, or anything that JSON has a form for. Ids of tasks and workers are text, the same that `dunlin task`, HTTP and
`$tasks` show. `docs/tasks.md` says what is promised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from . import errors
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
    """What is done when an attempt fails: so many more, after delays that grow from `base` to `cap` seconds, by chance."""

    retries: int
    base: float = 1.0
    cap: float = 60.0


def _count(name: str, count: int, most: int, taken: int) -> int:
    """A whole number from 0 to `most`; what the message between client and node has room for, `taken`, the node judges."""
    if not isinstance(count, int) or not 0 <= count <= taken:
        raise ValueError(f"{name}={count!r} is not a whole number from 0 to {most:,}")
    return count


def _at_ms(name: str, at: float | None) -> int:
    """A time in seconds since the Unix epoch, as the cluster has it; it refuses what is far from now."""
    if at is None:
        return 0
    if not 0 < at < 2**53:
        raise ValueError(f"{name}={at!r} is not a time in seconds since the Unix epoch, as time.time() gives it")
    return max(round(at * 1000), 1)


def _span_ms(name: str, seconds: float | None) -> int:
    """A span in seconds, as the cluster has it, which counts whole ms in 32 bits."""
    if seconds is None:
        return 0
    if not 0.001 <= seconds <= 0xFFFF_FFFF / 1000:
        raise ValueError(f"{name}={seconds!r} is not from 0.001 to {0xFFFF_FFFF // 1000:,} seconds")
    return round(seconds * 1000)


class NewTask:
    """A task to submit; `submit` takes the same by name. `not_before` and `deadline` are seconds since the Unix epoch, `timeout` is how many seconds
    one attempt may take (300 if nothing is said).

    A second task with the same `idempotency_key` is the first; it is refused with another queue, kind, payload or subject, and when the first was
    cancelled.

    `labels` are what people know it by; `needs` are labels that a worker has to have to be given it, all of them; `cpu_milli` (thousandths of a
    processor) and `memory_bytes` are what it needs of a worker that says what it has.
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
        if isinstance(retry, bool):
            raise TypeError(f"retry={retry!r}: how many retries, or a Retry")
        retry = Retry(retry) if isinstance(retry, int) else retry
        self.kind = kind
        self.payload = encode(payload)
        self.queue = queue
        self.priority = _count("priority", priority, 9, 0xFF)
        self.not_before_ms = _at_ms("not_before", not_before)
        self.deadline_ms = _at_ms("deadline", deadline)
        self.timeout_ms = _span_ms("timeout", timeout)
        self.retry = None if retry is None else (_count("retry", retry.retries, 0xFFFF, 0xFFFF), round(retry.base * 1000), round(retry.cap * 1000))
        self.idempotency_key = idempotency_key.encode() if isinstance(idempotency_key, str) else idempotency_key
        self.after = [number_of(task) for task in ([after] if isinstance(after, str) else after)]
        self.labels = list((labels or {}).items())
        self.needs = list((needs or {}).items())
        self.cpu_milli = _count("cpu_milli", cpu_milli, 0xFFFF_FFFF, 0xFFFF_FFFF)
        self.memory_bytes = _count("memory_bytes", memory_bytes, 2**64 - 1, 2**64 - 1)
        self.subject = subject


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task as it is now."""

    id: str
    tenant: str
    queue: str
    kind: str
    payload: bytes
    stage: Stage
    priority: int
    attempts: int
    lost: int
    """Workers that died under it."""
    worker: str | None
    """Who has it."""
    waited: float | None
    """Seconds from when it was submitted to when its last attempt began."""
    progress: float
    """How far it said it is, 0 to 1."""
    note: str
    labels: list[tuple[str, str]]
    needs: list[tuple[str, str]]
    """Labels that a worker has to have."""
    after: list[str]
    """What it waits for, or waited."""
    result: bytes
    error: str | None
    """What its last attempt failed with."""
    failure: str | None
    """Why that failed: failed, timedout, deadline, poisoned."""
    run: float
    """Seconds that it ran."""
    cpu: float
    """Seconds of a processor that it took."""
    memory_bytes: int
    timeout: float
    """Seconds that one attempt may take."""
    submitted: float
    """When it was submitted, seconds since the Unix epoch."""
    started: float | None
    """When its last attempt began."""
    not_before: float | None
    """When it may start, while it waits for that: its own time, or its next retry's."""
    deadline: float | None
    """When it has to be done."""
    retries: int | None
    """Attempts after the first; none once the task is over."""
    idempotency_key: bytes
    subject: str
    """Where it publishes, if it does."""
    cpu_milli: int
    """Thousandths of a processor that it needs."""
    needs_memory_bytes: int
    """Bytes of memory that it needs."""

    @property
    def is_over(self) -> bool:
        """Whether nothing becomes of it any more by itself."""
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
    """Of a tenant's tasks with one value under `key` (a label's, or tenant, queue or kind) `running` run at once; `rate` says how often they start:
    so many in so many seconds, and so many at once after a pause."""

    key: str
    running: int | None = None
    rate: tuple[int, float, int] | None = None


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
    """A tenant, and what it has had."""

    name: str
    queued: int
    running: int
    completed: int
    failed: int
    """Attempts that came to nothing."""
    dead: int
    cpu: float
    """Seconds of a processor."""


class WorkerInfo(NamedTuple):
    """A worker as it is now."""

    id: str
    name: str
    held: int
    credit: int
    """Tasks that it would take."""
    done: int
    is_draining: bool


class Submitted(NamedTuple):
    """What came of tasks that were submitted together."""

    ids: list[str]
    known: list[bool]
    """Which were there already, under the same idempotency key."""
    slow_down: float
    """Much waits already: submit so many seconds slower."""


class Tasks:
    """See the module. Threads may share it. What changes something is sent once: `CommandUnknownError` where its answer is lost."""

    def __init__(self, connection: Connection) -> None:
        self._calls = TaskCalls(connection)

    def submit(self, tenant: str, kind: str, payload: Any = None, **options: Any) -> str:
        """Submits a task, described as by `NewTask`; its id. A tenant that there is not yet is made."""
        return self.submit_all(tenant, [NewTask(kind, payload, **options)]).ids[0]

    def submit_all(self, tenant: str, tasks: Sequence[NewTask]) -> Submitted:
        """Submits tasks, all or none."""
        taken, slow_down = self._calls.submit(tenant, list(tasks))
        return Submitted([id_of(task) for task, _ in taken], [known for _, known in taken], slow_down)

    def get(self, task: str) -> TaskInfo:
        """A task; `NoTaskError` where it is not known, or no more."""
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
        """Tasks that fit, page by page; with payloads and results if `whole`."""
        start: int | None = 0
        while start is not None:
            rows, start = self._calls.page(tenant, queue, kind, stage, label, start, 0, whole)
            for row in rows:
                yield TaskInfo._of(row)

    def wait(self, task: str, timeout: float | None = None) -> TaskInfo:
        """Waits until a task is over; `RequestTimeoutError` where it is not after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        pause = 0.005
        while not (info := self.get(task)).is_over:
            if until is not None and time.monotonic() >= until:
                raise errors.RequestTimeoutError(f"task {task} is {info.stage}: {self.why(task)}")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)
        return info

    def why(self, task: str) -> str:
        """Why a task does not run, or what it does, in one sentence."""
        return self._calls.why(number_of(task))

    def cancel(self, task: str) -> None:
        """Ends a task, and those that wait for it. One that runs goes on until its worker answers: a function that looks at
        `Task.is_stopped` and raises ends it as cancelled; one that returns has completed it."""
        self._calls.cancel(number_of(task))

    def retry(self, task: str) -> None:
        """Begins a dead letter anew."""
        self._calls.retry(number_of(task))

    def redrive(self, tenant: str, count: int | None = None, *, poisoned: bool = False) -> int:
        """Begins the oldest dead letters of a tenant anew, so many or all; how many. What dies again meanwhile is left as it is, and so are tasks under
        which workers died (`failure == "poisoned"`), unless `poisoned`.
        """
        return self._of_dead(tenant, count, lambda tenant, count: self._calls.redrive(tenant, count, poisoned))

    def discard(self, tenant: str, count: int | None = None) -> int:
        """Lets go of the oldest dead letters of a tenant, so many or all, and ends what waits for them; how many."""
        return self._of_dead(tenant, count, self._calls.discard)

    def _of_dead(self, tenant: str, count: int | None, call: Callable[[str, int], tuple[int, bool]]) -> int:
        """The cluster takes so many at once, and says whether there are more."""
        found = self.tenants().get(tenant)
        dead = found.dead if found is not None else 0
        left = dead if count is None else min(count, dead)
        done, more = 0, True
        while left > done and more:
            some, more = call(tenant, min(left - done, 0xFFFF_FFFF))
            if some == 0:
                break
            done += some
        return done

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
        """Makes a tenant, or changes its share, its quota of tasks at once and its limits; they hold from the next start on."""
        draft = _Tenant(name, weight, queued_max, reserved, running_max, burst)
        for limit in limits:
            rate = limit.rate and (limit.rate[0], round(limit.rate[1] * 1000), limit.rate[2])
            draft.limits.append(_Limit(limit.key, limit.running, rate))
        self._calls.set_tenant(draft)

    def tenants(self) -> dict[str, TenantInfo]:
        """Tenants by name."""
        return {row[0]: TenantInfo(*row) for row in self._calls.tenants()}

    def workers(self) -> Sequence[WorkerInfo]:
        """Workers."""
        return [WorkerInfo(id_of(row[0]), *row[1:]) for row in self._calls.workers()]
