//! Tests of `dunlin top` with running nodes: as plain text, as JSON, and in a terminal.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use dunlin_client::topic::SubscribeOptions;
use dunlin_client::{Client, ClientOptions};
use dunlin_wait::{Deadline, PATIENCE, find};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

use crate::dunlin::{Node, RunningProgram, dunlin, run_with};

#[test]
fn dunlin_top_once_option_prints_the_figures_of_the_node() {
    let node = Node::start();
    node.run(&["pub", "orders", "one", "two", "three"]).done();
    node.run(&["task", "submit", "thumb", "a.png", "--tenant", "acme"]).done();
    // If the output is not a terminal, it is plain text.
    for arguments in [&["top", "--once"][..], &["top"]] {
        let out = node.run(arguments).done();
        let line = |start: &str| {
            out.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {out}"))
        };
        assert!(out.starts_with("node 1 ") && out.lines().next().unwrap().ends_with(&node.url), "{out}");
        assert!(line("  listeners").contains("tcp 127.0.0.1:"), "{out}");
        let orders: Vec<&str> = line("orders").split_whitespace().collect();
        assert_eq!(
            (orders[0], orders[3..].iter().find(|cell| **cell == "3")),
            ("orders", Some(&"3")),
            "{out}"
        );
        assert!(line("   1  ").contains(" up "), "{out}");
        assert!(line("acme").contains('1'), "{out}");
    }
    let object: Value = serde_json::from_str(&node.run(&["top", "--once", "--json"]).done()).unwrap();
    assert_eq!(
        (&object["topics"]["topics"][0]["name"], &object["unreachable"]),
        (&"orders".into(), &Value::Null),
        "{object}"
    );
    assert!(object["stats"]["rates"]["records_per_s"].is_number(), "{object}");
}

#[test]
fn top_shows_a_killed_node_as_absent_until_it_returns() {
    let node = Node::start();
    let address = node.url.strip_prefix("dunlin://").unwrap().to_owned();
    let mut top: RunningProgram =
        node.command(&["top", "--json"]).stdout(Stdio::piped()).spawn().unwrap().into();
    let objects = objects(top.stdout.take().unwrap());
    let first = next_matching(&objects, "it is heard of", |object| object["unreachable"].is_null());
    node.kill();
    let unreachable = next_matching(&objects, "it is unreachable", |object| !object["unreachable"].is_null());
    assert_eq!(unreachable["stats"]["node"], first["stats"]["node"], "what it said last is kept");
    let restarted = Node::start_with(&["--listen", &address]);
    let returned = next_matching(&objects, "it is back", |object| {
        object["unreachable"].is_null() && object["stats"]["node"] != first["stats"]["node"]
    });
    assert_eq!(returned["url"], restarted.url.as_str());
}

#[test]
fn dunlin_top_names_the_permission_that_its_user_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.toml");
    let file = file.to_str().unwrap();
    let add = dunlin(&["user", "--users-file", file, "add", "ana", "--subscribe", "orders.>"]);
    assert_eq!(run_with(add, b"open sesame\n").code, Some(0));
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "open sesame\n").unwrap();
    let node = Node::start_with(&["--auth-users-file", file]);
    let outcome = node.run(&["top", "--once", "--user", "ana", "--password-file", secret.to_str().unwrap()]);
    assert!(outcome.code == Some(1) && outcome.err.contains("surveys"), "{outcome:?}");
}

#[test]
fn top_draws_in_a_terminal_until_q_is_pressed() {
    let node = Node::start();
    node.run(&["pub", "orders", "one"]).done();
    let (mut top, mut keys, chunks) = start_in_terminal(&node, &["top"]);
    let mut output = Vec::new();
    while !(contains(&output, "records per second") && contains(&output, "orders")) {
        let more = chunks.recv_timeout(PATIENCE);
        output.extend(more.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output))));
    }
    keys.write_all(b"q").unwrap();
    let status = find("q ends it", || top.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn top_with_option_json_escapes_control_codes_on_a_terminal() {
    let node = Node::start();
    node.run(&["pub", "orders", "one"]).done();
    let client = Client::connect(&node.url, ClientOptions::default()).unwrap();
    let options = SubscribeOptions { name: "\u{9b}31mRED\u{7f}".to_owned(), ..SubscribeOptions::default() };
    let _subscriber = client.subscribe("orders", options).unwrap();
    let (_top, _keys, chunks) = start_in_terminal(&node, &["top", "--json"]);
    let mut output = Vec::new();
    while !contains(&output, "31mRED") {
        let more = chunks.recv_timeout(PATIENCE);
        output.extend(more.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output))));
    }
    assert!(contains(&output, "\\u009b31mRED"), "{}", String::from_utf8_lossy(&output));
    assert!(!contains(&output, "\u{9b}") && !contains(&output, "\u{7f}"));
}

/// Starts the program in a terminal. Returns the program, a file through which the test presses keys, and a channel
/// with the bytes that the program draws.
fn start_in_terminal(node: &Node, arguments: &[&str]) -> (RunningProgram, File, Receiver<Vec<u8>>) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    tcsetwinsize(&master, Winsize { ws_row: 50, ws_col: 140, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let slave = || OwnedFd::from(File::options().read(true).write(true).open(&name).unwrap());
    let mut command = node.command(arguments);
    command.env("TERM", "xterm-256color").stdin(slave()).stdout(slave()).stderr(Stdio::piped());
    let program: RunningProgram = command.spawn().unwrap().into();
    drop(command);
    let keys = File::from(master);
    let mut screen = keys.try_clone().unwrap();
    let (sender, chunks) = channel();
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        // The read fails when the program has closed its side of the terminal.
        while let Ok(count @ 1..) = screen.read(&mut bytes) {
            if sender.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    (program, keys, chunks)
}

fn contains(output: &[u8], text: &str) -> bool {
    output.windows(text.len()).any(|window| window == text.as_bytes())
}

fn objects(out: impl Read + Send + 'static) -> Receiver<Value> {
    let (sender, objects) = channel();
    thread::spawn(move || {
        BufReader::new(out)
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(serde_json::from_str(&line).expect("an object")))
    });
    objects
}

fn next_matching(objects: &Receiver<Value>, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let deadline = Deadline::new();
    loop {
        deadline.check(what);
        let object = objects.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{what}: {error}"));
        if condition(&object) {
            return object;
        }
    }
}
