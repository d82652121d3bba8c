"""Fault: `dunlin cluster remove` removes a running node while another node is down. The removed node
ends at once and cannot vote any more. The cluster has no majority until the other node returns, and
never again if that node's disk is lost.

Exit code: 0 correct, 1 fault, 2 cannot run. Environment: DUNLIN (binary), BASE (ports BASE+10..39,
default 31100).
"""
import os, sys, subprocess, tempfile, time, urllib.request, shutil
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
    time.sleep(2); procs[3].kill(); procs[3].wait(); time.sleep(0.5)
    r = subprocess.run([D, "cluster", "remove", "2", "--data-dir", f"{root}/n1"], capture_output=True, text=True, timeout=60); print("remove 2 (node 3 is down):", r.returncode, (r.stdout+r.stderr).strip())
    time.sleep(5)
    put = subprocess.run([D, "kv", "put", "a", "b", "--url", f"dunlin://127.0.0.1:{B+10}"], capture_output=True, text=True, timeout=60); print("put:", put.returncode, (put.stdout+put.stderr).strip().splitlines()[0]); print("node 2 ended with", procs[2].poll())
    if put.returncode:
        print("FAULT the cluster has no majority any more, though two of three nodes lived when the command was given"); sys.exit(1)
    print("OK")
finally:
    for p in procs.values(): p.kill(); p.wait()
    shutil.rmtree(root, ignore_errors=True)
