#!/bin/bash
mkdir -p /tmp/dunlin-trial; cd /tmp/dunlin-trial; D=$DUNLIN; export DUNLIN_AUTH_USERS_FILE=users.toml; rm -f users.toml
add(){ u=$1; shift; echo "pw-$u" > $u.pw; chmod 600 $u.pw; $D user add $u --password-from $u.pw "$@" >/dev/null || echo FAIL $u; $D user token $u > $u.tok 2>/dev/null; chmod 600 $u.tok; }
add root --publish '>' --subscribe '>' --create '>' --delete '>' --groups '>' --tasks manage --surveys
add alice --tenant acme --publish 'acme.>' --publish '_INBOX.>' --subscribe 'acme.>' --create 'acme.>' --delete 'acme.>' --groups '>' --tasks submit --tasks work:acme --surveys
add bob --tenant acme --publish 'acme.orders.>' --deny-publish 'acme.orders.secret.>' --subscribe 'acme.>' --deny-subscribe 'acme.secret.>'
add mallory --tenant evil --publish 'evil.>' --subscribe 'evil.>' --create 'evil.>' --delete 'evil.>' --groups '>' --tasks submit --tasks work:evil --surveys
add eve --tenant evil --publish 'evil.>' --subscribe 'evil.>' --groups 'crew' 
add crosser --tenant evil --publish '>' --subscribe '>' --create '>' --delete '>' --groups '>' --tasks submit --tasks work:acme --surveys
add narrow --publish 'svc.upper' --subscribe 'pub.>' 
add dee --tenant acme --publish 'acme.ask.>' --subscribe 'acme.>' --deny-subscribe 'acme.secret.x.y' --deny-subscribe 'acme.secret.z.>'
add serv --tenant acme --publish 'acme.>' --subscribe 'acme.>' --groups '>'
add svc --publish '>' --subscribe 'svc.>' --groups '>'
python3 - <<'P'
s=open('users.toml').read()
k={'root':'keys = ["*"]','alice':'keys = ["acme/*", "$lock/acme/*"]','mallory':'keys = ["evil/*", "$lock/evil/*"]','bob':'keys = ["acme/bob/*"]\nkeys_deny = ["acme/bob/x/*"]','eve':'keys = ["evil/*"]'}
for u,v in k.items(): s=s.replace(f'[users.{u}]\n',f'[users.{u}]\n{v}\n')
s=s.replace('[tenants.acme]\n','[tenants.acme]\ndeny = ["acme.audit.>"]\n')
open('users.toml','w').write(s)
P
