"""Starts the clusters for the programs in this folder. Each program starts its own three nodes in a
temporary directory, and ends them at exit."""
import asyncio, atexit, os, re, shutil, signal, socket, subprocess, sys, tempfile, time, json, threading
if sys.prefix == sys.base_prefix and os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "venv/bin/python3")):
    p = os.path.join(os.path.dirname(os.path.abspath(__file__)), "venv/bin/python3"); os.execv(p, [p, *sys.argv])
import nats, nats.errors
D = os.environ["DUNLIN"]
def port():
    s = socket.socket(); s.bind(("127.0.0.1", 0)); p = s.getsockname()[1]; s.close(); return p
class Node:
    def __init__(self, c, i):
        self.c, self.i = c, i; self.dir = f"{c.dir}/n{i}"
        self.clp, self.tcp, self.nats, self.http = port(), port(), port(), port()
        self.log = f"{c.dir}/n{i}.log"; self.p = None
    @property
    def url(self): return f"dunlin://127.0.0.1:{self.tcp}"
    @property
    def n(self): return f"nats://127.0.0.1:{self.nats}"
    def start(self, wait=True, extra=()):
        a = ["nice", D, "serve", "--name", f"n{self.i}", "--data-dir", self.dir, "--cluster-listen", f"127.0.0.1:{self.clp}",
             "--listen", f"127.0.0.1:{self.tcp}", "--nats-listen", f"127.0.0.1:{self.nats}", "--http-listen", f"127.0.0.1:{self.http}", *self.c.flags]
        if self.i > 1: a += ["--join", f"127.0.0.1:{self.c.nodes[0].clp}", "--token-file", f"{self.c.dir}/token{self.i}"]
        self.p = subprocess.Popen(a, stdout=open(f"{self.c.dir}/n{self.i}.out", "ab"), stderr=open(self.log, "ab"))
        self.from_ = os.path.getsize(f"{self.c.dir}/n{self.i}.out")
        if wait: self.ready()
    def ready(self, t=60):
        e = time.time() + t
        while time.time() < e:
            o = open(f"{self.c.dir}/n{self.i}.out").read()[self.from_:]
            m = re.search(r"READY.*node=(\d+)", o)
            if m: self.num = int(m[1]); return
            if self.p.poll() is not None: raise SystemExit(f"node {self.i} ended {self.p.returncode}: {open(self.log).read()[-600:]}")
            time.sleep(.05)
        raise SystemExit(f"node {self.i} not ready in {t}s")
    def kill(self): self.p.send_signal(9); self.p.wait()
    def term(self, t=25): self.p.terminate(); return self.p.wait(t)
class Cluster:
    def __init__(self, flags=()):
        self.dir = tempfile.mkdtemp(prefix="dl-", dir="/tmp"); self.flags = list(flags)
        self.nodes = []
        for i in (1, 2, 3): self.nodes.append(Node(self, i))
        atexit.register(self.stop)
        r = subprocess.run([D, "cluster", "init", "--data-dir", self.nodes[0].dir, "--address", f"127.0.0.1:{self.nodes[0].clp}"], capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r.stderr
        self.nodes[0].start()
        for i in (2, 3):
            r = subprocess.run([D, "cluster", "token", "--data-dir", self.nodes[0].dir], capture_output=True, text=True, timeout=60)
            assert r.returncode == 0, r.stderr
            open(f"{self.dir}/token{i}", "w").write(r.stdout)
            self.nodes[i-1].start()
        e = time.time() + 60
        while time.time() < e:
            s = self.status()
            if s.count("ready") == 3 and "learner" not in s: break
            time.sleep(.3)
        else: raise SystemExit("not ready: " + s)
    def status(self):
        return subprocess.run([D, "cluster", "status", "--data-dir", self.nodes[0].dir], capture_output=True, text=True, timeout=60).stdout
    def __getitem__(self, i): return self.nodes[i]
    def stop(self):
        for n in self.nodes:
            if n.p and n.p.poll() is None: n.p.kill(); n.p.wait()
        for n in self.nodes:
            l = open(n.log).read() if os.path.exists(n.log) else ""
            if "panic" in l: print("PANIC in", n.log); return
        if not os.environ.get("KEEP"): shutil.rmtree(self.dir, ignore_errors=True)
        else: print("kept", self.dir)
    def cli(self, i, *a, t=60, ok=True):
        r = subprocess.run(["nice", D, *map(str, a)], capture_output=True, text=True, timeout=t, env={**os.environ, "DUNLIN_URL": self.nodes[i].url})
        if ok and r.returncode: print("CLI", a, r.returncode, r.stdout, r.stderr)
        return r
    async def acli(self, i, *a, **k): return await asyncio.to_thread(self.cli, i, *a, **k)
    def owner(self, topic, i=0):
        o = self.cli(i, "topics", "describe", topic, ok=False).stdout
        m = re.search(r"owner\s+node (\d+)", o) or re.search(r"owner.*?(\d+)", o)
        return int(m[1]) if m else None
ERR = []
async def conn(node, name="", **k):
    nc_err = []
    async def e(x): nc_err.append(repr(x)); ERR.append((name, repr(x)))
    async def dis(): nc_err.append("DISCONNECTED")
    async def rec(): nc_err.append("RECONNECTED")
    async def clo(): nc_err.append("CLOSED")
    nc = await asyncio.wait_for(nats.connect(node.n if hasattr(node, "n") else node, name=name, error_cb=e, disconnected_cb=dis, reconnected_cb=rec, closed_cb=clo,
        reconnect_time_wait=.2, max_reconnect_attempts=-1, connect_timeout=5, **{"allow_reconnect": True, **k}), 20)
    nc.events = nc_err
    return nc
