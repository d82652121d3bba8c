"""A durable topic whose log directory and .stored file are gone: the node says nothing at its start, is ready, and tells subscribers known_through = 0 (as if the old epoch had had no record); no gap."""
from tf import *
import glob
f=__import__('importlib').import_module('lib'); faults=0
for what in ('log directory and .stored','log directory only'):
    d=H+'/tmp/f6'; shutil.rmtree(d,ignore_errors=True)
    n=Node(d,None); n.cli(None,'topics','create','dur','--durable')
    for i in range(25): p=n.http(None,'POST','/v1/topics/dur','rec%d'%i)[1]
    e=p['epoch']; n.stop(); shutil.rmtree(d+'/logs')
    if 'stored' in what: [os.remove(x) for x in glob.glob(d+'/topics/*.stored')]
    n=Node(d,None,extra=('--log','warn'))
    for q in (0,10,25):
        r=n.sse(None,'dur','?as=json&from=%d-%d'%(e,q),timeout=2.5); ev='';out=[]
        try:
            while r.status==200:
                l=r.readline().decode().strip()
                if l.startswith('event:'): ev=l
                if l.startswith('data:'): o=json.loads(l[5:]); out.append((ev,{k:o.get(k) for k in('known_through','last_seen','first','last')})); ev=''
        except (TimeoutError,OSError): pass
        print(what,'| go on from',q,r.status,out); faults+=any(x[1].get('known_through')==0 for x in out)
    print('   ready',n.http(None,'GET','/readyz')[0]); n.stop(); print('   log:',n.log()[-200:])
print('FAULT' if faults else 'ok'); sys.exit(bool(faults))
