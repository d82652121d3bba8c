//! Tests of commands that run until they are stopped, such as `dunlin sub`. Each command must report when the node is
//! lost and when the node is back. On Ctrl-C, each command must end at once.

use dunlin_wait::{PATIENCE, find, until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::dunlin::{Node, RunningProgram, dunlin, signal};

/// A running command and the lines that it prints.
struct Following {
    program: RunningProgram,
    errors: Receiver<String>,
    out: Receiver<String>,
}

impl Following {
    fn start(node: &Node, arguments: &[&str]) -> Following {
        let mut child =
            node.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (errors, out) = (lines(child.stderr.take().unwrap()), lines(child.stdout.take().unwrap()));
        Following { program: child.into(), errors, out }
    }

    fn expect_error(&self, what: &str, arguments: &[&str]) {
        let line = || self.errors.recv_timeout(PATIENCE);
        let found = std::iter::from_fn(|| line().ok()).any(|line| line.contains(what));
        assert!(found, "{arguments:?} does not say {what}");
    }

    /// Interrupts the command, as Ctrl-C does, and checks its exit code. `arguments` names the command in errors.
    fn interrupt(mut self, arguments: &[&str]) {
        signal("INT", self.program.id());
        let status = find(format_args!("the end of {arguments:?}"), || self.program.try_wait().unwrap());
        assert_eq!(status.code(), Some(0), "{arguments:?}");
    }
}

fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        BufReader::new(pipe).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    lines
}

/// Pairs of commands. The first command of each pair runs until it is stopped. The second command makes the first one
/// print a line.
const COMMANDS: [(&[&str], &[&str]); 4] = [
    (&["sub", "ticks"], &["pub", "ticks", "again"]),
    (&["kv", "watch"], &["kv", "put", "a", "again"]),
    (&["task", "watch"], &["task", "submit", "count", "again"]),
    (&["feed", "watch", "quotes"], &["pub", "quotes", "again", "--key", "k"]),
];

/// Starts all [`COMMANDS`], and waits until each of them has printed an event that occurred after the command's start.
fn start_all(node: &Node) -> [Following; 4] {
    node.run(&["topics", "create", "quotes", "--reducer", "last"]).done();
    node.run(&["task", "submit", "count", "before"]).done();
    let following = COMMANDS.map(|(command, _)| Following::start(node, command));
    for ((command, trigger), following) in COMMANDS.iter().zip(&following) {
        until(format_args!("{command:?} writes something"), || {
            node.run(trigger).done();
            following.out.try_recv().is_ok()
        });
    }
    following
}

#[test]
fn commands_reconnect_to_a_frozen_node_that_resumes() {
    let node = Node::start();
    let following = start_all(&node);
    signal("STOP", node.pid());
    for ((command, _), following) in COMMANDS.iter().zip(&following) {
        following.expect_error("connection lost", command);
    }
    signal("CONT", node.pid());
    for ((command, trigger), following) in COMMANDS.iter().zip(following) {
        following.expect_error("connected again", command);
        while following.out.try_recv().is_ok() {}
        node.run(trigger).done();
        following.out.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{command:?} does not go on"));
        following.interrupt(command);
    }
}

#[test]
fn interrupt_ends_commands_connected_to_a_frozen_node() {
    let node = Node::start();
    let following = start_all(&node);
    signal("STOP", node.pid());
    for ((command, _), following) in COMMANDS.iter().zip(following) {
        following.expect_error("connection lost", command);
        following.interrupt(command);
    }
    signal("CONT", node.pid());
}

#[test]
fn world_watch_reports_a_frozen_node_and_ends_on_interrupt() {
    let run = [
        "space",
        "run",
        "--listen",
        "127.0.0.1:0",
        "--processes",
        "1",
        "--no-standby",
        "--flock",
        "50",
        "--json",
    ];
    let mut world = dunlin(&run).stdout(Stdio::piped()).spawn().unwrap();
    let output = lines(world.stdout.take().unwrap());
    let world: RunningProgram = world.into();
    let url = loop {
        let line = output.recv_timeout(PATIENCE).expect("the line with the node's address");
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        if let Some(url) = object["url"].as_str() {
            break url.to_owned();
        }
    };
    let mut watch = dunlin(&["space", "watch", "--json", "--url", &url]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (errors, out) = (lines(watch.stderr.take().unwrap()), lines(watch.stdout.take().unwrap()));
    let following = Following { program: watch.into(), errors, out };
    following.out.recv_timeout(PATIENCE).expect("a line about the world");
    drop(world);
    following.expect_error("connection lost", &["space", "watch"]);
    following.interrupt(&["space", "watch"]);
}

/// Starts a proxy for one connection to the node. As soon as the node has sent the bytes `last`, the proxy forwards
/// none of the node's later bytes. Returns the URL of the proxy.
fn freezing_proxy(node: &Node, last: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("dunlin://{}", listener.local_addr().unwrap());
    let mut from_node = TcpStream::connect(node.url.replace("dunlin://", "")).unwrap();
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let (mut from_client, mut to_node) = (client.try_clone().unwrap(), from_node.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from_client, &mut to_node));
        let (mut bytes, mut forwarded) = ([0; 4096], Vec::new());
        while let Ok(len @ 1..) = from_node.read(&mut bytes) {
            client.write_all(&bytes[..len]).unwrap();
            forwarded.extend_from_slice(&bytes[..len]);
            if forwarded.windows(last.len()).any(|window| window == last) {
                break;
            }
        }
        // The thread never ends, so that its sockets stay open.
        thread::park();
        drop((listener, client, from_node));
    });
    url
}

#[test]
fn dunlin_space_near_reports_a_silent_node_as_connection_lost() {
    let node = Node::start();
    node.run(&["kv", "put", "space/w/world", "{}"]).done();
    let url = freezing_proxy(&node, b"space/w/world");
    let command = ["space", "near", "77", "w", "--within", "5", "--url", &url];
    let following = Following::start(&node, &command);
    let line = following.errors.recv_timeout(PATIENCE).expect("the command reports the silent node");
    assert!(line.contains("connection lost"), "{line}");
    following.interrupt(&command);
}

/// Starts a proxy that accepts each connection, and closes it at the client's first request. Returns the URL of the
/// proxy and a counter of closed connections.
fn closing_proxy(node: &Node) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("dunlin://{}", listener.local_addr().unwrap());
    let (node_address, closed_connections) =
        (node.url.replace("dunlin://", ""), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&closed_connections);
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let Ok(mut node) = TcpStream::connect(&node_address) else { return };
            let (mut to_client, from_node) = (client.try_clone().unwrap(), node.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut &from_node, &mut to_client));
            let mut bytes = [0; 4096];
            // The client's first message is HELLO, which is forwarded. Its second message is a request, which is not
            // forwarded.
            if let Ok(len) = client.read(&mut bytes)
                && node.write_all(&bytes[..len]).is_ok()
            {
                let _ = client.read(&mut bytes);
            }
            let _ = (client.shutdown(Shutdown::Both), node.shutdown(Shutdown::Both));
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    (url, closed_connections)
}

#[test]
fn signal_ends_a_command_that_reconnects_forever() {
    let node = Node::start();
    let (url, closed_connections) = closing_proxy(&node);
    let commands: [&[&str]; 5] = [
        &["sub", "ticks"],
        &["sub", "ticks", "--group", "crew"],
        &["kv", "watch"],
        &["pub", "ticks", "x"],
        &["reply", "ticks", "--echo"],
    ];
    for arguments in commands {
        let mut program: RunningProgram = dunlin(arguments).env("DUNLIN_URL", &url).spawn().unwrap().into();
        let before = closed_connections.load(Ordering::Relaxed);
        until(format_args!("{arguments:?} tries again"), || {
            closed_connections.load(Ordering::Relaxed) > before + 2
        });
        signal("TERM", program.id());
        find(format_args!("the end of {arguments:?}"), || program.try_wait().unwrap());
    }
}
