"""A queue of tasks on Redis by Celery: submits them, and has a worker of Celery's own do them.

    celery_load.py WORK

WORK is the bench's own order as JSON (crates/bench/src/tasks/work.rs), and what is printed its report. Each task carries its number
and writes it into a file of its process when it is over: one that is done twice, or never, is an error. A worker sleeps by
`time.sleep` in a thread; where tasks do nothing there is a process for each core, as Celery has it.
"""

import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

from celery import Celery

DONE = struct.Struct("<Qqqq")
SUBMITTERS = 8
PATIENCE_S = 60

app = Celery("peer", broker=os.environ.get("PEER_BROKER", ""))
app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)
_file = threading.local()


@app.task(name="work")
def work(seq, due_ns, task_ns, _filling):
    started_ns = time.monotonic_ns()
    if task_ns:
        time.sleep(task_ns / 1e9)
    if not hasattr(_file, "fd"):
        name = f"{os.getpid()}-{threading.get_ident()}"
        _file.fd = os.open(os.path.join(os.environ["PEER_DONE"], name), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.write(_file.fd, DONE.pack(seq, due_ns, started_ns, time.monotonic_ns()))


class Done:
    """The numbers that the workers have written to their files."""

    def __init__(self, folder):
        self.folder, self.read, self.ones, self.twice = folder, {}, {}, 0

    def look(self):
        for name in os.listdir(self.folder):
            with open(os.path.join(self.folder, name), "rb") as file:
                file.seek(self.read.get(name, 0))
                data = file.read()
            whole = len(data) - len(data) % DONE.size
            self.read[name] = self.read.get(name, 0) + whole
            for seq, *times in DONE.iter_unpack(data[:whole]):
                self.twice += seq in self.ones
                self.ones[seq] = times
        return len(self.ones)


class Submitters:
    """Submits until the time is over."""

    def __init__(self, todo, done, end_ns):
        self.todo, self.done, self.end_ns = todo, done, end_ns
        self.lock, self.next, self.due_ns, self.over = threading.Lock(), 0, time.monotonic_ns(), 0

    def run(self):
        threads = [threading.Thread(target=self.submit) for _ in range(SUBMITTERS)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.over = self.done.look()
            time.sleep(0.002)
        return self.next

    def take(self):
        with self.lock:
            if self.todo["rate"]:
                self.due_ns += int(random.expovariate(self.todo["rate"]) * 1e9)
                due_ns = self.due_ns
            elif self.next - self.over >= self.todo["backlog"]:
                return None, 0
            else:
                due_ns = time.monotonic_ns()
            self.next += 1
            return self.next - 1, due_ns

    def submit(self):
        filling = "x" * max(0, self.todo["bytes"] - 16)
        while time.monotonic_ns() < self.end_ns:
            seq, due_ns = self.take()
            if seq is None:
                time.sleep(0.001)
                continue
            time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
            work.apply_async((seq, due_ns, self.todo["task_ns"], filling))


def worker(todo, broker, folder):
    pool = ["threads", todo["workers"]] if todo["task_ns"] else ["prefork", os.cpu_count() or 1]
    command = [sys.executable, "-m", "celery", "-A", "celery_load", "worker", "--loglevel", "ERROR"]
    command += ["--pool", pool[0], "--concurrency", str(pool[1]), "--without-gossip", "--without-mingle", "--without-heartbeat"]
    env = {**os.environ, "PEER_BROKER": broker, "PEER_DONE": folder}
    child = subprocess.Popen(command, cwd=os.path.dirname(os.path.abspath(__file__)), env=env, stdout=subprocess.DEVNULL)
    return child, pool[1]


def until(what, is_so):
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            sys.exit(f"{what} did not come within {PATIENCE_S} s")
        time.sleep(0.01)


def at(ordered, share):
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0


def report(todo, done, begin_ns, submitted, in_one):
    end_ns = begin_ns + todo["time_ns"]
    counted = [times for times in done.ones.values() if begin_ns <= times[2] < end_ns]
    starts = sorted(started - due for due, started, _ in counted)
    ends = sorted(ended - due for due, _, ended in counted)
    return {
        "ops": len(counted),
        "submitted": submitted,
        "completed": len(done.ones),
        "twice": done.twice,
        "elapsed_ns": todo["time_ns"],
        "start_p50_ns": at(starts, 0.5),
        "start_p99_ns": at(starts, 0.99),
        "end_p50_ns": at(ends, 0.5),
        "end_p99_ns": at(ends, 0.99),
        "workers_in_a_process": in_one if todo["task_ns"] else 1,
    }


def main():
    todo = json.loads(sys.argv[1])
    broker = f"redis://{todo['endpoint']}/0"
    app.conf.broker_url = broker
    with tempfile.TemporaryDirectory() as folder:
        child, in_one = worker(todo, broker, folder)
        try:
            done = Done(folder)
            # The first task shows that the worker is ready; it is not counted.
            work.apply_async((2**63, time.monotonic_ns(), 0, ""))
            until("the worker", done.look)
            done.ones.clear()
            begin_ns = time.monotonic_ns() + todo["warmup_ns"]
            submitted = Submitters(todo, done, begin_ns + todo["time_ns"]).run()
            until("all that was submitted", lambda: done.look() >= submitted)
            print(json.dumps(report(todo, done, begin_ns, submitted, in_one)), flush=True)
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(PATIENCE_S)


if __name__ == "__main__":
    main()
