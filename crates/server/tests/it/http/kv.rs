use dunlin::Config;
use serde_json::{Value, json};

use super::{Answer, HttpServer};

fn ask(stage: &HttpServer, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    stage.peer().request(method, path, headers, body.as_bytes())
}

#[test]
fn http_key_is_put_read_swapped_and_deleted() {
    let stage = HttpServer::new();
    let put = ask(&stage, "PUT", "/v1/kv/config/limit", &[], "100");
    assert_eq!((put.status, put.json()), (200, json!({"revision": 1, "keys": 1})));
    let got = stage.get("/v1/kv/config/limit");
    assert_eq!((got.status, got.body.as_slice(), got.header("etag")), (200, &b"100"[..], Some("\"1\"")));
    let moved = ask(&stage, "PUT", "/v1/kv/config/limit", &[("if-match", "\"7\"")], "200");
    assert_eq!((moved.status, moved.code().as_str()), (412, "KEY_MOVED"));
    assert_eq!(ask(&stage, "PUT", "/v1/kv/config/limit", &[("if-match", "\"1\"")], "200").status, 200);
    assert_eq!(ask(&stage, "PUT", "/v1/kv/config/limit", &[("if-none-match", "*")], "300").status, 412);
    assert_eq!(ask(&stage, "DELETE", "/v1/kv/config/limit", &[("if-match", "1")], "").status, 412);
    let deleted = ask(&stage, "DELETE", "/v1/kv/config/limit", &[], "");
    assert_eq!(deleted.json(), json!({"revision": 3, "keys": 1}));
    let missing = stage.get("/v1/kv/config/limit");
    let advice = missing.json()["advice"].to_string();
    assert!(missing.status == 404 && advice.contains("lists all keys"), "{advice}");
    assert_eq!(ask(&stage, "PUT", "/v1/kv/a", &[("if-match", "often")], "").status, 400);
}

#[test]
fn http_ranges_are_paged_and_binary_values_are_base64() {
    let stage = HttpServer::new();
    for number in 0..25 {
        ask(&stage, "PUT", &format!("/v1/kv/k/{number:02}"), &[], "v");
    }
    stage.peer().request("PUT", "/v1/kv/l", &[], b"\xff");
    let (mut after, mut keys) = (String::new(), Vec::new());
    loop {
        let page = stage.get(&format!("/v1/kv?prefix=k/&limit=10&after={after}")).json();
        let entries = page["entries"].as_array().unwrap();
        keys.extend(entries.iter().map(|entry| entry["key"].as_str().unwrap().to_owned()));
        after = keys.last().unwrap().clone();
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(keys, (0..25).map(|number| format!("k/{number:02}")).collect::<Vec<_>>());
    let all = stage.get("/v1/kv?start=l&stale").json();
    // A watch can continue from the listed epoch and revision.
    let id = format!("{}-{}", all["epoch"], all["revision"]);
    ask(&stage, "PUT", "/v1/kv/m", &[], "later");
    let mut watch = stage.events("/v1/watch", &[("last-event-id", &id)]);
    assert_eq!(watch.next().unwrap().id, format!("{}-27", all["epoch"]));
    assert_eq!((&all["entries"][0]["value_base64"], &all["revision"]), (&json!("/w=="), &json!(26)));
}

#[test]
fn http_txn_runs_exactly_one_branch() {
    let stage = HttpServer::new();
    let transaction = json!({
        "compare": [{"key": "a", "modified": 0}],
        "then": [{"put": {"key": "a", "value": "1"}}, {"get": {"key": "a"}}],
        "else": [{"range": {"start": ""}}, {"delete": {"key": "a"}}],
    });
    let first = ask(&stage, "POST", "/v1/kv", &[], &transaction.to_string()).json();
    assert_eq!((&first["succeeded"], &first["results"][0]["keys"]), (&json!(true), &json!(1)));
    assert_eq!(first["results"][1]["entries"][0]["value"], "1");
    let second = ask(&stage, "POST", "/v1/kv", &[], &transaction.to_string()).json();
    assert_eq!((&second["succeeded"], &second["results"][1]["keys"]), (&json!(false), &json!(1)));
    assert_eq!(ask(&stage, "POST", "/v1/kv", &[], r#"{"then": [{"dance": {}}]}"#).status, 400);
}

#[test]
fn http_watch_resumes_after_the_last_event_id() {
    let stage = HttpServer::new();
    for value in ["1", "2", "3"] {
        ask(&stage, "PUT", "/v1/kv/a", &[], value);
    }
    ask(&stage, "PUT", "/v1/kv/b", &[], "other");
    let mut events = stage.events("/v1/watch?prefix=a&from=2", &[]);
    let told = events.next().unwrap();
    let change: Value = serde_json::from_str(&told.data).unwrap();
    let epoch = epoch(&stage);
    let id = |revision| format!("{epoch}-{revision}");
    assert_eq!((&told.id, &change["events"][0]["value"]), (&id(2), &json!("2")));
    assert_eq!(events.next().unwrap().id, id(3));
    let mut events = stage.events("/v1/watch", &[("last-event-id", &id(3))]);
    assert_eq!(events.next().unwrap().id, id(4));
    ask(&stage, "DELETE", "/v1/kv/a", &[], "");
    let change: Value = serde_json::from_str(&events.next().unwrap().data).unwrap();
    assert_eq!(change, json!({"revision": 5, "events": [{"type": "delete", "key": "a"}]}));
    assert_eq!(stage.get("/v1/watch?from=99").status, 416);
    assert_eq!(stage.events(&format!("/v1/watch?from={}", id(2)), &[]).next().unwrap().id, id(2));
    // The position is sent before the first event.
    let mut quiet = stage.events("/v1/watch?prefix=c", &[]);
    let began = [quiet.block().unwrap(), quiet.block().unwrap()];
    assert_eq!(began, [": watching".to_owned(), format!("id: {}", id(5))]);
    for (path, id) in
        [("/v1/watch", "3"), ("/v1/watch", "often"), ("/v1/watch?from=3-", ""), ("/v1/watch?from=0", "")]
    {
        let headers = [("last-event-id", id)];
        let answer = ask(&stage, "GET", path, &headers, "");
        assert_eq!(answer.status, 400, "{path} {id}: {answer:?}");
    }
}

fn epoch(stage: &HttpServer) -> u32 {
    stage.node.control().unwrap().with(dunlin::state::ControlState::epoch).unwrap()
}

#[test]
fn http_watch_from_an_old_epoch_ends_as_compacted() {
    let before = HttpServer::new();
    ask(&before, "PUT", "/v1/kv/a", &[], "1");
    let told = before.events("/v1/watch?from=1", &[]).next().unwrap();
    drop(before);
    // This server represents the same node after a restart without a data directory. It reaches the last revision that
    // the client has seen, but in a new epoch.
    let after = HttpServer::new();
    for value in ["x", "y", "z"] {
        ask(&after, "PUT", "/v1/kv/a", &[], value);
    }
    assert_ne!(told.id, format!("{}-1", epoch(&after)));
    for (path, headers) in [
        ("/v1/watch".to_owned(), vec![("last-event-id", told.id.as_str())]),
        (format!("/v1/watch?from={}", told.id), vec![]),
    ] {
        let end = after.events(&path, &headers).next().unwrap();
        assert_eq!(end.event, "end", "{path}");
        assert!(end.data.contains("COMPACTED") && end.data.contains("started again"), "{}", end.data);
    }
}

#[test]
fn http_watch_from_a_removed_revision_names_the_oldest_revision() {
    let mut config = Config::default();
    config.limits.control.history_bytes = 64 << 10;
    let stage = HttpServer::of(dunlin::Node::start(config).unwrap(), |_| ());
    let big = "x".repeat(2_000);
    for _ in 0..200 {
        ask(&stage, "PUT", "/v1/kv/a", &[], &big);
    }
    let told = stage.events("/v1/watch?from=3", &[]).next().unwrap();
    let end: Value = serde_json::from_str(&told.data).unwrap();
    assert_eq!((told.event.as_str(), &end["title"]), ("end", &json!("COMPACTED")));
    let oldest = end["numbers"]["the_oldest_revision_held"].as_u64().unwrap();
    let first = stage.events(&format!("/v1/watch?from={oldest}"), &[]).next().unwrap();
    assert_eq!(first.id, format!("{}-{oldest}", epoch(&stage)));
}

#[test]
fn leases_and_locks_are_granted_renewed_and_released() {
    let stage = HttpServer::new();
    let granted = ask(&stage, "POST", "/v1/leases", &[], r#"{"ttl_ms": 60000}"#);
    assert_eq!(granted.status, 201);
    let lease = granted.json()["lease"].as_u64().unwrap();
    let other =
        ask(&stage, "POST", "/v1/leases", &[], r#"{"ttl_ms": 60000}"#).json()["lease"].as_u64().unwrap();
    let token =
        ask(&stage, "PUT", &format!("/v1/locks/gate?lease={lease}"), &[], "us").json()["token"].clone();
    let held = ask(&stage, "PUT", &format!("/v1/locks/gate?lease={other}"), &[], "them");
    assert_eq!((held.status, held.code().as_str()), (409, "LOCK_HELD"));
    let holder = stage.get("/v1/locks/gate").json();
    assert_eq!((&holder["value"], &holder["created"]), (&json!("us"), &token));
    assert_eq!(ask(&stage, "PUT", &format!("/v1/leases/{lease}"), &[], "").status, 204);
    assert_eq!(stage.get(&format!("/v1/leases/{lease}")).json()["keys"], 1);
    assert_eq!(ask(&stage, "DELETE", &format!("/v1/locks/gate?lease={lease}"), &[], "").status, 204);
    let next = ask(&stage, "PUT", &format!("/v1/locks/gate?lease={other}&wait"), &[], "them").json();
    assert!(next["token"].as_u64() > token.as_u64());
    assert_eq!(ask(&stage, "DELETE", &format!("/v1/leases/{other}"), &[], "").status, 204);
    assert_eq!(stage.get("/v1/locks/gate").status, 404);
    let gone = ask(&stage, "PUT", &format!("/v1/leases/{other}"), &[], "");
    assert_eq!((gone.status, gone.code().as_str()), (404, "NO_LEASE"));
}

#[test]
fn large_keys_and_values_and_system_keys_are_refused() {
    let stage = HttpServer::new();
    let long = format!("/v1/kv/{}", "k".repeat(5_000));
    let refused = ask(&stage, "PUT", &long, &[], "");
    assert_eq!((refused.status, refused.code().as_str()), (413, "KEY_TOO_LARGE"));
    let refused = ask(&stage, "PUT", "/v1/kv/a", &[], &"v".repeat((1 << 20) + 1));
    assert_eq!((refused.status, refused.code().as_str()), (413, "KEY_TOO_LARGE"));
    // If the body's length is announced, the body must be refused before it is sent.
    let mut peer = stage.peer();
    peer.head("PUT", "/v1/kv/a", &[("content-length", &((16 << 20) + 1).to_string())]);
    let refused = peer.answer();
    let numbers = json!({"size": (16 << 20) + 1, "size_allowed": 16 << 20});
    assert_eq!((refused.status, refused.code().as_str()), (413, "KEY_TOO_LARGE"));
    assert_eq!(refused.json()["numbers"], numbers);
    assert_eq!(ask(&stage, "PUT", "/v1/kv/a", &[], "1").status, 200);
    let moved = ask(&stage, "PUT", "/v1/kv/a", &[("if-match", "7")], "2").json();
    assert_eq!(moved["numbers"], json!({"the_revision_that_last_wrote_the_key": 1}));
    let refused = ask(&stage, "PUT", "/v1/kv/$lock/gate", &[], "");
    assert_eq!((refused.status, refused.code().as_str()), (400, "BAD_KEY"));
}

#[test]
fn cluster_metrics_appear_when_the_node_is_a_member() {
    let stage = HttpServer::new();
    assert!(!stage.get("/metrics").text().contains("dunlin_raft_"));
    ask(&stage, "PUT", "/v1/kv/a", &[], "1");
    let answer = stage.get("/metrics");
    let lines: Vec<&str> = answer.text().lines().collect();
    for line in
        ["dunlin_raft_leader 1", "dunlin_raft_voters 1", "dunlin_control_revision 1", "dunlin_control_keys 1"]
    {
        assert!(lines.contains(&line), "{line} in {lines:?}");
    }
}
