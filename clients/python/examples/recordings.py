"""Four tenants submit tasks that parse recorded market data. A node starts Python workers, scales their number, and
replaces workers that this program kills.

`cargo xtask demo --only tasks` runs this program. `cargo xtask demo` runs the program together with
the other parts of the demo, on a running cluster (--url) whose nodes are killed at times.

A round has three phases: steady work; a spike, in which one tenant submits many tasks and workers
are killed; and a quiet phase until only the minimum number of workers is left. After each round, the
program checks that every task is done. It computes each task's result itself, and compares the two.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import dunlin
from dunlin.tasks import NewTask, Retry, TaskInfo
from recordings_screen import Screen
from recordings_worker import digest

WORKER = Path(__file__).with_name("recordings_worker.py")
TENANTS = ("ann", "bob", "cat", "dan")
FRAME = 0.25
"""The polling interval in seconds."""
KILL_EVERY = 2.0
PATIENCE = 120.0
"""The time limit of a phase in seconds. A phase that takes longer fails the run."""
AGAIN = 0.1
"""The pause in seconds before a failed request is repeated, at the same node or at another node."""

Answer = TypeVar("Answer")


def patiently(ask: Callable[[], Answer]) -> Answer:
    """Repeats a request without side effects until it succeeds."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except dunlin.Error:
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN)


class Piece(NamedTuple):
    """A range of bytes of a recording, which consists of complete lines."""

    path: str
    first: int
    last: int


def pieces(data: Path, piece_bytes: int) -> list[Piece]:
    """Splits the recordings into pieces of complete lines."""
    found = []
    for path in sorted(path for path in data.iterdir() if path.is_file() and path.suffix not in (".py", ".json") and path.name[0] != "."):
        with path.open("rb") as file:
            first, size = 0, path.stat().st_size
            while first < size:
                file.seek(first + piece_bytes)
                file.readline()
                last = min(file.tell(), size)
                found.append(Piece(str(path), first, last))
                first = last
    return found


class Node:
    """Runs `dunlin serve` with workers. The node ends with this program."""

    def __init__(self, binary: str, scale: str, log: Path) -> None:
        shut = ["--nats-listen", "off", "--http-listen", "off", "--grpc-listen", "off"]
        workers = f"'{sys.executable}' '{WORKER}'"
        self.process = subprocess.Popen(
            [binary, "serve", "--end-with-stdin", "--listen", "127.0.0.1:0", *shut, "--workers", workers, "--scale", scale],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            # Ctrl-C must reach only this program, which stops the node at the end.
            start_new_session=True,
        )
        assert self.process.stdout is not None
        found = re.search(r"tcp=(\S+)", self.process.stdout.readline())
        if found is None:
            raise SystemExit(f"the node did not start: {log.read_text()}")
        self.url = f"dunlin://{found[1]}"

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def workers(self) -> list[int]:
        """The node's child processes."""
        return sorted(int(path.name) for path in Path("/proc").glob("[0-9]*") if _parent(path) == self.process.pid)


class Cluster:
    """A running cluster, whose nodes have workers. This program ends when its standard input is closed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.urls = [f"DUNLIN_URL={one}".encode() for one in url.split(",")]
        threading.Thread(target=self._end, daemon=True).start()

    def _end(self) -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        os._exit(1)

    def stop(self) -> int:
        return 0

    def workers(self) -> list[int]:
        """The worker processes that the cluster's nodes started. Their environment contains the node's address."""
        processes = [path for path in Path("/proc").glob("[0-9]*") if str(WORKER).encode() in _read(path / "cmdline")]
        return sorted(int(path.name) for path in processes if any(url in _read(path / "environ").split(b"\0") for url in self.urls))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # The process has ended, or belongs to another user.


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rsplit(") ", 1)[1].split()[1])
    except (OSError, IndexError, ValueError):
        return 0  # The process has ended.


@dataclass
class Account:
    """The numbers of a tenant's tasks, by result, and their times."""

    submitted: int = 0
    right: int = 0
    lost: int = 0
    cpu: float = 0.0
    waited: list[float] = field(default_factory=list)

    def row(self, name: str) -> list[str]:
        waited = sorted(self.waited)
        at = [f"{waited[min(len(waited) * share // 100, len(waited) - 1)]:.2f} s" if waited else "–" for share in (50, 99)]
        return [name, f"{self.submitted:,}", f"{self.right:,}", f"{self.lost:,}", *at, f"{self.cpu:.1f} s"]


class Demo:
    """Submits tasks, kills workers, and checks every task's result."""

    def __init__(self, client: dunlin.Client, node: Node | Cluster, options: argparse.Namespace, work: list[Piece]) -> None:
        self.client = client
        self.node = node
        self.options = options
        self.work = work
        self.next = itertools.cycle(work)
        self.least, self.bound = (int(bound) for bound in options.scale.split(".."))
        self.screen = Screen(TENANTS, self.least, self.bound, terse=isinstance(node, Cluster))
        self.accounts = {name: Account() for name in TENANTS}
        self.numbers = itertools.count()
        self.under_way: dict[str, tuple[str, Piece]] = {}
        self.known: dict[Piece, dict[str, Any]] = {}
        self.killed: list[int] = []
        self.most = self.workers = 0
        self.wrong = 0
        self.interrupted = False

    def submit(self, tenant: str, count: int) -> None:
        chosen = list(itertools.islice(self.next, count))
        # Each task has its own idempotency key, so that a repeated request creates no second task.
        keys = [f"{os.getpid()}-{next(self.numbers)}" for _ in chosen]
        retry = Retry(10, base=0.1, cap=1.0)
        tasks = [
            NewTask("digest", piece._asdict(), retry=retry, timeout=60.0, idempotency_key=key)
            for piece, key in zip(chosen, keys, strict=True)
        ]
        ids = patiently(lambda: self.client.tasks.submit_all(tenant, tasks)).ids
        self.under_way.update(zip(ids, ((tenant, piece) for piece in chosen), strict=True))
        self.accounts[tenant].submitted += count

    def look(self, phase: str) -> int:
        """Reads the status, and draws it. Returns the number of unfinished tasks."""
        tenants = patiently(self.client.tasks.tenants)
        attached = sum(not worker.is_draining for worker in patiently(self.client.tasks.workers))
        processes = len(self.node.workers())
        # A killed worker stays in the list until its lease ends.
        self.workers = min(attached, processes)
        self.most = max(self.most, self.workers)
        self.screen.draw(phase, self.workers, processes, tenants)
        return sum(tenant.queued + tenant.running for tenant in tenants.values())

    def frames(self, phase: str, seconds: float = PATIENCE, *, goes_on: bool = False) -> Iterator[tuple[float, int]]:
        """Polls for some time, and yields the seconds since the start and the unfinished tasks.

        Ctrl-C ends the polling unless `goes_on`.
        """
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds and (goes_on or not self.interrupted):
            yield passed, self.look(phase)
            time.sleep(FRAME)

    def interrupt(self, *_: object) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        self.screen.tell("Ctrl-C: waiting until the submitted tasks are done; press it again to end at once")

    def steadily(self, tenants: tuple[str, ...], passed: float, before: float) -> float:
        """Submits two tasks per second for each tenant, up to time `passed`. Returns the time of the next submission.
        """
        while before <= passed:
            for tenant in tenants:
                self.submit(tenant, 1)
            before += 0.5
        return before

    def kill_one(self) -> None:
        running = [pid for pid in self.node.workers() if pid not in self.killed]
        if running:
            pid = running[len(self.killed) % len(running)]
            os.kill(pid, signal.SIGKILL)
            self.killed.append(pid)
            self.screen.tell(f"worker process {pid} killed (SIGKILL): its tasks go to other workers after 2 s without contact")

    def round(self) -> None:
        options, spiker = self.options, TENANTS[0]
        self.screen.tell("four tenants submit steadily")
        until = 0.0
        for passed, _ in self.frames("steady", options.steady):
            until = self.steadily(TENANTS, passed, until)
        if not self.interrupted:
            self.submit(spiker, options.spike)
            self.screen.tell(f"{spiker} submits {options.spike:,} tasks at once; the others continue")
        until, kills, seen = 0.0, KILL_EVERY, self.workers
        left = options.kills
        for passed, waiting in self.frames(f"{spiker}'s spike"):
            if self.workers > seen:
                self.screen.tell(f"{self.workers} workers, {passed:.1f} s after the spike began")
                seen = self.workers
            if not waiting:
                break
            until = self.steadily(TENANTS[1:], passed, until) if passed < options.steady else until
            if passed >= kills and left and self.workers > self.least:
                self.kill_one()
                kills, left = kills + KILL_EVERY, left - 1
        self.screen.tell("all tasks are done: fewer workers are needed")
        unknown = list(dict.fromkeys(piece for _, piece in self.under_way.values() if piece not in self.known))
        for passed, _ in self.frames("quiet"):
            ended = time.monotonic() + FRAME
            while unknown and time.monotonic() < ended:
                piece = unknown.pop()
                self.known[piece] = digest(*piece)
            if self.workers <= self.least and not unknown:
                self.screen.tell(f"{self.workers} worker{'s' * (self.workers > 1)} left, {passed:.1f} s after the last task")
                break

    def rest(self, until: float) -> None:
        for _ in self.frames("until the next round", until - time.monotonic()):
            pass

    def settle(self) -> None:
        """Waits for running tasks, and checks every submitted task."""
        for _, waiting in self.frames("checking results", goes_on=True):
            if not waiting:
                break
        for tenant in TENANTS:
            found = {info.id: info for info in patiently(lambda: list(self.client.tasks.list(tenant, whole=True)))}
            for task in [task for task, (whose, _) in self.under_way.items() if whose == tenant]:
                _, piece = self.under_way.pop(task)
                self.check(tenant, piece, task, found.get(task))
        for name, info in patiently(self.client.tasks.tenants).items():
            if name in self.accounts:
                self.accounts[name].cpu = info.cpu
        right = sum(account.right for account in self.accounts.values())
        self.screen.tell(f"{self.wrong:,} tasks failed or have a wrong result" if self.wrong else f"{right:,} tasks so far, all correct")

    def check(self, tenant: str, piece: Piece, task: str, info: TaskInfo | None) -> None:
        account = self.accounts[tenant]
        if piece not in self.known:
            self.known[piece] = digest(*piece)
        if info is not None and info.stage == "completed" and json.loads(info.result) == self.known[piece]:
            account.right += 1
        else:
            self.wrong += 1
            said = "the node does not know the task" if info is None else f"{info.stage}: {info.error or info.result!r}"
            self.screen.tell(f"task {task} of {tenant}, {piece}: {said}")
        if info is not None:
            account.lost += info.lost
            account.waited += [info.waited] if info.waited is not None else []

    def close(self) -> None:
        submitted, right, lost = (
            sum(getattr(account, name) for account in self.accounts.values()) for name in ("submitted", "right", "lost")
        )
        lines, size = (sum(int(found[name]) for found in self.known.values()) for name in ("lines", "bytes"))
        self.screen.close(
            ["TENANT", "SUBMITTED", "CORRECT", "LOST WITH A WORKER", "WAITED P50", "P99", "PROCESSOR"],
            [account.row(name) for name, account in self.accounts.items()],
            [
                f"{submitted:,} tasks: {right:,} done and correct, {self.wrong:,} not",
                f"{len(self.known):,} of {len(self.work):,} pieces of recordings, {lines:,} lines, {size / 1e6:.1f} MB; "
                "each task's result equals the one that this program computed",
                f"at most {self.most} workers, {self.workers} at the end; {len(self.killed)} were killed, and their "
                f"{lost:,} tasks went to other workers",
            ],
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="run one round, instead of repeating until Ctrl-C")
    parser.add_argument("--url", help="addresses of a running cluster whose nodes start the workers [default: start a node]")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DUNLIN_DATA", "data")))
    parser.add_argument("--scale", default="1..6", help="minimum and maximum number of workers")
    parser.add_argument("--piece-bytes", type=int, default=500_000)
    parser.add_argument("--steady", type=float, default=5.0, help="seconds of steady work")
    parser.add_argument("--every", type=float, default=0.0, help="minimum number of seconds between the starts of two rounds")
    parser.add_argument("--spike", type=int, default=400, help="number of tasks that one tenant submits at once")
    parser.add_argument("--kills", type=int, default=3, help="number of workers to kill in a round")
    options = parser.parse_args()
    work = pieces(options.data, options.piece_bytes)
    with tempfile.TemporaryDirectory(prefix="dunlin-demo-") as folder:
        log = Path(folder, "node.log")
        log.touch()
        node = Cluster(options.url) if options.url else Node(os.environ.get("DUNLIN_BINARY", "dunlin"), options.scale, log)
        with dunlin.connect(node.url) as client:
            demo = Demo(client, node, options, work)
            signal.signal(signal.SIGINT, demo.interrupt)
            while not demo.interrupted:
                began = time.monotonic()
                demo.round()
                demo.settle()
                if options.once:
                    break
                demo.rest(began + options.every)
        code = node.stop()
        demo.close()
        # In a cluster whose nodes are killed, the number of workers at the end is not known, so it is not checked.
        scaled = bool(options.url) or (demo.most > demo.least and demo.workers == demo.least)
        failed = demo.wrong > 0 or code != 0 or not (scaled or demo.interrupted)
        if failed:
            print(f"FAILED: exit code of the node: {code}; its log:\n{log.read_text()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
