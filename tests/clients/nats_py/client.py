"""Runs every case with nats.py.

For TLS, the second argument names the certificate authority's file. Cases that stop or restart
the node do not run over TLS.
"""

import asyncio
import ssl
import sys

import nats
from nats.errors import NoRespondersError

URL = sys.argv[1]
CA = sys.argv[2] if len(sys.argv) > 2 else None
TLS = {"tls": ssl.create_default_context(cafile=CA)} if CA else {}
PATIENCE = 60


def ok(case):
    print("ok", case, flush=True)


async def ask(line):
    """Requests an action of the test, and waits until the action is done."""
    print(line, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def take(sub, count):
    return [await sub.next_msg(timeout=PATIENCE) for _ in range(count)]


async def pub_sub(nc):
    sub = await nc.subscribe("py.ticks")
    for n in range(1000):
        await nc.publish("py.ticks", str(n).encode())
    got = await take(sub, 1000)
    assert [int(m.data) for m in got] == list(range(1000))


async def headers(nc):
    sub = await nc.subscribe("py.headers")
    await nc.publish("py.headers", b"x", reply="py.reply", headers={"Trace": "a b", "Nats-Msg-Id": "7"})
    [m] = await take(sub, 1)
    assert m.headers == {"Trace": "a b", "Nats-Msg-Id": "7"} and m.reply == "py.reply" and m.data == b"x", m


async def wildcard(nc):
    star, rest = await nc.subscribe("py.w.*"), await nc.subscribe("py.w.>")
    await nc.flush()
    for subject in ["py.w.a", "py.w.b.c", "py.v.a"]:
        await nc.publish(subject, subject.encode())
    assert [m.subject for m in await take(star, 1)] == ["py.w.a"]
    assert sorted(m.subject for m in await take(rest, 2)) == ["py.w.a", "py.w.b.c"]


async def queue_group(nc):
    got, done = [], asyncio.Event()

    async def each(m):
        got.append(int(m.data))
        if len(got) == 100:
            done.set()

    members = [await nc.subscribe("py.jobs", queue="crew", cb=each) for _ in range(3)]
    await nc.flush()
    for n in range(100):
        await nc.publish("py.jobs", str(n).encode())
    await asyncio.wait_for(done.wait(), PATIENCE)
    await nc.flush()
    assert sorted(got) == list(range(100)), got
    for member in members:
        await member.unsubscribe()


async def request_reply(nc):
    async def answer(m):
        await m.respond(m.data * 2)

    service = await nc.subscribe("py.twice", cb=answer)
    await nc.flush()
    replies = await asyncio.gather(*(nc.request("py.twice", str(n).encode(), timeout=PATIENCE) for n in range(50)))
    assert [m.data for m in replies] == [str(n).encode() * 2 for n in range(50)]
    await service.unsubscribe()


async def no_responders(nc):
    for subject in ["py.nobody", "$JS.API.INFO"]:
        try:
            await nc.request(subject, b"", timeout=PATIENCE)
        except NoRespondersError:
            continue
        raise AssertionError(f"{subject} was answered")


async def unsub_max(nc):
    sub = await nc.subscribe("py.max")
    await sub.unsubscribe(limit=3)
    for n in range(5):
        await nc.publish("py.max", str(n).encode())
    assert [int(m.data) for m in await take(sub, 3)] == [0, 1, 2]


async def large_payload(nc):
    sub = await nc.subscribe("py.large")
    payload = bytes(n % 251 for n in range(1_000_000))
    await nc.publish("py.large", payload)
    [m] = await take(sub, 1)
    assert m.data == payload


async def drain(_nc):
    nc = await nats.connect(URL, **TLS)
    got = []

    async def each(m):
        await asyncio.sleep(0.001)
        got.append(m)

    await nc.subscribe("py.drain", cb=each)
    for _ in range(100):
        await nc.publish("py.drain", b"x")
    await nc.flush()
    await nc.drain()
    assert len(got) == 100 and nc.is_closed, len(got)


async def gaps(_nc):
    nc = await nats.connect(URL)
    told = asyncio.Queue()

    async def each(m):
        await told.put(m.headers)

    await nc.subscribe("$DUNLIN.seq.gaps", cb=each, pending_msgs_limit=-1, pending_bytes_limit=-1)
    await nc.flush()
    count, following, lost = 40_000, 1, 0
    await ask(f"stall {count}")
    while following <= count:
        header = await asyncio.wait_for(told.get(), PATIENCE)
        status = (header.get("Status"), header.get("Description"))
        if status == ("410", "Gap"):
            assert int(header["Dunlin-First"]) == following, header
            following = int(header["Dunlin-Last"]) + 1
            lost += 1
        elif status[0] is None:
            assert int(header["Dunlin-Seq"]) == following and int(header["Dunlin-Epoch"]) > 0, header
            following += 1
        else:
            assert status == ("429", "Lagging"), header
    assert lost > 0
    await nc.close()


async def reconnect(_nc):
    nc = await nats.connect(URL, reconnect_time_wait=0.05, max_reconnect_attempts=-1)
    sub = await nc.subscribe("py.again")
    await nc.flush()
    await ask("restart")
    for _ in range(PATIENCE * 10):
        try:
            await nc.publish("py.again", b"back")
            await nc.flush(timeout=1)
            m = await sub.next_msg(timeout=0.1)
            assert m.data == b"back"
            return await nc.close()
        except (nats.errors.Error, asyncio.TimeoutError):
            await asyncio.sleep(0.05)
    raise AssertionError("it did not come back")


async def main():
    nc = await nats.connect(URL, name="py", **TLS)
    alone = [pub_sub, headers, wildcard, queue_group, request_reply, no_responders, unsub_max, large_payload, drain]
    for case in alone if CA else [*alone, gaps]:
        await case(nc)
        ok(case.__name__)
    await nc.close()
    if CA:
        return
    await reconnect(None)
    ok("reconnect")


asyncio.run(main())
