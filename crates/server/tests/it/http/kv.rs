use dunlin::Config;
use dunlin::state::ControlCommand;
use dunlin_wait::until;
use serde_json::{Value, json};

use super::{HttpResponse, HttpServer};
use crate::memory::charge_all_but;

fn send(
    fixture: &HttpServer,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpResponse {
    fixture.peer().request(method, path, headers, body.as_bytes())
}

#[test]
fn http_client_puts_reads_swaps_and_deletes_a_key() {
    let fixture = HttpServer::new();
    let put = send(&fixture, "PUT", "/v1/kv/config/limit", &[], "100");
    assert_eq!((put.status, put.json()), (200, json!({"revision": 1, "keys": 1})));
    let got = fixture.get("/v1/kv/config/limit");
    assert_eq!((got.status, got.body.as_slice(), got.header("etag")), (200, &b"100"[..], Some("\"1\"")));
    let moved = send(&fixture, "PUT", "/v1/kv/config/limit", &[("if-match", "\"7\"")], "200");
    assert_eq!((moved.status, moved.code().as_str()), (412, "KEY_MOVED"));
    assert_eq!(send(&fixture, "PUT", "/v1/kv/config/limit", &[("if-match", "\"1\"")], "200").status, 200);
    assert_eq!(send(&fixture, "PUT", "/v1/kv/config/limit", &[("if-none-match", "*")], "300").status, 412);
    assert_eq!(send(&fixture, "DELETE", "/v1/kv/config/limit", &[("if-match", "1")], "").status, 412);
    let deleted = send(&fixture, "DELETE", "/v1/kv/config/limit", &[], "");
    assert_eq!(deleted.json(), json!({"revision": 3, "keys": 1}));
    let missing = fixture.get("/v1/kv/config/limit");
    let advice = missing.json()["advice"].to_string();
    assert!(missing.status == 404 && advice.contains("lists all keys"), "{advice}");
    assert_eq!(send(&fixture, "PUT", "/v1/kv/a", &[("if-match", "often")], "").status, 400);
}

#[test]
fn http_key_ranges_are_paged_and_binary_values_are_base64() {
    let fixture = HttpServer::new();
    for number in 0..25 {
        send(&fixture, "PUT", &format!("/v1/kv/k/{number:02}"), &[], "v");
    }
    fixture.peer().request("PUT", "/v1/kv/l", &[], b"\xff");
    let (mut after, mut keys) = (String::new(), Vec::new());
    loop {
        let page = fixture.get(&format!("/v1/kv?prefix=k/&limit=10&after={after}")).json();
        let entries = page["entries"].as_array().unwrap();
        keys.extend(entries.iter().map(|entry| entry["key"].as_str().unwrap().to_owned()));
        after = keys.last().unwrap().clone();
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(keys, (0..25).map(|number| format!("k/{number:02}")).collect::<Vec<_>>());
    let all = fixture.get("/v1/kv?start=l&stale").json();
    // A watch that resumes from the listed epoch and revision must receive the next change.
    let id = format!("{}-{}", all["epoch"], all["revision"]);
    send(&fixture, "PUT", "/v1/kv/m", &[], "later");
    let mut watch = fixture.events("/v1/watch", &[("last-event-id", &id)]);
    assert_eq!(watch.next().unwrap().id, format!("{}-27", all["epoch"]));
    assert_eq!((&all["entries"][0]["value_base64"], &all["revision"]), (&json!("/w=="), &json!(26)));
}

#[test]
fn http_txn_runs_exactly_one_branch() {
    let fixture = HttpServer::new();
    let transaction = json!({
        "compare": [{"key": "a", "modified": 0}],
        "then": [{"put": {"key": "a", "value": "1"}}, {"get": {"key": "a"}}],
        "else": [{"range": {"start": ""}}, {"delete": {"key": "a"}}],
    });
    let first = send(&fixture, "POST", "/v1/kv", &[], &transaction.to_string()).json();
    assert_eq!((&first["succeeded"], &first["results"][0]["keys"]), (&json!(true), &json!(1)));
    assert_eq!(first["results"][1]["entries"][0]["value"], "1");
    let second = send(&fixture, "POST", "/v1/kv", &[], &transaction.to_string()).json();
    assert_eq!((&second["succeeded"], &second["results"][1]["keys"]), (&json!(false), &json!(1)));
    assert_eq!(send(&fixture, "POST", "/v1/kv", &[], r#"{"then": [{"dance": {}}]}"#).status, 400);
}

#[test]
fn large_http_results_of_key_requests_count_towards_the_budget() {
    let fixture = HttpServer::new();
    assert_eq!(send(&fixture, "PUT", "/v1/kv/k", &[], &"v".repeat(100 << 10)).status, 200);
    let transaction = json!({"then": [{"get": {"key": "k"}}]}).to_string();
    let lease =
        send(&fixture, "POST", "/v1/leases", &[], r#"{"ttl_ms": 600000}"#).json()["lease"].to_string();
    // The value that the lock stores consists of quotation marks, each of which takes two bytes in JSON. The response
    // is therefore about twice as large as the value.
    let path = format!("/v1/locks/gate?lease={lease}");
    assert_eq!(send(&fixture, "PUT", &path, &[], &"\"".repeat(60 << 10)).status, 200);
    for (method, path, content, code) in [
        ("POST", "/v1/kv", transaction.as_str(), "COMMAND_UNKNOWN"),
        ("GET", "/v1/kv?prefix=k", "", "BUDGET_SPENT"),
        ("GET", "/v1/kv/k", "", "BUDGET_SPENT"),
        ("GET", "/v1/locks/gate", "", "BUDGET_SPENT"),
    ] {
        // The request is repeated, because the memory of earlier requests may be released late, and then leave room for
        // the result.
        until("a result is refused", || {
            let _rest = charge_all_but(&fixture.node, 50 << 10);
            let response = send(&fixture, method, path, &[], content);
            response.status != 200 && response.code() == code
        });
        // The memory for a result must be released after the result is sent. Otherwise, 20 results would not fit.
        let _rest = charge_all_but(&fixture.node, 1 << 20);
        for _ in 0..20 {
            assert_eq!(send(&fixture, method, path, &[], content).status, 200, "{path}");
        }
    }
}

#[test]
fn http_watch_resumes_after_the_last_event_id() {
    let fixture = HttpServer::new();
    for value in ["1", "2", "3"] {
        send(&fixture, "PUT", "/v1/kv/a", &[], value);
    }
    send(&fixture, "PUT", "/v1/kv/b", &[], "other");
    let mut events = fixture.events("/v1/watch?prefix=a&from=2", &[]);
    let event = events.next().unwrap();
    let change: Value = serde_json::from_str(&event.data).unwrap();
    let epoch = epoch(&fixture);
    let id = |revision| format!("{epoch}-{revision}");
    assert_eq!((&event.id, &change["events"][0]["value"]), (&id(2), &json!("2")));
    assert_eq!(events.next().unwrap().id, id(3));
    let mut events = fixture.events("/v1/watch", &[("last-event-id", &id(3))]);
    assert_eq!(events.next().unwrap().id, id(4));
    send(&fixture, "DELETE", "/v1/kv/a", &[], "");
    let change: Value = serde_json::from_str(&events.next().unwrap().data).unwrap();
    assert_eq!(change, json!({"revision": 5, "events": [{"type": "delete", "key": "a"}]}));
    assert_eq!(fixture.get("/v1/watch?from=99").status, 416);
    assert_eq!(fixture.events(&format!("/v1/watch?from={}", id(2)), &[]).next().unwrap().id, id(2));
    // The stream must begin with the present position, before any event.
    let mut quiet = fixture.events("/v1/watch?prefix=c", &[]);
    let began = [quiet.block().unwrap(), quiet.block().unwrap()];
    assert_eq!(began, [": watching".to_owned(), format!("id: {}", id(5))]);
    for (path, id) in
        [("/v1/watch", "3"), ("/v1/watch", "often"), ("/v1/watch?from=3-", ""), ("/v1/watch?from=0", "")]
    {
        let headers = [("last-event-id", id)];
        let response = send(&fixture, "GET", path, &headers, "");
        assert_eq!(response.status, 400, "{path} {id}: {response:?}");
    }
}

fn epoch(fixture: &HttpServer) -> u32 {
    fixture.node.control().unwrap().with(dunlin::state::ControlState::epoch).unwrap()
}

#[test]
fn http_watch_from_an_old_epoch_ends_as_compacted() {
    let before = HttpServer::new();
    send(&before, "PUT", "/v1/kv/a", &[], "1");
    let event = before.events("/v1/watch?from=1", &[]).next().unwrap();
    drop(before);
    // This server stands for the same node after a restart without its data directory. It reaches the revision that the
    // client has seen last, but its epoch differs.
    let after = HttpServer::new();
    for value in ["x", "y", "z"] {
        send(&after, "PUT", "/v1/kv/a", &[], value);
    }
    assert_ne!(event.id, format!("{}-1", epoch(&after)));
    for (path, headers) in [
        ("/v1/watch".to_owned(), vec![("last-event-id", event.id.as_str())]),
        (format!("/v1/watch?from={}", event.id), vec![]),
    ] {
        let end = after.events(&path, &headers).next().unwrap();
        assert_eq!(end.event, "end", "{path}");
        assert!(end.data.contains("COMPACTED") && end.data.contains("started again"), "{}", end.data);
    }
}

#[test]
fn http_watch_finds_a_change_after_many_changes_of_other_keys() {
    let fixture = HttpServer::new();
    let put = |key: &str| {
        let command = ControlCommand::Put { key: key.as_bytes(), value: b"1", lease: 0 };
        dunlin::block_on(fixture.node.execute(&command)).unwrap();
    };
    // Makes more changes than the node examines in one step.
    (0..3_000).for_each(|_| put("a"));
    put("b");
    let mut events = fixture.events("/v1/watch?prefix=b&from=oldest", &[]);
    assert_eq!(events.next().unwrap().json()["revision"], 3_001);
    put("a");
    put("b");
    assert_eq!(events.next().unwrap().json()["revision"], 3_003);
}

#[test]
fn error_for_a_compacted_http_watch_names_the_oldest_revision() {
    let mut config = Config::default();
    config.limits.control.history_bytes = 64 << 10;
    let fixture = HttpServer::of(dunlin::Node::start(config).unwrap(), |_| ());
    let big = "x".repeat(2_000);
    for _ in 0..200 {
        send(&fixture, "PUT", "/v1/kv/a", &[], &big);
    }
    let event = fixture.events("/v1/watch?from=3", &[]).next().unwrap();
    let end: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!((event.event.as_str(), &end["title"]), ("end", &json!("COMPACTED")));
    let oldest = end["numbers"]["the_oldest_revision_held"].as_u64().unwrap();
    let first = fixture.events(&format!("/v1/watch?from={oldest}"), &[]).next().unwrap();
    assert_eq!(first.id, format!("{}-{oldest}", epoch(&fixture)));
}

#[test]
fn leases_and_locks_are_granted_renewed_and_released() {
    let fixture = HttpServer::new();
    let granted = send(&fixture, "POST", "/v1/leases", &[], r#"{"ttl_ms": 60000}"#);
    assert_eq!(granted.status, 201);
    let lease = granted.json()["lease"].as_u64().unwrap();
    let other =
        send(&fixture, "POST", "/v1/leases", &[], r#"{"ttl_ms": 60000}"#).json()["lease"].as_u64().unwrap();
    let token =
        send(&fixture, "PUT", &format!("/v1/locks/gate?lease={lease}"), &[], "us").json()["token"].clone();
    let held = send(&fixture, "PUT", &format!("/v1/locks/gate?lease={other}"), &[], "them");
    assert_eq!((held.status, held.code().as_str()), (409, "LOCK_HELD"));
    let holder = fixture.get("/v1/locks/gate").json();
    assert_eq!((&holder["value"], &holder["created"]), (&json!("us"), &token));
    assert_eq!(send(&fixture, "PUT", &format!("/v1/leases/{lease}"), &[], "").status, 204);
    assert_eq!(fixture.get(&format!("/v1/leases/{lease}")).json()["keys"], 1);
    assert_eq!(send(&fixture, "DELETE", &format!("/v1/locks/gate?lease={lease}"), &[], "").status, 204);
    let next = send(&fixture, "PUT", &format!("/v1/locks/gate?lease={other}&wait"), &[], "them").json();
    assert!(next["token"].as_u64() > token.as_u64());
    assert_eq!(send(&fixture, "DELETE", &format!("/v1/leases/{other}"), &[], "").status, 204);
    assert_eq!(fixture.get("/v1/locks/gate").status, 404);
    let gone = send(&fixture, "PUT", &format!("/v1/leases/{other}"), &[], "");
    assert_eq!((gone.status, gone.code().as_str()), (404, "NO_LEASE"));
}

#[test]
fn large_keys_and_values_and_system_keys_are_refused() {
    let fixture = HttpServer::new();
    let long = format!("/v1/kv/{}", "k".repeat(5_000));
    let refused = send(&fixture, "PUT", &long, &[], "");
    assert_eq!((refused.status, refused.code().as_str()), (413, "KEY_TOO_LARGE"));
    let refused = send(&fixture, "PUT", "/v1/kv/a", &[], &"v".repeat((1 << 20) + 1));
    assert_eq!((refused.status, refused.code().as_str()), (413, "KEY_TOO_LARGE"));
    // The head announces the body's length. The node must refuse the request without waiting for the body.
    let mut peer = fixture.peer();
    peer.head("PUT", "/v1/kv/a", &[("content-length", &((16 << 20) + 1).to_string())]);
    let refused = peer.read_response();
    let numbers = json!({"size": (16 << 20) + 1, "size_allowed": 16 << 20});
    assert_eq!((refused.status, refused.code().as_str()), (413, "KEY_TOO_LARGE"));
    assert_eq!(refused.json()["numbers"], numbers);
    assert_eq!(send(&fixture, "PUT", "/v1/kv/a", &[], "1").status, 200);
    let moved = send(&fixture, "PUT", "/v1/kv/a", &[("if-match", "7")], "2").json();
    assert_eq!(moved["numbers"], json!({"the_revision_that_last_wrote_the_key": 1}));
    let refused = send(&fixture, "PUT", "/v1/kv/$lock/gate", &[], "");
    assert_eq!((refused.status, refused.code().as_str()), (400, "BAD_KEY"));
}

#[test]
fn cluster_metrics_appear_when_the_node_is_a_member() {
    let fixture = HttpServer::new();
    assert!(!fixture.get("/metrics").text().contains("dunlin_raft_"));
    send(&fixture, "PUT", "/v1/kv/a", &[], "1");
    let response = fixture.get("/metrics");
    let lines: Vec<&str> = response.text().lines().collect();
    for line in
        ["dunlin_raft_leader 1", "dunlin_raft_voters 1", "dunlin_control_revision 1", "dunlin_control_keys 1"]
    {
        assert!(lines.contains(&line), "{line} in {lines:?}");
    }
}
