"""A short worker. Run `dunlin dev --workers 'python3 worker.py' --scale 1..4`, then `dunlin task submit shout hello --wait`."""

import dunlin

worker = dunlin.Worker(slots=2)


@worker.task("shout")
def shout(task: dunlin.Task) -> bytes:
    return task.payload.upper()


if __name__ == "__main__":
    worker.run()
