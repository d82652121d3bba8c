import os,sys,socket,json,struct,subprocess,time,signal,tempfile,base64,urllib.request,urllib.parse,shutil,http.client,threading
H='/tmp/dunlin-trial'; os.makedirs(H+'/tmp',exist_ok=True); D=os.environ['DUNLIN']
pw=lambda u:f'pw-{u}'
PS=[]
class Node:
    def __init__(s,data=None,users=H+'/users.toml',extra=(),ports=None,wait=True,env=None):
        s.users=users; a=[D,'serve','--listen','127.0.0.1:0','--nats-listen','127.0.0.1:0','--http-listen','127.0.0.1:0','--grpc-listen','127.0.0.1:0']
        if ports: a=[D,'serve']+ [x for n,p in zip(('listen','nats-listen','http-listen','grpc-listen'),ports) for x in ('--'+n,f'127.0.0.1:{p}')]
        if users: a+=['--auth-users-file',users]
        if data: a+=['--data-dir',data]
        s.err=tempfile.NamedTemporaryFile('w+',suffix='.err',delete=False)
        s.p=subprocess.Popen(['nice']+a+list(extra),stdout=subprocess.PIPE,stderr=s.err,text=True); PS.append(s)
        s.at={}
        if wait: s.ready()
    def ready(s):
        l=s.p.stdout.readline()
        s.at=dict(p.split('=',1) for p in l.split() if '=' in p); return s.at
    def port(s,k): return int(s.at[k].rsplit(':',1)[1])
    def log(s): return open(s.err.name).read()
    def rss(s):
        for l in open(f'/proc/{s.p.pid}/status'):
            if l.startswith('VmRSS'): return int(l.split()[1])//1024
    def stop(s,sig=signal.SIGTERM):
        if s.p.poll() is None:
            s.p.send_signal(sig)
            try: s.p.wait(25)
            except subprocess.TimeoutExpired: s.p.kill(); s.p.wait(); print('!! did not end')
        return s.p.returncode
    def cli(s,u,*a,timeout=20,inp=None):
        e={k:v for k,v in os.environ.items() if not k.startswith('DUNLIN')}
        e['DUNLIN_URL']=f"dunlin://127.0.0.1:{s.port('tcp')}"
        if u: e['DUNLIN_USER']=u; e['DUNLIN_PASSWORD_FILE']=f'{H}/{u}.pw'
        try: r=subprocess.run([D,*a],env=e,capture_output=True,text=True,timeout=timeout,input=inp)
        except subprocess.TimeoutExpired as x: 
            d=lambda b:(b.decode() if isinstance(b,bytes) else b or '')
            return (-9,d(x.stdout),d(x.stderr))
        return (r.returncode,r.stdout,r.stderr)
    def http(s,u,m,path,body=None,h={},timeout=10):
        c=http.client.HTTPConnection('127.0.0.1',s.port('http'),timeout=timeout); hh=dict(h)
        if u: hh['Authorization']='Bearer '+tok(u)
        c.request(m,path,body,hh); r=c.getresponse(); d=r.read().decode('utf8','replace')
        try: d=json.loads(d)
        except Exception: pass
        return r.status,d
    def sse(s,u,pattern,q='',timeout=3):
        c=http.client.HTTPConnection('127.0.0.1',s.port('http'),timeout=timeout)
        c.request('GET','/v1/topics/'+urllib.parse.quote(pattern,safe='')+'/events'+q,headers={'Authorization':'Bearer '+tok(u)} if u else {})
        r=c.getresponse(); return r
    def nats(s,u,**o): return Nats(s.port('nats'),u,**o)
def tok(u): return open(f'{H}/{u}.tok').read().split()[0]
class Nats:
    def __init__(s,port,u=None,**o):
        s.s=socket.create_connection(('127.0.0.1',port)); s.s.settimeout(3); s.f=s.s.makefile('rb'); s.info=json.loads(s.f.readline()[5:])
        c={'headers':True,'verbose':False,'no_responders':True,'protocol':1,'lang':'x','version':'1'}; c.update(o)
        if u: c['auth_token']=tok(u)
        s.q=[]; s.err=[]; s.say('CONNECT '+json.dumps(c)); s.flush()
    def say(s,l): s.s.sendall(l.encode()+b'\r\n')
    def pub(s,sub,d=b'x',reply=''):
        d=d if isinstance(d,bytes) else d.encode(); s.s.sendall(f'PUB {sub} {reply} {len(d)}\r\n'.encode()+d+b'\r\n')
    def one(s):
        l=s.f.readline()
        if not l: raise EOFError('closed')
        l=l.decode().rstrip()
        if l.startswith('MSG'):
            p=l.split(); n=int(p[-1]); d=s.f.read(n+2)[:-2]; s.q.append((p[1],p[2],p[3] if len(p)==5 else '',d,b''))
        elif l.startswith('HMSG'):
            p=l.split(); n=int(p[-1]);hn=int(p[-2]); d=s.f.read(n+2)[:-2]; s.q.append((p[1],p[2],p[3] if len(p)==6 else '',d[hn:],d[:hn]))
        elif l.startswith('PING'): s.say('PONG')
        elif l.startswith('-ERR'): s.err.append(l)
        elif l.startswith('PONG'): return 'PONG'
        return l
    def flush(s):
        s.say('PING')
        while s.one()!='PONG': pass
    def drain(s,t=.5):
        s.s.settimeout(t); end=time.time()+t
        try:
            while time.time()<end: s.one()
        except (TimeoutError,OSError,EOFError): 
            try: s.f=s.s.makefile('rb')
            except Exception: pass
        s.s.settimeout(3); q,s.q=s.q,[]; return q
    def next(s,t=3):
        end=time.time()+t; s.s.settimeout(t)
        try:
            while not s.q and time.time()<end: s.one()
        except (TimeoutError,OSError,EOFError): s.f=s.s.makefile('rb')
        s.s.settimeout(3); return s.q.pop(0) if s.q else None
    def errs(s): e,s.err=s.err,[]; return e
# Dunlin's own protocol
def T(x): x=x.encode() if isinstance(x,str) else x; return struct.pack('<H',len(x))+x
def M(kind,body=b'',flags=0):
    n=8+len(body); pad=-n%8; return struct.pack('<IBBH',n+pad,kind,flags,0)+body+b'\0'*pad
START=lambda c=0,e=0,q=0,t=0: struct.pack('<BIQQ',c,e,q,t)
class Own:
    def __init__(s,port,u=None,hello=True,raw=None):
        s.s=socket.create_connection(('127.0.0.1',port)); s.s.settimeout(3); s.buf=b''
        if hello:
            s.s.sendall(b'DUNLIN\4\5'+M(1,T('')+T(tok(u) if u else '')+T('x'))); s.pre=s.read(8); s.welcome=s.msg()
            if s.welcome[0]==65:
                b=s.welcome[1]; n=struct.unpack_from('<H',b,16)[0]; o=18+n; m=struct.unpack_from('<H',b,o)[0]; s.inbox=b[o+2:o+2+m].decode()
    def read(s,n):
        while len(s.buf)<n:
            d=s.s.recv(65536)
            if not d: raise EOFError('closed')
            s.buf+=d
        r,s.buf=s.buf[:n],s.buf[n:]; return r
    def msg(s):
        h=s.read(8); n,k,f,z=struct.unpack('<IBBH',h); return k,s.read(n-8)
    def send(s,*m): s.s.sendall(b''.join(m))
    def want(s,kinds,t=3):
        s.s.settimeout(t); end=time.time()+t
        while time.time()<end:
            try: k,b=s.msg()
            except (TimeoutError,): return None
            if k in kinds: return k,b
        return None
    def all(s,t=1):
        out=[]; s.s.settimeout(t); end=time.time()+t
        try:
            while time.time()<end:
                m=s.msg()
                if m[0]!=80: out.append(m)
        except (TimeoutError,EOFError,OSError) as e: out.append((-1,repr(e).encode())) if not isinstance(e,TimeoutError) else 0
        return out
    def sub(s,n,pat,start=None,credit=1<<20,name='n'): s.send(M(6,struct.pack('<IQ',n,credit)+(start or START(1))+b'\0\0'+T(pat)+T(name)))
    def settings(s,r,t): s.send(M(22,struct.pack('<I',r)+T(t)))
# websocket JSON
class Ws:
    def __init__(s,port,u=None,sp='dunlin.v1.json',hello=True):
        s.s=socket.create_connection(('127.0.0.1',port)); s.s.settimeout(3)
        s.s.sendall(b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: "+sp.encode()+b"\r\n\r\n")
        s.buf=b''
        while b'\r\n\r\n' not in s.buf: s.buf+=s.s.recv(4096)
        s.head,s.buf=s.buf.split(b'\r\n\r\n',1)
        if hello: s.say({'op':'hello','token':tok(u)} if u else {'op':'hello'}); s.welcome=s.recv()
    def say(s,o): s.frame(json.dumps(o).encode() if not isinstance(o,bytes) else o)
    def frame(s,p,op=1,fin=True):
        n=len(p); h=bytes([(0x80 if fin else 0)|op])+(bytes([0x80|n]) if n<126 else b'\xfe'+struct.pack('>H',n) if n<65536 else b'\xff'+struct.pack('>Q',n)); s.s.sendall(h+b'\0\0\0\0'+p)
    def rd(s,n):
        while len(s.buf)<n:
            d=s.s.recv(65536)
            if not d: raise EOFError
            s.buf+=d
        r,s.buf=s.buf[:n],s.buf[n:]; return r
    def recv(s,t=3):
        s.s.settimeout(t)
        h=s.rd(2); n=h[1]&127
        if n==126: n=struct.unpack('>H',s.rd(2))[0]
        elif n==127: n=struct.unpack('>Q',s.rd(8))[0]
        p=s.rd(n); op=h[0]&15
        if op==8: raise EOFError(f'close {struct.unpack(">H",p[:2]) if p else ""} {p[2:]}')
        return json.loads(p) if op==1 else (op,p)
    def all(s,t=.7):
        out=[]; end=time.time()+t
        try:
            while time.time()<end: out.append(s.recv(t))
        except TimeoutError: pass
        except (EOFError,OSError) as e: out.append({'op':'CLOSED','e':str(e)})
        return [o for o in out if not (isinstance(o,dict) and o.get('op')=='heartbeat')]
    def ask(s,o): s.say(o); return s.recv()
# gRPC by reflection
def grpc_stub(port):
    import grpc
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf import message_factory
    ch=grpc.insecure_channel(f'127.0.0.1:{port}'); pool=DescriptorPool(ProtoReflectionDescriptorDatabase(ch))
    def call(u,svc,m,timeout=5,stream=None,**kw):
        sd=pool.FindServiceByName('dunlin.v1.'+svc if '.' not in svc else svc); md=sd.FindMethodByName(m)
        I=message_factory.GetMessageClass(md.input_type); O=message_factory.GetMessageClass(md.output_type)
        path=f'/{sd.full_name}/{m}'; meta=[('authorization','Bearer '+tok(u))] if u else []
        kind=('stream' if md.client_streaming else 'unary')+'_'+('stream' if md.server_streaming else 'unary')
        f=getattr(ch,kind)(path,request_serializer=I.SerializeToString,response_deserializer=O.FromString)
        from google.protobuf import json_format
        mk=lambda d: json_format.ParseDict(d,I())
        try: arg=iter([mk(x) for x in stream]) if stream is not None else mk(kw)
        except Exception as e: return ("CLIENT",str(e)[:200])
        try:
            r=f(arg,metadata=meta,timeout=timeout)
            if md.server_streaming:
                out=[]
                try:
                    for x in r: out.append(json_format.MessageToDict(x))
                except grpc.RpcError as e: out.append((e.code().name,e.details()))
                return out
            return json_format.MessageToDict(r)
        except grpc.RpcError as e: return (e.code().name,e.details())
    call.pool=pool; return call
def done():
    for n in PS: n.stop()
import atexit; atexit.register(done)
def cluster(n=3,users=H+'/users.toml',extra=(),base=None):
    base=base or tempfile.mkdtemp(dir=H+'/tmp'); fp=lambda:(lambda s:(s.bind(('127.0.0.1',0)),s.getsockname()[1],s.close())[1])(socket.socket())
    cp=[fp() for _ in range(n)]; env={k:v for k,v in os.environ.items() if not k.startswith('DUNLIN')}
    subprocess.run([D,'cluster','init','--data-dir',base+'/1'],check=True,capture_output=True,env=env)
    nodes=[]
    for i in range(n):
        a=['--cluster-listen',f'127.0.0.1:{cp[i]}',*extra]
        if i:
            t=subprocess.run([D,'cluster','token','--data-dir',base+'/1'],check=True,capture_output=True,text=True,env=env).stdout
            open(f'{base}/tok{i}','w').write(t); a+=['--join',f'127.0.0.1:{cp[0]}','--cluster-token-file',f'{base}/tok{i}']
        nodes.append(Node(f'{base}/{i+1}',users,a))
    nodes[0].base=base; return nodes
