"""Fault: after a majority of a durable cluster was killed (SIGKILL) and restarted, the cluster begins a new epoch of
revisions. All watches end with COMPACTED ("revisions have begun anew"), and every node discards all history. According to
docs/control.md, the epoch changes only for a node without a data directory, and for a restored backup.

NODES=3 (default) or 1. Exit code: 0 correct, 1 fault, 2 cannot run. Environment: DUNLIN (binary), BASE (ports
BASE+10..BASE+39, default 31100). Needs the Python client.
"""
import os, sys, subprocess, tempfile, threading, time, urllib.request, shutil
try: import dunlin; from dunlin import errors
except ImportError: print("needs the Python client"); sys.exit(2)
D, B, N = os.environ.get("DUNLIN", "dunlin"), int(os.environ.get("BASE", 31100)), int(os.environ.get("NODES", 3)); root = tempfile.mkdtemp(); procs = {}
begin = lambda: subprocess.run([D, "cluster", "init", "--data-dir", f"{root}/n1"], check=True, stdout=subprocess.DEVNULL)
def start(i, *more, wait=True):
    b = B + 10*i; cl = ["--cluster-listen", f"127.0.0.1:{b+6}"] if N > 1 else []
    procs[i] = subprocess.Popen([D, "serve", "--listen", f"127.0.0.1:{b}", "--http-listen", f"127.0.0.1:{b+1}", "--data-dir", f"{root}/n{i}", *cl, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if wait: ready(i)
def ready(i):
    for _ in range(600):
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{B+10*i+1}/readyz", timeout=2).status == 200: return
        except Exception: time.sleep(0.05)
    print("node", i, "does not get ready"); sys.exit(2)
url = lambda i: f"dunlin://127.0.0.1:{B+10*i}"
try:
    N > 1 and begin(); start(1)
    for i in range(2, N+1):
        t = f"{root}/t{i}"; open(t, "wb").write(subprocess.check_output([D, "cluster", "token", "--data-dir", f"{root}/n1"])); start(i, "--join", f"127.0.0.1:{B+16}", "--token-file", t)
    stop = threading.Event()
    def write(i):
        c = None; n = 0
        while not stop.is_set():
            n += 1
            try: c = c or dunlin.connect(url(i)); c.kv.put(f"a/{i}/{n}", "x")
            except errors.Error: time.sleep(0.02)
            time.sleep(0.003)
    ts = [threading.Thread(target=write, args=(i,), daemon=True) for i in range(1, N+1)]; [t.start() for t in ts]; time.sleep(3)
    faults = []
    for r in range(6):
        with dunlin.connect(url(1)) as c: before = c.kv.revision()
        w = dunlin.connect(url(1)).kv.watch("a/")
        victims = list(range(1, N//2+2)); [procs[i].kill() for i in victims]; [procs[i].wait() for i in victims]; time.sleep(float(os.environ.get('DOWN', 4)))
        for i in victims: start(i, wait=False)
        for i in victims: ready(i)
        time.sleep(1)
        with dunlin.connect(url(1)) as c: after = c.kv.revision(); first = c.describe("$kv").logs[0].first
        said = None
        try: w.next(3)
        except errors.Error as e: said = f"{type(e).__name__}: {e}"
        print(f"restart {r+1}: epoch and revision {before} -> {after}; history begins with {first}; a watch says {said}")
        if before[0] != after[0]: faults.append(f"restart {r+1}: epoch {before[0]} became {after[0]} though nothing was lost")
        time.sleep(2)
    stop.set()
    for f in faults: print("FAULT", f)
    if not faults: print("OK")
    sys.exit(bool(faults))
finally:
    for p in procs.values(): p.kill(); p.wait()
    shutil.rmtree(root, ignore_errors=True)
