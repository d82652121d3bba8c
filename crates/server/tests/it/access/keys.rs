//! Tests permissions for keys over all protocols. The user `ana` may use all keys and locks below `a/`, except keys
//! that begin with `a/secret`.

use dunlin_client::state::{
    Compare, ComparedProperty, Comparison, ControlCommand, ControlQuery, ControlQueryResult, KeyOperation,
    NOT_SHOWN,
};
use dunlin_client::topic::{OnGap, Start, SubscribeError, SubscribeOptions};
use dunlin_client::{
    Client, Credentials, ErrorCode, Group, GroupKind, GroupOptions, KeyChange, Kv, KvError, Transaction,
    Watch, WatchError, WatchFrom,
};
use dunlin_server::Protocol;
use dunlin_server::grpc::proto::dunlin as v1;
use serde_json::{Value, json};
use tonic::{Code, Request};

use super::{Guarded, PASSWORD, PATIENCE, TOKEN, authorized, basic, bearer, request_of};
use crate::grpc::kv::{connect_kv, put, refused};
use crate::grpc::{connect, run};
use crate::http::peer::Peer as HttpPeer;

const USERS: &str = "[users.ana]\npassword = \"HASH\"\ntokens = [\"DIGEST\"]\nkeys = [\"a/*\", \"$lock/a/*\"]\n\
                     keys_deny = [\"a/secret*\"]\n\
                     [users.root]\npassword = \"HASH\"\nkeys = [\"*\"]\n\
                     [users.guest]\npassword = \"HASH\"\nsubscribe = [\">\"]\n";

fn kv_of(guarded: &Guarded, user: &str) -> Kv {
    guarded.by_password(user).kv()
}

fn forbidden<T: std::fmt::Debug>(result: Result<T, KvError>) {
    match result {
        Err(error) => assert_eq!(error.code(), Some(ErrorCode::Forbidden), "{error:?}"),
        other => panic!("{other:?}"),
    }
}

/// Returns the next change of a watch as text: its revision, followed by each key with its value. A deleted key has a
/// minus sign instead.
fn next_change(watch: &mut Watch) -> String {
    let change = watch.next_timeout(PATIENCE).unwrap().expect("a change");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let event = |event: &KeyChange| match event {
        Ok(entry) => format!("{}={}", text(&entry.key), text(&entry.value)),
        Err(key) => format!("-{}", text(key)),
    };
    format!("{} {}", change.revision, change.events.iter().map(event).collect::<Vec<_>>().join(" "))
}

/// Writes five revisions: some with keys that `ana` may read, some with other keys, and one with both.
fn write_all(root: &Kv) {
    root.put("a/1", "seen").unwrap();
    root.put("a/secret", "hidden").unwrap();
    root.put("b/1", "hidden").unwrap();
    root.batch(&[(b"b/2", b"hidden"), (b"a/2", b"both"), (b"a/secret", b"hidden")]).unwrap();
    root.delete("a/1").unwrap();
}

#[test]
fn tcp_user_reaches_only_its_permitted_keys() {
    let guarded = Guarded::new(USERS);
    let (root, ana, guest) = (kv_of(&guarded, "root"), kv_of(&guarded, "ana"), kv_of(&guarded, "guest"));
    root.put("b/1", "x").unwrap();
    ana.put("a/1", "x").unwrap();
    assert_eq!(ana.get("a/1").unwrap().unwrap().version, 1);
    ana.cas("a/1", 2, "y").unwrap();
    assert_eq!(ana.range("a/", "a/s", 0).unwrap().entries.len(), 1);
    ana.transact(&Transaction::new().if_modified_at(b"a/1", 3).delete(b"a/1")).unwrap();
    let lease = ana.lease(std::time::Duration::from_secs(60)).unwrap();
    ana.lock("a/gate", &lease, b"").unwrap().release().unwrap();
    assert_eq!(ana.holder("a/gate").unwrap(), None);

    for denied in ["b/1", "a", "a/secret", "a/secrets", "$lock/b"] {
        forbidden(ana.get(denied));
        forbidden(ana.stale().get(denied));
        forbidden(ana.put(denied, ""));
        forbidden(ana.cas(denied, 0, ""));
        forbidden(ana.delete(denied));
        forbidden(ana.transact(&Transaction::new().put(b"a/1", b"").delete(denied.as_bytes())));
        let compare = Compare {
            key: denied.as_bytes(),
            is: Comparison::Equal,
            target: ComparedProperty::Version { version: 0 },
        };
        let (then, otherwise) = (vec![], vec![KeyOperation::Get { key: b"a/1" }]);
        forbidden(ana.command(&ControlCommand::Transaction { compare: vec![compare], then, otherwise }));
    }
    for (start, end) in [("a/", "a0"), ("", ""), ("a/", "b/2")] {
        forbidden(ana.range(start, end, 0));
        forbidden(ana.delete_range(start, end));
    }
    forbidden(ana.prefix("a/"));
    forbidden(ana.lock("b/gate", &lease, b""));
    forbidden(ana.try_lock("gate", &lease, b""));
    forbidden(ana.holder("gate"));
    forbidden(ana.query(&ControlQuery::Leases { after: 0, limit: 0 }));
    forbidden(ana.command(&ControlCommand::Limit { limits: Default::default() }));
    forbidden(guest.get("a/1"));
    forbidden(guest.command(&ControlCommand::Grant { ttl_ms: 1_000 }));
    forbidden(guest.transact(&Transaction::new()));
    forbidden(guest.batch(&[]));
    ana.transact(&Transaction::new()).unwrap();
    forbidden(guest.revision());
    assert_eq!(root.prefix("").unwrap().len(), 1, "nothing that was refused was done");
}

#[test]
fn user_who_may_only_read_keys_cannot_write_on_any_listener() {
    let guarded = Guarded::new(&format!(
        "{USERS}[users.viewer]\npassword = \"HASH\"\nkeys_read = [\"a/*\", \"$lock/a/*\"]\nkeys_deny = [\"a/secret*\"]\n"
    ));
    let (root, viewer) = (kv_of(&guarded, "root"), kv_of(&guarded, "viewer"));
    let mut watch = viewer.watch("a/1", WatchFrom::Now).unwrap();
    write_all(&root);
    assert_eq!([next_change(&mut watch), next_change(&mut watch)], ["1 a/1=seen", "5 -a/1"]);
    let options = SubscribeOptions { start: Start::Earliest, on_gap: OnGap::Fail, ..Default::default() };
    assert_eq!(raw(&guarded.by_password("viewer"), options, 5), ["1 a/1", "4 a/2", "5 a/1"]);
    assert_eq!(viewer.get("a/2").unwrap().unwrap().value[..], *b"both");
    assert_eq!(viewer.range("a/", "a/s", 0).unwrap().entries.len(), 1);
    assert_eq!(viewer.holder("a/gate").unwrap(), None);

    forbidden(viewer.get("a/secret"));
    forbidden(viewer.get("b/2"));
    forbidden(viewer.put("a/2", ""));
    forbidden(viewer.cas("a/3", 0, ""));
    forbidden(viewer.delete("a/2"));
    forbidden(viewer.delete_range("a/", "a/s"));
    forbidden(viewer.transact(&Transaction::new().put(b"a/2", b"")));
    forbidden(viewer.transact(&Transaction::new()));
    forbidden(viewer.command(&ControlCommand::Grant { ttl_ms: 1_000 }));
    let acquire = ControlCommand::Acquire { name: b"a/gate", lease: 1, value: b"", wait: false };
    forbidden(viewer.command(&acquire));
    let authorization = basic("viewer", PASSWORD);
    for (method, status) in [("GET", 200), ("PUT", 403), ("DELETE", 403)] {
        let response = guarded.http(method, "/v1/kv/a/2", &authorization, b"");
        assert_eq!(response.status, status, "{method}: {response:?}");
    }
    run(async {
        let mut kv = connect_kv(&guarded.server).await;
        let range = v1::RangeRequest { key: "a/2".to_owned().into(), ..Default::default() };
        assert_eq!(kv.range(request_of("viewer", range)).await.unwrap().get_ref().kvs.len(), 1);
        let (code, _) = refused(kv.put(request_of("viewer", put("a/2", ""))).await);
        assert_eq!(code, Code::PermissionDenied);
    });
    assert_eq!(root.get("a/2").unwrap().unwrap().value[..], *b"both", "nothing that was refused was done");
    guarded.rewrite(&format!("{USERS}[users.viewer]\npassword = \"HASH\"\nkeys_read = [\"b/*\"]\n"));
    forbidden(viewer.get("a/2"));
    assert!(viewer.get("b/2").unwrap().is_some());
}

#[test]
fn key_totals_are_shown_only_to_users_who_may_see_all_keys() {
    let guarded = Guarded::new(&format!(
        "{USERS}[users.viewer]\npassword = \"HASH\"\nkeys = [\"v/*\"]\nsurveys = true\n"
    ));
    kv_of(&guarded, "root").put("b/1", "x").unwrap();
    let revision = kv_of(&guarded, "root").revision().unwrap();
    run(async {
        let mut of_grpc = connect_kv(&guarded.server).await;
        for (user, may) in [("ana", false), ("viewer", true), ("root", true)] {
            let kv = kv_of(&guarded, user);
            assert_eq!(kv.revision().unwrap(), revision, "{user}");
            for kv in [kv.clone(), kv.stale()] {
                let ControlQueryResult::Status { keys, bytes, leases, .. } =
                    kv.query(&ControlQuery::Status).unwrap()
                else {
                    panic!()
                };
                assert_eq!([keys, bytes, leases].map(|total| total != NOT_SHOWN), [may; 3], "{user}");
            }
            let status = of_grpc.status(request_of(user, v1::StatusRequest {})).await.unwrap().into_inner();
            assert_eq!((status.epoch, status.revision), revision, "{user}");
            let shown = [status.keys, status.bytes, status.leases].map(|total| total.is_some());
            assert_eq!(shown, [may; 3], "{user}");
        }
    });
}

#[test]
fn tcp_watch_shows_only_the_allowed_keys_of_a_revision() {
    let guarded = Guarded::new(USERS);
    let (root, ana, guest) = (kv_of(&guarded, "root"), kv_of(&guarded, "ana"), kv_of(&guarded, "guest"));
    let mut now = ana.watch("a/1", WatchFrom::Now).unwrap();
    write_all(&root);
    assert_eq!([next_change(&mut now), next_change(&mut now)], ["1 a/1=seen", "5 -a/1"]);
    let (epoch, _) = ana.revision().unwrap();
    let mut past = ana.watch("a/2", WatchFrom::Revision { epoch, revision: 1 }).unwrap();
    assert_eq!(next_change(&mut past), "4 a/2=both");
    for denied in ["", "a/", "a/s", "b/", "a/secret"] {
        let WatchError::Kv(refused) = ana.watch(denied, WatchFrom::Oldest).unwrap_err() else { panic!() };
        assert_eq!(refused.code(), Some(ErrorCode::Forbidden), "{denied}");
    }
    assert!(matches!(guest.watch("a/1", WatchFrom::Now), Err(WatchError::Kv(_))));
    // The topic `$kv` contains all changes. A subscriber must receive only the keys that its user may watch.
    let options = SubscribeOptions { start: Start::Earliest, on_gap: OnGap::Fail, ..Default::default() };
    let received = raw(&guarded.by_password("ana"), options.clone(), 5);
    assert_eq!(received, ["1 a/1", "4 a/2", "5 a/1"], "nothing is missing: what is left out is skipped");
    let received = raw(&guarded.by_password("root"), options.clone(), 5);
    assert_eq!(received.len(), 5);
    let refused = guarded.by_password("guest").subscribe("$kv", options).unwrap_err();
    assert!(matches!(refused, SubscribeError::Forbidden(_)), "{refused:?}");

    // The next users file takes the permission for some keys from `ana`, and grants it for others.
    let mut later = ana.watch("a/x", WatchFrom::Now).unwrap();
    guarded.rewrite(&USERS.replace("\"a/*\",", "\"c/*\", \"a/x2*\","));
    forbidden(ana.put("a/1", ""));
    root.put("a/x1", "hidden").unwrap();
    root.put("a/x2", "seen").unwrap();
    assert_eq!(next_change(&mut later), "7 a/x2=seen");
}

/// Subscribes to the topic `$kv`. Returns the revisions and keys that arrive, up to the revision `last`.
fn raw(client: &Client, options: SubscribeOptions, last: u64) -> Vec<String> {
    use dunlin::topic::{Event, Notice, Subscribe};
    let mut subscriber = client.subscribe("$kv", options).unwrap();
    let mut received = Vec::new();
    loop {
        match subscriber.next_timeout(PATIENCE).unwrap().expect("it goes on") {
            Event::Record(record) => {
                let events = dunlin::state::KeyEvents::new(record.payload()).unwrap();
                let keys = events.map(|event| match event.unwrap() {
                    dunlin::state::KeyEvent::Put { key, .. } | dunlin::state::KeyEvent::Deleted { key } => {
                        String::from_utf8_lossy(key).into_owned()
                    }
                });
                received.push(format!("{} {}", record.seq(), keys.collect::<Vec<_>>().join(" ")));
                if record.seq() == last {
                    return received;
                }
            }
            Event::Notice(Notice::Advance { .. }) => {}
            Event::Notice(notice) => panic!("{notice:?}"),
        }
    }
}

/// A group cannot leave out parts of a record. It must therefore refuse `$kv`, whose records contain changes of all
/// keys. It must also refuse inboxes, because each inbox belongs to one session.
#[test]
fn group_on_an_inbox_or_on_kv_with_unreadable_keys_is_refused() {
    let may = "subscribe = [\">\"]\ngroups = [\">\"]";
    let guarded = Guarded::new(&format!(
        "{USERS}[users.eve]\npassword = \"HASH\"\n{may}\nkeys_read = [\"a/*\"]\n\
         [users.boss]\npassword = \"HASH\"\n{may}\nkeys_read = [\"*\"]\n"
    ));
    kv_of(&guarded, "root").put("b/1", "hidden").unwrap();
    let mut inbox = dunlin::Inbox::new(guarded.node.clone(), 7);
    let inbox = inbox.open().unwrap().name().to_owned();
    let eve = guarded.by_password("eve");
    let join = |client: &Client, topic: &str, kind| {
        let options = GroupOptions { kind, start: Start::Earliest, ..GroupOptions::default() };
        client.join(Group { topic, name: "g" }, options).map(drop)
    };
    for topic in ["$kv", inbox.as_str()] {
        for kind in [GroupKind::Share, GroupKind::Work] {
            let refused = join(&eve, topic, kind);
            assert!(matches!(refused, Err(SubscribeError::Forbidden(_))), "{topic}, {kind:?}: {refused:?}");
        }
        let refused = run(async {
            let join = v1::Join {
                topic: topic.to_owned(),
                group: "g".to_owned(),
                kind: v1::GroupKind::Share.into(),
                ..Default::default()
            };
            let request = Some(v1::join_group_request::Request::Join(join));
            let requests = tokio_stream::iter([v1::JoinGroupRequest { request }]);
            let mut grpc = connect(&guarded.server).await;
            match grpc.join_group(request_of("eve", requests)).await {
                Err(refused) => refused,
                Ok(responses) => responses.into_inner().message().await.unwrap_err(),
            }
        });
        assert_eq!(refused.code(), Code::PermissionDenied, "{topic}: {refused:?}");
    }
    let mut nats = guarded.nats_by_password("eve");
    nats.send_line("SUB $kv g 1");
    let refused = nats.line();
    assert!(refused.starts_with("-ERR 'Permissions Violation for Subscription to \"$kv\""), "{refused}");
    join(&guarded.by_password("boss"), "$kv", GroupKind::Share).unwrap();
}

#[test]
fn http_user_reaches_only_its_permitted_keys() {
    let guarded = Guarded::new(USERS);
    let root = kv_of(&guarded, "root");
    let request = |user: &str, method: &str, path: &str, body: &str| {
        let response = guarded.http(method, path, &basic(user, PASSWORD), body.as_bytes());
        (response.status, response)
    };
    assert_eq!(request("ana", "PUT", "/v1/kv/a/1", "x").0, 200);
    assert_eq!(request("ana", "GET", "/v1/kv/a/1", "").0, 200);
    assert_eq!(request("ana", "GET", "/v1/kv?start=a/&end=a/s", "").0, 200);
    let lease = request("ana", "POST", "/v1/leases", r#"{"ttl_ms":60000}"#).1.json()["lease"].clone();
    assert_eq!(request("ana", "PUT", &format!("/v1/locks/a%2Fgate?lease={lease}"), "").0, 200);
    let mixed = json!({"then": [{"put": {"key": "a/2", "value": ""}}, {"get": {"key": "b/1"}}]}).to_string();
    for (method, path, body) in [
        ("GET", "/v1/kv/b/1", ""),
        ("GET", "/v1/kv/a/secret?stale", ""),
        ("PUT", "/v1/kv/b/1", "x"),
        ("PUT", "/v1/kv/a/secret", "x"),
        ("DELETE", "/v1/kv/b/1", ""),
        ("GET", "/v1/kv?prefix=a/", ""),
        ("GET", "/v1/kv", ""),
        ("POST", "/v1/kv", &mixed),
        ("GET", "/v1/watch", ""),
        ("GET", "/v1/watch?prefix=a/", ""),
        ("GET", "/v1/watch?prefix=b/&from=oldest", ""),
        ("GET", "/v1/locks/gate", ""),
        ("PUT", &format!("/v1/locks/gate?lease={lease}"), ""),
        ("PUT", &format!("/v1/locks/gate?lease={lease}&wait"), ""),
        ("DELETE", &format!("/v1/locks/gate?lease={lease}"), ""),
    ] {
        let (status, response) = request("ana", method, path, body);
        assert_eq!((status, response.code().as_str()), (403, "FORBIDDEN"), "{method} {path}");
    }
    assert_eq!(request("guest", "GET", "/v1/kv/a/1", "").0, 403);
    assert_eq!(request("guest", "POST", "/v1/leases", r#"{"ttl_ms":60000}"#).0, 403);
    let nothing = r#"{"compare":[],"then":[],"else":[]}"#;
    assert_eq!(request("guest", "POST", "/v1/kv", nothing).0, 403);
    assert_eq!(request("ana", "POST", "/v1/kv", nothing).0, 200);
    assert_eq!(root.prefix("a/2").unwrap().len() + root.prefix("b/").unwrap().len(), 0);

    root.batch(&[(b"b/2", b"hidden"), (b"a/1", b"both")]).unwrap();
    let authorization = basic("ana", PASSWORD);
    let headers = [("authorization", authorization.as_str())];
    let mut events =
        HttpPeer::connect(guarded.address(Protocol::Http)).events("/v1/watch?prefix=a/1&from=1", &headers);
    let mut keys = Vec::new();
    for _ in 0..2 {
        let change: Value = serde_json::from_str(&events.next().unwrap().data).unwrap();
        keys.extend(change["events"].as_array().unwrap().iter().map(|event| event["key"].clone()));
    }
    assert_eq!(keys, [json!("a/1"), json!("a/1")]);
    // The watch must end with `FORBIDDEN`, because its user loses the permission for the keys here.
    guarded.rewrite(&USERS.replace("\"a/*\",", "\"c/*\","));
    let end = events.next().unwrap();
    assert_eq!(end.event, "end");
    assert!(end.data.contains("FORBIDDEN"), "{}", end.data);
}

#[test]
fn grpc_user_reaches_only_its_permitted_keys() {
    let guarded = Guarded::new(USERS);
    let root = kv_of(&guarded, "root");
    run(async {
        let mut kv = connect_kv(&guarded.server).await;
        let denied = (Code::PermissionDenied, "FORBIDDEN".to_owned());
        let get = |key: &str| v1::RangeRequest { key: key.to_owned().into(), ..Default::default() };
        let range = |key: &str, end: &str| v1::RangeRequest { range_end: end.to_owned().into(), ..get(key) };
        let watch = |key: &str, end: &str| {
            let (key, range_end) = (key.to_owned().into(), end.to_owned().into());
            v1::WatchRequest { key, range_end, oldest: true, ..Default::default() }
        };
        kv.put(as_ana(put("a/1", "x"))).await.unwrap();
        assert_eq!(kv.range(as_ana(get("a/1"))).await.unwrap().get_ref().kvs.len(), 1);
        assert_eq!(kv.range(as_ana(range("a/", "a/s"))).await.unwrap().get_ref().kvs.len(), 1);
        let grant = v1::LeaseGrantRequest { ttl_ms: 60_000 };
        let lease = kv.lease_grant(as_ana(grant)).await.unwrap().get_ref().lease;
        let lock = |name: &str, no_wait| {
            as_ana(v1::LockRequest { name: name.to_owned().into(), lease, no_wait, ..Default::default() })
        };
        kv.lock(lock("a/gate", false)).await.unwrap();
        for key in ["b/1", "a/secret", "a"] {
            assert_eq!(refused(kv.range(as_ana(get(key))).await), denied);
            assert_eq!(refused(kv.put(as_ana(put(key, ""))).await), denied);
            let delete = v1::DeleteRequest { key: key.to_owned().into(), ..Default::default() };
            assert_eq!(refused(kv.delete(as_ana(delete.clone())).await), denied);
            let request = Some(v1::request_op::Request::Delete(delete));
            let transaction =
                v1::TxnRequest { failure: vec![v1::RequestOp { request }], ..Default::default() };
            assert_eq!(refused(kv.txn(as_ana(transaction)).await), denied);
            assert_eq!(refused(kv.watch(as_ana(watch(key, ""))).await), denied);
        }
        for (key, end) in [("a/", "a0"), ("", "\0")] {
            assert_eq!(refused(kv.range(as_ana(range(key, end))).await), denied);
            assert_eq!(refused(kv.watch(as_ana(watch(key, end))).await), denied);
        }
        assert_eq!(refused(kv.lock(lock("gate", true)).await), denied);
        assert_eq!(refused(kv.lock(lock("gate", false)).await), denied);
        assert_eq!(refused(kv.leader(as_ana(v1::LeaderRequest { name: "gate".into() })).await), denied);
        let unlock = v1::UnlockRequest { name: "gate".into(), lease };
        assert_eq!(refused(kv.unlock(as_ana(unlock)).await), denied);
        kv.txn(as_ana(v1::TxnRequest::default())).await.unwrap();
        let nothing = request_of("guest", v1::TxnRequest::default());
        assert_eq!(refused(kv.txn(nothing).await), denied);
        let (code, _) = refused(kv.range(get("a/1")).await);
        assert_eq!(code, Code::Unauthenticated);

        root.batch(&[(b"b/2", b"hidden"), (b"a/1", b"both")]).unwrap();
        let mut changes = kv.watch(as_ana(watch("a/", "a/s"))).await.unwrap().into_inner();
        let mut received = Vec::new();
        while received.len() < 2 {
            let change = changes.message().await.unwrap().unwrap();
            received.extend(change.events.into_iter().map(|event| event.kv.unwrap().key));
        }
        assert_eq!(received, ["a/1", "a/1"]);
        guarded.rewrite(&USERS.replace("\"a/*\",", "\"c/*\","));
        let ended = loop {
            match changes.message().await {
                Ok(change) => assert!(change.unwrap().events.is_empty()),
                Err(ended) => break ended,
            }
        };
        assert_eq!(ended.code(), Code::PermissionDenied, "{ended:?}");
    });
}

fn as_ana<T>(message: T) -> Request<T> {
    authorized(&bearer(&TOKEN.0), message)
}

#[test]
fn keys_written_over_any_listener_count_towards_tenant_limits() {
    let guarded =
        Guarded::new(&USERS.replace("[users.ana]", "[tenants.acme]\n[users.ana]\ntenant = \"acme\""));
    let counted = || {
        let control = guarded.node.control().unwrap();
        control.with(|state| (state.bytes_of_tenant(b"acme"), state.bytes())).unwrap()
    };
    let grows = |before: u64, listener: &str| {
        let (own, all) = counted();
        assert!(own > before && own == all, "{listener}: {own} of {all}, before {before}");
        own
    };
    let ana_kv = kv_of(&guarded, "ana");
    ana_kv.put("a/1", "tcp").unwrap();
    let mut own = grows(0, "tcp");
    ana_kv.batch(&[(b"a/2", b"transaction")]).unwrap();
    own = grows(own, "transaction");
    let lease = ana_kv.lease(PATIENCE).unwrap();
    let lock = ana_kv.lock("a/gate", &lease, b"").unwrap();
    own = grows(own, "lock");
    assert_eq!(guarded.http("PUT", "/v1/kv/a/3", &basic("ana", PASSWORD), b"http").status, 200);
    own = grows(own, "http");
    run(async {
        let mut kv = connect_kv(&guarded.server).await;
        kv.put(as_ana(put("a/4", "grpc"))).await.unwrap();
    });
    grows(own, "grpc");
    lock.release().unwrap();
    kv_of(&guarded, "root").delete_range("a/", "a0").unwrap();
    assert_eq!(counted(), (0, 0));
}

#[test]
fn token_grants_the_permissions_of_its_user() {
    let guarded = Guarded::new(USERS);
    let kv = guarded.connect(Credentials::token(TOKEN.0.clone())).unwrap().kv();
    kv.put("a/1", "").unwrap();
    forbidden(kv.put("b/1", ""));
}

#[test]
fn leases_from_every_listener_are_counted_for_their_tenant() {
    let guarded =
        Guarded::new(&USERS.replace("[users.ana]", "[tenants.acme]\n[users.ana]\ntenant = \"acme\""));
    let counted = || {
        let control = guarded.node.control().unwrap();
        control.with(|state| state.leases_of_tenant(b"acme")).unwrap()
    };
    let ana_kv = kv_of(&guarded, "ana");
    let lease = ana_kv.lease(PATIENCE).unwrap();
    assert_eq!(counted(), 1);
    let granted = guarded.http("POST", "/v1/leases", &basic("ana", PASSWORD), b"{\"ttl_ms\":600000}");
    assert_eq!((granted.status / 100, counted()), (2, 2), "{granted:?}");
    run(async {
        let mut kv = connect_kv(&guarded.server).await;
        kv.lease_grant(as_ana(v1::LeaseGrantRequest { ttl_ms: 600_000 })).await.unwrap();
    });
    assert_eq!(counted(), 3);
    ana_kv.command(&ControlCommand::Revoke { lease: lease.id() }).unwrap();
    assert_eq!(counted(), 2);
}

#[test]
fn lease_of_another_user_is_not_found_on_any_listener() {
    let guarded =
        Guarded::new(&format!("{USERS}[users.bob]\npassword = \"HASH\"\nkeys = [\"b/*\", \"$lock/b/*\"]\n"));
    let (root, ana, bob) = (kv_of(&guarded, "root"), kv_of(&guarded, "ana"), kv_of(&guarded, "bob"));
    let lease = bob.lease(PATIENCE).unwrap();
    bob.put_with_lease("b/up", "1", lease.id()).unwrap();
    let _lock = bob.lock("b/m", &lease, b"h").unwrap();
    let (foreign, missing) = (lease.id(), lease.id() + 1_000);

    let under = KeyOperation::Put { key: b"a/1", value: b"", lease: foreign };
    for command in [
        ControlCommand::Revoke { lease: foreign },
        ControlCommand::Put { key: b"a/1", value: b"", lease: foreign },
        ControlCommand::PutIf { key: b"a/1", value: b"", lease: foreign, expect: 0 },
        ControlCommand::Transaction { compare: vec![], then: vec![under], otherwise: vec![] },
        ControlCommand::Acquire { name: b"a/x", lease: foreign, value: b"", wait: false },
        ControlCommand::Acquire { name: b"a/x", lease: foreign, value: b"", wait: true },
    ] {
        let refused = ana.command(&command).unwrap_err();
        assert_eq!(refused.code(), Some(ErrorCode::NoLease), "{command:?}");
    }
    for lease in [foreign, missing] {
        for command in [
            ControlCommand::Release { name: b"a/x", lease },
            ControlCommand::Proclaim { name: b"a/x", lease, value: b"" },
        ] {
            let refused = ana.command(&command).unwrap_err();
            assert_eq!(refused.code(), Some(ErrorCode::LockNotHeld), "{command:?}");
        }
    }
    assert_eq!(ana.keep_alive(&[foreign]).unwrap(), [foreign]);
    assert_eq!(ana.lease_state(foreign).unwrap(), None);

    for (method, path) in [
        ("GET", "/v1/leases/LEASE"),
        ("PUT", "/v1/leases/LEASE"),
        ("DELETE", "/v1/leases/LEASE"),
        ("PUT", "/v1/kv/a/1?lease=LEASE"),
        ("PUT", "/v1/locks/a%2Fx?lease=LEASE"),
        ("PUT", "/v1/locks/a%2Fx?lease=LEASE&wait"),
        ("DELETE", "/v1/locks/a%2Fx?lease=LEASE"),
    ] {
        let request = |lease: u64| {
            let path = path.replace("LEASE", &lease.to_string());
            let response = guarded.http(method, &path, &basic("ana", PASSWORD), b"");
            (response.status, response.code())
        };
        let result = request(foreign);
        assert_eq!(result, request(missing), "{method} {path}");
        assert!(result.0 >= 400, "{method} {path}: {result:?}");
    }
    run(async {
        let mut kv = connect_kv(&guarded.server).await;
        let time = |lease| v1::LeaseTimeToLiveRequest { lease };
        let gone = refused(kv.lease_time_to_live(super::keys::as_ana(time(missing))).await);
        assert_eq!(refused(kv.lease_time_to_live(super::keys::as_ana(time(foreign))).await), gone);
        let revoke = v1::LeaseRevokeRequest { lease: foreign };
        assert_eq!(refused(kv.lease_revoke(super::keys::as_ana(revoke)).await), gone);
        let put = v1::PutRequest { lease: foreign, ..put("a/1", "") };
        assert_eq!(refused(kv.put(super::keys::as_ana(put)).await), gone);
        for no_wait in [true, false] {
            let lock = v1::LockRequest { name: "a/x".into(), lease: foreign, no_wait, ..Default::default() };
            assert_eq!(refused(kv.lock(super::keys::as_ana(lock)).await), gone);
        }
    });

    assert!(bob.holder("b/m").unwrap().is_some() && bob.get("b/up").unwrap().is_some());
    assert!(bob.lease_state(foreign).unwrap().is_some());
    root.revoke(foreign).unwrap();
    assert!(bob.holder("b/m").unwrap().is_none() && bob.get("b/up").unwrap().is_none());
}
