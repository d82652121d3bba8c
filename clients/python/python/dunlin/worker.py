"""A worker: functions that run tasks.

    worker = dunlin.Worker(slots=4)

    @worker.task("thumbnail")
    def thumbnail(task: dunlin.Task) -> bytes:
        return shrink(task.payload)

    if __name__ == "__main__":
        worker.run()

A function returns the task's result: bytes, text, `None`, or a JSON value. If it raises an
exception, the attempt has failed. The task's retry policy applies, unless the exception has the
attribute `retry = False`, as in `TaskFailure(..., retry=False)`. A task may run more than once,
each time with a higher `token`. Pass the token to the resources that the task changes, so that they
can refuse an older run.

At the first SIGTERM or SIGINT, a worker finishes its running tasks and ends. At the second signal, the worker ends
immediately, and other workers run its tasks.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from . import _arguments, errors
from ._ids import id_of, number_of
from ._slots import ProcessSlot, SlotResult, failed, peak_memory_bytes, run_here, sendable

if TYPE_CHECKING:
    from ._dunlin import RawAttachment
    from .client import Client

Function = TypeVar("Function", bound=Callable[..., Any])

_LOOK = 0.1
"""The interval in seconds at which the main thread checks for signals."""
_FAREWELL = 5.0
"""The time limit in seconds within which idle threads must end."""

SLOTS_MAX = 10_000
"""The maximum number of slots of a worker, equal to the node's limit `credit_max`."""


class TaskFailure(Exception):
    """Raised by a function to make the attempt fail. With `retry=False`, the task becomes a dead letter."""

    def __init__(self, why: str = "", *, retry: bool = True) -> None:
        super().__init__(why)
        self.retry = retry


@dataclass(frozen=True)
class Task:
    """A task assigned to this worker."""

    id: str
    """The task's id, as all commands print it."""
    token: int
    """The fencing token of this attempt. Each start of any task of this tenant has a higher token."""
    kind: str
    tenant: str
    payload: bytes
    attempt: int
    """The number of the attempt, from 1. An attempt whose worker died is not counted."""
    timeout: float
    """The longest duration of this attempt in seconds, unless `extend` extends it."""
    _attachment: RawAttachment | None = field(default=None, repr=False, compare=False)

    @property
    def _attempt(self) -> tuple[int, int]:
        """What identifies this attempt. Tasks of different tenants may have the same token."""
        return number_of(self.id), self.token

    def json(self) -> Any:
        """The payload, parsed as JSON."""
        return json.loads(self.payload)

    @property
    def is_stopped(self) -> bool:
        """Whether the task has to stop, because it was cancelled, timed out, or was assigned to another worker.

        To stop early, raise an exception: a cancelled task then ends as cancelled, and tasks that wait for it do not
        run. If the function returns instead, the task is completed.

        Always `False` in a worker with `processes=True`, which kills the task's process instead.
        """
        return self._attachment is not None and self._attachment.is_stopped(self._attempt)

    def progress(self, share: float, note: str = "") -> None:
        """Reports the progress: `share` from 0 to 1, and `note` in words."""
        if math.isnan(share):
            raise ValueError(f"share={share!r} is not a number from 0 to 1")
        note = _arguments.text("note", note)
        self._attached().progress(self._attempt, round(min(max(share, 0.0), 1.0) * 1000), note)

    def extend(self, seconds: float = 0.0) -> None:
        """Restarts the attempt's timeout with `seconds`; 0 means the timeout with which the task was submitted."""
        seconds = _arguments.seconds("seconds", seconds, least=0, most=_arguments.SPAN_SECONDS_MAX)
        self._attached().extend(self._attempt, seconds)

    def _attached(self) -> RawAttachment:
        if self._attachment is None:
            raise errors.ForkedError("a task in a process of its own has no connection")
        return self._attachment

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_attachment": None}


def encode(value: Any) -> bytes:
    """Converts a payload or result to bytes: bytes are unchanged, text becomes UTF-8, `None` becomes empty, and other
    values become JSON.

    Raises `ValueError` for NaN, infinities and lone surrogates, which JSON or UTF-8 cannot represent.
    """
    if value is None:
        return b""
    if isinstance(value, bytes | bytearray | memoryview):
        return _arguments.encoded("a payload or result", value)
    if isinstance(value, str):
        return _utf8(value)
    encoded = json.dumps(value, separators=(",", ":"), allow_nan=False)
    if "\\ud" in encoded:
        # In JSON, a pair of escaped surrogates is one character, but a lone surrogate is invalid.
        _utf8(json.dumps(json.loads(encoded), ensure_ascii=False))
    return encoded.encode()


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as lone:
        found = lone.object[lone.start]
        raise ValueError(f"UTF-8 cannot encode the lone surrogate {found!r} in a payload or result") from None


class Worker:
    """Runs tasks of the kinds that were registered with `task`. Call `run` to start."""

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "",
        slots: int = 0,
        processes: bool = False,
        queues: str | Iterable[str] = (),
        cpu_milli: int = 0,
        memory_bytes: int = 0,
        labels: Mapping[str, str] | None = None,
        tenants: str | Iterable[str] = (),
        ttl: float = 10.0,
        connect: Callable[[], Client] | None = None,
    ) -> None:
        """Makes a worker. The worker connects to the node in `run`.

        - `url`: as in `dunlin.connect`.
        - `connect`: a function that makes the client instead, for example with credentials.
        - `name`: shown in listings. A worker that a node started (`dunlin dev --workers`) has the name that the node
          gave it.
        - `slots`: the maximum number of tasks at the same time, up to `SLOTS_MAX`; 0 means the number of processors.
        - `processes`: runs each function that is not `async` in a separate process instead of a thread, for code that
          needs the CPU.
        - `queues`: the queues whose tasks the worker runs; empty means all.
        - `tenants`: the tenants whose tasks the worker runs; empty means all.
        - `cpu_milli`, `memory_bytes`: the CPU (in thousandths of a processor) and the memory that all running tasks
          together may need; 0 means no limit.
        - `labels`: properties that tasks may require, as in `{"gpu": "a100"}`.
        - `ttl`: if the node receives no message from the worker for this many seconds, other workers run its tasks.
        """
        self._url = url
        self._connect = connect
        # If a node started this process, it recognizes the worker by the name in this variable.
        name = os.environ.get("DUNLIN_WORKER_NAME", "") or _arguments.text("name", name)
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        if _arguments.count("slots", slots, SLOTS_MAX, taken=_arguments.U64_MAX) > SLOTS_MAX:
            raise ValueError(f"slots={slots} is above SLOTS_MAX = {SLOTS_MAX:,}: start several workers")
        self._slots = slots or os.cpu_count() or 1
        self._processes = _arguments.flag("processes", processes)
        self._queues = _arguments.texts("queues", queues)
        self._has = (
            _arguments.count("cpu_milli", cpu_milli, 0xFFFF_FFFF),
            _arguments.count("memory_bytes", memory_bytes, _arguments.U64_MAX),
        )
        self._labels = _arguments.labels("labels", labels)
        self._tenants = _arguments.texts("tenants", tenants)
        self._ttl = _arguments.seconds("ttl", ttl)
        self._functions: dict[str, Callable[..., Any]] = {}
        self._stops = 0
        self._called = threading.Event()

    def task(self, kind: str) -> Callable[[Function], Function]:
        """A decorator that registers a function for a kind of task. The function receives the `Task`, and may be
        `async`.
        """
        _arguments.text("kind", kind)

        def decorate(function: Function) -> Function:
            if kind in self._functions:
                raise ValueError(f"two functions are registered for tasks of kind {kind!r}")
            self._functions[kind] = function
            return function

        return decorate

    def stop(self) -> None:
        """Ends `run` after the running tasks are finished; a second call ends `run` immediately.

        Any thread or signal handler may call it.
        """
        self._stops += 1

    def run(self) -> None:
        """Runs tasks until SIGTERM, SIGINT or `stop`. Signals end `run` only if the main thread called it."""
        if not self._functions:
            raise ValueError("a worker needs a function for at least one kind of task")
        restore = self._hear_signals()
        try:
            self._run()
        finally:
            restore()

    def _run(self) -> None:
        client = self._connected()
        if client is None:
            return
        try:
            if not self._is_to_work():
                return
            cpu_milli, memory_bytes = self._has
            attachment = client.tasks._calls.attach(
                self._name,
                list(self._functions),
                self._queues,
                self._slots,
                cpu_milli,
                memory_bytes,
                self._ttl,
                self._labels,
                self._tenants,
            )
            running = _RunningTasks(attachment, self._functions, self._slots, self._processes)
            try:
                self._turn(attachment, running)
            finally:
                running.end()
                attachment.leave()
        finally:
            client.close()

    def _connected(self) -> Client | None:
        """Connects to the node, and waits until that succeeds. Returns `None` if the worker has to end before."""
        from .client import connect

        said = False
        while not self._stops:
            try:
                return self._connect() if self._connect is not None else connect(self._url, name=self._name)
            except errors.DisconnectedError as away:
                if not said:
                    print(f"dunlin worker: {away}; waiting for the node", file=sys.stderr)
                said = True
            time.sleep(_LOOK)
        return None

    def _is_to_work(self) -> bool:
        """In a node's warm pool, waits until the node orders the worker to attach. Returns whether the
        worker has to run.

        Standard input is then a socket, on which the worker reports that it is prepared.
        """
        if os.environ.get("DUNLIN_WORKER_WARM"):
            os.write(0, b"prepared\n")
            while not self._stops and not self._called.wait(_LOOK):
                pass
        return not self._stops

    def _turn(self, attachment: RawAttachment, running: _RunningTasks) -> None:
        is_draining = False
        while self._stops < 2:
            if self._stops and not is_draining:
                is_draining = True
                attachment.drain()
            if is_draining and running.is_idle and attachment.is_drained():
                return
            given = attachment.next(_LOOK)
            if given is not None:
                running.begin(Task(id_of(given[0]), *given[1:], _attachment=attachment))

    def _hear_signals(self) -> Callable[[], None]:
        if os.environ.get("DUNLIN_END_WITH_STDIN"):
            threading.Thread(target=self._hear_stdin, daemon=True).start()
        if threading.current_thread() is not threading.main_thread():
            return lambda: None

        def hear(_number: int, _frame: FrameType | None) -> None:
            self.stop()

        before = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        return restore

    def _hear_stdin(self) -> None:
        """Reads standard input, which is connected to the parent process, for an order to attach or the parent's end.
        """
        try:
            while os.read(0, 4096):
                self._called.set()
        except OSError:
            pass
        os._exit(1)


class _RunningTasks:
    """The running tasks and their slots."""

    def __init__(
        self, attachment: RawAttachment, functions: dict[str, Callable[..., Any]], slots: int, processes: bool
    ) -> None:
        self._attachment = attachment
        self._functions = functions
        self._queue: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._under_way = 0
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: list[threading.Thread] = []
        if any(not inspect.iscoroutinefunction(function) for function in functions.values()):
            self._threads = [
                threading.Thread(target=self._serve, args=(processes,), daemon=True, name=f"dunlin-slot-{number}")
                for number in range(slots)
            ]
        if any(inspect.iscoroutinefunction(function) for function in functions.values()):
            self._loop = asyncio.new_event_loop()
            self._threads.append(threading.Thread(target=self._loop.run_forever, daemon=True, name="dunlin-loop"))
        for number, thread in enumerate(self._threads):
            try:
                thread.start()
            except RuntimeError as full:
                # The system refused to start a thread. Ends the threads that were started, so that the program can
                # continue.
                self._threads = self._threads[:number]
                self.end()
                raise RuntimeError(f"slots={slots}: the system starts no more than {number} threads: {full}") from None

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return self._under_way == 0

    def begin(self, task: Task) -> None:
        with self._lock:
            self._under_way += 1
        if inspect.iscoroutinefunction(self._functions[task.kind]):
            assert self._loop is not None
            asyncio.run_coroutine_threadsafe(self._serve_async(task), self._loop)
        else:
            self._queue.put(task)

    def end(self) -> None:
        """Ends the slots without waiting for running tasks."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        for _ in self._threads:
            self._queue.put(None)
        if self.is_idle:
            # Waits briefly for the threads, which kill their slots' processes before the interpreter ends.
            for thread in self._threads:
                thread.join(_FAREWELL)

    def _serve(self, processes: bool) -> None:
        slot = ProcessSlot() if processes else None
        while (task := self._queue.get()) is not None:
            function = self._functions[task.kind]
            started = time.monotonic_ns()
            slot_result = slot.run(function, (task,), lambda t=task: t.is_stopped) if slot else run_here(function, (task,))  # type: ignore[misc]
            self._answer(task, slot_result, started)
        if slot is not None:
            slot.end()

    async def _serve_async(self, task: Task) -> None:
        started = time.monotonic_ns()
        used = _CpuUse()
        work = asyncio.ensure_future(_run_async(self._functions[task.kind], task, used))
        is_cancelled = False
        while not work.done():
            await asyncio.wait([work], timeout=_LOOK)
            if not work.done() and task.is_stopped and not is_cancelled:
                # The function is cancelled only once, because another cancellation would interrupt its clean-up.
                is_cancelled = work.cancel()
        try:
            slot_result = work.result()
        except BaseException as error:
            # The task was cancelled before the function began.
            slot_result = failed(error, cpu_us=used.cpu_ns // 1000)
        # The report is sent from another thread, because it may wait for a lock and must not block the event loop.
        await asyncio.get_running_loop().run_in_executor(None, self._answer, task, slot_result, started)

    def _answer(self, task: Task, slot_result: SlotResult, started: int) -> None:
        """Reports a task's result, and always frees its slot."""
        try:
            self._say(task, slot_result, (time.monotonic_ns() - started) // 1000)
        except errors.Error as refused:
            # The task was cancelled or assigned to another worker, or the connection is lost and another worker will
            # run it.
            print(f"dunlin worker: task {task.id}: {refused}", file=sys.stderr)
        finally:
            with self._lock:
                self._under_way -= 1

    def _say(self, task: Task, slot_result: SlotResult, run_us: int) -> None:
        error, retry, result = slot_result.error, slot_result.retry, b""
        if error is None:
            try:
                result = encode(slot_result.value)
            except BaseException as wrong:
                # Formatting the function's value may raise any exception.
                reason = (failed(wrong).error or "").splitlines()[-1:]
                error, retry = f"the function's result cannot be sent: {''.join(reason)}", False
        if error is None:
            self._attachment.complete(task._attempt, result, run_us, slot_result.cpu_us, slot_result.memory_bytes)
        else:
            self._attachment.fail(
                task._attempt, sendable(error), retry, run_us, slot_result.cpu_us, slot_result.memory_bytes
            )


async def _run_async(function: Callable[[Task], Any], task: Task, used: _CpuUse) -> SlotResult:
    """Runs an async function to its end, and returns the result.

    Catches every exception, because `SystemExit` and `KeyboardInterrupt` would end the event loop of all tasks.
    """
    try:
        value = await _MeasuredCoroutine(function(task), used)
    except BaseException as error:
        return failed(error, used.cpu_ns // 1000, peak_memory_bytes())
    return SlotResult(value, cpu_us=used.cpu_ns // 1000, memory_bytes=peak_memory_bytes())


@dataclass(slots=True)
class _CpuUse:
    cpu_ns: int = 0


class _MeasuredCoroutine(Awaitable[Any]):
    """Wraps a coroutine, and measures the CPU time of its steps."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], used: _CpuUse) -> None:
        self._coroutine = coroutine
        self._used = used

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[Any], Any] = self._coroutine.send
        argument: Any = None
        while True:
            started = time.thread_time_ns()
            try:
                yielded = step(argument)
            except StopIteration as stop:
                return stop.value
            finally:
                self._used.cpu_ns += time.thread_time_ns() - started
            try:
                argument = yield yielded
                step = self._coroutine.send
            except BaseException as error:
                argument, step = error, self._coroutine.throw
