//! Small worlds on several processes, which are killed and restarted while their entities are counted from
//! outside.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};

use dunlin_wait::{Deadline, PATIENCE};

use dunlin::Config;
use dunlin::space::behaviour::Walk;
use dunlin::space::{Entity, Host, RegionId, RegionSetup, WorldBox};
use dunlin_client::{Client, ClientOptions};
use dunlin_server::space::{WorldConfig, WorldEvent, WorldProcess};
use dunlin_server::{Server, ServerConfig};

use crate::dunlin::{Node, Program, dunlin, run, signal};

/// A process of a world, and the JSON objects that it prints.
struct Process {
    program: Program,
    said: Receiver<serde_json::Value>,
}

impl Process {
    fn start(arguments: &[&str]) -> Process {
        let words = [&["space"], arguments, &["--json"]].concat();
        let mut child = dunlin(&words).stdout(Stdio::piped()).spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let (tell, said) = channel();
        std::thread::spawn(move || {
            lines
                .map(|line| serde_json::from_str(&line).expect("an object"))
                .try_for_each(|said| tell.send(said))
        });
        Process { program: child.into(), said }
    }

    /// The next output object that satisfies `is_so`.
    fn says(&self, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let deadline = Deadline::new();
        loop {
            deadline.check(what);
            let said = self.said.recv_timeout(PATIENCE).unwrap_or_else(|why| panic!("{what}: {why}"));
            if is_so(&said) {
                return said;
            }
        }
    }

    fn hears(&self, event: &str) -> serde_json::Value {
        self.says(event, |said| said["event"] == event)
    }
}

#[test]
fn space_run_refuses_a_non_loopback_address_with_advice() {
    let outcome = run(&["space", "run", "--listen", "0.0.0.0:0"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("--url"), "{outcome:?}");
}

/// Invalid numbers, durations and names are errors of the command line.
#[test]
fn world_options_out_of_range_are_refused() {
    let says = |words: &[&str], expected: &str| {
        let outcome = run(words);
        assert!(outcome.code == Some(2) && outcome.err.contains(expected), "{words:?}: {outcome:?}");
    };
    let with = |option, value| ["space", "run", "x", "--listen", "127.0.0.1:0", option, value];
    for ttl in ["0s", "99ms", "367d"] {
        says(&with("--ttl", ttl), "100ms to 366d");
    }
    says(&["lock", "a", "--ttl", "0s", "--", "true"], "1ms to 366d");
    says(&["elect", "a", "--ttl", "400d"], "1ms to 366d");
    says(&["task", "worker", "--ttl", "0s", "--kind", "a", "--", "true"], "1ms to 366d");
    says(&with("--tick", "0s"), "100us to 10s");
    says(&with("--patience", "1000y"), "100 years");
    for number in ["-5", "0", "NaN", "inf", "1e13"] {
        says(&with("--edge", number), "0.001 to 1e12");
        says(&["space", "near", "1", "--within", number], "0.001 to 1e12");
    }
    says(&with("--speed", "-1"), "0.001 to 1e6");
    for (option, number) in [("--flock", "-1"), ("--regions", "0"), ("--processes", "-2"), ("--seed", "-3")] {
        says(&with(option, number), &format!("invalid value '{number}'"));
    }
    for name in ["a b", "a.b", "a/b", "", "*", "a\u{1b}"] {
        for words in [&["watch"][..], &["owner"], &["run"], &["join"], &["near", "1", "--within", "2"]] {
            says(&[&["space"], words, &[name]].concat(), "cannot name a world");
        }
    }
    for words in [&["req", "a", "--timeout", "0s"][..], &["space", "despawn", "1", "--timeout", "0s"]] {
        says(words, "above 0s");
    }
}

/// DUNLIN_URL does not conflict with --listen.
#[test]
fn listen_option_overrides_dunlin_url_but_conflicts_with_url() {
    let node = Node::start();
    let words =
        ["space", "run", "own", "--processes", "1", "--flock", "10", "--json", "--listen", "127.0.0.1:0"];
    let mut command = dunlin(&words);
    let mut child: Program = command
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
    let elsewhere = node.run(&["space", "owner", "own"]);
    assert!(elsewhere.code == Some(1) && elsewhere.err.contains("there is no world"), "{elsewhere:?}");
    for words in [&words[..], &["feed", "serve", "--config", "baseline_1x1_10k", "--listen", "127.0.0.1:0"]] {
        let refused = run(&[words, &["--url", &node.url]].concat());
        assert!(refused.code == Some(1) && refused.err.contains("give only one of them"), "{refused:?}");
    }
}

/// The commands report a world that waits for processes, and one whose processes have ended.
#[test]
fn waiting_and_ended_worlds_are_reported() {
    let node = Node::start();
    let run_two = ["run", "w", "--processes", "2", "--flock", "10", "--patience", "1h", "--url", &node.url];
    let first = Process::start(&run_two);
    first.hears("started");
    let says = |words: &[&str], expected: &str| {
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
        says(words, "has not begun: 1 of 2 processes");
    }
    let owner = run(&["space", "owner", "w", "--url", &node.url]);
    assert!(owner.err.contains("1 of 2 processes") && owner.out.contains("has not begun"), "{owner:?}");
    drop(first);
    dunlin_wait::until("the lease is over", || {
        run(&["space", "owner", "w", "--url", &node.url]).err.contains("no process runs")
    });
    for words in commands {
        says(words, "no process runs world");
    }
    says(&["space", "watch", "x", "--once"], "there is no world");
}

/// A process of a world ends although the node with its keys does not respond.
#[test]
fn signal_ends_a_world_process_of_a_frozen_node() {
    let node = Node::start();
    let mut process = Process::start(&["run", "w", "--processes", "1", "--flock", "10", "--url", &node.url]);
    process.hears("owns");
    signal("STOP", node.pid());
    process.hears("lease_lost");
    signal("TERM", process.program.id());
    let status = dunlin_wait::find("its end", || process.program.try_wait().expect("wait for the program"));
    assert_eq!(status.code(), Some(0));
    signal("CONT", node.pid());
}

/// Commands also find a world that another program runs.
#[test]
fn world_of_an_external_program_is_shown() {
    let node = dunlin::Node::start(Config::default()).unwrap();
    let tcp = vec!["127.0.0.1:0".parse().unwrap()];
    let server = Server::start(node.clone(), ServerConfig { tcp, ..ServerConfig::default() }).unwrap();
    let url = format!("dunlin://{}", server.tcp_addresses()[0]);
    let client = Client::connect(&url, ClientOptions::default()).unwrap();
    let world = WorldBox::new([-5.0, 0.0, 0.0], [5.0, 100.0, 2.0]).unwrap();
    let config = WorldConfig::new("own", &url, RegionSetup::new(RegionId(0), world, 1.0), &[RegionId(3)]);
    let populate = |host: &mut Host<3, Walk>, _| host.spawn(&Entity::at(1, [0.0, 1.0, 1.0])).unwrap();
    let walk = Walk { speed_max: 1.0, turn: 1.0 };
    let (tell, told) = channel();
    let tell = move |what| drop(tell.send(what));
    let process = WorldProcess::start(&node, client.kv(), config, walk, populate, tell).unwrap();
    assert!(matches!(told.recv_timeout(PATIENCE), Ok(WorldEvent::Owns { region: RegionId(3), .. })));
    let line = |words: &[&str]| {
        let out = run(&[&["space"], words, &["own", "--json", "--url", &url]].concat()).done();
        serde_json::from_str::<serde_json::Value>(out.trim()).expect("one object")
    };
    let owner = line(&["owner"]);
    assert_eq!((&owner["region"], &owner["process"]), (&3.into(), &process.number().into()));
    assert_eq!(line(&["watch", "--once"])["entities"], 1);
    let refused = run(&["space", "join", "own", "--url", &url]);
    assert!(refused.code == Some(1) && refused.err.contains("is run by another program"), "{refused:?}");
    process.stop().unwrap();
}

/// The map that `--once` prints is not older than the request for it.
#[test]
fn space_watch_once_prints_a_map_no_older_than_its_request() {
    let run_one = ["run", "two", "--processes", "1", "--flock", "4000", "--listen", "127.0.0.1:0"];
    let world = Process::start(&run_one);
    let url = world.hears("started")["url"].as_str().expect("the node's address").to_owned();
    world.hears("owns");
    let watch = Process::start(&["watch", "two", "--every", "20ms", "--url", &url]);
    for _ in 0..5 {
        let known = watch.says("a tick", |said| said["tick"].is_u64())["tick"].as_u64();
        let newest = watch.said.try_iter().filter_map(|said| said["tick"].as_u64()).max().max(known);
        let out = run(&["space", "watch", "two", "--once", "--json", "--url", &url]).done();
        let once: serde_json::Value = serde_json::from_str(out.trim()).expect("one object");
        assert!(once["tick"].as_u64() >= newest, "{once} after {newest:?}");
    }
}

/// The first process, whose node holds the world's leases, is killed, and the same command runs again.
#[test]
fn world_continues_when_its_first_process_restarts() {
    // With this longer lease, a pause of the machine does not end the lease.
    let ttl = ["--ttl", "4s"];
    let words = |listen| ["run", "two", "--processes", "2", "--flock", "300", "--listen", listen];
    let first = Process::start(&[&words("127.0.0.1:0")[..], &ttl].concat());
    let url = first.hears("started")["url"].as_str().expect("the node's address").to_owned();
    let second = Process::start(&[&["join", "two", "--url", &url][..], &ttl].concat());
    let (here, there) = (first.hears("owns")["region"].clone(), second.hears("owns")["region"].clone());
    moves(&url, &here);
    moves(&url, &there);
    drop(first);
    let again = Process::start(&[&words(url.strip_prefix("dunlin://").expect("a host"))[..], &ttl].concat());
    again.hears("started");
    second.says("it goes on with its own", |said| said["reclaimed"] == true && said["region"] == there);
    let from_a_copy = |said: &serde_json::Value| said["event"] == "owns" && said["from_tick"].is_u64();
    again.says("it is given a region", from_a_copy);
    moves(&url, &here);
    moves(&url, &there);
}

/// Two processes as in the README: one is killed, and the other runs all regions until another joins.
#[test]
fn world_continues_in_one_process_after_the_other_is_killed() {
    // With this longer lease, a pause of the machine does not end the lease.
    let ttl = ["--ttl", "4s"];
    let run = ["run", "two", "--processes", "2", "--flock", "300", "--listen", "127.0.0.1:0"];
    let first = Process::start(&[&run[..], &ttl].concat());
    let url = first.hears("started")["url"].as_str().expect("the node's address").to_owned();
    let join = [&["join", "two", "--url", &url][..], &ttl].concat();
    let second = Process::start(&join);
    let (here, there) = (first.hears("owns")["region"].clone(), second.hears("owns")["region"].clone());
    moves(&url, &there);
    drop(second);
    let mut alone = [first.hears("alone")["region"].as_u64(), first.hears("alone")["region"].as_u64()];
    alone.sort_unstable();
    assert_eq!(alone, [Some(1), Some(2)]);
    moves(&url, &there);
    let _third = Process::start(&join);
    first.hears("released");
    moves(&url, &here);
    moves(&url, &there);
}

/// Waits until a region's tick grows.
fn moves(url: &str, region: &serde_json::Value) {
    moves_in("two", url, region);
}

fn moves_in(world: &str, url: &str, region: &serde_json::Value) {
    let watch = Process::start(&["watch", world, "--url", url]);
    let of_it =
        |said: &serde_json::Value| if said["region"] == *region { said["tick"].as_u64() } else { None };
    let first = of_it(&watch.says("a tick", |said| of_it(said).is_some()));
    watch.says("twenty ticks more", |said| of_it(said) > first.map(|first| first + 20));
}

/// A world of one process: all entities are visible, one is changed, and a filter then shows only that one.
#[test]
fn space_near_lists_and_space_command_changes_entities() {
    let run_one =
        ["run", "one", "--processes", "1", "--flock", "300", "--edge", "100", "--listen", "127.0.0.1:0"];
    let world = Process::start(&run_one);
    let url = world.hears("started")["url"].as_str().expect("the node's address").to_owned();
    world.hears("owns");
    let ask = |words: &[&str]| run(&[&["space"], words, &["--url", &url]].concat());
    let near = |more: &[&str]| {
        let out =
            ask(&[&["near", "1000000", "one", "--within", "500", "--once", "--json"], more].concat()).done();
        let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("an object");
        out.lines().map(line).collect::<Vec<_>>()
    };
    let all = near(&[]);
    assert_eq!((all.len(), &all[0]["id"]), (300, &"1000000".into()), "itself is nearest");
    let done = ask(&["command", "1000000", "one", "--kind", "9", "--velocity", "0,0,-1"]).done();
    assert!(done.contains("region 1 of process"), "{done}");
    let of_kind = near(&["--kind", "9"]);
    assert_eq!((of_kind.len(), &of_kind[0]["id"]), (1, &"1000000".into()));
    assert_eq!(near(&["--not-kind", "9"]).len(), 299);

    let refused = |words: &[&str], why: &str| {
        let outcome = ask(words);
        assert!(outcome.code == Some(1) && outcome.err.contains(why), "{outcome:?}");
    };
    refused(&["command", "5", "one", "--kind", "1"], "no region of the world has entity 5");
    refused(&["command", "1000000", "one"], "--position, --velocity or --kind");
    refused(&["command", "1000000", "one", "--position", "1,2,999"], "outside of the world");
    refused(&["command", "1000000", "two", "--kind", "1"], "no world \"two\"");
    refused(&["near", "5", "one", "--within", "9", "--once"], "no region of the world has entity 5");
}

/// Two processes: an entity goes to the region of its position, and its id exists once.
#[test]
fn spawned_entity_exists_once_until_despawned() {
    let run_two =
        ["run", "two", "--processes", "2", "--no-standby", "--flock", "50", "--listen", "127.0.0.1:0"];
    let first = Process::start(&[&run_two[..], &["--ttl", "4s"]].concat());
    let url = first.hears("started")["url"].as_str().expect("the node's address").to_owned();
    let second = Process::start(&["join", "two", "--url", &url, "--ttl", "4s"]);
    first.hears("owns");
    second.hears("owns");
    let ask = |words: &[&str]| run(&[&["space"], words, &["--url", &url]].concat());
    let spawned = |words: &[&str]| -> serde_json::Value {
        serde_json::from_str(ask(&[words, &["--json"]].concat()).done().trim()).expect("an object")
    };
    // The client may ask any process: the process that owns the region adds the entity.
    let low = spawned(&["spawn", "7", "two", "--position", "10,10,10"]);
    let high = spawned(&["spawn", "8", "two", "--position", "990,990,990", "--kind", "3"]);
    assert_eq!((low["entity"].as_str(), high["entity"].as_str()), (Some("7"), Some("8")));
    assert_ne!(low["region"], high["region"]);
    let refused = |words: &[&str], why: &str| {
        let outcome = ask(words);
        assert!(outcome.code == Some(1) && outcome.err.contains(why), "{outcome:?}");
    };
    refused(&["spawn", "7", "two", "--position", "990,990,990"], "entity 7 is in region");
    refused(&["spawn", "7", "two", "--position", "10,10,10"], "entity 7 is in region");
    refused(&["spawn", "9", "two", "--position", "10,10,1001"], "outside of the world");
    assert_eq!(spawned(&["despawn", "7", "two"])["entity"], "7");
    refused(&["despawn", "7", "two"], "no region of the world has entity 7");
    let again = spawned(&["spawn", "7", "two", "--position", "990,990,990"]);
    assert_eq!(again["region"], high["region"]);
}

/// The first of two processes stops waiting for the other after `--patience`, and reports that.
#[test]
fn first_process_reports_that_others_did_not_join_in_time() {
    let run_two = ["run", "two", "--processes", "2", "--flock", "50", "--patience", "1ms"];
    let first = Process::start(&[&run_two[..], &["--listen", "127.0.0.1:0"]].concat());
    let said = first.hears("waited_out");
    assert_eq!((&said["processes"], &said["expected"]), (&1.into(), &2.into()));
}

#[test]
fn metrics_include_the_figures_of_a_region() {
    let run_one = ["run", "one", "--processes", "1", "--flock", "300", "--listen", "127.0.0.1:0"];
    let world = Process::start(&[&run_one[..], &["--http-listen", "127.0.0.1:0"]].concat());
    let started = world.hears("started");
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

/// Entities that are handed over are counted once, at any time.
#[test]
fn map_counts_every_entity_once_during_handovers() {
    let run_two =
        ["run", "two", "--processes", "2", "--flock", "300", "--listen", "127.0.0.1:0", "--ttl", "30s"];
    let first = Process::start(&run_two);
    let url = first.hears("started")["url"].as_str().expect("the node's address").to_owned();
    let second = Process::start(&["join", "two", "--url", &url, "--ttl", "30s"]);
    second.hears("owns");
    let (first_region, second_region) = (1.into(), 2.into());
    moves(&url, &first_region);
    moves(&url, &second_region);
    for _ in 0..5 {
        let out = run(&["space", "watch", "two", "--once", "--json", "--url", &url]).done();
        let lines =
            out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object"));
        let counted: u64 =
            lines.flat_map(|line| ["entities", "on_the_way"].map(|of| line[of].as_u64().unwrap())).sum();
        assert_eq!(counted, 300, "{out}");
    }
}

/// The former owner's node has no topic of a moved region: the recording ends there. Both recordings together
/// contain the world.
#[test]
fn recordings_of_two_nodes_cover_a_moved_region() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = |name: &str| dir.path().join(name).to_str().expect("a path").to_owned();
    let run_two =
        ["run", "two", "--processes", "1", "--regions", "2", "--flock", "300", "--listen", "127.0.0.1:0"];
    let first = Process::start(&[&run_two[..], &["--ttl", "30s", "--no-standby"]].concat());
    let url = first.hears("started")["url"].as_str().expect("the node's address").to_owned();
    moves(&url, &1.into());
    moves(&url, &2.into());
    let record = |name: &str, url: &str| {
        let words =
            ["feed", "record", "space.two.region.*", "--out", &folder(name), "--url", url, "--time", "1h"];
        let child = dunlin(&words).stderr(Stdio::null()).spawn().expect("the program starts");
        Program::from(child)
    };
    let mut recorder = record("first", &url);
    let topics = |url: &str| run(&["topics", "list", "--json", "--url", url]).done();
    let subscriptions = |url: &str| run(&["subscriptions", "--json", "--url", url]).done();
    dunlin_wait::until("the recorder subscribes", || {
        subscriptions(&url).matches("dunlin feed record").count() >= 1
    });
    let second = Process::start(&["join", "two", "--url", &url, "--ttl", "30s"]);
    let there = second.hears("started")["url"].as_str().expect("the node's address").to_owned();
    let moved = second.hears("owns")["region"].as_u64().expect("a number");
    let name = format!("space.two.region.{moved}");
    dunlin_wait::until("the topic is gone from the first node", || !topics(&url).contains(&name));
    let mut other = record("second", &there);
    dunlin_wait::until("the recorder subscribes at the second node", || {
        subscriptions(&there).matches("dunlin feed record").count() >= 1
    });
    moves(&url, &1.into());
    moves(&url, &2.into());
    // No entity moves, and both recorders are complete.
    run(&["kv", "put", "space/two/hold/0", "1", "--url", &url]).done();
    let mut before = String::new();
    dunlin_wait::until("the world stands still", || {
        let now = run(&["space", "watch", "two", "--once", "--json", "--url", &url]).done();
        now == std::mem::replace(&mut before, now.clone()) && !now.contains("\"on_the_way\":1")
    });
    for (program, url) in [(&mut recorder, &url), (&mut other, &there)] {
        dunlin_wait::until("all is recorded", || {
            let subscriptions = subscriptions(url);
            let mut ours = subscriptions.lines().filter(|line| line.contains("dunlin feed record"));
            ours.all(|line| line.contains("\"lag\":0"))
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
        let of = |line: &serde_json::Value, what: &str| line[what].as_u64().expect("a number");
        lines.map(|line| (of(&line, "region"), of(&line, "entities") + of(&line, "on_the_way"))).collect()
    };
    // The order of the recordings does not matter.
    for order in [["first", "second"], ["second", "first"]] {
        let node = Node::start();
        let [one, other] = order.map(folder);
        node.run(&["feed", "replay", &one, &other, "--speed", "max"]).done();
        let counted = count(&node);
        assert_eq!(counted.iter().map(|(_, entities)| entities).sum::<u64>(), 300, "{counted:?}");
        assert_eq!(counted.len(), 2);
    }
    // The first recording alone lacks the region that its process gave up.
    let node = Node::start();
    node.run(&["feed", "replay", &folder("first"), "--speed", "max"]).done();
    assert!(count(&node).iter().all(|(region, _)| *region != moved));
}

/// A replayed recording of a region's topic can be watched without the world.
#[test]
fn replayed_recording_of_a_world_can_be_watched() {
    let dir = tempfile::tempdir().expect("a folder");
    let recording = dir.path().join("rec").to_str().expect("a path").to_owned();
    let run_one = ["run", "one", "--processes", "1", "--flock", "300", "--listen", "127.0.0.1:0"];
    let world = Process::start(&run_one);
    let url = world.hears("started")["url"].as_str().expect("the node's address").to_owned();
    world.hears("owns");
    moves_in("one", &url, &1.into());
    run(&["feed", "record", "space.one.region.*", "--out", &recording, "--time", "1s", "--url", &url]).done();
    drop(world);
    run(&["feed", "verify", "--strict", &recording]).done();
    let node = Node::start();
    node.run(&["feed", "replay", &recording, "--speed", "max"]).done();
    let out = node.run(&["space", "watch", "one", "--once", "--json"]).done();
    let seen: serde_json::Value = serde_json::from_str(out.trim()).expect("one object");
    assert_eq!((&seen["region"], &seen["entities"]), (&1.into(), &300.into()), "{seen}");
    assert!(seen["tick"].as_u64() > Some(0), "{seen}");
}
