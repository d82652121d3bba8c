use std::path::Path;
use std::sync::Arc;

use dunlin::journal::{FakeDisk, Faults, RealDisk};
use dunlin::topic::{
    DurableOptions, Event, Publish, PublishError, Start, Subscribe, SubscribeOptions, TopicConfig,
};
use dunlin::{Config, Node};
use serde_json::json;

use super::{HttpServer, short};

#[test]
fn health_probes_of_a_healthy_node_return_200() {
    let fixture = HttpServer::new();
    for (path, name) in [("/healthz", "alive"), ("/readyz", "ready"), ("/startupz", "started")] {
        let response = fixture.get(path);
        assert_eq!((response.status, response.json()), (200, json!({name: true, "missing": []})), "{path}");
    }
    assert!(fixture.get("/").text().contains("/metrics"));
}

#[test]
fn slowest_subscriptions_are_listed_first_with_a_reason() {
    let fixture = HttpServer::new();
    fixture.node.create_topic("t", short(), false).unwrap();
    fixture.publish("t", b"x");
    let options = |name: &str| SubscribeOptions {
        name: name.to_owned(),
        start: Start::Earliest,
        ..SubscribeOptions::default()
    };
    let mut lost = fixture.node.subscribe("t", &options("lost")).unwrap();
    // The subscriber `quick` reads all records.
    let mut quick = fixture.events("/v1/topics/t/events?from=earliest&name=quick", &[]);
    quick.records(1);
    for _ in 0..5_000 {
        fixture.publish("t", &[b'x'; 100]);
    }
    while let Some(event) = lost.try_next().unwrap() {
        let _: Event<'_> = event;
    }
    let asleep = fixture.node.subscribe("t", &options("asleep")).unwrap();
    let behind = asleep.lag();
    let find = |name: &str| {
        let all = fixture.get("/v1/subscriptions?sort=lag").json();
        assert_eq!(all["total"], 3, "{all}");
        all["subscriptions"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone()
    };
    let received = find("asleep");
    assert_eq!(
        (&received["topic"], &received["protocol"], &received["lag"]),
        (&json!("t"), &json!("in process"), &json!(behind))
    );
    assert_eq!(received["why"], format!("the subscriber is {behind} records behind"));
    let received = find("lost");
    assert_eq!(
        (&received["lag"], received["missed"].as_u64() > Some(4_000)),
        (&json!(0), true),
        "{received}"
    );
    let why = received["why"].as_str().unwrap();
    assert!(why.starts_with("the subscriber has read everything; it missed "), "{why}");
    assert!(received["missed_at"].is_string() && received["lagging_at"].is_string(), "{received}");
    assert_eq!(find("quick")["protocol"], "http");
    assert_eq!(fixture.get("/v1/subscriptions?limit=1").json()["subscriptions"].as_array().unwrap().len(), 1);
}

/// Opens a node whose topic `orders` cannot be opened, because the topic's file is missing.
fn with_refused_topic(dir: &Path) -> Node {
    let open = || Node::open(Config::default(), Arc::new(RealDisk), dir).unwrap().0;
    let node = open();
    let durable = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    node.create_topic("orders", durable, false).unwrap();
    node.publisher("orders").unwrap().publish("x").unwrap();
    node.stop();
    drop(node);
    std::fs::remove_file(dir.join("topics/00000001.topic")).unwrap();
    open()
}

#[test]
fn error_of_a_refused_topic_names_the_reason_and_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = HttpServer::of(with_refused_topic(dir.path()), |_| ());
    let described = fixture.get("/v1/topics/orders");
    assert_eq!((described.status, described.code()), (500, "DISK_FAILED".to_owned()));
    let why = "00000001.topic: the file is missing";
    assert!(described.text().contains(why) && described.text().contains("dunlin topics delete orders"));
    let advice = described.json()["advice"].as_str().unwrap().to_owned();
    assert!(advice.contains("names a topic's files, restore them, or delete the topic"), "{advice}");
    let ready = fixture.get("/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("topic orders") && ready.text().contains(why), "{}", ready.text());
    assert_eq!(fixture.get("/v1/topics/none").code(), "NO_TOPIC");
    let deleted = fixture.peer().request("DELETE", "/v1/topics/orders", &[], b"");
    assert!(deleted.status < 300, "{deleted:?}");
    assert_eq!(fixture.get("/readyz").status, 200);
    assert_eq!(fixture.get("/v1/topics/orders").code(), "NO_TOPIC");
}

#[test]
fn node_is_not_ready_if_the_disk_of_a_topic_failed() {
    let disk = FakeDisk::new(1);
    let (node, _) = Node::open(Config::default(), Arc::new(disk.clone()), Path::new("/data")).unwrap();
    let durable = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    node.create_topic("orders", durable.clone(), false).unwrap();
    node.create_topic("trades", durable, false).unwrap();
    let fixture = HttpServer::of(node.clone(), |_| ());
    assert_eq!(fixture.get("/readyz").status, 200);
    disk.set_faults(Faults { sync_fails: Some(0), ..Faults::default() });
    assert!(matches!(node.publisher("orders").unwrap().publish("x"), Err(PublishError::DiskFailed(_))));
    disk.set_faults(Faults::default());
    let ready = fixture.get("/readyz");
    assert_eq!(ready.status, 503);
    assert!(
        ready.text().contains("topic orders") && ready.text().contains("disk failed"),
        "{}",
        ready.text()
    );
    assert!(!ready.text().contains("trades"), "{}", ready.text());
    node.delete_topic("orders").unwrap();
    assert_eq!(fixture.get("/readyz").status, 200);
}

/// If a node's directory is prepared for a cluster, the node must not be ready before it has started as a member.
#[test]
fn node_that_has_not_joined_its_cluster_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    dunlin_server::cluster::init(dir.path(), "127.0.0.1:1").unwrap();
    let (node, _) = Node::open(Config::default(), Arc::new(RealDisk), dir.path()).unwrap();
    let fixture = HttpServer::of(node, |_| ());
    let put = fixture.peer().request("PUT", "/v1/kv/a", &[], b"1");
    assert_eq!((put.status, put.code()), (503, "NO_CONTROL".to_owned()), "{put:?}");
    let ready = fixture.get("/readyz");
    let missing = ready.json()["missing"].as_array().unwrap().clone();
    assert_eq!((ready.status, missing.len()), (503, 2), "{}", ready.text());
    for (why, part) in missing.iter().zip(["keys: ", "tasks: "]) {
        let why = why.as_str().unwrap();
        assert!(why.starts_with(part) && why.contains("dunlin serve --cluster-listen"), "{why}");
    }
}

#[test]
fn readyz_without_login_hides_names_of_refused_topics() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.toml");
    let password = dunlin_server::access::hash_password(b"correct horse").unwrap();
    std::fs::write(&file, format!("[users.ana]\npassword = \"{password}\"\n")).unwrap();
    let node = with_refused_topic(dir.path());
    let fixture = HttpServer::of(node, |config| config.users_file = Some(file));
    let ready = fixture.get("/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("could not be opened: 1"), "{}", ready.text());
    assert!(!ready.text().contains("orders") && !ready.text().contains("00000001"), "{}", ready.text());
}
