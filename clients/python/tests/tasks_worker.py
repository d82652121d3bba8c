"""A worker for the tests. It runs as a program, so that its separate processes can import its functions."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

import dunlin

labels = dict(argument[2:].split("=") for argument in sys.argv[1:] if argument.startswith("--") and "=" in argument)
worker = dunlin.Worker(slots=4, processes="--processes" in sys.argv, labels=labels, ttl=2.0)


@worker.task("upper")
def upper(task: dunlin.Task) -> bytes:
    return task.payload.upper()


@worker.task("whoami")
def whoami(task: dunlin.Task) -> str:
    return task.id


@worker.task("sum")
async def total(task: dunlin.Task) -> dict[str, Any]:
    await asyncio.sleep(0.01)
    return {"sum": sum(task.json()), "attempt": task.attempt}


@worker.task("flaky")
def flaky(task: dunlin.Task) -> str:
    if task.attempt < 3:
        raise OSError(f"attempt {task.attempt} came to nothing")
    return "at last"


@worker.task("hopeless")
def hopeless(task: dunlin.Task) -> None:
    raise dunlin.TaskFailure("there is no way", retry=False)


@worker.task("crash")
def crash(task: dunlin.Task) -> str:
    if task.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@worker.task("slow")
def slow(task: dunlin.Task) -> str:
    """Writes the token to the file PAYLOAD.begun. Ends when the file PAYLOAD exists, or when the task has to stop."""
    path = task.payload.decode()
    with open(f"{path}.begun", "a") as file:
        file.write(f"{task.token}\n")
    while not os.path.exists(path):
        if task.is_stopped:
            return "stopped"
        time.sleep(0.02)
    return "done"


@worker.task("aslow")
async def aslow(task: dunlin.Task) -> None:
    path = task.payload.decode()
    with open(f"{path}.begun", "a") as file:
        file.write(f"{task.token}\n")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        with open(f"{path}.cancelled", "w") as file:
            file.write("cancelled\n")
        raise


@worker.task("burn")
def burn(task: dunlin.Task) -> int:
    ended = time.process_time() + float(task.payload)
    count = 0
    while time.process_time() < ended:
        count += 1
    return os.getpid()


class _Odd(Exception):
    """An exception whose text and attributes raise exceptions."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    @property
    def retry(self) -> bool:
        raise RuntimeError("no attribute")


class _NoText:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def _raise(what: str) -> Any:
    match what:
        case "refused":
            raise dunlin.errors.KeyMovedError("of Dunlin's own")
        case "surrogate":
            raise ValueError("lone \udcff surrogate")
        case "odd":
            raise _Odd
        case "exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "nan":
            return float("nan")
        case "unsendable":
            return _NoText()
        case "lone":
            return "\udcff"
    raise AssertionError(what)


@worker.task("raise")
def raises(task: dunlin.Task) -> Any:
    return _raise(task.payload.decode())


@worker.task("araise")
async def araises(task: dunlin.Task) -> Any:
    await asyncio.sleep(0)
    return _raise(task.payload.decode())


if __name__ == "__main__":
    worker.run()
