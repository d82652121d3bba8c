"""A short worker, which a node starts.

    dunlin dev --workers 'python3 clients/python/examples/worker.py' --scale 1..4 &
    dunlin task submit shout hello --wait
"""

import dunlin

worker = dunlin.Worker(slots=2)


@worker.task("shout")
def shout(task: dunlin.Task) -> bytes:
    return task.payload.upper()


if __name__ == "__main__":
    worker.run()
