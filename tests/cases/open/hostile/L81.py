"""A single node's data directory is restored from an older copy (as back-up-and-restore.md describes), then new keys and tasks are written.
A watcher that goes on from its stored EPOCH-REVISION of before (in $kv and $tasks) gets other records in the place of old ones, without EpochChanged or a gap."""
from lib import *
import glob
faults=0
d=H+'/tmp/f3'; bk=d+'.bk'
for x in (d,bk): shutil.rmtree(x,ignore_errors=True)
def put(n,a,b,v):
    for i in range(a,b):
        assert n.http(None,'PUT',f'/v1/kv/k{i}',f'{v}{i}')[0]==200
        assert n.http(None,'POST','/v1/tasks',json.dumps({'kind':'k','payload':f'{v}{i}'}))[0]==201
def watch(n,path):
    c=http.client.HTTPConnection('127.0.0.1',n.port('http'),timeout=3); out=[]
    try:
        c.request('GET',path); r=c.getresponse()
        if r.status!=200: return [json.loads(r.read()).get('title')]
        ev=''
        while True:
            l=r.readline().decode().strip()
            if l.startswith('event:'): ev=l
            if l.startswith('data:'): out.append((ev+' '+l[5:])[:110]); ev=''
    except (TimeoutError,OSError): pass
    return out
n=Node(d,None); put(n,0,10,'old'); n.stop(); shutil.copytree(d,bk)
n=Node(d,None); put(n,10,20,'mid'); st=n.http(None,'GET','/v1/kv?prefix=k')[1]; e,r=st['epoch'],st['revision']
tl=n.sse(None,'$tasks.>','?from=earliest&as=json',timeout=2); pos=[]
try:
    while True:
        l=tl.readline().decode()
        if l.startswith('data:'): pos.append(json.loads(l[5:])['position'])
except (TimeoutError,OSError): pass
L=n.http(None,'POST','/v1/leases','{"ttl_ms":100000}')[1]['lease']; tokA=n.http(None,'PUT',f'/v1/locks/L?lease={L}')[1]
n.stop(); shutil.rmtree(d); shutil.copytree(bk,d)
n=Node(d,None,extra=('--log','info')); print('before restore: $kv at',f'{e}-{r}','$tasks at',pos[-1],'lock token',tokA)
a=watch(n,f'/v1/watch?prefix=k&from={e}-{r+1}'); print('after restore, watch from',f'{e}-{r+1}:',a)
print('  $tasks from',pos[-1],':',watch(n,f'/v1/topics/%24tasks.%3E/events?as=json&from={pos[-1]}'))
put(n,30,45,'new')
a=watch(n,f'/v1/watch?prefix=k&from={e}-{r+1}'); print('after 15 new writes, watch from',f'{e}-{r+1}:',len(a),a[:3])
b=watch(n,f'/v1/topics/%24tasks.%3E/events?as=json&from={pos[-1]}'); print('  $tasks from',pos[-1],':',len(b),b[:2])
L=n.http(None,'POST','/v1/leases','{"ttl_ms":100000}')[1]['lease']; print('  (lock token now',n.http(None,'PUT',f'/v1/locks/L?lease={L}')[1],')')
n.stop(); print(n.log()[-300:])
bad=bool(a) and a[0].startswith(' '); bad2=bool(b) and 'epoch' not in b[0].split('{')[0]
print('FAULT' if bad or bad2 else 'ok',bad,bad2); sys.exit(bad or bad2)
