"""A cluster node's identity.json is removed: the text says the directory 'holds keys of a node that was alone' and recommends `dunlin cluster init`, which succeeds in a member's directory and begins a second cluster; `serve` without cluster flags is ready (200) though all key requests are refused."""
from lib import *
import select
ns=cluster(3,users=None); base=ns[0].base; a=ns[2].p.args[1:]
for i in range(5): ns[0].http(None,'PUT',f'/v1/kv/k{i}','v')
time.sleep(1); ns[2].stop(); os.remove(base+'/3/cluster/identity.json'); print('left:',os.listdir(base+'/3/cluster'))
r=subprocess.run(a,capture_output=True,text=True,timeout=20); print('serve with --join:',r.returncode,r.stderr[-330:])
n=Node(base+'/3',None); print('serve without cluster flags: readyz',n.http(None,'GET','/readyz'),'keys',n.http(None,'GET','/v1/kv?prefix=k')[1].get('detail')); n.stop()
r=subprocess.run([D,'cluster','init','--data-dir',base+'/3'],capture_output=True,text=True); print('cluster init:',r.returncode,r.stdout,r.stderr); sys.exit(r.returncode==0)
