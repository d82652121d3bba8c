//! Tests of `dunlin space`: the processes that run small worlds, and the commands that show and change worlds.

mod permissions;
mod processes;
mod recordings;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};

use dunlin_wait::{Deadline, PATIENCE};

use dunlin::Config;
use dunlin::space::behaviour::RandomWalk;
use dunlin::space::{Entity, Host, RegionId, RegionSetup, WorldBox};
use dunlin_client::{Client, ClientOptions};
use dunlin_server::space::{WorldConfig, WorldEvent, WorldProcess};
use dunlin_server::{Server, ServerConfig};

use crate::dunlin::{Node, RunningProgram, dunlin, run};

/// A process of a world, and the JSON objects that it prints.
struct Process {
    program: RunningProgram,
    objects: Receiver<serde_json::Value>,
}

impl Process {
    fn start(arguments: &[&str]) -> Process {
        let words = [&["space"], arguments, &["--json"]].concat();
        let mut child = dunlin(&words).stdout(Stdio::piped()).spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let (sender, objects) = channel();
        std::thread::spawn(move || {
            lines
                .map(|line| serde_json::from_str(&line).expect("an object"))
                .try_for_each(|object| sender.send(object))
        });
        Process { program: child.into(), objects }
    }

    /// Waits for the next object in the output for which `condition` is true, and returns it. `what` describes the
    /// object in errors.
    fn wait_for(&self, what: &str, condition: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let deadline = Deadline::new();
        loop {
            deadline.check(what);
            let object =
                self.objects.recv_timeout(PATIENCE).unwrap_or_else(|reason| panic!("{what}: {reason}"));
            if condition(&object) {
                return object;
            }
        }
    }

    fn wait_for_event(&self, event: &str) -> serde_json::Value {
        self.wait_for(event, |object| object["event"] == event)
    }
}

#[test]
fn dunlin_space_run_refuses_non_loopback_addresses_with_advice() {
    let outcome = run(&["space", "run", "--listen", "0.0.0.0:0"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("--url"), "{outcome:?}");
    let outcome = run(&["space", "run", "--listen", "127.0.0.1:0", "--between", "0.0.0.0:0"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("--between 0.0.0.0:0: not a loopback address"), "{outcome:?}");
}

#[test]
fn space_run_with_an_address_in_use_creates_no_world() {
    let node = Node::start();
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = other.local_addr().expect("its address").to_string();
    let words = ["run", "w", "--processes", "1", "--flock", "10", "--url", &node.url];
    let failed = run(&[&["space"], &words[..], &["--between", &address]].concat());
    assert!(
        failed.code != Some(0) && failed.err.contains(&format!("cannot listen on {address}")),
        "{failed:?}"
    );
    assert_eq!(node.run(&["kv", "range"]).done(), "");
    Process::start(&words).wait_for_event("owns");
}

/// Invalid numbers, durations and names must be reported as errors of the command line.
#[test]
fn world_options_out_of_range_are_refused() {
    let assert_error = |words: &[&str], expected: &str| {
        let outcome = run(words);
        assert!(outcome.code == Some(2) && outcome.err.contains(expected), "{words:?}: {outcome:?}");
    };
    let with_option = |option, value| ["space", "run", "x", "--listen", "127.0.0.1:0", option, value];
    for ttl in ["0s", "99ms", "367d", "1000000h"] {
        assert_error(&with_option("--ttl", ttl), "100ms to 366d");
    }
    assert_error(&["lock", "a", "--ttl", "0s", "--", "true"], "1ms to 366d");
    assert_error(&["elect", "a", "--ttl", "400d"], "1ms to 366d");
    assert_error(&["task", "worker", "--ttl", "0s", "--kind", "a", "--", "true"], "1ms to 366d");
    assert_error(&with_option("--tick", "0s"), "100us to 10s");
    assert_error(&with_option("--patience", "1000y"), "100 years");
    for number in ["-5", "0", "NaN", "inf", "1e13"] {
        assert_error(&with_option("--edge", number), "0.001 to 1e12");
        assert_error(&["space", "near", "1", "--within", number], "0.001 to 1e12");
    }
    assert_error(&with_option("--speed", "-1"), "0.001 to 1e6");
    for (option, number) in [("--flock", "-1"), ("--regions", "0"), ("--processes", "-2"), ("--seed", "-3")] {
        assert_error(&with_option(option, number), &format!("invalid value '{number}'"));
    }
    for name in ["a b", "a.b", "a/b", "", "*", "a\u{1b}"] {
        for words in [&["watch"][..], &["owner"], &["run"], &["join"], &["near", "1", "--within", "2"]] {
            assert_error(&[&["space"], words, &[name]].concat(), "cannot name a world");
        }
    }
    for words in [&["req", "a", "--timeout", "0s"][..], &["space", "despawn", "1", "--timeout", "0s"]] {
        assert_error(words, "above 0s");
    }
}

/// With `--listen`, the variable DUNLIN_URL must be ignored, and the option `--url` must be an error.
#[test]
fn option_listen_overrides_dunlin_url_and_forbids_option_url() {
    let node = Node::start();
    let words =
        ["space", "run", "own", "--processes", "1", "--flock", "10", "--json", "--listen", "127.0.0.1:0"];
    let mut command = dunlin(&words);
    let mut child: RunningProgram = command
        .env("DUNLIN_URL", &node.url)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts")
        .into();
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let started: serde_json::Value = serde_json::from_str(&line).expect("an object");
    let url = started["url"].as_str().expect("the node's address");
    run(&["space", "owner", "own", "--url", url]).done();
    let refused = node.run(&["space", "owner", "own"]);
    assert!(refused.code == Some(1) && refused.err.contains("there is no world"), "{refused:?}");
    for words in [&words[..], &["feed", "serve", "--config", "baseline_1x1_10k", "--listen", "127.0.0.1:0"]] {
        let refused = run(&[words, &["--url", &node.url]].concat());
        assert!(refused.code == Some(1) && refused.err.contains("give only one of them"), "{refused:?}");
    }
}

/// The commands must report that a world still waits for processes, or that its processes have ended.
#[test]
fn waiting_and_ended_worlds_are_reported() {
    let node = Node::start();
    let words = ["run", "w", "--processes", "2", "--flock", "10", "--patience", "1h", "--url", &node.url];
    let first = Process::start(&words);
    first.wait_for_event("started");
    let assert_error = |words: &[&str], expected: &str| {
        let outcome = run(&[words, &["--url", &node.url]].concat());
        assert!(outcome.code == Some(1) && outcome.err.contains(expected), "{words:?}: {outcome:?}");
    };
    let commands: [&[&str]; 5] = [
        &["space", "watch", "w", "--once", "--json"],
        &["space", "near", "1000000", "w", "--within", "5", "--once", "--json"],
        &["space", "spawn", "5", "w", "--position", "5,5,5"],
        &["space", "command", "1000000", "w", "--kind", "1"],
        &["space", "despawn", "1000000", "w"],
    ];
    for words in commands {
        assert_error(words, "has not begun: 1 of 2 processes");
    }
    let owner = run(&["space", "owner", "w", "--url", &node.url]);
    assert!(owner.err.contains("1 of 2 processes") && owner.out.contains("has not begun"), "{owner:?}");
    drop(first);
    dunlin_wait::until("the lease is over", || {
        run(&["space", "owner", "w", "--url", &node.url]).err.contains("no process runs")
    });
    for words in commands {
        assert_error(words, "no process runs world");
    }
    assert_error(&["space", "watch", "x", "--once"], "there is no world");
}

/// Starts the world `own`, which has one region, inside this test process. Returns its node and server, the URL of the
/// node, and the process of the world.
fn start_own_world() -> (dunlin::Node, Server, String, WorldProcess<3, RandomWalk>) {
    let node = dunlin::Node::start(Config::default()).unwrap();
    let tcp = vec!["127.0.0.1:0".parse().unwrap()];
    let server = Server::start(node.clone(), ServerConfig { tcp, ..ServerConfig::default() }).unwrap();
    let url = format!("dunlin://{}", server.tcp_addresses()[0]);
    let client = Client::connect(&url, ClientOptions::default()).unwrap();
    let world = WorldBox::new([-5.0, 0.0, 0.0], [5.0, 100.0, 2.0]).unwrap();
    let setup = RegionSetup::new(RegionId(0), world, 1.0);
    let config = WorldConfig { ttl: PATIENCE, ..WorldConfig::new("own", &url, setup, &[RegionId(3)]) };
    let populate = |host: &mut Host<3, RandomWalk>, _| host.spawn(&Entity::at(1, [0.0, 1.0, 1.0])).unwrap();
    let walk = RandomWalk { speed_max: 1.0, turn: 1.0 };
    let (sender, events) = channel();
    let send_event = move |event| drop(sender.send(event));
    let process = WorldProcess::start(&node, client.kv(), config, walk, populate, send_event).unwrap();
    assert!(matches!(events.recv_timeout(PATIENCE), Ok(WorldEvent::Owns { region: RegionId(3), .. })));
    (node, server, url, process)
}

/// The commands must also work for a world that a program other than `dunlin` runs.
#[test]
fn world_of_an_external_program_is_shown() {
    let (_node, _server, url, process) = start_own_world();
    let run_json = |words: &[&str]| {
        let out = run(&[&["space"], words, &["own", "--json", "--url", &url]].concat()).done();
        serde_json::from_str::<serde_json::Value>(out.trim()).expect("one object")
    };
    let owner = run_json(&["owner"]);
    assert_eq!((&owner["region"], &owner["process"]), (&3.into(), &process.number().into()));
    assert_eq!(run_json(&["watch", "--once"])["entities"], 1);
    let refused = run(&["space", "join", "own", "--url", &url]);
    assert!(refused.code == Some(1) && refused.err.contains("is run by another program"), "{refused:?}");
    process.stop().unwrap();
}

/// The thread that runs the region is stopped before the region's topic is deleted, so that the thread cannot create
/// the topic again.
#[test]
fn dunlin_space_watch_names_the_missing_topic_of_a_region() {
    let (node, _server, url, process) = start_own_world();
    process.space().stop().unwrap();
    node.delete_topic("space.own.region.3").unwrap();
    let watch = Process::start(&["watch", "own", "--every", "20ms", "--url", &url]);
    let missing = "has no topic \"space.own.region.3\"";
    watch.wait_for("the reason", |object| object["why"].as_str().is_some_and(|why| why.contains(missing)));
}

#[test]
fn region_can_be_watched_after_its_topic_was_deleted() {
    let words = ["run", "one", "--processes", "1", "--flock", "50", "--listen", "127.0.0.1:0"];
    let world = Process::start(&words);
    let url = world.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    world.wait_for_event("owns");
    wait_for_ticks_in("one", &url, &1.into());
    run(&["topics", "delete", "space.one.region.1", "--url", &url]).done();
    wait_for_ticks_in("one", &url, &1.into());
}

/// The test deletes the topics through which a process receives requests from clients.
#[test]
fn space_process_responds_after_its_topics_were_deleted() {
    let words = ["run", "one", "--processes", "1", "--flock", "50", "--listen", "127.0.0.1:0"];
    let world = Process::start(&words);
    let started = world.wait_for_event("started");
    let url = started["url"].as_str().expect("the node's address").to_owned();
    let process = started["process"].as_u64().expect("its number");
    world.wait_for_event("owns");
    let topics =
        ["watch", "command", "spawn"].map(|service| format!("space.one.process.{process}.{service}"));
    let names = topics.each_ref().map(String::as_str);
    run(&[&["topics", "delete"], &names[..], &["--url", &url]].concat()).done();
    for words in [
        &["space", "command", "1000000", "one", "--kind", "9", "--timeout", "1s"][..],
        &["space", "spawn", "7", "one", "--position", "10,10,10", "--timeout", "1s"],
        &["space", "near", "1000000", "one", "--within", "500", "--once", "--json"],
    ] {
        dunlin_wait::until("the process responds", || {
            let outcome = run(&[words, &["--url", &url]].concat());
            // If an earlier request timed out, the process may have spawned the entity after the timeout.
            outcome.code == Some(0) || outcome.err.contains("entity 7 is already in region")
        });
    }
}

/// The map's tick must not be lower than the newest tick that was known before the command started.
#[test]
fn single_map_printed_by_space_watch_is_not_outdated() {
    let words = ["run", "two", "--processes", "1", "--flock", "4000", "--listen", "127.0.0.1:0"];
    let world = Process::start(&words);
    let url = world.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    world.wait_for_event("owns");
    let watch = Process::start(&["watch", "two", "--every", "20ms", "--url", &url]);
    for _ in 0..5 {
        let known = watch.wait_for("a tick", |object| object["tick"].is_u64())["tick"].as_u64();
        let newest = watch.objects.try_iter().filter_map(|object| object["tick"].as_u64()).max().max(known);
        let out = run(&["space", "watch", "two", "--once", "--json", "--url", &url]).done();
        let map: serde_json::Value = serde_json::from_str(out.trim()).expect("one object");
        assert!(map["tick"].as_u64() >= newest, "{map} after {newest:?}");
    }
}

/// Waits until the region has run for twenty more ticks.
fn wait_for_ticks(url: &str, region: &serde_json::Value) {
    wait_for_ticks_in("two", url, region);
}

fn wait_for_ticks_in(world: &str, url: &str, region: &serde_json::Value) {
    let watch = Process::start(&["watch", world, "--url", url]);
    let region_tick = |object: &serde_json::Value| {
        if object["region"] == *region { object["tick"].as_u64() } else { None }
    };
    let first = region_tick(&watch.wait_for("a tick", |object| region_tick(object).is_some()));
    watch.wait_for("twenty ticks more", |object| region_tick(object) > first.map(|first| first + 20));
}

/// In a world with one process, all entities are visible. One entity's kind is changed, and a filter for this kind then
/// shows only this entity.
#[test]
fn space_near_shows_changes_made_with_space_command() {
    let words =
        ["run", "one", "--processes", "1", "--flock", "300", "--edge", "100", "--listen", "127.0.0.1:0"];
    let world = Process::start(&words);
    let url = world.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    world.wait_for_event("owns");
    let run_client = |words: &[&str]| run(&[&["space"], words, &["--url", &url]].concat());
    let near = |more: &[&str]| {
        let out =
            run_client(&[&["near", "1000000", "one", "--within", "500", "--once", "--json"], more].concat())
                .done();
        let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("an object");
        out.lines().map(line).collect::<Vec<_>>()
    };
    let all = near(&[]);
    assert_eq!((all.len(), &all[0]["id"]), (300, &"1000000".into()), "itself is nearest");
    let done = run_client(&["command", "1000000", "one", "--kind", "9", "--velocity", "0,0,-1"]).done();
    assert!(done.contains("region 1 of process"), "{done}");
    let filtered = near(&["--kind", "9"]);
    assert_eq!((filtered.len(), &filtered[0]["id"]), (1, &"1000000".into()));
    assert_eq!(near(&["--not-kind", "9"]).len(), 299);

    let assert_refused = |words: &[&str], reason: &str| {
        let outcome = run_client(words);
        assert!(outcome.code == Some(1) && outcome.err.contains(reason), "{outcome:?}");
    };
    assert_refused(&["command", "5", "one", "--kind", "1"], "no region of the world has entity 5");
    assert_refused(&["command", "1000000", "one"], "--position, --velocity or --kind");
    assert_refused(&["command", "1000000", "one", "--position", "1,2,999"], "outside of the world");
    assert_refused(&["command", "1000000", "two", "--kind", "1"], "no world \"two\"");
    assert_refused(&["near", "5", "one", "--within", "9", "--once"], "no region of the world has entity 5");
}

/// In a world with two processes, a new entity must be added to the region that contains its position. No other entity
/// may have the new entity's id.
#[test]
fn spawned_entity_exists_exactly_once_until_it_is_despawned() {
    let words =
        ["run", "two", "--processes", "2", "--no-standby", "--flock", "50", "--listen", "127.0.0.1:0"];
    let first = Process::start(&[&words[..], &["--ttl", "4s"]].concat());
    let url = first.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    let second = Process::start(&["join", "two", "--url", &url, "--ttl", "4s"]);
    first.wait_for_event("owns");
    second.wait_for_event("owns");
    let run_client = |words: &[&str]| run(&[&["space"], words, &["--url", &url]].concat());
    let run_json = |words: &[&str]| -> serde_json::Value {
        serde_json::from_str(run_client(&[words, &["--json"]].concat()).done().trim()).expect("an object")
    };
    // A client may send the request to any process. The process that owns the region adds the entity there.
    let first_entity = run_json(&["spawn", "7", "two", "--position", "10,10,10"]);
    let second_entity = run_json(&["spawn", "8", "two", "--position", "990,990,990", "--kind", "3"]);
    assert_eq!((first_entity["entity"].as_str(), second_entity["entity"].as_str()), (Some("7"), Some("8")));
    assert_ne!(first_entity["region"], second_entity["region"]);
    let assert_refused = |words: &[&str], reason: &str| {
        let outcome = run_client(words);
        assert!(outcome.code == Some(1) && outcome.err.contains(reason), "{outcome:?}");
    };
    assert_refused(&["spawn", "7", "two", "--position", "990,990,990"], "entity 7 is already in region");
    assert_refused(&["spawn", "7", "two", "--position", "10,10,10"], "entity 7 is already in region");
    assert_refused(&["spawn", "9", "two", "--position", "10,10,1001"], "outside of the world");
    assert_eq!(run_json(&["despawn", "7", "two"])["entity"], "7");
    assert_refused(&["despawn", "7", "two"], "no region of the world has entity 7");
    let again = run_json(&["spawn", "7", "two", "--position", "990,990,990"]);
    assert_eq!(again["region"], second_entity["region"]);
}

#[test]
fn metrics_include_the_figures_of_a_region() {
    let words = ["run", "one", "--processes", "1", "--flock", "300", "--listen", "127.0.0.1:0"];
    let world = Process::start(&[&words[..], &["--http-listen", "127.0.0.1:0"]].concat());
    let started = world.wait_for_event("started");
    let http =
        started["http"].as_str().and_then(|url| url.strip_prefix("http://")).expect("the node's address");
    let metrics = || {
        let mut stream = TcpStream::connect(http).expect("a connection");
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").expect("asked");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("a page");
        page
    };
    let value = |page: &str, name: &str| -> f64 {
        let line = format!("dunlin_space_{name}{{world=\"one\",region=\"1\"}} ");
        page.lines().find_map(|text| text.strip_prefix(&line)?.parse().ok()).unwrap_or(0.0)
    };
    let mut page = String::new();
    dunlin_wait::until("the region ticks", || {
        page = metrics();
        value(&page, "ticks_total") > 10.0
    });
    assert_eq!(value(&page, "entities"), 300.0, "{page}");
    assert!(value(&page, "tick_seconds_total") > 0.0 && value(&page, "epoch") > 0.0, "{page}");
    assert_eq!((value(&page, "standby_behind_ticks"), value(&page, "handed_out_total")), (0.0, 0.0));
    let refused = run(&["space", "run", "one", "--listen", "127.0.0.1:0", "--http-listen", "0.0.0.0:0"]);
    assert!(refused.code == Some(1) && refused.err.contains("--http-listen"), "{refused:?}");
}

/// At any time, an entity that is being handed over must be counted exactly once.
#[test]
fn map_counts_every_entity_once_during_handovers() {
    let words =
        ["run", "two", "--processes", "2", "--flock", "300", "--listen", "127.0.0.1:0", "--ttl", "30s"];
    let first = Process::start(&words);
    let url = first.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    let second = Process::start(&["join", "two", "--url", &url, "--ttl", "30s"]);
    second.wait_for_event("owns");
    let (first_region, second_region) = (1.into(), 2.into());
    wait_for_ticks(&url, &first_region);
    wait_for_ticks(&url, &second_region);
    for _ in 0..5 {
        let out = run(&["space", "watch", "two", "--once", "--json", "--url", &url]).done();
        let lines =
            out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object"));
        let counted: u64 =
            lines.flat_map(|line| ["entities", "on_the_way"].map(|key| line[key].as_u64().unwrap())).sum();
        assert_eq!(counted, 300, "{out}");
    }
}
