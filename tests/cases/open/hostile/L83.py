"""Four users of one tenant create all groups that limits.groups allows (a quarter each); groups without members stay for limits.group_idle (1h). Another tenant can join no group, nor a NATS queue group. [tenants.X.limits] has nothing for groups."""
from lib import *
us=('mallory','crosser','eve2','eve3')
u=open(H+'/users.toml').read().replace('# end of users','').replace('# This file is complete if it has the line: ','# ')
import hashlib,secrets
for x in ('eve2','eve3'):
    t='dunlin_'+secrets.token_urlsafe(32); open(f'{H}/{x}.tok','w').write(t)
    open(f'{H}/{x}.pw','w').write('x'); 
    u+=f'\n[users.{x}]\ntenant = "evil"\npublish = ["evil.>"]\nsubscribe = ["evil.>"]\ngroups = [">"]\ntokens = []\n'
open(H+'/users5.toml','w').write(u)
for x in ('eve2','eve3'):
    open(f'{H}/{x}.tok','w').write(subprocess.run([D,'user','token',x,'--users-file',H+'/users5.toml'],capture_output=True,text=True).stdout)
n=Node(None,H+'/users5.toml',extra=('--limits-groups','200'))
J=lambda i,t,g:M(14,struct.pack('<IQB',i,1<<16,0)+START(0)+struct.pack('<II',1000,3)+T('')+T(t)+T(g)+T('m'))
def alice():
    o=Own(n.port('tcp'),'alice'); o.send(J(1,'acme.grp','g%f'%time.time())); m=o.want([73,74],5); o.s.close()
    a=n.nats('alice'); a.say('SUB acme.q%d workers 1'%(time.time()*1000)); a.flush(); return 'joined' if m and m[0]==73 else m and m[1][30:80], a.errs()
print('alice before',alice())
for x in us:
    o=Own(n.port('tcp'),x); c=0
    for i in range(60):
        o.send(J(i+1,f'evil.g{i}',f'{x}{i}')); m=o.want([73,74],5)
        if not m or m[0]!=73: break
        c+=1
    o.s.close(); print(x,c,m and m[1][30:70])   # gone again: the groups stay
time.sleep(1); r=alice(); print('alice after the four have disconnected',r); bad=r[0]!='joined'; a=n.nats('alice'); a.say('SUB acme.qq workers 1'); a.flush(); b=n.nats('alice'); b.pub('acme.qq','x'); b.flush(); print('NATS queue: got',a.drain(1.5),'errs',a.errs(),b.errs()); print('SHUT OUT' if bad else 'ok'); sys.exit(bad)
