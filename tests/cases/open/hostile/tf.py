from lib import *
import glob,random
def P(*a): print(*a,flush=True)
base=H+'/tmp/gold'; 
def mk():
    shutil.rmtree(base,ignore_errors=True)
    n=Node(base,None)
    print(n.cli(None,'topics','create','dur','--durable'))
    print(n.cli(None,'topics','create','pat','--pattern','pat.>','--durable'))
    for i in range(20): n.http(None,'POST','/v1/topics/dur','rec%03d-'%i+'x'*200)
    for i in range(20): n.http(None,'POST','/v1/topics/pat.%d'%(i%3),'pat%03d-'%i+'y'*200)
    for i in range(10): n.cli(None,'kv','put','k%d'%i,'val%03d'%i) if i<2 else n.http(None,'PUT','/v1/kv/k%d'%i,'val%03d'%i)
    for i in range(10): n.http(None,'POST','/v1/tasks',json.dumps({'kind':'k','payload':'task%03d'%i}))
    print(n.stop())
    shutil.copytree(base,base+'.copy',dirs_exist_ok=True) if 0 else None
def files(): return sorted(f for f in glob.glob(base+'/**',recursive=True) if os.path.isfile(f))
def check(d,pos,label):
    """start node on d; returns outcome summary"""
    n=Node(d,None,extra=('--log','warn'))
    if not n.at:
        rc=n.p.wait(5); return 'REFUSED rc=%s: %s'%(rc,n.log().strip()[-300:].replace('\n',' | '))
    out=[]
    def rd(t,q,idle):
        recs=[];notes=[]
        try:
            r=n.sse(None,t,q,timeout=idle)
            if r.status!=200: return [],[str(json.loads(r.read()).get('detail'))[:200]]
            ev='';t0=time.time()
            while time.time()-t0<15:
                l=r.readline().decode().strip()
                if l.startswith('event:'): ev=l[6:].strip()
                elif l.startswith('data:'):
                    o=json.loads(l[5:])
                    if ev: notes.append((ev,{k:v for k,v in o.items() if k not in('topic','partition','advice','status','type','retry')}))
                    else: recs.append((o['position'],o['payload'][:6])); 
                    ev=''
        except (TimeoutError,OSError): pass
        return recs,notes
    for t,p in pos.items():
        recs,notes=rd(t,'?from=earliest&as=json',3)
        out.append(f'{t}: {len(recs)} recs {recs[0][0] if recs else ""}..{recs[-1][0] if recs else ""} {notes}')
        bad=[x for x in recs if not (x[1].startswith('rec') or x[1].startswith('pat'))]
        if bad: out.append('BADBYTES %r'%bad[:3])
        recs,notes=rd(t,'?as=json&from='+p,1.5); out.append(f'  from {p}: {len(recs)} {recs[:2]} {notes}')
    kv=n.http(None,'GET','/v1/kv?prefix=k'); out.append('kv %s %s'%(kv[0],len(kv[1]['entries']) if kv[0]==200 else str(kv[1])[:160]))
    tk=n.http(None,'GET','/v1/tasks'); out.append('tasks %s %s'%(tk[0],len(tk[1]['tasks']) if tk[0]==200 else str(tk[1])[:160]))
    rz=n.http(None,'GET','/readyz'); out.append('readyz %s %s'%(rz[0],str(rz[1])[:200] if rz[0]!=200 else ''))
    n.stop(); lg=n.log().strip(); out.append('log: '+lg[-420:].replace('\n',' | '))
    return '\n      '.join(out)
if __name__=='__main__':
    mk(); print('\n'.join(f'{f[len(base):]} {os.path.getsize(f)}' for f in files()))
    n=Node(base,None); 
    print(n.cli(None,'sub','dur','--from','earliest','--json','--count','20')[1].split('\n')[-2][:300]); print(n.cli(None,'topics','describe','dur')); n.stop()
    print(open(glob.glob(base+'/topics/*.topic')[0]).read()); print(open(glob.glob(base+'/topics/*.stored')[0]).read())
