//! Tests that recordings of a world can be replayed at a node that does not run the world.

use std::process::Stdio;

use super::{Process, wait_for_ticks, wait_for_ticks_in};
use crate::dunlin::{Node, RunningProgram, dunlin, record_until, run, signal};

/// After a region has moved, the node of its former owner has no topic of the region any more, so the recording of this
/// node ends there. Together, the recordings of both nodes contain the whole world.
#[test]
fn recordings_of_two_nodes_cover_a_moved_region() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = |name: &str| dir.path().join(name).to_str().expect("a path").to_owned();
    let words =
        ["run", "two", "--processes", "1", "--regions", "2", "--flock", "300", "--listen", "127.0.0.1:0"];
    let first = Process::start(&[&words[..], &["--ttl", "30s", "--no-standby"]].concat());
    let url = first.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    wait_for_ticks(&url, &1.into());
    wait_for_ticks(&url, &2.into());
    record_until(&url, "space.two.region.*", &dir.path().join("early"), |found| {
        found["records"].as_u64() >= Some(1)
    });
    let record = |name: &str, url: &str| {
        let words =
            ["feed", "record", "space.two.region.*", "--out", &folder(name), "--url", url, "--time", "1h"];
        let child = dunlin(&words).stderr(Stdio::null()).spawn().expect("the program starts");
        RunningProgram::from(child)
    };
    let mut recorder = record("first", &url);
    let topics = |url: &str| run(&["topics", "list", "--json", "--url", url]).done();
    let subscriptions = |url: &str| run(&["subscriptions", "--json", "--url", url]).done();
    dunlin_wait::until("the recorder subscribes", || {
        subscriptions(&url).matches("dunlin feed record").count() >= 1
    });
    let second = Process::start(&["join", "two", "--url", &url, "--ttl", "30s"]);
    let second_url = second.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    let moved = second.wait_for_event("owns")["region"].as_u64().expect("a number");
    let name = format!("space.two.region.{moved}");
    dunlin_wait::until("the topic is gone from the first node", || !topics(&url).contains(&name));
    let mut other = record("second", &second_url);
    dunlin_wait::until("the recorder subscribes at the second node", || {
        subscriptions(&second_url).matches("dunlin feed record").count() >= 1
    });
    wait_for_ticks(&url, &1.into());
    wait_for_ticks(&url, &2.into());
    // This key makes all entities stand still, so that both recorders reach the same last state.
    run(&["kv", "put", "space/two/hold/0", "1", "--url", &url]).done();
    let mut previous = String::new();
    dunlin_wait::until("the world stands still", || {
        let map = run(&["space", "watch", "two", "--once", "--json", "--url", &url]).done();
        map == std::mem::replace(&mut previous, map.clone()) && !map.contains("\"on_the_way\":1")
    });
    for (program, url) in [(&mut recorder, &url), (&mut other, &second_url)] {
        dunlin_wait::until("all is recorded", || {
            let subscriptions = subscriptions(url);
            let mut recorders = subscriptions.lines().filter(|line| line.contains("dunlin feed record"));
            recorders.all(|line| line.contains("\"lag\":0"))
        });
        signal("INT", program.id());
        assert_eq!(program.wait().expect("the program ends").code(), Some(0));
    }
    for recording in ["first", "second"] {
        run(&["feed", "verify", "--strict", &folder(recording)]).done();
    }
    let count = |node: &Node| -> Vec<(u64, u64)> {
        let out = node.run(&["space", "watch", "two", "--once", "--json"]).done();
        let lines =
            out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object"));
        let number = |line: &serde_json::Value, what: &str| line[what].as_u64().expect("a number");
        lines
            .map(|line| (number(&line, "region"), number(&line, "entities") + number(&line, "on_the_way")))
            .collect()
    };
    // The recordings may be replayed in either order.
    for order in [["first", "second"], ["second", "first"]] {
        let node = Node::start();
        let [one, other] = order.map(folder);
        node.run(&["feed", "replay", &one, &other, "--speed", "max"]).done();
        let counted = count(&node);
        assert_eq!(counted.iter().map(|(_, entities)| entities).sum::<u64>(), 300, "{counted:?}");
        assert_eq!(counted.len(), 2);
    }
    // Without the second recording, the replay ends without the region that the process of the first node has given up.
    for recordings in [&["first"][..], &["first", "early"]] {
        let node = Node::start();
        let folders: Vec<String> = recordings.iter().map(|name| folder(name)).collect();
        let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
        node.run(&[&["feed", "replay", "--speed", "max"], &folders[..]].concat()).done();
        assert!(count(&node).iter().all(|(region, _)| *region != moved), "{recordings:?}");
    }
}

/// On a node that does not run the world, the recording of a region's topic can be replayed, and a map can be drawn
/// from it.
#[test]
fn replayed_recording_of_a_world_can_be_watched() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("rec");
    let recording = folder.to_str().expect("a path").to_owned();
    let words = ["run", "one", "--processes", "1", "--flock", "300", "--listen", "127.0.0.1:0"];
    let world = Process::start(&words);
    let url = world.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    world.wait_for_event("owns");
    wait_for_ticks_in("one", &url, &1.into());
    record_until(&url, "space.one.region.*", &folder, |found| found["records"].as_u64() >= Some(1));
    drop(world);
    run(&["feed", "verify", "--strict", &recording]).done();
    let node = Node::start();
    node.run(&["feed", "replay", &recording, "--speed", "max"]).done();
    let out = node.run(&["space", "watch", "one", "--once", "--json"]).done();
    let map: serde_json::Value = serde_json::from_str(out.trim()).expect("one object");
    assert_eq!((&map["region"], &map["entities"]), (&1.into(), &300.into()), "{map}");
    assert!(map["tick"].as_u64() > Some(0), "{map}");
}
