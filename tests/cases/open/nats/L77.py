"""Sends requests with a custom inbox prefix between nodes 1 and 3, while node 2, which is not
involved, is killed and restarted. Argument: the number of kills.
"""
from lib import *; from raw import R
import random, collections
K = int(sys.argv[1]) if len(sys.argv) > 1 else 4
async def main():
    c = Cluster(["--log", os.environ.get("LOG", "warn")]); bad = collections.Counter(); st = collections.Counter(); stop = False; kills = []; t00 = time.time(); T = lambda: f"{time.time()-t00:.2f}"
    svc = await conn(c[2], "svc")
    async def cb(m): await m.respond(m.data)
    await svc.subscribe("svc", cb=cb); await svc.flush(); cl = [await conn(c[0], f"{k}{i}", **({"inbox_prefix": b"my.replies"} if k == "own" else {})) for k in ("own", "def") for i in range(6)]
    for x in cl:
        def w(x=x):
            async def d(): print(T(), x.options["name"], "disconnected"); bad[x.options["name"][:3] + " disconnected"] += 1
            x._disconnected_cb = d
        w()
    async def asker(nc):
        n = 0
        while not stop:
            n += 1; t = time.time()
            try: m = await nc.request("svc", b"%d %d" % (id(nc), n), timeout=10); st[nc.options["name"][:3]] += 1; assert m.data == b"%d %d" % (id(nc), n)
            except Exception as e: k = nc.options["name"][:3] + " " + repr(e); bad[k] += 1; print(T(), k, f"sent {t-t00:.2f}, kills {[round(x-t00,2) for x in kills]}")
            await asyncio.sleep(.04)
    ts = [asyncio.create_task(asker(x)) for x in cl]
    for k in range(K):
        await asyncio.sleep(2 + random.random()); c[1].kill(); kills.append(time.time()); await asyncio.sleep(float(os.environ.get("AWAY") or random.choice([.2, 1, 3.5]))); t = time.time(); await asyncio.to_thread(c[1].start); print(T(), "killed and ready again, start took", f"{time.time()-t:.1f}")
    await asyncio.sleep(4); stop = True; await asyncio.gather(*ts)
    print(f"kills {K} ok {dict(st)} faults {dict(bad)}"); l = (await c.acli(0, "topics", "list")).stdout; print("reply topics left", len([x for x in l.splitlines() if x.startswith("my.")]))
    if os.environ.get("LOG"): [print(i + 1, x[:300]) for i in (0, 2) for x in open(c[i].log).read().splitlines() if re.search("nats|gap|lost|clos|slow", x, re.I)][-20:]
    return sum(bad.values())
sys.exit(bool(asyncio.run(main())))
