"""In a cluster of three, nodes 1 and 3 acknowledge writes of keys while node 2 is down. Then all
nodes are stopped, and only node 3's raft log is damaged: it is cut to a half, or its file or
directory is removed. Nodes 2 and 3 start without node 1. Checks whether node 3 takes part, and
whether acknowledged keys are lost. docs/control.md says: 'A node with a damaged log does not take
part, because it might not know what it has promised to keep.'
"""
from lib import *
import glob,select
def start(args,wait=10):
    n=Node.__new__(Node); n.users=None; n.err=tempfile.NamedTemporaryFile('w+',suffix='.err',delete=False); n.at={}
    n.p=subprocess.Popen(['nice']+args+['--log','info'],stdout=subprocess.PIPE,stderr=n.err,text=True); PS.append(n)
    r,_,_=select.select([n.p.stdout],[],[],wait)
    if r: n.ready()
    return n
def keys(n):
    if n.p.poll() is not None: return 'ended: '+n.log()[-200:]
    if not n.at: return 'not ready'
    try: k=n.http(None,'GET','/v1/kv?prefix=k&limit=100',timeout=12)
    except OSError as e: return repr(e)
    return len(k[1]['entries']) if k[0]==200 else str(k[1].get('detail'))[:110]
def until(so,seconds=60):
    end=time.time()+seconds
    while not (found:=so()) and time.time()<end: time.sleep(.05)
    return found
faults=0
for c in sys.argv[1:] or ['undamaged','half','file removed','control removed','flip']:
    ns=cluster(3,users=None); base=ns[0].base; args=[x.p.args[1:] for x in ns]
    # With two voters, there would be no leader after one of them stops.
    assert until(lambda: all('\ndunlin_raft_voters 3\n' in x.http(None,'GET','/metrics')[1] for x in ns)),'not all nodes became voters'
    put=lambda a,b:[ns[0].http(None,'PUT',f'/v1/kv/k{i}','v',timeout=15)[0] for i in range(a,b)]
    s=put(0,10); ns[1].stop(); s+=put(10,20); assert set(s)=={200},s
    ns[2].stop(); ns[0].stop()
    f=sorted(glob.glob(f'{base}/3/control/log/0*.log'))[-1]; size=os.path.getsize(f)
    if c=='half': os.truncate(f,size//2)
    elif c=='file removed': os.remove(f)
    elif c=='control removed': shutil.rmtree(f'{base}/3/control')
    elif c=='flip': b=bytearray(open(f,'rb').read()); b[size//2]^=1; open(f,'r+b').write(b)
    b=start(args[1]); d=start(args[2])
    until(lambda: d.p.poll() is not None or isinstance(keys(b),int))   # Node 3 refuses its log and ends, or the two nodes have a leader.
    k2,k3=keys(b),keys(d); w=b.http(None,'PUT','/v1/kv/knew','v',timeout=12)[0] if b.at else '-'
    a=start(args[0]); until(lambda: isinstance(keys(a),int)); k1=keys(a)
    bad=isinstance(k2,int) and k2<20; faults+=bad
    print(c,f'log {size} B | without node 1: node 2 has {k2}/20 keys, node 3 {k3}; a write {w} | node 1 back: it has {k1}','FAULT: acknowledged keys are lost' if bad else 'ok','| damage in node 3\'s log:',[l[-150:] for l in d.log().split('\n') if 'damag' in l or 'torn' in l or 'cut ' in l or 'missing' in l][:1],flush=True)
    for x in list(PS): x.stop()
    PS.clear()
sys.exit(bool(faults))
