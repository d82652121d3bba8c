//! Tests of `dunlin space`. Several processes run small worlds. Some of the processes are killed and restarted while
//! other commands count the entities.

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

use crate::dunlin::{Node, Outcome, RunningProgram, dunlin, record_until, run, signal};

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

    /// Waits for the next object in the output for which `condition` is true, and returns it. `what` describes it in
    /// errors.
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
fn space_run_refuses_a_non_loopback_address_with_advice() {
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
fn listen_option_overrides_dunlin_url_and_forbids_option_url() {
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

/// A users file, and for each of its users a file with an access token.
struct UsersFile {
    dir: tempfile::TempDir,
}

impl UsersFile {
    /// Creates the users `runner`, which may run world `w`, `keeper`, which may not read the world's secret, and
    /// `watcher`, which may only watch this world.
    fn new() -> UsersFile {
        let users = UsersFile { dir: tempfile::tempdir().expect("a folder") };
        let map = ["--publish", "space.w.map.>", "--create", "space.w.map", "--create", "space.w.map.>"];
        users.add("runner", &[&["--keys", "space/w/*", "--keys", "space-secret/w"][..], &map].concat());
        users.add("keeper", &["--keys", "space/w/*"]);
        let subjects = ["--subscribe", "space.w.region.*", "--publish", "space.w.process.*.watch"];
        users.add("watcher", &[&["--read-keys", "space/w/*"][..], &subjects].concat());
        users
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().expect("a path").to_owned()
    }

    fn file(&self) -> String {
        self.path("users.toml")
    }

    fn add(&self, name: &str, permissions: &[&str]) {
        let file = self.file();
        let user = ["user", "--users-file", &file];
        run(&[&user[..], &["add", name, "--no-password"], permissions].concat()).done();
        let token = run(&[&user[..], &["token", name]].concat()).done();
        std::fs::write(self.path(name), token).expect("a token file");
    }
}

/// The node of a world's process must serve only the users in its users file, and each user only within the user's
/// permissions.
#[test]
fn user_who_may_only_watch_a_world_cannot_change_it() {
    let users = UsersFile::new();
    let (file, runner, watcher) = (users.file(), users.path("runner"), users.path("watcher"));
    let node = Node::start_with(&["--auth-users-file", &file]);
    let login = ["--url", &node.url, "--token-file", &runner];
    let words = [&["run", "w", "--processes", "1", "--flock", "300"][..], &login].concat();
    let unprotected = run(&[&["space"][..], &words].concat());
    assert!(unprotected.code == Some(1) && unprotected.err.contains("--auth-users-file"), "{unprotected:?}");
    let world = Process::start(&[&words[..], &["--auth-users-file", &file]].concat());
    let url = world.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    world.wait_for_event("owns");

    let watch = |words: &[&str]| run(&[words, &["--url", &node.url, "--token-file", &watcher]].concat());
    let map = watch(&["space", "watch", "w", "--once", "--json"]).done();
    assert!(map.contains("\"entities\":300"), "{map}");
    let near = watch(&["space", "near", "1000000", "w", "--within", "40", "--once", "--json"]).done();
    assert!(near.contains("\"1000000\""), "{near}");
    let assert_refused = |outcome: Outcome, reason: &str| {
        assert!(outcome.code == Some(1) && outcome.err.contains(reason), "{outcome:?}");
    };
    for words in [
        &["space", "command", "1000000", "w", "--kind", "9"][..],
        &["space", "spawn", "7", "w", "--position", "5,5,5"],
        &["space", "despawn", "1000000", "w"],
        &["kv", "put", "space/w/hold/0", "1"],
        &["kv", "get", "space-secret/w"],
    ] {
        assert_refused(watch(words), "no permission");
    }
    let delete = ["topics", "delete", "space.w.region.1", "--url", &url];
    assert_refused(run(&delete), "UNAUTHENTICATED");
    assert_refused(run(&[&delete[..], &["--token-file", &watcher]].concat()), "no permission");
}

/// The user may write the world's keys, but not read its secret. `run` must write no keys.
#[test]
fn world_process_without_permission_for_the_secret_ends() {
    let users = UsersFile::new();
    let (file, keeper) = (users.file(), users.path("keeper"));
    let node = Node::start_with(&["--auth-users-file", &file]);
    let login = ["--url", &node.url, "--token-file", &keeper];
    for command in ["join", "run"] {
        let words = [&["space", command, "w"][..], &login, &["--auth-users-file", &file]].concat();
        let outcome = run(&words);
        assert!(outcome.code == Some(1) && outcome.err.contains("space-secret/w"), "{outcome:?}");
    }
    let keys = run(&[&["kv", "range", "space/w/"][..], &login].concat()).done();
    assert!(!keys.contains("space/w/world"), "{keys}");
}

/// A process whose own node holds the world's keys must also log in at this node.
#[test]
fn world_with_its_own_node_serves_only_users_in_the_users_file() {
    let users = UsersFile::new();
    let (file, runner, watcher) = (users.file(), users.path("runner"), users.path("watcher"));
    let words = ["run", "w", "--processes", "1", "--flock", "300", "--listen", "127.0.0.1:0"];
    let login = ["--auth-users-file", &file, "--token-file", &runner];
    let world = Process::start(&[&words[..], &login].concat());
    let url = world.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    world.wait_for_event("owns");
    let watch = ["space", "watch", "w", "--once", "--json", "--url", &url];
    let map = run(&[&watch[..], &["--token-file", &watcher]].concat()).done();
    assert!(map.contains("\"entities\":300"), "{map}");
    let refused = run(&watch);
    assert!(refused.code == Some(1) && refused.err.contains("UNAUTHENTICATED"), "{refused:?}");
}

/// On SIGTERM, a process of a world must end even if the node that holds the world's keys does not respond.
#[test]
fn signal_ends_a_world_process_while_its_node_is_frozen() {
    let node = Node::start();
    let mut process = Process::start(&["run", "w", "--processes", "1", "--flock", "10", "--url", &node.url]);
    process.wait_for_event("owns");
    signal("STOP", node.pid());
    process.wait_for_event("lease_lost");
    signal("TERM", process.program.id());
    let status = dunlin_wait::find("its end", || process.program.try_wait().expect("wait for the program"));
    assert_eq!(status.code(), Some(0));
    signal("CONT", node.pid());
}

/// Without standbys, no other process has a copy of a region when its owner receives SIGTERM.
#[test]
fn signal_makes_a_world_process_hand_over_its_regions() {
    let node = Node::start();
    let words = ["run", "w", "--processes", "1", "--regions", "3", "--flock", "50", "--url", &node.url];
    let mut leaving = Process::start(&words);
    (0..3).for_each(|_| drop(leaving.wait_for_event("owns")));
    let heir = Process::start(&["join", "w", "--url", &node.url]);
    let receive = || {
        let owns = heir.wait_for_event("owns");
        assert!(owns["from_tick"].is_u64(), "{owns}");
    };
    // The process receives its first region because it has joined the world.
    receive();
    signal("TERM", leaving.program.id());
    receive();
    receive();
    let status = dunlin_wait::find("its end", || leaving.program.try_wait().expect("wait for the program"));
    assert_eq!(status.code(), Some(0));
    let others: Vec<_> = leaving.objects.iter().collect();
    assert!(others.iter().all(|object| object["event"] != "not_handed_over"), "{others:?}");
    signal("TERM", heir.program.id());
    let report = heir.wait_for_event("not_handed_over");
    assert_eq!(report["regions"], serde_json::json!([1, 2, 3]), "{report}");
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

/// The thread that runs the region is stopped before its topic is deleted, so that it cannot create the topic again.
#[test]
fn space_watch_names_the_missing_topic_of_a_region() {
    let (node, _server, url, process) = start_own_world();
    process.space().stop().unwrap();
    node.delete_topic("space.own.region.3").unwrap();
    let watch = Process::start(&["watch", "own", "--every", "20ms", "--url", &url]);
    let missing = "has no topic \"space.own.region.3\"";
    watch.wait_for("the reason", |object| object["why"].as_str().is_some_and(|why| why.contains(missing)));
}

/// The user `watcher` may log in at the node that holds the keys, but is not in the users file of the process's node.
#[test]
fn space_watch_reports_why_its_login_was_refused() {
    let users = UsersFile::new();
    let (file, runner, watcher) = (users.file(), users.path("runner"), users.path("watcher"));
    let node = Node::start_with(&["--auth-users-file", &file]);
    let own_file = users.path("own.toml");
    std::fs::copy(&file, &own_file).expect("a copy");
    run(&["user", "--users-file", &own_file, "remove", "watcher"]).done();
    let words = ["run", "w", "--processes", "1", "--flock", "10", "--auth-users-file", &own_file];
    let world = Process::start(&[&words[..], &["--url", &node.url, "--token-file", &runner]].concat());
    world.wait_for_event("owns");
    let words = ["watch", "w", "--every", "20ms", "--url", &node.url, "--token-file", &watcher];
    Process::start(&words).wait_for("the reason", |object| {
        object["why"].as_str().is_some_and(|why| why.contains("refused the login: UNAUTHENTICATED"))
    });
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
fn process_responds_again_after_its_topics_were_deleted() {
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
            // If an earlier request timed out, its entity may have been spawned after that.
            outcome.code == Some(0) || outcome.err.contains("entity 7 is in region")
        });
    }
}

/// The map's tick must not be lower than the newest tick that was known before the command started.
#[test]
fn space_watch_with_once_prints_no_map_older_than_its_request() {
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

/// The first process is killed, and its node, which holds the world's leases, with it. Then the same command starts the
/// process again.
#[test]
fn world_continues_when_its_first_process_restarts() {
    // With a time to live this long, the leases survive a pause of the machine.
    let ttl = ["--ttl", "4s"];
    let words = |listen| ["run", "two", "--processes", "2", "--flock", "300", "--listen", listen];
    let first = Process::start(&[&words("127.0.0.1:0")[..], &ttl].concat());
    let url = first.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    let second = Process::start(&[&["join", "two", "--url", &url][..], &ttl].concat());
    let (first_region, second_region) =
        (first.wait_for_event("owns")["region"].clone(), second.wait_for_event("owns")["region"].clone());
    wait_for_ticks(&url, &first_region);
    wait_for_ticks(&url, &second_region);
    drop(first);
    let restarted =
        Process::start(&[&words(url.strip_prefix("dunlin://").expect("a host"))[..], &ttl].concat());
    restarted.wait_for_event("started");
    second.wait_for("it goes on with its own", |object| {
        object["reclaimed"] == true && object["region"] == second_region
    });
    let is_copy = |object: &serde_json::Value| object["event"] == "owns" && object["from_tick"].is_u64();
    restarted.wait_for("it is given a region", is_copy);
    wait_for_ticks(&url, &first_region);
    wait_for_ticks(&url, &second_region);
}

/// Runs two processes, as the README shows. After one process is killed, the other runs all regions until a third
/// process joins.
#[test]
fn world_continues_in_one_process_after_the_other_is_killed() {
    // With a time to live this long, the leases survive a pause of the machine.
    let ttl = ["--ttl", "4s"];
    let run = ["run", "two", "--processes", "2", "--flock", "300", "--listen", "127.0.0.1:0"];
    let first = Process::start(&[&run[..], &ttl].concat());
    let url = first.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    let join = [&["join", "two", "--url", &url][..], &ttl].concat();
    let second = Process::start(&join);
    let (first_region, second_region) =
        (first.wait_for_event("owns")["region"].clone(), second.wait_for_event("owns")["region"].clone());
    wait_for_ticks(&url, &second_region);
    drop(second);
    let mut alone =
        [first.wait_for_event("alone")["region"].as_u64(), first.wait_for_event("alone")["region"].as_u64()];
    alone.sort_unstable();
    assert_eq!(alone, [Some(1), Some(2)]);
    wait_for_ticks(&url, &second_region);
    let _third = Process::start(&join);
    first.wait_for_event("released");
    wait_for_ticks(&url, &first_region);
    wait_for_ticks(&url, &second_region);
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
fn space_near_lists_entities_and_space_command_changes_them() {
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
/// may have its id.
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
    assert_refused(&["spawn", "7", "two", "--position", "990,990,990"], "entity 7 is in region");
    assert_refused(&["spawn", "7", "two", "--position", "10,10,10"], "entity 7 is in region");
    assert_refused(&["spawn", "9", "two", "--position", "10,10,1001"], "outside of the world");
    assert_eq!(run_json(&["despawn", "7", "two"])["entity"], "7");
    assert_refused(&["despawn", "7", "two"], "no region of the world has entity 7");
    let again = run_json(&["spawn", "7", "two", "--position", "990,990,990"]);
    assert_eq!(again["region"], second_entity["region"]);
}

/// If the second of two processes does not join within `--patience`, the first process must stop waiting and report
/// this.
#[test]
fn first_process_reports_that_others_did_not_join_in_time() {
    let words = ["run", "two", "--processes", "2", "--flock", "50", "--patience", "1ms"];
    let first = Process::start(&[&words[..], &["--listen", "127.0.0.1:0"]].concat());
    let object = first.wait_for_event("waited_out");
    assert_eq!((&object["processes"], &object["expected"]), (&1.into(), &2.into()));
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
    // The first recording alone does not contain the region that the process of its node has given up.
    let node = Node::start();
    node.run(&["feed", "replay", &folder("first"), "--speed", "max"]).done();
    assert!(count(&node).iter().all(|(region, _)| *region != moved));
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
