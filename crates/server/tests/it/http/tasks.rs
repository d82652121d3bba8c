//! Tests the HTTP requests for tasks, below `/v1/tasks`.

use dunlin::journal::RealDisk;
use dunlin::{Config, Node};
use serde_json::{Value, json};

use super::{HttpResponse, HttpServer};

fn submit(fixture: &HttpServer, path: &str, tasks: &Value) -> HttpResponse {
    fixture.post(path, &[("content-type", "application/json")], tasks.to_string().as_bytes())
}

fn task(fixture: &HttpServer, submitted: &Value) -> Value {
    fixture.get(&format!("/v1/tasks/{}", submitted["task"].as_str().unwrap())).json()
}

#[test]
fn task_is_submitted_shown_and_cancelled_over_http() {
    let fixture = HttpServer::new();
    let taken = submit(&fixture, "/v1/tasks", &json!({"kind": "thumb", "payload": "a.jpg"}));
    assert_eq!(taken.status, 201, "{taken:?}");
    let submitted = taken.json();
    assert_eq!((&submitted["known"], &submitted["slow_down_ms"]), (&json!(false), &json!(0)));
    let found = task(&fixture, &submitted);
    let as_is = ["tenant", "queue", "kind", "stage"].map(|name| found[name].as_str().unwrap().to_owned());
    assert_eq!(as_is, ["default", "default", "thumb", "ready"]);
    assert_eq!(found["priority"], 5);
    assert!(found["why"].as_str().unwrap().contains("no worker serves kind thumb"), "{found}");
    let path = format!("/v1/tasks/{}", submitted["task"].as_str().unwrap());
    assert_eq!(fixture.peer().request("DELETE", &path, &[], b"").status, 204);
    assert_eq!(task(&fixture, &submitted)["stage"], "cancelled");
    let over = fixture.peer().request("DELETE", &path, &[], b"");
    assert_eq!((over.status, over.code().as_str()), (409, "TASK_OVER"));
}

#[test]
fn many_tasks_with_all_options_are_submitted_together() {
    let fixture = HttpServer::new();
    let now_ms = dunlin::now_ns() / 1_000_000;
    let first = json!({
        "kind": "k", "payload": {"n": [1, 2]}, "queue": "q", "priority": 9, "timeout_ms": 5000,
        "retry": {"retries": 7, "exponential": {"base_ms": 10, "cap_ms": 20}}, "idempotency_key": "once",
        "labels": {"user": "ann"}, "needs": {"gpu": "a100"}, "cpu_milli": 500, "memory_bytes": 1000,
        "not_before_ms": now_ms, "deadline_ms": now_ms + 3_600_000,
    });
    let second = json!({"kind": "k", "payload_base64": "/w==", "after": [0]});
    let publishing = json!({"kind": "publish", "subject": "s", "payload": "p", "after": [1]});
    let taken = submit(&fixture, "/v1/tasks?tenant=acme", &json!([first, second, publishing]));
    assert_eq!(taken.status, 201, "{taken:?}");
    let tasks = taken.json()["tasks"].as_array().unwrap().clone();
    assert_eq!(tasks.len(), 3);
    let found = task(&fixture, &tasks[0]);
    assert_eq!(
        (&found["tenant"], &found["queue"], &found["priority"]),
        (&json!("acme"), &json!("q"), &json!(9))
    );
    assert_eq!((&found["labels"], &found["needs"]), (&json!({"user": "ann"}), &json!(["gpu=a100"])));
    assert_eq!((&found["cpu_milli"], &found["memory_bytes"]), (&json!(500), &json!(1000)));
    assert_eq!(task(&fixture, &tasks[1])["after"], json!([tasks[0]["task"]]));
    let id = u64::from_str_radix(tasks[0]["task"].as_str().unwrap(), 16).unwrap();
    let whole = |task| {
        fixture.node.tasks().unwrap().shards()[0].with(|state| state.get(task).unwrap().payload).unwrap()
    };
    assert_eq!(&*whole(id), br#"{"n":[1,2]}"#);
    let id = u64::from_str_radix(tasks[1]["task"].as_str().unwrap(), 16).unwrap();
    assert_eq!(&*whole(id), b"\xff");
    let again = submit(&fixture, "/v1/tasks?tenant=acme", &first).json();
    assert_eq!((&again["task"], &again["known"]), (&tasks[0]["task"], &json!(true)));
    let by_id = json!({"kind": "k", "after": [tasks[0]["task"]]});
    assert_eq!(submit(&fixture, "/v1/tasks?tenant=acme", &by_id).status, 201);
    let listed = fixture.get("/v1/tasks?tenant=acme&stage=blocked").json();
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 3);
}

#[test]
fn too_long_task_list_is_refused_without_checking_excess_tasks() {
    let fixture = HttpServer::new();
    let list = |more: &str| format!("[{}{more}]", [r#"{"kind":"k"}"#; 10_000].join(","));
    // In the second list, the task beyond the limit is invalid. The node must not read it, and must report the limit.
    for more in [r#",{"kind":"k"}"#, ",{}"] {
        let refused = fixture.post("/v1/tasks", &[], list(more).as_bytes());
        assert_eq!(refused.code(), "LIMIT");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("batch_max"), "{detail}");
    }
    assert_eq!(fixture.post("/v1/tasks", &[], list(",{").as_bytes()).code(), "PROTOCOL");
    assert_eq!(fixture.get("/v1/tasks").json()["tasks"], json!([]));
}

#[test]
fn submitted_list_with_an_invalid_task_is_refused_whole() {
    let fixture = HttpServer::new();
    let refused = |tasks: &str| {
        let response = fixture.post("/v1/tasks", &[], tasks.as_bytes());
        (response.status, response.code())
    };
    let bad = |code: &str| (400, code.to_owned());
    for text in ["", "7", "{", "[{}]", r#"{"kind":"k","colour":1}"#, r#"{"kind":"k","after":[{}]}"#] {
        assert_eq!(refused(text), bad("PROTOCOL"), "{text}");
    }
    let both = r#"{"kind":"k","payload":"a","payload_base64":"YQ=="}"#;
    let waits = r#"{"kind":"k","retry":{"retries":1,"fixed_ms":1,"exponential":{"base_ms":1,"cap_ms":1}}}"#;
    for text in [both, waits, r#"{"kind":"k","payload_base64":"*"}"#, r#"{"kind":"k","after":["zz"]}"#] {
        assert_eq!(refused(text), bad("PROTOCOL"), "{text}");
    }
    for text in
        [r#"{"kind":""}"#, r#"[{"kind":"k"},{"kind":"k","priority":10}]"#, r#"{"kind":"k","after":[0]}"#]
    {
        assert_eq!(refused(text), bad("BAD_TASK"), "{text}");
    }
    let long = "k".repeat(300);
    for (text, message) in [
        (r#"{"kind":"k","priority":-1}"#.to_owned(), "priority -1 is not one of 0 to 9"),
        (r#"{"kind":"k","priority":300}"#.to_owned(), "priority 300 is not one of 0 to 9"),
        (
            format!(r#"{{"kind":"{long}"}}"#),
            "the kind is too long: name_bytes_max = 255, but the size is 300",
        ),
        (r#"{"kind":"k","after":["abc123"]}"#.to_owned(), "waits for task abc123, which is not known"),
    ] {
        let response = fixture.post("/v1/tasks?tenant=acme", &[], text.as_bytes());
        let detail = response.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(message), "{text}: {detail}");
    }
    let response = fixture.post(&format!("/v1/tasks?tenant={long}"), &[], br#"{"kind":"k"}"#);
    let detail = "the tenant is too long: name_bytes_max = 255, but the size is 300";
    assert_eq!(response.json()["detail"], detail);
    assert_eq!(fixture.get("/v1/tasks").json()["tasks"], json!([]));
    assert_eq!(fixture.get("/v1/tasks?state=dead").json()["tasks"], json!([]));
    for name in ["stage", "state"] {
        let refused = fixture.get(&format!("/v1/tasks?{name}=bogus"));
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(
            refused.text().contains(&format!("{name}=bogus: expected one of blocked, delayed,")),
            "{refused:?}"
        );
    }
    assert_eq!(fixture.get("/v1/tasks?stage=dead&state=dead").status, 400);
    assert_eq!(fixture.post("/v1/tasks?colour=red", &[], b"{}").status, 400);
    let strict =
        HttpServer::of(Node::start(Config { auto_create: false, ..Config::default() }).unwrap(), |_| ());
    let unknown = submit(&strict, "/v1/tasks?tenant=nobody", &json!({"kind": "k"}));
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "TENANT_UNKNOWN"));
    assert_eq!(unknown.json()["detail"], "there is no tenant \"nobody\"");
}

#[test]
fn damaged_task_log_returns_an_error_instead_of_an_empty_list() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(
        dir.path().join("tasks/log/0000000001-00000000000000000001-e7bbb6e93abeff84.log"),
    )
    .unwrap();
    let (node, _) = Node::open(Config::default(), std::sync::Arc::new(RealDisk), dir.path()).unwrap();
    let fixture = HttpServer::of(node, |_| ());
    for path in ["/v1/tasks", "/v1/tasks/100000000"] {
        let refused = fixture.get(path);
        assert_eq!((refused.status, refused.code().as_str()), (503, "NO_CONTROL"), "{path}: {refused:?}");
    }
    let cancelled = fixture.peer().request("DELETE", "/v1/tasks/100000000", &[], b"");
    assert_eq!(cancelled.code(), "NO_CONTROL", "{cancelled:?}");
    let ready = fixture.get("/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.json()["missing"][0].as_str().unwrap().starts_with("tasks: "), "{ready:?}");
}
