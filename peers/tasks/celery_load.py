"""Measures Celery with Redis as its queue: submits tasks, and starts a Celery worker that runs them.

    celery_load.py WORK

WORK describes the workload as JSON (crates/bench/src/tasks/work.rs). The program prints the report as JSON. Each task has a number,
which the process that runs the task appends to a file when the task ends. The report counts tasks that ran twice. The program fails if
a task does not run. A task that takes time sleeps with `time.sleep` in a thread. If tasks take no time, the worker has one process for
each core, as is Celery's default.
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

RECORD = struct.Struct("<Qqqq")
SUBMITTERS = 8
TIMEOUT_S = 60

app = Celery("peer", broker=os.environ.get("PEER_BROKER", ""))
app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)
_file = threading.local()


@app.task(name="work")
def work(seq, due_ns, task_ns, _filler):
    started_ns = time.monotonic_ns()
    if task_ns:
        time.sleep(task_ns / 1e9)
    if not hasattr(_file, "fd"):
        name = f"{os.getpid()}-{threading.get_ident()}"
        _file.fd = os.open(os.path.join(os.environ["PEER_DONE"], name), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.write(_file.fd, RECORD.pack(seq, due_ns, started_ns, time.monotonic_ns()))


class CompletedTasks:
    """Reads the completed tasks from the files that the worker's processes write."""

    def __init__(self, folder):
        self.folder, self.offsets, self.times, self.twice = folder, {}, {}, 0

    def refresh(self):
        for name in os.listdir(self.folder):
            with open(os.path.join(self.folder, name), "rb") as file:
                file.seek(self.offsets.get(name, 0))
                data = file.read()
            complete_bytes = len(data) - len(data) % RECORD.size
            self.offsets[name] = self.offsets.get(name, 0) + complete_bytes
            for seq, *times in RECORD.iter_unpack(data[:complete_bytes]):
                self.twice += seq in self.times
                self.times[seq] = times
        return len(self.times)


class Submitters:
    """Threads that submit tasks until `end_ns`."""

    def __init__(self, todo, done, end_ns):
        self.todo, self.done, self.end_ns = todo, done, end_ns
        self.lock, self.next, self.due_ns, self.completed = threading.Lock(), 0, time.monotonic_ns(), 0

    def run(self):
        threads = [threading.Thread(target=self.submit) for _ in range(SUBMITTERS)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.completed = self.done.refresh()
            time.sleep(0.002)
        return self.next

    def next_task(self):
        with self.lock:
            if self.todo["rate"]:
                self.due_ns += int(random.expovariate(self.todo["rate"]) * 1e9)
                due_ns = self.due_ns
            elif self.next - self.completed >= self.todo["backlog"]:
                return None, 0
            else:
                due_ns = time.monotonic_ns()
            self.next += 1
            return self.next - 1, due_ns

    def submit(self):
        filler = "x" * max(0, self.todo["bytes"] - 16)
        while time.monotonic_ns() < self.end_ns:
            seq, due_ns = self.next_task()
            if seq is None:
                time.sleep(0.001)
                continue
            time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
            work.apply_async((seq, due_ns, self.todo["task_ns"], filler))


def worker(todo, broker, folder):
    pool = ["threads", todo["workers"]] if todo["task_ns"] else ["prefork", os.cpu_count() or 1]
    command = [sys.executable, "-m", "celery", "-A", "celery_load", "worker", "--loglevel", "ERROR"]
    command += ["--pool", pool[0], "--concurrency", str(pool[1]), "--without-gossip", "--without-mingle", "--without-heartbeat"]
    env = {**os.environ, "PEER_BROKER": broker, "PEER_DONE": folder}
    child = subprocess.Popen(command, cwd=os.path.dirname(os.path.abspath(__file__)), env=env, stdout=subprocess.DEVNULL)
    return child, pool[1]


def wait_until(what, condition):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"{what} did not come within {TIMEOUT_S} s")
        time.sleep(0.01)


def quantile(values, share):
    return values[min(int(share * len(values)), len(values) - 1)] if values else 0


def report(todo, done, begin_ns, submitted, workers_in_process):
    end_ns = begin_ns + todo["time_ns"]
    counted = [times for times in done.times.values() if begin_ns <= times[2] < end_ns]
    starts = sorted(started - due for due, started, _ in counted)
    ends = sorted(ended - due for due, _, ended in counted)
    return {
        "ops": len(counted),
        "submitted": submitted,
        "completed": len(done.times),
        "twice": done.twice,
        "elapsed_ns": todo["time_ns"],
        "start_p50_ns": quantile(starts, 0.5),
        "start_p99_ns": quantile(starts, 0.99),
        "end_p50_ns": quantile(ends, 0.5),
        "end_p99_ns": quantile(ends, 0.99),
        "workers_in_a_process": workers_in_process if todo["task_ns"] else 1,
    }


def main():
    todo = json.loads(sys.argv[1])
    broker = f"redis://{todo['endpoint']}/0"
    app.conf.broker_url = broker
    with tempfile.TemporaryDirectory() as folder:
        child, workers_in_process = worker(todo, broker, folder)
        try:
            done = CompletedTasks(folder)
            # When the first task ends, the worker is ready. The report does not count this task.
            work.apply_async((2**63, time.monotonic_ns(), 0, ""))
            wait_until("the worker", done.refresh)
            done.times.clear()
            begin_ns = time.monotonic_ns() + todo["warmup_ns"]
            submitted = Submitters(todo, done, begin_ns + todo["time_ns"]).run()
            wait_until("all that was submitted", lambda: done.refresh() >= submitted)
            print(json.dumps(report(todo, done, begin_ns, submitted, workers_in_process)), flush=True)
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(TIMEOUT_S)


if __name__ == "__main__":
    main()
