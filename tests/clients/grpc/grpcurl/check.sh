#!/bin/sh
# Calls the gRPC services with grpcurl, which finds them by reflection. Usage: check.sh GRPCURL ADDRESS
set -eu
grpcurl=$1 address=$2
call() { "$grpcurl" -plaintext -max-time 60 "$@"; }
services=$(call "$address" list)
for service in dunlin.v1.Dunlin dunlin.v1.Kv ratatoskr.MessageBroker grpc.health.v1.Health; do
    printf '%s\n' "$services" | grep -qx "$service"
done
call "$address" describe dunlin.v1.SubscribeRequest | grep -q 'repeated string subjects = 1;'
call -d '{"subject":"curl","record":{"payload":"aGVsbG8="}}' "$address" dunlin.v1.Dunlin/Publish | grep -q '"seq": "1"'
call -d '{"topic":"curl-news","payload":"aGVsbG8="}' "$address" ratatoskr.MessageBroker/Publish | grep -q '"success": true'
call "$address" grpc.health.v1.Health/Check | grep -q SERVING
# A subscription's stream has the subscriber's position, the record, and the end when the topic is deleted.
seen=$(mktemp)
trap 'rm -f "$seen"' EXIT
call -d '{"subjects":["curl"],"start":{"earliest":true}}' "$address" dunlin.v1.Dunlin/Subscribe >"$seen" 2>&1 &
subscriber=$!
while ! grep -q '"payload": "aGVsbG8="' "$seen"; do
    kill -0 $subscriber || { cat "$seen"; exit 1; }
    sleep 0.05
done
call -d '{"name":"curl"}' "$address" dunlin.v1.Dunlin/DeleteTopic >/dev/null
wait $subscriber && exit 1 || :
grep -q '"deleted": {' "$seen"
grep -q 'Code: Aborted' "$seen"
# In JSON, keys and values are base64: the key `curl/a`, the value `hello`, and the range from `curl/` to `curl0`.
call -d '{"key":"Y3VybC9h","value":"aGVsbG8="}' "$address" dunlin.v1.Kv/Put | grep -q '"revision"'
call -d '{"key":"Y3VybC8=","range_end":"Y3VybDA="}' "$address" dunlin.v1.Kv/Range | grep -q '"value": "aGVsbG8="'
call -d '{"key":"Y3VybC8=","range_end":"Y3VybDA=","oldest":true}' "$address" dunlin.v1.Kv/Watch >"$seen" 2>&1 &
watcher=$!
while ! grep -q '"value": "aGVsbG8="' "$seen"; do
    kill -0 $watcher || { cat "$seen"; exit 1; }
    sleep 0.05
done
kill $watcher
wait $watcher || :
echo 'grpcurl: puts, finds and watches keys'
echo 'grpcurl: lists, describes, publishes and subscribes by reflection alone'
