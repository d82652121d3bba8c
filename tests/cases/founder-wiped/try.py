"""Fault: the first node of a cluster loses its data directory D (a lost disk, or a volume that is not mounted). If
`dunlin serve --data-dir D --cluster-listen A` runs again, it silently begins another cluster at the old address. The new
cluster is ready, has a leader, and acknowledges writes that the real cluster never receives. Its lock tokens begin again
at low numbers.

Exit code: 0 correct, 1 fault, 2 cannot run. Environment: DUNLIN (binary), BASE (ports BASE+10..39, default 31100).
"""
import os, sys, subprocess, tempfile, time, urllib.request, shutil
D, B = os.environ.get("DUNLIN", "dunlin"), int(os.environ.get("BASE", 31100)); root = tempfile.mkdtemp(); procs = {}
begin = lambda: subprocess.run([D, "cluster", "init", "--data-dir", f"{root}/n1"], check=True, stdout=subprocess.DEVNULL)
def start(i, *more, must=True):
    b = B + 10*i
    procs[i] = subprocess.Popen([D, "serve", "--listen", f"127.0.0.1:{b}", "--http-listen", f"127.0.0.1:{b+1}", "--data-dir", f"{root}/n{i}", "--cluster-listen", f"127.0.0.1:{b+6}", *more], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE if not must else subprocess.DEVNULL, text=True)
    for _ in range(200):
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{b+1}/readyz", timeout=2).status == 200: return True
        except Exception: time.sleep(0.05)
        if procs[i].poll() is not None: break
    if must: print("node", i, "does not get ready"); sys.exit(2)
    return False
kv = lambda i, *a: subprocess.run([D, "kv", *a, "--url", f"dunlin://127.0.0.1:{B+10*i}"], capture_output=True, text=True, timeout=60)
try:
    begin(); start(1)
    for i in (2, 3):
        t = f"{root}/t{i}"; open(t, "wb").write(subprocess.check_output([D, "cluster", "token", "--data-dir", f"{root}/n1"])); start(i, "--join", f"127.0.0.1:{B+16}", "--token-file", t)
    time.sleep(2); print("before:", kv(1, "put", "a", "1").stdout.strip())
    procs[1].kill(); procs[1].wait(); shutil.rmtree(f"{root}/n1"); time.sleep(2)
    up = start(1, must=False); print("node 1 with an empty directory is ready:", up)
    if not up: print("OK, it says:", procs[1].stderr.read()[-300:]); sys.exit(0)
    w = kv(1, "put", "a", "2"); g = kv(2, "get", "a"); print("put through node 1:", w.stdout.strip(), w.stderr.strip(), "| get through node 2:", g.stdout.strip())
    if w.returncode == 0 and g.stdout.strip() != "2": print("FAULT acknowledged by a cluster of one that came into being by itself; the cluster at this address has", g.stdout.strip()); sys.exit(1)
    print("OK")
finally:
    for p in procs.values(): p.kill(); p.wait()
    shutil.rmtree(root, ignore_errors=True)
