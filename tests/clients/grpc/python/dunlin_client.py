"""Calls the services of dunlin.v1 with code that grpcio generated. Usage: dunlin_client.py ADDRESS"""

import queue
import sys

import grpc
from dunlin.v1 import dunlin_pb2 as v1
from dunlin.v1 import dunlin_pb2_grpc, kv_pb2_grpc
from dunlin.v1 import kv_pb2 as v1kv
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

PATIENCE_S = 60


def publish(subject, payload, **fields):
    return v1.PublishRequest(subject=subject, record=v1.Draft(payload=payload, **fields))


def subscribe(stub, subjects, **fields):
    """Opens a subscription. Returns the stream and the subscription's position."""
    stream = stub.Subscribe(v1.SubscribeRequest(subjects=subjects, **fields), timeout=PATIENCE_S)
    first = next(stream)
    assert first.WhichOneof("event") == "subscribed", first
    return stream, first.subscribed.logs


def records(stream, count):
    got = []
    while len(got) < count:
        event = next(stream)
        assert event.WhichOneof("event") == "records", event
        got.extend(event.records.records)
    return got


def check_records(stub):
    live, _ = subscribe(stub, ["py.orders.*"])
    stub.CreateTopic(v1.CreateTopicRequest(name="py", config=v1.TopicConfig(pattern="py.>", retain_bytes=1 << 16)))
    request = publish(
        "py.orders.1", b"hello", key=b"k", reply="py.answers", headers=[v1.Header(name="h", value=b"\xff")]
    )
    receipt = stub.Publish(request, timeout=PATIENCE_S).receipt
    assert (receipt.topic, receipt.seq, receipt.level) == ("py", 1, v1.LEVEL_MEMORY), receipt
    (record,) = records(live, 1)
    assert (record.subject, record.payload, record.key, record.reply) == ("py.orders.1", b"hello", b"k", "py.answers")
    assert record.headers[0].value == b"\xff" and record.append_time_ns > 0
    live.cancel()
    print("records: published and delivered with all their fields")
    return receipt.epoch


def check_batch(stub):
    requests = [publish("py.batch", b"1"), publish("a..b", b"2"), publish("py.batch", b"3")]
    outcomes = stub.PublishBatch(v1.PublishBatchRequest(requests=requests), timeout=PATIENCE_S).outcomes
    kinds = [outcome.WhichOneof("outcome") for outcome in outcomes]
    assert kinds == ["receipt", "refusal", "receipt"], outcomes
    assert outcomes[1].refusal.name == "SUBJECT"
    print("batch: each has an outcome of its own")


def check_stream(stub):
    def messages():
        for number in range(100):
            drafts = [v1.Draft(payload=b"%d" % number)] * 10
            yield v1.PublishStreamRequest(subject="py-stream" if number == 0 else "", records=drafts)

    through = 0
    for answer in stub.PublishStream(messages(), timeout=PATIENCE_S):
        assert answer.through > through and not answer.refused, answer
        through = answer.through
    assert through == 1000
    stream, _ = subscribe(stub, ["py-stream"], start=v1.Start(earliest=True))
    for seq, record in enumerate(records(stream, 1000), start=1):
        assert (record.seq, record.payload) == (seq, b"%d" % ((seq - 1) // 10))
    stream.cancel()
    print("publish stream: acknowledged cumulatively, read in order")


def check_gap(stub, epoch):
    for _ in range(300):
        stub.Publish(publish("py.fill", b"x" * 1000), timeout=PATIENCE_S)
    after = v1.Positions(logs=[v1.LogPosition(topic="py", epoch=epoch, seq=1)])
    stream, logs = subscribe(stub, ["py.>"], start=v1.Start(after=after))
    assert logs[0].seq == 1
    seq = 1
    while seq < 303:
        event = next(stream)
        match event.WhichOneof("event"):
            case "gap":
                assert event.gap.first == seq + 1
                seq, gap = event.gap.last, event.gap
            case "records":
                for record in event.records.records:
                    assert record.seq == seq + 1
                    seq = record.seq
            case "lagging":
                assert event.lagging.behind > 0
            case other:
                raise AssertionError(other)
    assert gap.last > gap.first
    stream.cancel()
    print("gap: told to the record, and nothing else is missing")


def check_errors(stub):
    try:
        stub.DescribeTopic(v1.DescribeTopicRequest(name="nobody"), timeout=PATIENCE_S)
        raise AssertionError("described")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND
        details = dict(error.trailing_metadata())["grpc-status-details-bin"]
        info = error_details_pb2.ErrorInfo()
        status_pb2.Status.FromString(details).details[0].Unpack(info)
        assert (info.reason, info.domain, info.metadata["retry"]) == ("NO_TOPIC", "dunlin", "later"), info
    print("errors: a status, and the table's row in its details")


def check_work(stub):
    for number in range(3):
        stub.Publish(publish("py-jobs", b"%d" % number), timeout=PATIENCE_S)
    asks = queue.Queue()
    ask = lambda **request: asks.put(v1.JoinGroupRequest(**request))
    told = stub.JoinGroup(iter(asks.get, None), timeout=PATIENCE_S)
    join = v1.Join(topic="py-jobs", group="crew", kind=v1.GROUP_KIND_WORK, start=v1.Start(earliest=True))
    ask(join=join)
    assert next(told).WhichOneof("event") == "joined"
    ask(claim=v1.Claim(wanted=3))
    tokens = []
    while len(tokens) < 3:
        tokens += [delivery.token for delivery in next(told).deliveries.deliveries]
    ask(ack=v1.Ack(request=1, tokens=tokens[:2]))
    assert next(told).settled.settled == 2
    ask(nack=v1.Nack(request=2, tokens=tokens[2:]))
    assert next(told).settled.settled == 1
    ask(claim=v1.Claim(wanted=4))
    (again,) = next(told).deliveries.deliveries
    assert (again.attempt, again.record.payload) == (2, b"2")
    asks.put(None)
    assert list(told) == []
    print("work: claimed, acknowledged, given back, given out again")


def check_state(stub):
    config = v1.TopicConfig(reducer=v1.Reducer(kind="last"))
    stub.CreateTopic(v1.CreateTopicRequest(name="py-state", config=config), timeout=PATIENCE_S)
    stub.Publish(publish("py-state", b"old", key=b"a"), timeout=PATIENCE_S)
    stream, _ = subscribe(stub, ["py-state"], start=v1.Start(snapshot=True))
    part = next(stream).snapshot
    assert (part.position.seq, part.offset, part.bytes_total) == (1, 0, len(part.part)), part
    assert part.part.endswith(b"aold")
    stub.Publish(publish("py-state", b"new", key=b"a"), timeout=PATIENCE_S)
    (record,) = records(stream, 1)
    assert (record.seq, record.key, record.payload) == (2, b"a", b"new")
    stream.cancel()
    print("state: the snapshot, then what changes it")


def check_keys(stub):
    watch = stub.Watch(v1kv.WatchRequest(key=b"py/", range_end=b"py0"), timeout=PATIENCE_S)
    began = next(watch)
    assert began.epoch > 0 and not began.events, began
    revision = stub.Put(v1kv.PutRequest(key=b"py/a", value=b"1"), timeout=PATIENCE_S).revision
    change = next(watch)
    (event,) = change.events
    assert (change.revision, event.type, event.kv.value) == (revision, v1kv.KeyEvent.PUT, b"1"), change
    found = stub.Range(v1kv.RangeRequest(key=b"py/", range_end=b"py0"), timeout=PATIENCE_S)
    assert [(kv.key, kv.mod_revision) for kv in found.kvs] == [(b"py/a", revision)], found
    compare = v1kv.Compare(key=b"py/a", result=v1kv.Compare.EQUAL, mod_revision=revision)
    swap = v1kv.RequestOp(put=v1kv.PutRequest(key=b"py/a", value=b"2"))
    assert stub.Txn(v1kv.TxnRequest(compare=[compare], success=[swap]), timeout=PATIENCE_S).succeeded
    assert next(watch).events[0].kv.version == 2
    watch.cancel()
    try:
        stub.Put(v1kv.PutRequest(key=b"py/a", expect_mod_revision=revision), timeout=PATIENCE_S)
        raise AssertionError("put")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.ABORTED
    lease = stub.LeaseGrant(v1kv.LeaseGrantRequest(ttl_ms=60_000), timeout=PATIENCE_S).lease
    (kept,) = stub.LeaseKeepAlive(iter([v1kv.LeaseKeepAliveRequest(lease=lease)]), timeout=PATIENCE_S)
    assert (kept.lease, kept.ended) == (lease, False)
    assert stub.Lock(v1kv.LockRequest(name=b"py", lease=lease), timeout=PATIENCE_S).token > revision
    stub.Unlock(v1kv.UnlockRequest(name=b"py", lease=lease), timeout=PATIENCE_S)
    print("keys: put, got, compared, watched, locked")


def main():
    with grpc.insecure_channel(sys.argv[1]) as channel:
        stub = dunlin_pb2_grpc.DunlinStub(channel)
        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(health_pb2.HealthCheckRequest(service="dunlin.v1.Dunlin"), timeout=PATIENCE_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        epoch = check_records(stub)
        check_batch(stub)
        check_stream(stub)
        check_gap(stub, epoch)
        check_errors(stub)
        check_work(stub)
        check_state(stub)
        check_keys(kv_pb2_grpc.KvStub(channel))


main()
