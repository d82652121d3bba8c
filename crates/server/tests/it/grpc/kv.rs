//! Tests the gRPC service `dunlin.v1.Kv` with a generated client.

use dunlin::Config;
use dunlin::state::{ControlCommand, KeyOperation};
use dunlin_server::grpc::proto::dunlin as v1;
use tonic::transport::Channel;
use tonic::{Code, Response, Status, Streaming};
use tonic_types::StatusExt as _;
use v1::kv_client::KvClient;
use v1::{compare, key_event, request_op, response_op};

use super::{channel, run, serve_grpc, until};
use crate::memory::charge_all_but;

pub(crate) type Kv = KvClient<Channel>;

pub(crate) async fn connect_kv(server: &dunlin_server::Server) -> Kv {
    KvClient::new(channel(server).await)
}

pub(crate) fn put(key: &str, value: &str) -> v1::PutRequest {
    let (key, value) = (key.to_owned().into(), value.to_owned().into());
    v1::PutRequest { key, value, ..Default::default() }
}

fn get(key: &str) -> v1::RangeRequest {
    v1::RangeRequest { key: key.to_owned().into(), ..Default::default() }
}

fn range(key: &str, end: &str, limit: u32) -> v1::RangeRequest {
    v1::RangeRequest { range_end: end.to_owned().into(), limit, ..get(key) }
}

fn watch(key: &str, end: &str, start_revision: u64) -> v1::WatchRequest {
    let (key, range_end) = (key.to_owned().into(), end.to_owned().into());
    v1::WatchRequest { key, range_end, start_revision, ..Default::default() }
}

/// Returns the gRPC code and the error code of a refusal; panics if the request has succeeded.
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<Response<T>, Status>) -> (Code, String) {
    row(&result.map(|response| response.into_inner()).unwrap_err())
}

fn row(status: &Status) -> (Code, String) {
    (status.code(), status.get_details_error_info().map(|info| info.reason).unwrap_or_default())
}

fn moved() -> (Code, String) {
    (Code::Aborted, "KEY_MOVED".to_owned())
}

/// Returns the next change of the stream as text: its revision, followed by each key with its value. A deleted key has
/// a minus sign instead.
async fn next_change(stream: &mut Streaming<v1::WatchResponse>) -> String {
    let change = stream.message().await.unwrap().expect("the watch continues");
    let event = |event: &v1::KeyEvent| {
        let kv = event.kv.as_ref().unwrap();
        let key = String::from_utf8_lossy(&kv.key);
        match event.r#type() {
            key_event::Type::Put => format!("{key}={}", String::from_utf8_lossy(&kv.value)),
            key_event::Type::Delete => format!("-{key}"),
        }
    };
    let events: Vec<String> = change.events.iter().map(event).collect();
    format!("{} {}", change.revision, events.join(" "))
}

#[test]
fn key_is_put_read_swapped_and_deleted_over_grpc() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut kv = connect_kv(&server).await;
        assert_eq!(kv.put(put("a", "1")).await.unwrap().into_inner().revision, 1);
        let expecting = |revision| v1::PutRequest { expect_mod_revision: Some(revision), ..put("a", "2") };
        assert_eq!(refused(kv.put(expecting(7)).await), moved());
        assert_eq!(refused(kv.put(expecting(0)).await), moved());
        assert_eq!(kv.put(expecting(1)).await.unwrap().into_inner().revision, 2);
        let found = kv.range(get("a")).await.unwrap().into_inner();
        let [a] = &found.kvs[..] else { panic!("{found:?}") };
        assert_eq!((&a.value[..], a.create_revision, a.mod_revision, a.version), (&b"2"[..], 1, 2, 2));
        let stale = kv.range(v1::RangeRequest { serializable: true, ..get("a") }).await.unwrap();
        assert_eq!(stale.into_inner(), found);
        let delete = v1::DeleteRequest { key: "a".into(), ..Default::default() };
        let expecting = v1::DeleteRequest { expect_mod_revision: Some(1), ..delete.clone() };
        assert_eq!(refused(kv.delete(expecting).await), moved());
        assert_eq!(kv.delete(delete.clone()).await.unwrap().into_inner().deleted, 1);
        assert_eq!(kv.delete(delete).await.unwrap().into_inner().deleted, 0);
        assert!(kv.range(get("a")).await.unwrap().into_inner().kvs.is_empty());
        let status = kv.status(v1::StatusRequest {}).await.unwrap().into_inner();
        assert!(status.epoch > 0 && (status.revision, status.keys) == (3, Some(0)), "{status:?}");
    });
}

#[test]
fn grpc_returns_pages_of_keys_and_refuses_invalid_ranges() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut kv = connect_kv(&server).await;
        for number in 0..25 {
            kv.put(put(&format!("k/{number:02}"), "v")).await.unwrap();
        }
        kv.put(put("l", "after")).await.unwrap();
        let (mut from, mut keys) = ("k/".to_owned(), Vec::new());
        loop {
            let page = kv.range(range(&from, "k0", 10)).await.unwrap().into_inner();
            keys.extend(page.kvs.iter().map(|kv| String::from_utf8(kv.key.to_vec()).unwrap()));
            if !page.more {
                break;
            }
            from = format!("{}\0", keys.last().unwrap());
        }
        assert_eq!(keys, (0..25).map(|number| format!("k/{number:02}")).collect::<Vec<_>>());
        let all = kv.range(range("k/20", "\0", 0)).await.unwrap().into_inner();
        assert_eq!(all.kvs.len(), 6, "the range includes the last key");
        let bad = (Code::InvalidArgument, "BAD_KEY".to_owned());
        assert_eq!(refused(kv.range(range("b", "a", 0)).await), bad);
        assert_eq!(refused(kv.range(get("")).await), bad);
        assert_eq!(refused(kv.put(put("$lock/a", "")).await), bad);
        let expecting =
            v1::DeleteRequest { key: "a".into(), range_end: "b".into(), expect_mod_revision: Some(1) };
        assert_eq!(refused(kv.delete(expecting).await), bad);
        let large = (Code::InvalidArgument, "KEY_TOO_LARGE".to_owned());
        assert_eq!(refused(kv.put(put(&"k".repeat(5_000), "")).await), large);
        let delete = v1::DeleteRequest { key: "k/".into(), range_end: "k0".into(), ..Default::default() };
        assert_eq!(kv.delete(delete).await.unwrap().into_inner().deleted, 25);
    });
}

#[test]
fn grpc_txn_runs_exactly_one_branch() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut kv = connect_kv(&server).await;
        let op = |request| v1::RequestOp { request: Some(request) };
        let free = v1::Compare {
            key: "a".into(),
            result: compare::Result::Equal.into(),
            target: Some(compare::Target::ModRevision(0)),
        };
        let delete = v1::DeleteRequest { key: "a".into(), ..Default::default() };
        let transaction = v1::TxnRequest {
            compare: vec![free.clone()],
            success: vec![
                op(request_op::Request::Put(put("a", "1"))),
                op(request_op::Request::Range(get("a"))),
            ],
            failure: vec![op(request_op::Request::Delete(delete))],
        };
        let done = kv.txn(transaction.clone()).await.unwrap().into_inner();
        assert!(done.succeeded && done.revision == 1);
        match (&done.responses[0].response, &done.responses[1].response) {
            (Some(response_op::Response::Put(put)), Some(response_op::Response::Range(found))) => {
                assert_eq!((put.revision, &found.kvs[0].value[..]), (1, &b"1"[..]));
            }
            other => panic!("{other:?}"),
        }
        let done = kv.txn(transaction.clone()).await.unwrap().into_inner();
        let deleted = v1::DeleteResponse { revision: 2, deleted: 1 };
        assert!(!done.succeeded);
        assert_eq!(done.responses[0].response, Some(response_op::Response::Delete(deleted)));
        let bad = (Code::InvalidArgument, "BAD_KEY".to_owned());
        let expecting = v1::PutRequest { expect_mod_revision: Some(1), ..put("a", "") };
        for wrong in [
            v1::TxnRequest { success: vec![v1::RequestOp { request: None }], ..Default::default() },
            v1::TxnRequest { success: vec![op(request_op::Request::Put(expecting))], ..Default::default() },
            v1::TxnRequest { compare: vec![v1::Compare { target: None, ..free }], ..Default::default() },
        ] {
            assert_eq!(refused(kv.txn(wrong).await), bad);
        }
    });
}

#[test]
fn grpc_watch_delivers_every_revision_from_its_start() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut kv = connect_kv(&server).await;
        kv.put(put("a/0", "w")).await.unwrap();
        let mut now = kv.watch(watch("a/", "a0", 0)).await.unwrap().into_inner();
        assert_eq!(next_change(&mut now).await, "1 ", "where it stands");
        for (key, value) in [("a/1", "x"), ("b/1", "y"), ("a/2", "z")] {
            kv.put(put(key, value)).await.unwrap();
        }
        kv.delete(v1::DeleteRequest { key: "a/1".into(), ..Default::default() }).await.unwrap();
        for change in ["2 a/1=x", "4 a/2=z", "5 -a/1"] {
            assert_eq!(next_change(&mut now).await, change);
        }
        let mut later = kv.watch(watch("", "\0", 4)).await.unwrap().into_inner();
        for change in ["3 ", "4 a/2=z", "5 -a/1"] {
            assert_eq!(next_change(&mut later).await, change);
        }
        let oldest = v1::WatchRequest { oldest: true, ..watch("b/1", "", 0) };
        let mut oldest = kv.watch(oldest).await.unwrap().into_inner();
        assert_eq!(
            (next_change(&mut oldest).await, next_change(&mut oldest).await),
            ("0 ".into(), "3 b/1=y".into())
        );
        // A watch must receive the present revision even if its own keys do not change.
        let mut quiet = kv.watch(watch("c", "", 0)).await.unwrap().into_inner();
        assert_eq!(next_change(&mut quiet).await, "5 ");
        for _ in 0..1_100 {
            kv.put(put("d", "")).await.unwrap();
        }
        let progress = next_change(&mut quiet).await;
        assert!(progress.ends_with(' ') && progress != "5 ", "{progress}");
        let ahead = (Code::OutOfRange, "AHEAD".to_owned());
        assert_eq!(refused(kv.watch(watch("a", "", 9_999_999)).await), ahead);
    });
}

/// By default, clients accept messages of at most 4 MiB. A larger revision must therefore be split into several
/// messages.
#[test]
fn watch_receives_a_large_revision_in_several_messages() {
    run(async {
        let (node, server) = serve_grpc();
        let mut kv = connect_kv(&server).await;
        let keys: Vec<String> = (0..48).map(|key| format!("c/{key:02}")).collect();
        let value = vec![b'v'; 100_000];
        let puts = keys.iter().map(|key| KeyOperation::Put { key: key.as_bytes(), value: &value, lease: 0 });
        let then = puts.collect();
        let command = ControlCommand::Transaction { compare: Vec::new(), then, otherwise: Vec::new() };
        node.control_async().await.unwrap().execute(&command).await.unwrap();
        kv.put(put("c/after", "x")).await.unwrap();
        let mut changes = kv.watch(watch("c/", "c0", 1)).await.unwrap().into_inner();
        assert_eq!(next_change(&mut changes).await, "0 ", "where it stands");
        let (mut received, mut acks) = (Vec::new(), 0);
        loop {
            let change = changes.message().await.unwrap().expect("the watch continues");
            assert_eq!(change.revision, 1);
            acks += 1;
            received.extend(change.events.into_iter().map(|event| event.kv.unwrap().key));
            assert_eq!(change.fragment, received.len() < keys.len(), "more of the revision follows");
            if !change.fragment {
                break;
            }
        }
        assert!(acks > 1 && received == keys);
        assert_eq!(next_change(&mut changes).await, "2 c/after=x");
    });
}

#[test]
fn grpc_watch_from_an_old_revision_or_epoch_ends_as_compacted() {
    run(async {
        let mut config = Config::default();
        config.limits.control.history_bytes = 64 << 10;
        let node = dunlin::Node::start(config).unwrap();
        let server = crate::serve_node(&node, |config| config.grpc = vec![([127, 0, 0, 1], 0).into()]);
        let mut kv = connect_kv(&server).await;
        for _ in 0..200 {
            kv.put(put("a", &"x".repeat(2_000))).await.unwrap();
        }
        let compacted = (Code::OutOfRange, "COMPACTED".to_owned());
        let mut early = kv.watch(watch("a", "", 3)).await.unwrap().into_inner();
        next_change(&mut early).await;
        let ended = early.message().await.unwrap_err();
        assert_eq!(row(&ended), compacted);
        let numbers = ended.get_details_error_info().unwrap().metadata["numbers"].clone();
        let oldest: u64 = numbers.split(',').next().unwrap().parse().unwrap();
        assert!(oldest > 100);
        let epoch = kv.status(v1::StatusRequest {}).await.unwrap().into_inner().epoch;
        let mut from = kv.watch(v1::WatchRequest { start_epoch: epoch, ..watch("a", "", oldest) }).await;
        let from = from.as_mut().unwrap().get_mut();
        next_change(from).await;
        assert!(next_change(from).await.starts_with(&format!("{oldest} a=x")));
        let other = v1::WatchRequest { start_epoch: epoch - 1, ..watch("a", "", oldest) };
        let mut other = kv.watch(other).await.unwrap().into_inner();
        let ended = loop {
            match other.message().await {
                Ok(response) => assert!(response.unwrap().events.is_empty(), "revisions of another epoch"),
                Err(ended) => break ended,
            }
        };
        assert_eq!(row(&ended), compacted);
        assert!(ended.message().contains("started again"), "{ended:?}");
    });
}

async fn grant_two_leases(kv: &mut Kv) -> [u64; 2] {
    let mut leases = [0; 2];
    for lease in &mut leases {
        let granted = kv.lease_grant(v1::LeaseGrantRequest { ttl_ms: 60_000 }).await.unwrap();
        *lease = granted.into_inner().lease;
    }
    leases
}

/// Waits until a request with this lease is waiting for a lock.
async fn wait_for_waiter(kv: &mut KvClient<Channel>, lease: u64) {
    until(async || {
        let response = kv.lease_time_to_live(v1::LeaseTimeToLiveRequest { lease });
        response.await.unwrap().get_ref().waits > 0
    })
    .await;
}

#[test]
fn leases_are_renewed_and_locks_pass_to_the_next_waiter() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut kv = connect_kv(&server).await;
        let [ours, theirs] = grant_two_leases(&mut kv).await;
        let lock =
            |lease, no_wait| v1::LockRequest { name: "gate".into(), lease, no_wait, value: "us".into() };
        let first = kv.lock(lock(ours, false)).await.unwrap().into_inner().token;
        let held = (Code::FailedPrecondition, "LOCK_HELD".to_owned());
        assert_eq!(refused(kv.lock(lock(theirs, true)).await), held);
        let mut other = kv.clone();
        let waiting = tokio::spawn(async move { other.lock(lock(theirs, false)).await });
        wait_for_waiter(&mut kv, theirs).await;
        let proclaim = |lease| v1::ProclaimRequest { name: "gate".into(), lease, value: "still us".into() };
        kv.proclaim(proclaim(ours)).await.unwrap();
        let not_held = (Code::FailedPrecondition, "LOCK_NOT_HELD".to_owned());
        assert_eq!(refused(kv.proclaim(proclaim(theirs)).await), not_held);
        let leader = kv.leader(v1::LeaderRequest { name: "gate".into() }).await.unwrap().into_inner();
        let leader = leader.kv.unwrap();
        assert_eq!(
            (leader.create_revision, leader.lease, &leader.value[..]),
            (first, ours, &b"still us"[..])
        );
        kv.unlock(v1::UnlockRequest { name: "gate".into(), lease: ours }).await.unwrap();
        let second = waiting.await.unwrap().unwrap().into_inner().token;
        assert!(second > first);

        let (sender, requests) = tokio::sync::mpsc::channel(4);
        let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
        let mut kept = kv.lease_keep_alive(requests).await.unwrap().into_inner();
        let keep = |lease| v1::LeaseKeepAliveRequest { lease };
        sender.send(keep(theirs)).await.unwrap();
        let response = kept.message().await.unwrap().unwrap();
        assert_eq!(response, v1::LeaseKeepAliveResponse { lease: theirs, ended: false });
        kv.lease_revoke(v1::LeaseRevokeRequest { lease: theirs }).await.unwrap();
        sender.send(keep(theirs)).await.unwrap();
        sender.send(keep(ours)).await.unwrap();
        assert!(kept.message().await.unwrap().unwrap().ended);
        assert!(!kept.message().await.unwrap().unwrap().ended);
        drop(sender);
        assert!(kept.message().await.unwrap().is_none());
        let none = kv.leader(v1::LeaderRequest { name: "gate".into() }).await.unwrap().into_inner();
        assert_eq!(none.kv, None, "the key is deleted with its lease");
        let gone = (Code::NotFound, "NO_LEASE".to_owned());
        assert_eq!(refused(kv.lease_revoke(v1::LeaseRevokeRequest { lease: theirs }).await), gone);
        assert_eq!(refused(kv.lease_time_to_live(v1::LeaseTimeToLiveRequest { lease: theirs }).await), gone);
    });
}

#[test]
fn waiting_grpc_key_request_counts_towards_the_memory_budget() {
    run(async {
        let (node, server) = serve_grpc();
        let mut kv = connect_kv(&server).await;
        let [ours, theirs] = grant_two_leases(&mut kv).await;
        let lock = |lease, value| v1::LockRequest { name: "gate".into(), lease, value, ..Default::default() };
        kv.lock(lock(ours, Default::default())).await.unwrap();
        let before = node.budget().used();
        let mut other = kv.clone();
        let request = lock(theirs, vec![7_u8; 500_000].into());
        let waiting = tokio::spawn(async move { other.lock(request).await });
        wait_for_waiter(&mut kv, theirs).await;
        assert!(node.budget().used() >= before + 500_000);
        waiting.abort();
        until(async || node.budget().used() < before + 500_000).await;
    });
}

#[test]
fn large_grpc_results_of_key_requests_count_towards_the_budget() {
    run(async {
        let (node, server) = serve_grpc();
        let mut kv = connect_kv(&server).await;
        kv.put(put("k", &"v".repeat(100 << 10))).await.unwrap();
        let read = v1::RequestOp { request: Some(request_op::Request::Range(get("k"))) };
        let transaction = v1::TxnRequest { success: vec![read], ..Default::default() };
        let [lease, _] = grant_two_leases(&mut kv).await;
        let (name, value) = ("gate".into(), vec![7_u8; 100 << 10].into());
        kv.lock(v1::LockRequest { name, lease, value, ..Default::default() }).await.unwrap();
        let holder = v1::LeaderRequest { name: "gate".into() };
        // Tries until all three requests are refused: the memory of earlier requests may be released late, and then
        // leave room for a result.
        let (written, read, held) = loop {
            let _rest = charge_all_but(&node, 50 << 10);
            let (written, read) = (kv.txn(transaction.clone()).await, kv.range(get("k")).await);
            let held = kv.leader(holder.clone()).await;
            if written.is_err() && read.is_err() && held.is_err() {
                break (written, read, held);
            }
        };
        assert_eq!(refused(written).1, "COMMAND_UNKNOWN");
        assert_eq!(refused(read).1, "BUDGET_SPENT");
        assert_eq!(refused(held).1, "BUDGET_SPENT");
        // The memory for a result must be released after the result is sent. Otherwise, 20 results would not fit.
        let _rest = charge_all_but(&node, 1 << 20);
        for _ in 0..20 {
            kv.txn(transaction.clone()).await.unwrap();
            kv.range(get("k")).await.unwrap();
            kv.leader(holder.clone()).await.unwrap();
        }
    });
}

#[test]
fn stop_of_a_server_ends_its_watches_and_lock_waits() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut kv = connect_kv(&server).await;
        let [ours, theirs] = grant_two_leases(&mut kv).await;
        let lock = |lease| v1::LockRequest { name: "gate".into(), lease, ..Default::default() };
        kv.lock(lock(ours)).await.unwrap();
        let mut changes = kv.watch(watch("a", "", 0)).await.unwrap().into_inner();
        next_change(&mut changes).await;
        let mut other = kv.clone();
        let waiting = tokio::spawn(async move { other.lock(lock(theirs)).await });
        wait_for_waiter(&mut kv, theirs).await;
        let stopping = std::thread::spawn(move || server.stop());
        let gone = (Code::Unavailable, "SHUTTING_DOWN".to_owned());
        assert_eq!(row(&changes.message().await.unwrap_err()), gone);
        assert_eq!(refused(waiting.await.unwrap()), gone);
        drop(kv);
        stopping.join().unwrap();
    });
}
