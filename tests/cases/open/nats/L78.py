"""finding-3: node alone, durable topic; the data directory is copied (a) while the node runs, (b) after kill -9; it goes on to 200; the copy is restored.
A subscriber that has read to 150 must get EpochChanged without known_through; it gets known_through 100, and `dunlin sub` prints `no record was missed`."""
from lib import *; from raw import R
import tempfile
def solo(d):
    tcp, n = port(), port(); p = subprocess.Popen(["nice", D, "serve", "--data-dir", d, "--listen", f"127.0.0.1:{tcp}", "--nats-listen", f"127.0.0.1:{n}"], stdout=open(d + ".out", "w"), stderr=open(d + ".log", "a")); e = time.time() + 30
    while "READY" not in open(d + ".out").read(): assert time.time() < e and p.poll() is None, open(d + ".log").read()[-500:]; time.sleep(.05)
    atexit.register(lambda: p.poll() is None and p.kill()); p.url = f"dunlin://127.0.0.1:{tcp}"; p.nats = f"nats://127.0.0.1:{n}"; return p
def cli(p, *a): return subprocess.run([D, *map(str, a)], capture_output=True, text=True, timeout=20, env={**os.environ, "DUNLIN_URL": p.url}).stdout
async def pub(p, lo, hi):
    r = await R.open(p.nats); [r.pub("led", b"r%d" % n) for n in range(lo, hi)]; await r.flush(); await r.close()
bad = 0
for how in ("running", "kill -9"):
    b = tempfile.mkdtemp(prefix="dl4-", dir="/tmp"); d = b + "/n"; p = solo(d); cli(p, "topics", "create", "led", "--durable"); asyncio.run(pub(p, 1, 101)); time.sleep(1)
    if how == "kill -9": p.kill(); p.wait()
    shutil.copytree(d, b + "/copy")
    if how == "kill -9": p = solo(d)
    asyncio.run(pub(p, 101, 201)); time.sleep(1)
    ev = [json.loads(x) for x in cli(p, "sub", "led", "--from", "earliest", "--count", 200, "--json").splitlines()]; ev = [x for x in ev if "payload" in x]; pos = f"{ev[149]['epoch']}-{ev[149]['seq']}"; print(how, "position of r150:", pos, "of r100:", ev[99]["epoch"], "last", ev[-1]["payload"])
    (p.kill if how == "kill -9" else p.terminate)(); p.wait(20); shutil.rmtree(d); shutil.copytree(b + "/copy", d); p = solo(d); asyncio.run(pub(p, 301, 303)); time.sleep(1)
    for at in (pos, f"{ev[99]['epoch']}-100", f"{ev[199]['epoch']}-200"):
        j = [json.loads(x) for x in cli(p, "sub", "led", "--from", at, "--idle", "1s", "--json").splitlines()]; t = cli(p, "sub", "led", "--from", at, "--idle", "1s").splitlines()
        e = [x for x in j if x["event"] == "epoch_changed"]; f = at != f"{ev[99]['epoch']}-100" and any(x["known_through"] is not None for x in e); f |= "no record was missed" in t[0] and not at.endswith("-200"); bad += f
        print("FAULT" if f else "ok   ", "from", at, e and {k: e[0][k] for k in ("old", "last_seen", "known_through", "epoch", "seq")}, "|", t[0], "|", [x.get("payload") for x in j if "payload" in x])
    p.terminate(); p.wait(20); shutil.rmtree(b)
print("faults", bad); sys.exit(bool(bad))
