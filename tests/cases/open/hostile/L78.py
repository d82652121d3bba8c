"""An older copy of a data directory whose log lacks its end mark (one flipped byte / one byte cut / log directory missing) is put back:
the node tells subscribers `known_through` = the copy's end, i.e. that the old epoch had no later records, though it had 5 more (acknowledged as synced)."""
from tf import *
import glob
def rdsse(n,t,pos):
    rec=[];notes=[];ev=''
    try:
        r=n.sse(None,t,'?as=json&from='+pos,timeout=3)
        if r.status!=200: return [],json.loads(r.read()).get('detail')
        while True:
            l=r.readline().decode().strip()
            if l.startswith('event:'): ev=l[6:].strip()
            elif l.startswith('data:'):
                o=json.loads(l[5:]); (notes.append((ev,{k:o[k] for k in o if k in('known_through','last_seen','first','last','new_first','old','epoch')})) if ev else rec.append(o['position'])); ev=''
    except (TimeoutError,OSError): pass
    return rec,notes
faults=0
for name in ('undamaged','last byte of the log flipped','one byte cut','3000 bytes appended','log file removed','log directory removed','log header flipped'):
    d=H+'/tmp/f1'; bk=H+'/tmp/f1.backup'
    for x in (d,bk): shutil.rmtree(x,ignore_errors=True)
    n=Node(d,None); n.cli(None,'topics','create','dur','--durable')
    for i in range(25): p=n.http(None,'POST','/v1/topics/dur','rec%d'%i)[1]
    e=p['epoch']; n.stop(); shutil.copytree(d,bk)                       # the backup, of a stopped node
    n=Node(d,None)
    for i in range(5): p=n.http(None,'POST','/v1/topics/dur','late%d'%i)[1]
    last=p['position']; ack=p['acknowledged']; n.stop()
    shutil.rmtree(d); shutil.copytree(bk,d)                            # put back
    f=glob.glob(d+'/logs/*/0*.log')[0]; b=open(f,'rb').read()
    if 'flipped' in name: b=bytearray(b); i=-1 if 'last' in name else 20; b[i]^=1; open(f,'wb').write(b)
    elif 'cut' in name: os.truncate(f,len(b)-1)
    elif 'append' in name: open(f,'ab').write(os.urandom(3000))
    elif name=='log file removed': os.remove(f)
    elif 'directory' in name: shutil.rmtree(os.path.dirname(f))
    n=Node(d,None); 
    r={q:rdsse(n,'dur',f'{e}-{q}') for q in (10,25,28)}; n.stop()
    kt=[x[1].get('known_through') for x in r[25][1] if x[0]=='epoch'] if isinstance(r[25][1],list) else []
    bad=25 in kt; faults+=bad
    print(f'{name}: last acknowledged before: {last} ({ack});','FAULT: known_through 25' if bad else 'ok'); 
    for q in r: print('   go on from',f'{e}-{q}:',len(r[q][0]),'records',r[q][1],flush=True)
sys.exit(bool(faults))
