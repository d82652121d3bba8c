"""Where a worker's tasks run: in this process's threads, or each in a process of its own that is kept for the next.

A process that dies takes its one task along and nothing else: the task has failed, with the signal for its error, and the next gets a new
process. One whose task is stopped is ended, for nothing else stops code that does not look.
"""

from __future__ import annotations

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
"""A fork would copy threads' locks in whatever state they are in."""

_LOOK = 0.05
"""How often a wait for a process looks whether its task is to stop, seconds."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of one attempt."""

    value: Any = None
    error: str | None = None
    retry: bool = True
    cpu_us: int = 0
    memory_bytes: int = 0


def peak_memory_bytes() -> int:
    """The most that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def failed(error: BaseException, cpu_us: int = 0, memory_bytes: int = 0) -> Ran:
    """An attempt that raised: the last line says what, those before it where.

    Never raises, whatever the exception's text and attributes are: its `retry` counts only where it is a bool.
    """
    try:
        text = "".join(traceback.format_exception(error)).strip()
    except BaseException as odd:
        text = f"{type(error).__name__} (its text cannot be had: {type(odd).__name__})"
    try:
        retry = getattr(error, "retry", True)
    except BaseException:
        retry = True
    retry = retry if isinstance(retry, bool) else True
    return Ran(error=sendable(text), retry=retry, cpu_us=cpu_us, memory_bytes=memory_bytes)


def sendable(text: str) -> str:
    """The text with what UTF-8 has no form for (lone surrogates) written as an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def run_here(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Ran:
    """In this thread. A process is the same for all of its threads, so that memory is not known of one of them."""
    started = time.thread_time_ns()
    try:
        value = function(*arguments)
    except BaseException as error:
        # Whatever a task raises, be it SystemExit, is the task's own failure.
        return failed(error, cpu_us=(time.thread_time_ns() - started) // 1000)
    return Ran(value, cpu_us=(time.thread_time_ns() - started) // 1000)


class ProcessSlot:
    """A place for one task at a time, in a process of its own. One thread uses it."""

    def __init__(self) -> None:
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Pipe | None = None

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...], is_stopped: Callable[[], bool]) -> Ran:
        """Runs it there. The function and its arguments are pickled, and so is what it gives back."""
        try:
            pipe = self._ready()
            pipe.send((function, arguments))
        except Exception as error:  # pickle raises whatever what is pickled raises
            self.end()
            return failed(error)
        while not pipe.poll(_LOOK):
            if is_stopped():
                self.end()
                return Ran(error="it was stopped, and its process ended", retry=False)
        try:
            ran = pipe.recv()
        except (EOFError, OSError):
            return Ran(error=self._how_it_ended())
        except Exception as error:
            self.end()
            return failed(error)
        assert isinstance(ran, Ran)
        return ran

    def end(self) -> None:
        """Ends the process, whatever it does."""
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
            # A daemon: it ends with this process, if that ends in order.
            self._process = _CONTEXT.Process(target=_serve, args=(there, os.getpid()), daemon=True)
            self._process.start()
            there.close()
            self._pipe = here
        return self._pipe

    def _how_it_ended(self) -> str:
        process = self._process
        if process is None:
            return "its process ended"
        process.join(5.0)
        code = process.exitcode
        self.end()
        if code is not None and code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with code {code}"


def _serve(pipe: Pipe, parent: int) -> None:
    """What runs in a slot's process, until nobody is at the other end."""
    # An interrupt from the terminal is for the worker, which lets its tasks end.
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
        ran = run_here(function, arguments)
        ran = Ran(ran.value, ran.error, ran.retry, ran.cpu_us, peak_memory_bytes())
        sys.stdout.flush()
        try:
            pipe.send(ran)
        except (BrokenPipeError, ConnectionResetError):
            return
        except Exception as error:
            pipe.send(failed(error, ran.cpu_us, ran.memory_bytes))


def _end_with(parent: int) -> None:
    """A parent that was killed closes no pipe while a task runs that does not read it."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
