"""Damages the raft logs of keys and tasks of a single node while it is stopped: a log loses its second half or its only
file, or an older file replaces it. The documentation says: 'A node with a damaged log does not take part'. Instead, the
node starts, is ready, logs nothing, and has lost acknowledged keys and tasks.
"""
from lib import *
import glob
faults=0
for what in ('control','tasks'):
    for name in ('undamaged','last byte cut','cut to a half','file cut to 600 bytes','file removed','directory log removed','older file put back','one bit flipped (for comparison)'):
        d=H+'/tmp/f2'; shutil.rmtree(d,ignore_errors=True)
        n=Node(d,None)
        def put(a,b):
            for i in range(a,b): 
                s1=n.http(None,'PUT',f'/v1/kv/k{i}','v%d'%i)[0]; s2=n.http(None,'POST','/v1/tasks',json.dumps({'kind':'k','payload':'p%d'%i}))[0]; assert (s1,s2)==(200,201)
        put(0,10); n.stop(); old=open(glob.glob(f'{d}/{what}/log/0*.log')[0],'rb').read()
        n=Node(d,None); put(10,20); w=n.http(None,'GET','/v1/kv?prefix=k')[1]; rc=n.stop()
        f=glob.glob(f'{d}/{what}/log/0*.log')[0]; size=os.path.getsize(f)
        if 'last byte' in name: os.truncate(f,size-1)
        if 'half' in name: os.truncate(f,size//2)
        if '600' in name: os.truncate(f,600)
        if name=='file removed': os.remove(f)
        if 'directory' in name: shutil.rmtree(os.path.dirname(f))
        if 'older' in name: open(f,'r+b').truncate(0); open(f,'r+b').write(old)
        if 'flipped' in name: b=bytearray(open(f,'rb').read()); b[size//2]^=1; open(f,'r+b').write(b)
        n=Node(d,None,extra=('--log','info'))
        k=n.http(None,'GET','/v1/kv?prefix=k'); t=n.http(None,'GET','/v1/tasks?limit=100'); rz=n.http(None,'GET','/readyz')
        nk=len(k[1]['entries']) if k[0]==200 else f'refused {k[0]}'; nt=len(t[1]['tasks']) if t[0]==200 else f'refused {t[0]}'
        n.stop(); lg=[l for l in n.log().split('\n') if what in l or 'cut' in l or 'torn' in l or 'lost' in l]
        bad= (nk if what=='control' else nt) not in (20,) and not isinstance(nk if what=='control' else nt,str); faults+=bad
        print(what,name,f'{size}B: keys {nk}/20, tasks {nt}/20, ready {rz[0]}',f'rev {k[1].get("revision") if k[0]==200 else "-"} was {w["revision"]} same epoch {k[0]==200 and k[1]["epoch"]==w["epoch"]}','FAULT: silent loss' if bad and not lg else ('LOSS, logged' if bad else 'ok'),lg[:1] and lg[0][-160:],flush=True)
sys.exit(bool(faults))
