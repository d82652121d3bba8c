"""Tasks by HyperQueue: a server and a worker of its own, which starts a program for each task.

    hyperqueue_load.py WORK

WORK is the bench's own order as JSON (crates/bench/src/tasks/work.rs), and what is printed its report. Tasks are given over in jobs
of many, as its users are told to. A task is `touch FILE`: when each was over stands on its file, for HyperQueue's client says of whole
jobs that they are over, and looks once a second. Tasks that do nothing else are all that is measured. Its queue is on no disk.
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
PATIENCE_S = 60


class Batch:
    """A job, and the folder of its tasks' files."""

    def __init__(self, client, folder, nth):
        self.folder = os.path.join(folder, str(nth))
        os.mkdir(self.folder)
        job = Job()
        for at in range(JOB_TASKS):
            job.program([TOUCH, os.path.join(self.folder, str(at))], stdout=None, stderr=None)
        client.submit(job)
        self.over = 0

    def look(self):
        """Whether all tasks are over."""
        self.over = len(os.listdir(self.folder))
        return self.over == JOB_TASKS

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
    deadline_ns = end_ns + PATIENCE_S * 10**9
    while time.time_ns() < end_ns or running:
        if time.time_ns() > deadline_ns:
            sys.exit(f"{len(times)} of {submitted} tasks were completed")
        for batch in [batch for batch in running if batch.look()]:
            running.remove(batch)
            times += batch.times_ns()
        waiting = sum(JOB_TASKS - batch.over for batch in running)
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
    said = os.dup(1)
    os.dup2(2, 1)
    with LocalCluster() as cluster, tempfile.TemporaryDirectory() as folder:
        cluster.start_worker(WorkerConfig(cores=todo["workers"]))
        report = run(cluster.client(), todo, folder)
        line = json.dumps({**report, "twice": 0, "workers_in_a_process": 1})
        os.write(said, f"{line}\n".encode())


if __name__ == "__main__":
    main()
