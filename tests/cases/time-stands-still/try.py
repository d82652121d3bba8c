"""Fault: after a majority of the nodes was down, the cluster's time can stop for as long as the period that its log covers.
Meanwhile, leases, locks of dead holders and delays of tasks do not end. Correct: a lease of 1 s that no client renews ends
some seconds after the majority has returned.

AGE is the time before the first kill in seconds (default 25). NODES=3 (default) or 1. Exit code: 0 correct, 1 fault,
2 cannot run. Environment: DUNLIN, BASE (ports BASE+10..39, default 31100). Needs the Python client.
"""
import os, sys, subprocess, tempfile, threading, time, urllib.request, shutil
try: import dunlin; from dunlin import errors
except ImportError: print("needs the Python client"); sys.exit(2)
D, B, N, AGE = os.environ.get("DUNLIN", "dunlin"), int(os.environ.get("BASE", 31100)), int(os.environ.get("NODES", 3)), float(os.environ.get("AGE", 25)); root = tempfile.mkdtemp(); procs = {}
HOW, DOWN, ROUNDS = os.environ.get("HOW", "kill"), float(os.environ.get("DOWN", 4)), int(os.environ.get("ROUNDS", 12))
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
def lease_lives():
    with dunlin.connect(url(1)) as c:
        l = c.kv.lease(1.0, keep=False); c.kv.put("mortal", "x", lease=l.leave()); t = time.monotonic()
        while time.monotonic()-t < 150 and c.kv.get("mortal"): time.sleep(0.1)
        return time.monotonic()-t
try:
    born = time.monotonic(); N > 1 and begin(); start(1)
    for i in range(2, N+1):
        t = f"{root}/t{i}"; open(t, "wb").write(subprocess.check_output([D, "cluster", "token", "--data-dir", f"{root}/n1"])); start(i, "--join", f"127.0.0.1:{B+16}", "--token-file", t)
    print(f"before: a 1 s lease lives {lease_lives():.1f} s")
    stop = threading.Event()
    def write(i):
        c = None; n = 0
        while not stop.is_set():
            n += 1
            try: c = c or dunlin.connect(url(i)); c.kv.put(f"a/{i}", "x")
            except errors.Error: time.sleep(0.02)
            time.sleep(0.02)
    for i in range(1, N+1): threading.Thread(target=write, args=(i,), daemon=True).start()
    time.sleep(AGE); faults = []
    for r in range(ROUNDS):
        victims = list(range(1, N//2+2))
        for i in victims: procs[i].kill() if HOW == "kill" else procs[i].terminate()
        for i in victims: procs[i].wait()
        time.sleep(DOWN); age = time.monotonic()-born
        for i in victims: start(i, wait=False)
        for i in victims: ready(i)
        lives = lease_lives(); print(f"majority down {r+1}, cluster {age:.0f} s old: a 1 s lease lives {lives:.1f} s", flush=True)
        if lives > 8: faults.append(f"restart {r+1}: a 1 s lease lived {lives:.1f} s"); break
        time.sleep(1)
    stop.set()
    for f in faults: print("FAULT", f)
    if not faults: print("OK")
    sys.exit(bool(faults))
finally:
    for p in procs.values(): p.kill(); p.wait()
    shutil.rmtree(root, ignore_errors=True)
