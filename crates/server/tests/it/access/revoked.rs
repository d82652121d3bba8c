//! Tests that subscriptions and waits for locks end at once when the user loses the permission.

use std::thread;
use std::time::Duration;

use dunlin::topic::{ReliableOptions, Retention, Subscribe, SubscribeError, SubscribeOptions, TopicConfig};
use dunlin_client::ErrorCode;
use dunlin_server::Protocol;
use dunlin_server::grpc::proto::dunlin as v1;
use dunlin_wait::until;
use serde_json::{Value, json};
use tokio_stream::StreamExt as _;
use tonic::Code;
use v1::publish_outcome::Outcome;
use v1::start::At;

use super::{Guarded, PASSWORD, PATIENCE, as_ana, basic, read_subscribe_error};
use crate::grpc::kv::{connect_kv, refused};
use crate::grpc::{self, connect, next, publish, run, subscribe};
use crate::http::peer::Peer as HttpPeer;
use crate::http::socket::Socket;

const ROOT: &str =
    "[users.root]\npassword = \"HASH\"\nkeys = [\"*\"]\npublish = [\">\"]\nsubscribe = [\">\"]\n";

/// Returns a users file with the user `root`, and with the user `ana`, who has these permissions.
fn users(ana: &str) -> String {
    format!("{ROOT}[users.ana]\npassword = \"HASH\"\n{ana}\n")
}

/// Creates a lease of the user `ana` that lasts an hour.
fn lease(guarded: &Guarded) -> u64 {
    let body = br#"{"ttl_ms":3600000}"#;
    let granted = guarded.http("POST", "/v1/leases", &basic("ana", PASSWORD), body);
    granted.json()["lease"].as_u64().unwrap()
}

/// The number of locks for which the user `ana` waits.
fn count_waits(guarded: &Guarded) -> usize {
    guarded.node.control().unwrap().with(|state| state.waits_of_user(b"ana").len()).unwrap()
}

/// A function that waits for a lock as `ana`, and returns the code of the error with which the wait ends.
type LockWait = fn(&Guarded) -> String;

fn lock_over_tcp(guarded: &Guarded) -> String {
    let kv = guarded.by_password("ana").kv();
    let lease = kv.lease(PATIENCE).unwrap();
    kv.lock("gate", &lease, b"").unwrap_err().code().unwrap().to_string()
}

fn lock_over_http(guarded: &Guarded) -> String {
    let path = format!("/v1/locks/gate?wait&lease={}", lease(guarded));
    guarded.http("PUT", &path, &basic("ana", PASSWORD), b"").code()
}

fn lock_over_grpc(guarded: &Guarded) -> String {
    let lease = lease(guarded);
    let mut code = String::new();
    run(async {
        let mut kv = connect_kv(&guarded.server).await;
        let lock = v1::LockRequest { name: "gate".into(), lease, ..Default::default() };
        code = refused(kv.lock(as_ana(lock)).await).1;
    });
    code
}

/// Each function of `lock_waits` waits as `ana` for a lock that `root` holds. Then `after` becomes the users file. Each
/// wait must end with one of the error codes in `codes`.
fn assert_lock_waits_end(lock_waits: &[LockWait], after: &str, codes: &[&str]) {
    let guarded = Guarded::new(&users("keys = [\"*\"]"));
    let root = guarded.by_password("root").kv();
    let held = root.lease(PATIENCE).unwrap();
    let lock = root.lock("gate", &held, b"").unwrap();
    thread::scope(|scope| {
        let waiting: Vec<_> = lock_waits.iter().map(|wait| scope.spawn(|| wait(&guarded))).collect();
        until("ana waits in all ways", || count_waits(&guarded) == lock_waits.len());
        guarded.rewrite(after);
        for ended in waiting {
            let code = ended.join().unwrap();
            assert!(codes.contains(&code.as_str()), "{code}");
        }
    });
    until("nothing of ana's waits", || count_waits(&guarded) == 0);
    lock.release().unwrap();
    assert_eq!(root.holder("gate").unwrap(), None, "nobody was given the lock");
}

#[test]
fn lock_wait_ends_when_its_permission_is_revoked() {
    assert_lock_waits_end(
        &[lock_over_tcp, lock_over_http, lock_over_grpc],
        &users("keys = [\"a/*\"]"),
        &["FORBIDDEN"],
    );
}

#[test]
fn lock_wait_ends_when_its_user_is_removed() {
    // Dunlin's own protocol is left out: over it, the node closes the connection of a removed user. Over the other
    // protocols, the wait may end before the session notices that the user was removed.
    assert_lock_waits_end(&[lock_over_http, lock_over_grpc], ROOT, &["UNAUTHENTICATED", "FORBIDDEN"]);
}

#[test]
fn revoked_permission_ends_lock_waits_of_disconnected_clients() {
    let guarded = Guarded::new(&users("keys = [\"*\"]"));
    let root = guarded.by_password("root").kv();
    let held = root.lease(PATIENCE).unwrap();
    let lock = root.lock("gate", &held, b"").unwrap();
    let authorization = basic("ana", PASSWORD);
    let headers = [("authorization", authorization.as_str()), ("content-length", "0")];
    for count in 1..=2 {
        let mut peer = HttpPeer::connect(guarded.address(Protocol::Http));
        peer.head("PUT", &format!("/v1/locks/gate?wait&lease={}", lease(&guarded)), &headers);
        until("it waits beside those whose clients are gone", || count_waits(&guarded) == count);
    }
    // This change only adds another permission, so it must not end the waits.
    guarded.rewrite(&users("keys = [\"*\"]\npublish = [\"a\"]"));
    guarded.rewrite(&users("keys = [\"*\"]\nkeys_deny = [\"$lock/gate\"]"));
    until("nothing waits", || count_waits(&guarded) == 0);
    lock.release().unwrap();
    assert_eq!(root.holder("gate").unwrap(), None);
}

/// Topics that need another permission in addition to `subscribe`, each with this permission.
const SYSTEM_TOPICS: [(&str, &str); 2] =
    [("$tasks.>", "tasks = [\"submit\"]"), ("$node.>", "surveys = true")];

#[test]
fn stream_of_a_system_topic_ends_if_permission_is_revoked() {
    for (topic, permission) in SYSTEM_TOPICS {
        let guarded = Guarded::new(&users(permission));
        let client = guarded.by_password("ana");
        let mut tcp = client.subscribe(topic, SubscribeOptions::default()).unwrap();
        let http = guarded.address(Protocol::Http);
        let authorization = basic("ana", PASSWORD);
        let path = format!("/v1/topics/{}/events", topic.replace('>', "%3E"));
        let mut events = HttpPeer::connect(http).events(&path, &[("authorization", &authorization)]);
        let mut socket = Socket::json_as(http, &json!({"user": "ana", "password": PASSWORD}));
        socket.send_json(&json!({"op": "subscribe", "id": 1, "pattern": topic}));
        while socket.receive_json()["op"] != "subscribed" {}
        let mut nats = guarded.nats_by_password("ana");
        nats.send_line(&format!("SUB {topic} 1\r\nPING"));
        loop {
            // The node publishes to these topics too, so records may arrive before PONG.
            let line = nats.line();
            assert!(!line.starts_with("-ERR"), "{line}");
            if line == "PONG" {
                break;
            }
        }
        run(async {
            let mut grpc = connect(&guarded.server).await;
            let subscription = as_ana(subscribe(&[topic], At::Latest(true)));
            let mut stream = grpc.subscribe(subscription).await.unwrap().into_inner();
            assert!(matches!(next(&mut stream).await.unwrap(), v1::subscribe_response::Event::Subscribed(_)));
            guarded.rewrite(&users(""));
            let ended = loop {
                if let Err(ended) = next(&mut stream).await {
                    break ended;
                }
            };
            assert_eq!(ended.code(), Code::PermissionDenied, "{topic}: {ended:?}");
        });
        let ended = read_subscribe_error(&mut tcp);
        assert!(matches!(ended, SubscribeError::Forbidden(_)), "{topic}: {ended:?}");
        let ended = loop {
            let event = events.next().unwrap();
            if event.event == "end" {
                break event.data;
            }
        };
        assert!(ended.contains("FORBIDDEN"), "{topic}: {ended}");
        assert_eq!(read_until_end(&mut socket)["title"], "FORBIDDEN", "{topic}");
        let refused = loop {
            let line = nats.line();
            if line.starts_with("-ERR") {
                break line;
            }
        };
        assert!(
            refused.contains(&format!("Permissions Violation for Subscription to \"{topic}\"")),
            "{refused}"
        );
    }
}

#[test]
fn permission_for_all_subjects_includes_no_system_subject() {
    let guarded = Guarded::new(&users("publish = [\">\"]\nsubscribe = [\">\"]"));
    let client = guarded.by_password("ana");
    let authorization = basic("ana", PASSWORD);
    let credentials = json!({"user": "ana", "password": PASSWORD});
    let mut socket = Socket::json_as(guarded.address(Protocol::Http), &credentials);
    let mut nats = guarded.nats_by_password("ana");
    let subjects =
        ["$kv", "$kv.>", "$tasks", "$tasks.>", "$node.>", "$SYS.>", "$DUNLIN.>", "$DUNLIN.seq.$tasks.>"];
    for (id, subject) in subjects.into_iter().enumerate() {
        client.subscribe(subject, SubscribeOptions::default()).unwrap_err();
        let path = format!("/v1/topics/{}/events", subject.replace('>', "%3E"));
        let reply = guarded.http("GET", &path, &authorization, b"");
        assert!([400, 403].contains(&reply.status), "{subject}: {reply:?}");
        socket.send_json(&json!({"op": "subscribe", "id": id + 1, "pattern": subject}));
        let message = socket.receive_json();
        assert!(message["title"] == "FORBIDDEN" || message["title"] == "SUBJECT", "{subject}: {message}");
        nats.send_line(&format!("SUB {subject} 1\r\nPING"));
        let line = nats.line();
        let text = format!("-ERR 'Permissions Violation for Subscription to \"{subject}\"");
        assert!(line.starts_with(&text), "{subject}: {line}");
        assert_eq!(nats.line(), "PONG");
        let refused = run(async {
            let mut grpc = connect(&guarded.server).await;
            match grpc.subscribe(as_ana(subscribe(&[subject], At::Latest(true)))).await {
                Err(refused) => refused,
                Ok(response) => next(&mut response.into_inner()).await.unwrap_err(),
            }
        });
        assert!(
            [Code::PermissionDenied, Code::InvalidArgument].contains(&refused.code()),
            "{subject}: {refused:?}"
        );
    }
}

#[test]
fn nats_subscription_to_kv_ends_only_when_permission_ends() {
    let guarded = Guarded::new(&users("keys = [\"*\"]"));
    let mut nats = guarded.nats_by_password("ana");
    nats.subscribe("$kv 1");
    guarded.rewrite(&users("keys = [\"*\"]\npublish = [\"a\"]"));
    nats.ping();
    guarded.rewrite(&users(""));
    nats.send_line("PING");
    assert_eq!(nats.line(), "-ERR 'Permissions Violation for Subscription to \"$kv\"'");
    assert_eq!(nats.line(), "PONG");
}

/// Reads from a JSON WebSocket until a message reports the end of a subscription, and returns this message.
fn read_until_end(socket: &mut Socket) -> Value {
    loop {
        let message = socket.receive_json();
        if message["op"] == "end" {
            return message;
        }
    }
}

#[test]
fn grpc_watch_of_keys_ends_if_permission_is_revoked() {
    let guarded = Guarded::new(&users("keys = [\"*\"]"));
    run(async {
        let mut kv = connect_kv(&guarded.server).await;
        let watch = v1::WatchRequest { key: "a".into(), ..Default::default() };
        let mut changes = kv.watch(as_ana(watch)).await.unwrap().into_inner();
        let kept = tokio_stream::once(v1::LeaseKeepAliveRequest { lease: 99 });
        let kept = kept.chain(tokio_stream::pending());
        let mut kept = kv.lease_keep_alive(as_ana(kept)).await.unwrap().into_inner();
        assert!(kept.message().await.unwrap().unwrap().ended);
        guarded.rewrite(ROOT);
        let ended = loop {
            if let Err(ended) = changes.message().await {
                break ended;
            }
        };
        assert_eq!(ended.code(), Code::Unauthenticated, "{ended:?}");
        assert_eq!(kept.message().await.unwrap_err().code(), Code::Unauthenticated);
    });
}

#[test]
fn idle_publish_stream_ends_when_its_user_is_removed() {
    let guarded = Guarded::new(&users("publish = [\"a\"]"));
    run(async {
        let mut client = connect(&guarded.server).await;
        let message = v1::PublishStreamRequest {
            subject: "a".to_owned(),
            records: vec![v1::Draft::default()],
            ..Default::default()
        };
        let messages = tokio_stream::once(message).chain(tokio_stream::pending());
        let mut answers = client.publish_stream(as_ana(messages)).await.unwrap().into_inner();
        assert_eq!(answers.message().await.unwrap().unwrap().through, 1);
        guarded.rewrite(ROOT);
        let ended = answers.message().await.unwrap_err();
        assert_eq!(ended.code(), Code::Unauthenticated, "{ended:?}");
    });
}

/// Runs a call that publishes more records to the topic `a` than fit. After the first record, `ana` loses the
/// permission to publish. Then the topic gets room for the other records.
async fn revoke_during<T: Send + 'static>(
    guarded: &Guarded,
    call: impl Future<Output = T> + Send + 'static,
) -> T {
    let config = TopicConfig {
        retention: Retention { bytes: 64 << 10, ..Retention::default() },
        reliable: Some(ReliableOptions {
            wait_max: Duration::from_secs(3_600),
            ..ReliableOptions::default()
        }),
        ..TopicConfig::default()
    };
    let topic = guarded.node.create_topic("a", config, false).unwrap();
    let options = SubscribeOptions { registered: true, ..SubscribeOptions::default() };
    let mut reader = guarded.node.subscribe("a", &options).unwrap();
    let call = tokio::spawn(call);
    grpc::until(async || topic.logs()[0].last().seq > 0).await;
    guarded.rewrite(&users("publish = [\"b\"]"));
    grpc::until(async || {
        while let Ok(Some(_)) = reader.try_next() {}
        call.is_finished()
    })
    .await;
    call.await.unwrap()
}

#[test]
fn rest_of_a_grpc_batch_is_refused_when_permission_ends() {
    let guarded = Guarded::new(&users("publish = [\"a\"]"));
    run(async {
        let mut client = connect(&guarded.server).await;
        let requests = vec![publish("a", vec![0; 1_000]); 100];
        let batch = as_ana(v1::PublishBatchRequest { requests });
        let published = revoke_during(&guarded, async move { client.publish_batch(batch).await }).await;
        let mut outcomes = published.unwrap().into_inner().outcomes;
        match outcomes.pop().unwrap().outcome.unwrap() {
            Outcome::Refusal(refusal) => assert_eq!(refusal.name, "FORBIDDEN"),
            Outcome::Receipt(receipt) => panic!("{receipt:?}"),
        }
    });
}

#[test]
fn rest_of_a_stream_message_is_refused_when_permission_ends() {
    let guarded = Guarded::new(&users("publish = [\"a\"]"));
    run(async {
        let mut client = connect(&guarded.server).await;
        let record = publish("a", vec![0; 1_000]).record.unwrap();
        let (subject, records) = ("a".to_owned(), vec![record; 100]);
        let message = v1::PublishStreamRequest { subject, records, ..Default::default() };
        let messages = as_ana(tokio_stream::once(message));
        let call = async move { client.publish_stream(messages).await?.into_inner().message().await };
        let response = revoke_during(&guarded, call).await.unwrap().unwrap();
        let last = response.refused.last().unwrap();
        assert_eq!((last.index, last.refusal.as_ref().unwrap().name.as_str()), (99, "FORBIDDEN"));
    });
}

#[test]
fn pending_grpc_request_ends_when_its_user_is_removed() {
    let guarded = Guarded::new(&users("publish = [\"svc\"]"));
    let mut service = guarded.by_password("root").subscribe("svc", SubscribeOptions::default()).unwrap();
    run(async {
        let mut client = connect(&guarded.server).await;
        let v1::PublishRequest { subject, record, .. } = publish("svc", "x");
        let hour_ms = Duration::from_secs(3_600).as_millis() as u32;
        let request = as_ana(v1::RequestRequest { subject, record, timeout_ms: hour_ms });
        let requester = tokio::spawn(async move { client.request(request).await });
        let received_text = tokio::task::spawn_blocking(move || {
            while !matches!(service.next_timeout(PATIENCE), Ok(Some(dunlin::topic::Event::Record(_)))) {}
        });
        received_text.await.unwrap();
        guarded.rewrite(ROOT);
        let ended = requester.await.unwrap().unwrap_err();
        assert_eq!(ended.code(), Code::Unauthenticated, "{ended:?}");
    });
}

#[test]
fn refusal_of_a_lock_wait_does_not_close_the_connection() {
    let guarded = Guarded::new(&users("keys = [\"*\"]"));
    let root = guarded.by_password("root").kv();
    let held = root.lease(PATIENCE).unwrap();
    let lock = root.lock("gate", &held, b"").unwrap();
    let kv = guarded.by_password("ana").kv();
    let lease = kv.lease(PATIENCE).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| kv.lock("gate", &lease, b"").map(drop));
        until("ana waits", || count_waits(&guarded) == 1);
        guarded.rewrite(&users("keys = [\"a/*\"]"));
        assert_eq!(waiting.join().unwrap().unwrap_err().code(), Some(ErrorCode::Forbidden));
    });
    kv.put("a/1", "still connected").unwrap();
    // After the permission is granted again, the client can wait for the lock again.
    guarded.rewrite(&users("keys = [\"*\"]"));
    lock.release().unwrap();
    kv.lock("gate", &lease, b"").unwrap().release().unwrap();
}
