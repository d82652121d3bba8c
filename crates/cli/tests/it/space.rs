//! Worlds over processes: small, killed and come back, everybody counted from outside.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};

use dunlin_wait::{Deadline, PATIENCE};

use dunlin::Config;
use dunlin::space::behaviour::Walk;
use dunlin::space::{Entity, Host, RegionId, Setup, World};
use dunlin_client::{Client, Options};
use dunlin_server::space::{Told, WorldConfig, WorldProcess};
use dunlin_server::{Server, ServerConfig};

use crate::dunlin::{Node, Program, dunlin, run};

/// Longer than anything here takes, on a busy machine.
/// A process of a world, and what it says.
struct Process {
    _program: Program,
    said: Receiver<serde_json::Value>,
}

impl Process {
    fn start(arguments: &[&str]) -> Process {
        let words = [&["space"], arguments, &["--json"]].concat();
        let mut child = dunlin(&words).stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let (tell, said) = channel();
        std::thread::spawn(move || {
            lines
                .map(|line| serde_json::from_str(&line).expect("an object"))
                .try_for_each(|said| tell.send(said))
        });
        Process { _program: child.into(), said }
    }

    /// The next that it says which is so.
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
fn what_cannot_be_is_refused_with_what_to_do() {
    let outcome = run(&["space", "run", "--listen", "0.0.0.0:0"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("--url"), "{outcome:?}");
}

/// A world that a program of its own runs is found as any other.
#[test]
fn world_of_another_program_is_shown() {
    let node = dunlin::Node::start(Config::default()).unwrap();
    let tcp = vec!["127.0.0.1:0".parse().unwrap()];
    let server = Server::start(node.clone(), ServerConfig { tcp, ..ServerConfig::default() }).unwrap();
    let url = format!("dunlin://{}", server.tcp_addresses()[0]);
    let client = Client::connect(&url, Options::default()).unwrap();
    let world = World::new([-5.0, 0.0, 0.0], [5.0, 100.0, 2.0]).unwrap();
    let config = WorldConfig::new("own", &url, Setup::new(RegionId(0), world, 1.0), &[RegionId(3)]);
    let populate = |host: &mut Host<3, Walk>, _| host.spawn(&Entity::at(1, [0.0, 1.0, 1.0])).unwrap();
    let walk = Walk { speed_max: 1.0, turn: 1.0 };
    let (tell, told) = channel();
    let tell = move |what| drop(tell.send(what));
    let process = WorldProcess::start(&node, client.kv(), config, walk, populate, tell).unwrap();
    assert!(matches!(told.recv_timeout(PATIENCE), Ok(Told::Owns { region: RegionId(3), .. })));
    let line = |words: &[&str]| {
        let out = run(&[&["space"], words, &["own", "--json", "--url", &url]].concat()).done();
        serde_json::from_str::<serde_json::Value>(out.trim()).expect("one object")
    };
    let owner = line(&["owner"]);
    assert_eq!((&owner["region"], &owner["process"]), (&3.into(), &process.number().into()));
    assert_eq!(line(&["watch", "--once"])["entities"], 1);
    let refused = run(&["space", "join", "own", "--url", &url]);
    assert!(refused.code == Some(1) && refused.err.contains("a program of its own"), "{refused:?}");
    process.stop().unwrap();
}

/// What is printed once is no older than what was printed before it was asked for.
#[test]
fn picture_printed_once_is_no_older_than_when_it_was_asked_for() {
    let run_one = ["run", "two", "--processes", "1", "--flock", "4000", "--listen", "127.0.0.1:0"];
    let world = Process::start(&run_one);
    let url = world.hears("started")["url"].as_str().expect("where it is").to_owned();
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

/// The first process of a world, whose node holds what they agree on, is killed, and the same command is given again.
#[test]
fn world_goes_on_when_its_first_process_is_started_again() {
    let ttl = ["--ttl", "1s"];
    let words = |listen| ["run", "two", "--processes", "2", "--flock", "300", "--listen", listen];
    let first = Process::start(&[&words("127.0.0.1:0")[..], &ttl].concat());
    let url = first.hears("started")["url"].as_str().expect("where it is").to_owned();
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

/// Two processes, as the README has it: one is killed, and the other goes on with everybody until another joins.
#[test]
fn a_world_goes_on_in_the_only_process_that_is_left() {
    // A machine that stands still for long does not end a lease that nobody ended.
    let ttl = ["--ttl", "4s"];
    let run = ["run", "two", "--processes", "2", "--flock", "300", "--listen", "127.0.0.1:0"];
    let first = Process::start(&[&run[..], &ttl].concat());
    let url = first.hears("started")["url"].as_str().expect("where it is").to_owned();
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

/// A region comes further than where it is seen first.
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

/// A world of one process: everybody is seen, one is commanded, and seen alone by what it is then.
#[test]
fn who_is_near_is_told_and_an_entity_does_as_it_is_commanded() {
    let run_one =
        ["run", "one", "--processes", "1", "--flock", "300", "--edge", "100", "--listen", "127.0.0.1:0"];
    let world = Process::start(&run_one);
    let url = world.hears("started")["url"].as_str().expect("where it is").to_owned();
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
    refused(&["near", "1000000", "one", "--within", "0", "--once"], "a number above 0");
}

/// Two processes: an entity goes to the region of its place, and its id is given once.
#[test]
fn spawned_entity_is_in_the_world_once_until_it_is_despawned() {
    let run_two =
        ["run", "two", "--processes", "2", "--no-standby", "--flock", "50", "--listen", "127.0.0.1:0"];
    let first = Process::start(&[&run_two[..], &["--ttl", "4s"]].concat());
    let url = first.hears("started")["url"].as_str().expect("where it is").to_owned();
    let second = Process::start(&["join", "two", "--url", &url, "--ttl", "4s"]);
    first.hears("owns");
    second.hears("owns");
    let ask = |words: &[&str]| run(&[&["space"], words, &["--url", &url]].concat());
    let spawned = |words: &[&str]| -> serde_json::Value {
        serde_json::from_str(ask(&[words, &["--json"]].concat()).done().trim()).expect("an object")
    };
    // Whichever process the client asks first, the one that has the region takes the entity.
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

/// The first process of two waits out its patience, and says so.
#[test]
fn world_that_is_populated_without_the_others_says_so() {
    let run_two = ["run", "two", "--processes", "2", "--flock", "50", "--patience", "1ms"];
    let first = Process::start(&[&run_two[..], &["--listen", "127.0.0.1:0"]].concat());
    let said = first.hears("waited_out");
    assert_eq!((&said["processes"], &said["expected"]), (&1.into(), &2.into()));
}

#[test]
fn figures_of_a_region_are_on_the_page_of_metrics() {
    let run_one = ["run", "one", "--processes", "1", "--flock", "300", "--listen", "127.0.0.1:0"];
    let world = Process::start(&[&run_one[..], &["--http-listen", "127.0.0.1:0"]].concat());
    let started = world.hears("started");
    let http = started["http"].as_str().and_then(|url| url.strip_prefix("http://")).expect("where it is");
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

/// A region's topic is a topic: what was recorded is watched again without the world.
#[test]
fn recorded_world_is_watched_as_it_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let recording = dir.path().join("rec").to_str().expect("a path").to_owned();
    let run_one = ["run", "one", "--processes", "1", "--flock", "300", "--listen", "127.0.0.1:0"];
    let world = Process::start(&run_one);
    let url = world.hears("started")["url"].as_str().expect("where it is").to_owned();
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
