"""A work queue: three workers share the records of a topic. A record that a worker returns is delivered again.

    dunlin dev &
    python clients/python/examples/work_queue.py
"""

import asyncio

import dunlin

JOBS = 12


async def worker(client: dunlin.aio.AsyncClient, done: "asyncio.Queue[bytes]") -> None:
    async for job in client.work("example.jobs", "crew", claim=30, attempts_max=5):
        if not isinstance(job, dunlin.Job):
            print(job)  # a notice, such as a Gap
        elif job.payload == b"job 3" and job.attempt == 1:
            await client.nack(job, delay=0.05)
        else:
            await client.ack(job)
            await done.put(job.payload)


async def main() -> None:
    async with dunlin.aio.connect() as client:
        await client.create_topic("example.jobs", exist_ok=True)
        for number in range(JOBS):
            await client.publish("example.jobs", f"job {number}")
        done: asyncio.Queue[bytes] = asyncio.Queue()
        workers = [asyncio.create_task(worker(client, done)) for _ in range(3)]
        finished = {await done.get() for _ in range(JOBS)}
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        print(f"{len(finished)} of {JOBS} done")


asyncio.run(main())
