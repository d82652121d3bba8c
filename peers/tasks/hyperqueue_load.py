"""Measures HyperQueue: starts a server and a worker, and submits tasks. The worker starts a program for each task.

    hyperqueue_load.py WORK

WORK describes the workload as JSON (crates/bench/src/tasks/work.rs). The program prints the report as JSON. It submits tasks in jobs of
many tasks, as HyperQueue's documentation recommends. Each task runs `touch FILE`, so the file's modification time is the time at which
the task ended. The program uses these times, because HyperQueue's client reports only the end of whole jobs, and checks once per second.
Other tasks cannot be measured. The queue is in memory, not on disk.
"""

import json
import os
import shutil
import sys
import tempfile
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

JOB_TASKS = 250
TIMEOUT_S = 60


class Batch:
    """A job, and the folder with the files that the job's tasks create."""

    def __init__(self, client, folder, nth):
        self.folder = os.path.join(folder, str(nth))
        os.mkdir(self.folder)
        job = Job()
        for at in range(JOB_TASKS):
            job.program([TOUCH, os.path.join(self.folder, str(at))], stdout=None, stderr=None)
        client.submit(job)
        self.completed = 0

    def is_done(self):
        """Whether all tasks of the job have ended."""
        self.completed = len(os.listdir(self.folder))
        return self.completed == JOB_TASKS

    def times_ns(self):
        with os.scandir(self.folder) as files:
            times = [file.stat().st_mtime_ns for file in files]
        shutil.rmtree(self.folder)
        return times


TOUCH = shutil.which("touch")


def run(client, todo, folder):
    begin_ns = time.time_ns() + todo["warmup_ns"]
    end_ns = begin_ns + todo["time_ns"]
    running, times, submitted = [], [], 0
    deadline_ns = end_ns + TIMEOUT_S * 10**9
    while time.time_ns() < end_ns or running:
        if time.time_ns() > deadline_ns:
            sys.exit(f"{len(times)} of {submitted} tasks were completed")
        for batch in [batch for batch in running if batch.is_done()]:
            running.remove(batch)
            times += batch.times_ns()
        waiting = sum(JOB_TASKS - batch.completed for batch in running)
        if time.time_ns() < end_ns and waiting < todo["backlog"]:
            running.append(Batch(client, folder, submitted // JOB_TASKS))
            submitted += JOB_TASKS
        else:
            time.sleep(0.01)
    ops = sum(begin_ns <= at_ns < end_ns for at_ns in times)
    return {"ops": ops, "submitted": submitted, "completed": len(times), "elapsed_ns": todo["time_ns"]}


def main():
    todo = json.loads(sys.argv[1])
    if todo["task_ns"] or todo["rate"]:
        sys.exit("only tasks that do nothing are measured, as many as there can be")
    # Standard output must contain only the report, so HyperQueue's own output is redirected to standard error.
    output_fd = os.dup(1)
    os.dup2(2, 1)
    with LocalCluster() as cluster, tempfile.TemporaryDirectory() as folder:
        cluster.start_worker(WorkerConfig(cores=todo["workers"]))
        report = run(cluster.client(), todo, folder)
        line = json.dumps({**report, "twice": 0, "workers_in_a_process": 1})
        os.write(output_fd, f"{line}\n".encode())


if __name__ == "__main__":
    main()
