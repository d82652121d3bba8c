"""Fault: when a node restarts, a watch of keys (in Python, or `dunlin kv watch`) ends with AHEAD and
does not continue. The cause: the node's listeners accept clients before the node has replayed its
log.

Exit code: 0 correct, 1 fault, 2 cannot run. Environment: DUNLIN (binary), BASE (ports
BASE+10..BASE+39, default 31100). Needs the Python client.
"""
import os, sys, subprocess, tempfile, threading, time, urllib.request, shutil
try: import dunlin; from dunlin import errors
except ImportError: print("needs the Python client"); sys.exit(2)
D, B = os.environ.get("DUNLIN", "dunlin"), int(os.environ.get("BASE", 31100)); root = tempfile.mkdtemp(); procs = {}
begin = lambda: subprocess.run([D, "cluster", "init", "--data-dir", f"{root}/n1"], check=True, stdout=subprocess.DEVNULL)
def start(i, *more):
    b = B + 10*i
    procs[i] = subprocess.Popen([D, "serve", "--listen", f"127.0.0.1:{b}", "--http-listen", f"127.0.0.1:{b+1}", "--data-dir", f"{root}/n{i}", "--cluster-listen", f"127.0.0.1:{b+6}", *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{b+1}/readyz", timeout=2).status == 200: return
        except Exception: time.sleep(0.05)
    print("node", i, "does not get ready"); sys.exit(2)
try:
    begin(); start(1)
    for i in (2, 3):
        t = f"{root}/t{i}"; open(t, "wb").write(subprocess.check_output([D, "cluster", "token", "--data-dir", f"{root}/n1"])); start(i, "--join", f"127.0.0.1:{B+16}", "--token-file", t)
    stop = threading.Event()
    def write(k):
        c = dunlin.connect(f"dunlin://127.0.0.1:{B+10}"); n = 0
        while not stop.is_set():
            n += 1
            try: c.kv.put(f"a/{k}/{n}", "x")
            except errors.Error: time.sleep(0.1)
            time.sleep(0 if pre else 0.003)
    pre = True; ts = [threading.Thread(target=write, args=(k,), daemon=True) for k in range(6)]; [t.start() for t in ts]
    url = f"dunlin://127.0.0.1:{B+20}"; c = dunlin.connect(url)
    while c.kv.revision()[1] < 20000: time.sleep(0.2)
    pre = False
    w = c.kv.watch("a/"); cli = subprocess.Popen([D, "kv", "watch", "a/", "--url", url], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    faults = []
    for r in range(8):
        until = time.monotonic() + 1
        while time.monotonic() < until: w.next(0.2)
        def again(): procs[2].terminate(); procs[2].wait(); start(2)
        th = threading.Thread(target=again); th.start(); until = time.monotonic() + 5; bad = 0; last = None
        while time.monotonic() < until or th.is_alive():
            try:
                if w.next(0.3) is not None and not th.is_alive(): bad = 0
            except errors.DisconnectedError: time.sleep(0.1)
            except errors.Error as e: bad += 1; last = e; time.sleep(0.1)
        if bad > 5: faults.append(f"restart {r+1}: Python's watch says for ever: {type(last).__name__}: {last}"); break
        if cli.poll() is not None: faults.append(f"restart {r+1}: `dunlin kv watch` ended with {cli.returncode}: {cli.stderr.read().strip()}"); break
    time.sleep(1)
    if cli.poll() is not None and not any("kv watch" in f for f in faults): faults.append(f"`dunlin kv watch` ended with {cli.returncode}: {cli.stderr.read().strip()}")
    stop.set(); cli.kill()
    for f in faults: print("FAULT", f)
    if not faults: print("OK")
    sys.exit(bool(faults))
finally:
    for p in procs.values(): p.kill(); p.wait()
    shutil.rmtree(root, ignore_errors=True)
