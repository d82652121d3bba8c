"""Checks the order of each publisher's records when the owner of a volatile topic is stopped (SIGSTOP)
for longer than its lease lasts. All nodes have publishers and subscribers. Arguments: the number of
stops, and the duration of a stop in seconds.
"""
from lib import *; from raw import R
import random, collections
K = int(sys.argv[1]) if len(sys.argv) > 1 else 8; random.seed(int(os.environ.get("SEED", time.time())))
async def main():
    c = Cluster(); T = [f"t{i}" for i in range(6)]
    for k, t in enumerate(T): await c.acli(k % 3, "topics", "create", t)
    got = collections.defaultdict(list); rs = []; stop = False; sent = collections.Counter()
    for i in range(3):
        r = await R.open(c[i]); rs.append(r)
        def f(s, rp, h, d, i=i): p, n = d.decode().split()[:2]; got[i, s, p].append(int(n))
        for t in T: r.sub(t, f)
        await r.flush()
    await asyncio.sleep(1); pubs = [await R.open(c[i]) for i in range(3)]
    async def pub(i):
        while not stop:
            for t in T: sent[t, i] += 1; pubs[i].pub(t, f"p{i} {sent[t, i]}".encode())
            await asyncio.sleep(.02)
    ts = [asyncio.create_task(pub(i)) for i in range(3)]
    for k in range(K):
        await asyncio.sleep(1.5); v = random.randrange(3); w = random.choice([1, 1.7, 2.2, 3.5]); c[v].p.send_signal(signal.SIGSTOP); await asyncio.sleep(w); c[v].p.send_signal(signal.SIGCONT)
        await asyncio.sleep(1.5); print(f"stopped node {v+1} for {w} s")
    await asyncio.sleep(2); stop = True; await asyncio.gather(*ts); await asyncio.sleep(8); bad = 0
    for t in T:
        for i in range(3):
            errs = sum(f'"{t}"' in e for e in pubs[i].errs); unk = sum(f'"{t}"' in e and "unknown" in e for e in pubs[i].errs)
            for r in range(3):
                l = got[r, t, f"p{i}"]; o = [(a, b) for a, b in zip(l, l[1:]) if b <= a]; dup = len(l) - len(set(l)); miss = sent[t, i] - len(set(l))
                if o or dup or miss > errs: bad += 1; print(f"FAULT {t} publisher at {i+1}, reader at {r+1}: order {o[:4]} twice {dup}, missing {miss}, -ERR {errs} (outcome unknown {unk})")
    print("closed", [r.closed for r in rs + pubs], "sent", sum(sent.values()), "stops", K, "faults", bad); return bad
sys.exit(bool(asyncio.run(main())))
