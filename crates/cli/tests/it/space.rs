//! Worlds over processes: small, killed and come back, everybody counted from outside.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::dunlin::{Program, dunlin, run};

/// Longer than anything here takes, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

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
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let said = self.said.recv_timeout(left).unwrap_or_else(|why| panic!("{what}: {why}"));
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

/// Two processes, as the README has it: one is killed, and the other goes on with everybody until another joins.
#[test]
fn a_world_goes_on_in_the_only_process_that_is_left() {
    let ttl = ["--ttl", "1s"];
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
    let watch = Process::start(&["watch", "two", "--url", url]);
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
