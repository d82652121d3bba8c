"""A minimal NATS client on asyncio that keeps every message."""
import asyncio, json, itertools
class R:
    @classmethod
    async def open(cls, node, **o):
        s = cls(); at = node.n if hasattr(node, "n") else node
        h, p = at.split("//")[1].rsplit(":", 1)
        s.r, s.w = await asyncio.wait_for(asyncio.open_connection(h, int(p), limit=1 << 24), 10)
        s.info = json.loads((await asyncio.wait_for(s.r.readline(), 10))[5:])
        s.subs, s.errs, s.closed, s.pongs, s.sid, s.ended = {}, [], False, [], itertools.count(1), None
        s.send(b"CONNECT " + json.dumps({"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "raw", "version": "1", **o}).encode() + b"\r\n")
        s.task = asyncio.create_task(s.read()); await s.flush(); return s
    def send(self, b): self.w.write(b)
    async def read(self):
        try:
            while True:
                l = await self.r.readline()
                if not l: break
                k = l[:4]
                if k in (b"MSG ", b"HMSG"):
                    w = l.decode().split(); n = int(w[-1]); d = await self.r.readexactly(n + 2)
                    h = int(w[-2]) if k == b"HMSG" else 0
                    fixed = 4 if k == b"MSG " else 5
                    rep = w[3] if len(w) == fixed + 1 else ""
                    f = self.subs.get(int(w[2]))
                    if f: f(w[1], rep, d[:h].decode("utf8", "replace"), d[h:n])
                    else: self.errs.append(f"MSG for unknown sid {w}")
                elif k == b"PING": self.send(b"PONG\r\n")
                elif k == b"PONG":
                    if self.pongs: self.pongs.pop(0).set_result(1)
                elif k == b"-ERR": self.errs.append(l.decode().strip())
        except (asyncio.IncompleteReadError, ConnectionError) as e: self.errs.append(repr(e))
        self.closed = True
        for p in self.pongs:
            if not p.done(): p.set_exception(ConnectionError("closed"))
        self.pongs = []
    async def flush(self, t=20):
        if self.closed: raise ConnectionError("closed")
        f = asyncio.get_running_loop().create_future(); self.pongs.append(f); self.send(b"PING\r\n"); await self.w.drain()
        await asyncio.wait_for(f, t)
    def sub(self, subject, f, queue=None):
        sid = next(self.sid); self.subs[sid] = f
        self.send(f"SUB {subject} {queue + ' ' if queue else ''}{sid}\r\n".encode()); return sid
    def unsub(self, sid, n=None): self.send(f"UNSUB {sid}{' %d' % n if n else ''}\r\n".encode())
    def pub(self, subject, payload=b"", reply="", h=None):
        r = reply + " " if reply else ""
        if h:
            b = ("NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in h) + "\r\n").encode()
            self.send(f"HPUB {subject} {r}{len(b)} {len(b) + len(payload)}\r\n".encode() + b + payload + b"\r\n")
        else: self.send(f"PUB {subject} {r}{len(payload)}\r\n".encode() + payload + b"\r\n")
    async def drain(self, sid):
        """Sends UNSUB and PING, and keeps the messages before the PONG."""
        self.unsub(sid); await self.flush()
    async def close(self):
        self.w.close()
        try: await asyncio.wait_for(self.task, 5)
        except Exception: pass
