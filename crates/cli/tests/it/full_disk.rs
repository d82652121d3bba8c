//! Tests that a node reports when its disk is full, and when the disk has room again.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use dunlin_client::topic::{DurableOptions, Publish, PublishError, TopicConfig};
use dunlin_client::{Client, ClientOptions};
use dunlin_wait::until;
use tempfile::TempDir;

use crate::dunlin::{RunningProgram, dunlin};
use crate::http::curl;

const FULL: &str = "the node cannot store some of the new data: no room for keys";
const HAS_ROOM: &str = "the node can store new data again";

/// A small file system in memory, mounted at a temporary directory. Dropping the value unmounts it.
struct Small(TempDir);

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

/// Mounts a small file system; returns `None` if the user may not mount file systems.
fn small_disk() -> Option<Small> {
    let dir = tempfile::tempdir().unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"]).arg(dir.path()).output();
    mounted.is_ok_and(|mounted| mounted.status.success()).then(|| Small(dir))
}

/// Fills the file system with one large file at the path `file`.
fn fill(file: &Path) {
    let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    for bytes in [1 << 20, 1 << 10, 1] {
        while file.write_all(&vec![1; bytes]).is_ok() {}
    }
}

/// A running node whose data directory is on a small file system.
struct Serving {
    _program: RunningProgram,
    ready: String,
    log: Arc<Mutex<String>>,
}

impl Serving {
    fn start(small: &Small) -> Serving {
        let dir = small.0.path().join("node");
        let listen = ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--data-dir"];
        let mut command = dunlin(&[&["serve"], &listen[..], &[dir.to_str().unwrap()]].concat());
        let mut program: RunningProgram =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts").into();
        let mut ready = String::new();
        BufReader::new(program.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (errors, captured) = (BufReader::new(program.stderr.take().unwrap()), Arc::clone(&log));
        std::thread::spawn(move || {
            errors.lines().map_while(Result::ok).for_each(|line| *captured.lock().unwrap() += &(line + "\n"));
        });
        Serving { _program: program, ready, log }
    }

    fn at(&self, protocol: &str) -> &str {
        self.ready.split_whitespace().find_map(|word| word.strip_prefix(protocol)).unwrap()
    }

    fn client(&self) -> Client {
        Client::connect(&format!("dunlin://{}", self.at("tcp=")), ClientOptions::default()).unwrap()
    }

    fn readyz(&self) -> String {
        curl(&[&format!("http://{}/readyz", self.at("http="))])
    }
}

/// While the disk is full, the node must not be ready, and must log only one line about the full disk.
#[test]
fn full_disk_is_reported_until_there_is_room() {
    let Some(small) = small_disk() else {
        return eprintln!("passed over: this user may not mount a file system");
    };
    let node = Serving::start(&small);
    let (client, log) = (node.client(), Arc::clone(&node.log));
    let readyz = || node.readyz();
    client.kv().put("key", "value").unwrap();
    until("the node is ready", || readyz().contains("\"ready\":true"));
    fill(&small.0.path().join("filler"));
    let large = vec![1; 256 << 10];
    let (mut is_unready, log) = (false, move || log.lock().unwrap().clone());
    until("the node and its log say that there is no room", || {
        // This write may succeed, because a node with a full disk removes old log entries.
        let _ = client.kv().put("large", &large);
        is_unready |= readyz().contains("no room for keys");
        is_unready && log().contains(FULL)
    });
    std::fs::remove_file(small.0.path().join("filler")).unwrap();
    until("the node is ready again", || readyz().contains("\"ready\":true"));
    until("the log says so", || log().contains(HAS_ROOM));
    let text = log();
    assert_eq!((text.matches(FULL).count(), text.matches(HAS_ROOM).count()), (1, 1), "{text}");
    client.kv().put("large", &large).unwrap();
}

/// After 5 s without a response, a disk counts as slow. Before that, the publisher must receive the error for a full
/// disk. The node must then not be ready.
#[test]
fn publish_to_a_nearly_full_disk_is_refused_as_disk_full() {
    let Some(small) = small_disk() else {
        return eprintln!("passed over: this user may not mount a file system");
    };
    let node = Serving::start(&small);
    let client = node.client();
    let durable = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    client.create_topic("kept", &durable, false).unwrap();
    let mut publisher = client.publisher("kept").unwrap();
    publisher.publish(b"first").unwrap();
    until("the node is ready", || node.readyz().contains("\"ready\":true"));
    let filler = small.0.path().join("filler");
    fill(&filler);
    let file = OpenOptions::new().write(true).open(&filler).unwrap();
    file.set_len(file.metadata().unwrap().len() - (3 << 20)).unwrap();
    // Close the file before it is removed: the space of an open file is not freed.
    drop(file);
    let large = vec![1; 900 << 10];
    let (mut accepted, mut refused) = (0, None);
    while refused.is_none() {
        match publisher.publish(&large[..]) {
            Ok(_) => accepted += 1,
            Err(error) => refused = Some(error),
        }
    }
    let refused = refused.unwrap();
    assert!(matches!(refused, PublishError::DiskFull(_)), "{refused}, after {accepted}");
    assert!(accepted > 0, "there is room for one: {refused}");
    until("readiness says so", || node.readyz().contains("no room for records of durable topics"));
    std::fs::remove_file(filler).unwrap();
    until("there is room again", || publisher.publish(&large[..]).is_ok());
    until("the node is ready again", || node.readyz().contains("\"ready\":true"));
}
