use dunlin::topic::{Event, Start, Subscribe, SubscribeOptions};
use serde_json::json;

use super::{Stage, short};

#[test]
fn probes_say_that_all_is_well() {
    let stage = Stage::new();
    for (path, name) in [("/healthz", "alive"), ("/readyz", "ready"), ("/startupz", "started")] {
        let answer = stage.get(path);
        assert_eq!((answer.status, answer.json()), (200, json!({name: true, "missing": []})), "{path}");
    }
    assert!(stage.get("/").text().contains("/metrics"));
}

#[test]
fn the_slowest_subscriptions_come_first_with_why() {
    let stage = Stage::new();
    stage.node.create_topic("t", short(), false).unwrap();
    stage.publish("t", b"x");
    let options = |name: &str| SubscribeOptions {
        name: name.to_owned(),
        start: Start::Earliest,
        ..SubscribeOptions::default()
    };
    let mut lost = stage.node.subscribe("t", &options("lost")).unwrap();
    // It has read all that there is.
    let mut quick = stage.events("/v1/topics/t/events?from=earliest&name=quick", &[]);
    quick.records(1);
    for _ in 0..5_000 {
        stage.publish("t", &[b'x'; 100]);
    }
    while let Some(event) = lost.try_next().unwrap() {
        let _: Event<'_> = event;
    }
    let asleep = stage.node.subscribe("t", &options("asleep")).unwrap();
    let behind = asleep.behind();
    let find = |name: &str| {
        let all = stage.get("/v1/subscriptions?sort=lag").json();
        assert_eq!(all["total"], 3, "{all}");
        all["subscriptions"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone()
    };
    let seen = find("asleep");
    assert_eq!(
        (&seen["topic"], &seen["door"], &seen["lag"]),
        (&json!("t"), &json!("in process"), &json!(behind))
    );
    assert_eq!(seen["why"], format!("{behind} records lie ahead of it"));
    let seen = find("lost");
    assert_eq!((&seen["lag"], seen["lost"].as_u64() > Some(4_000)), (&json!(0), true), "{seen}");
    let why = seen["why"].as_str().unwrap();
    assert!(why.starts_with("it has read everything; it lost "), "{why}");
    assert!(seen["lost_at"].is_string() && seen["lagging_at"].is_string(), "{seen}");
    assert_eq!(find("quick")["door"], "http");
    assert_eq!(stage.get("/v1/subscriptions?limit=1").json()["subscriptions"].as_array().unwrap().len(), 1);
}
