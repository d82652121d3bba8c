"""Runs a worker's tasks in threads of this process, or in separate processes, which also run later tasks.

If a separate process dies, only its task fails, and the error names the signal. The next task then
runs in a new process. To stop a task in a separate process, the worker kills the process, because a
function may never check whether it has to stop.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any

_CONTEXT = multiprocessing.get_context("spawn")
"""Starts processes without `fork`, which would copy locks that other threads hold."""

_LOOK = 0.05
"""The interval in seconds at which a thread that waits for a process checks whether its task has to stop."""


@dataclass(frozen=True, slots=True)
class SlotResult:
    """The result of one attempt."""

    value: Any = None
    error: str | None = None
    retry: bool = True
    cpu_us: int = 0
    memory_bytes: int = 0


def peak_memory_bytes() -> int:
    """The maximum resident memory that this process has used so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _restart_peak_memory() -> None:
    """Makes the process's peak memory begin again with its present memory, if the system permits it."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _task_memory_bytes() -> int:
    """The maximum resident memory of this process since `_restart_peak_memory`.

    `getrusage` does not forget the memory of the process that started this one, so it is used only without `/proc`.
    """
    try:
        with open("/proc/self/status") as file:
            sizes = [line.split()[1] for line in file if line.startswith("VmHWM:")]
        return int(sizes[0]) * 1024
    except (OSError, IndexError, ValueError):
        return peak_memory_bytes()


def failed(error: BaseException, cpu_us: int = 0, memory_bytes: int = 0) -> SlotResult:
    """The result of an attempt that raised an exception; its error is the traceback.

    This function never raises an exception. It uses the exception's attribute `retry` only if that is a bool.
    """
    try:
        text = "".join(traceback.format_exception(error)).strip()
    except BaseException as odd:
        text = f"{type(error).__name__} (its text cannot be shown: {type(odd).__name__})"
    try:
        retry = getattr(error, "retry", True)
    except BaseException:
        retry = True
    retry = retry if isinstance(retry, bool) else True
    return SlotResult(error=sendable(text), retry=retry, cpu_us=cpu_us, memory_bytes=memory_bytes)


def sendable(text: str) -> str:
    """Replaces lone surrogates, which UTF-8 cannot encode, with escape sequences."""
    return text.encode("utf-8", "backslashreplace").decode()


def run_here(function: Callable[..., Any], arguments: tuple[Any, ...]) -> SlotResult:
    """Runs the function in this thread. Its memory is the peak of the process, whose threads share memory."""
    started = time.thread_time_ns()
    try:
        value = function(*arguments)
    except BaseException as error:
        # Any exception, even SystemExit, only makes this task fail.
        return failed(error, (time.thread_time_ns() - started) // 1000, peak_memory_bytes())
    return SlotResult(value, cpu_us=(time.thread_time_ns() - started) // 1000, memory_bytes=peak_memory_bytes())


class ProcessSlot:
    """Runs one task at a time in a separate process. Only one thread may use a slot."""

    def __init__(self) -> None:
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Pipe | None = None

    def run(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], is_stopped: Callable[[], bool]
    ) -> SlotResult:
        """Runs a function in the process. The function, its arguments and its result are pickled."""
        try:
            pipe = self._ready()
            pipe.send((function, arguments))
        except Exception as error:  # pickling may raise any exception
            self.end()
            return failed(error)
        while not pipe.poll(_LOOK):
            if is_stopped():
                self.end()
                return SlotResult(error="the task was stopped by ending its process", retry=False)
        try:
            result = pipe.recv()
        except (EOFError, OSError):
            return SlotResult(error=self._how_it_ended())
        except Exception as error:
            self.end()
            return failed(error)
        assert isinstance(result, SlotResult)
        return result

    def end(self) -> None:
        """Kills the process."""
        process, self._process = self._process, None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if process is not None:
            process.kill()
            process.join()

    def _ready(self) -> Pipe:
        if self._process is None or not self._process.is_alive() or self._pipe is None:
            self.end()
            here, there = _CONTEXT.Pipe()
            # A daemon process ends when this process ends normally.
            self._process = _CONTEXT.Process(target=_serve, args=(there, os.getpid()), daemon=True)
            self._process.start()
            there.close()
            self._pipe = here
        return self._pipe

    def _how_it_ended(self) -> str:
        process = self._process
        if process is None:
            return "the task's process ended"
        process.join(5.0)
        code = process.exitcode
        self.end()
        if code is not None and code < 0:
            return f"the task's process was ended by {_signal_name(-code)}"
        return f"the task's process ended with code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # Most real-time signals have no name.
        return f"signal {number}"


def _serve(pipe: Pipe, parent: int) -> None:
    """The main function of a slot's process, until the pipe ends."""
    # Ctrl-C must not end this process, because the worker lets running tasks finish.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    while True:
        try:
            function, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        except Exception as error:
            pipe.send(failed(error))
            continue
        _restart_peak_memory()
        result = run_here(function, arguments)
        result = SlotResult(result.value, result.error, result.retry, result.cpu_us, _task_memory_bytes())
        # A closed standard output must not affect the task's result.
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        try:
            pipe.send(result)
        except (BrokenPipeError, ConnectionResetError):
            return
        except Exception as error:
            pipe.send(failed(error, result.cpu_us, result.memory_bytes))


def _end_with(parent: int) -> None:
    """Ends this process when its parent process has ended. While a task runs, no thread reads the pipe to notice that.
    """
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
