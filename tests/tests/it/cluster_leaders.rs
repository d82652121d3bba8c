//! Tests of leaders with a full disk, of leaders that are stopped or ended, and of leaders that replicate megabytes:
//! what happens to clients that write.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin_client::{Client, ClientOptions, ErrorCode, KvError, Transaction};
use dunlin_system_tests::port;
use dunlin_system_tests::proxy::Proxy;
use tempfile::TempDir;

use super::cluster_stage::{ClusterUnderTest, Member, start, start_with};

/// A small file system in memory.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts a file system of this size. Returns `None` if the user may not mount one.
    fn of(bytes: u64) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().expect("a directory");
        let size = format!("size={bytes}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then(|| SmallDisk(dir))
    }

    /// Fills the file system.
    fn fill(&self) {
        let mut file =
            OpenOptions::new().create(true).append(true).open(self.0.path().join("filler")).expect("a file");
        for bytes in [1 << 20, 1 << 10, 1] {
            while file.write_all(&vec![1; bytes]).is_ok() {}
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.path().join("filler")).expect("the file exists");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

fn readyz(member: &Member) -> String {
    let listener = member.listener("http");
    let mut stream = TcpStream::connect(&listener).expect("the port is open");
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {listener}\r\nConnection: close\r\n\r\n")
        .expect("the node reads the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the node sends a response");
    answer
}

/// A leader with a full disk must not stay ready and refuse all writes.
#[test]
fn leader_with_a_full_disk_is_not_ready_and_another_leads() {
    let Some(small) = SmallDisk::of(192 << 20) else {
        return eprintln!("passed over: this user may not mount a file system");
    };
    let first =
        start(&small.0.path().join("1"), &port::free().to_string(), None).expect("the program starts");
    let number = first.number;
    let mut flock = ClusterUnderTest { dir: tempfile::tempdir().expect("a directory"), members: vec![first] };
    flock.join("2").expect("the node joins");
    flock.join("3").expect("the node joins");
    flock.until_voters(3);
    flock.client().transfer(Some(number)).expect("the first leads");
    flock.until("the first leads", |heard| heard.iter().all(|status| status.leader == Some(number)));
    let is_ready = |flock: &ClusterUnderTest| readyz(&flock.members[0]).starts_with("HTTP/1.1 200");
    dunlin_wait::until("the first is ready", || is_ready(&flock));
    small.fill();
    let value = "x".repeat(256 << 10);
    let lacks_room = |flock: &ClusterUnderTest| {
        let heard = flock.heard();
        let first = heard.iter().find(|status| status.node == number);
        first.and_then(|status| status.missing.clone()).is_some_and(|why| why.starts_with("no room for "))
    };
    while !lacks_room(&flock) {
        flock.ask(1, &format!("put large {value}"), "put large ");
    }
    flock.until("another leads", |heard| {
        heard.iter().all(|status| status.leader.is_some_and(|leader| leader != number))
    });
    let said = readyz(&flock.members[0]);
    assert!(said.starts_with("HTTP/1.1 503") && said.contains("no room for "), "{said}");
    // Writes through every node must succeed.
    for at in 0..3 {
        flock.put(at, "key", &format!("at-{at}"));
    }
    small.make_room();
    flock.until_voters(3);
    dunlin_wait::until("the first is ready again", || is_ready(&flock));
    assert_eq!(flock.get(0, "key"), "at-2");
}

/// If a leader ends in order, writers must not receive `COMMAND_UNKNOWN`.
#[test]
fn stopping_node_leaves_no_write_with_unknown_outcome() {
    let listeners: Vec<String> = (0..3).map(|_| port::free().to_string()).collect();
    let options: Vec<Vec<String>> =
        listeners.iter().map(|listener| vec![format!("listener={listener}")]).collect();
    let mut flock = ClusterUnderTest::with(&options);
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (url, is_over) = (format!("dunlin://{}", listeners.join(",")), Arc::clone(&is_over));
            std::thread::spawn(move || {
                let client = Client::connect(&url, ClientOptions::default()).expect("a node is there");
                let (kv, mut count) = (client.kv(), 0_u64);
                while !is_over.load(Ordering::Relaxed) {
                    count += 1;
                    loop {
                        match kv.put(format!("of-{writer}"), count.to_string()) {
                            Ok(_) => break,
                            // On a busy machine a running node may lose the leadership.
                            Err(KvError::Unknown(why)) if why.starts_with("the leader changed") => {}
                            Err(error) if error.code() == Some(ErrorCode::NoLeader) => {}
                            Err(error) => panic!("writer {writer}, put {count}: {error}"),
                        }
                    }
                }
                let held =
                    kv.get(format!("of-{writer}")).expect("the key can be read").expect("the key exists");
                assert_eq!(*held.value, *count.to_string().as_bytes());
            })
        })
        .collect();
    for own in &options {
        let mut ended = flock.members.remove(0);
        ended.process.say("end");
        ended.process.until("ended in order");
        ended.process.wait();
        let again = start_with(&ended.dir, &ended.address, None, own).expect("the node starts again");
        flock.members.push(again);
        flock.until_voters(3);
    }
    is_over.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().expect("no write failed"));
}

/// Returns the CPU time of a node's threads with this name, and of its threads whose names begin with it.
fn used_ns(member: &Member, name: &str) -> (u64, u64) {
    let (mut of_it, mut of_others) = (0, 0);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", member.process.pid())).expect("the process runs");
    for task in tasks.map(|task| task.expect("the thread can be listed").path()) {
        // A thread may end while its files are read.
        let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        let (comm, ns) = (read("comm"), read("schedstat"));
        let ns: u64 = ns.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
        match comm.trim_end() {
            comm if comm == name => of_it += ns,
            comm if comm.starts_with(name) => of_others += ns,
            _ => {}
        }
    }
    (of_it, of_others)
}

/// Heartbeats must not wait for the thread that copies and encrypts megabytes.
#[test]
fn large_transactions_change_neither_leader_nor_term() {
    let listen = [0, 1, 2].map(|_| port::free());
    let links = listen.map(|at| Proxy::with_delay(at, Duration::from_millis(5)));
    let options = |at: usize| vec![format!("advertise={}", links[at].address), "heartbeat=800".to_owned()];
    let dir = tempfile::tempdir().expect("a directory");
    let start = |at: usize, join: Option<(&str, &Path)>| {
        let dir = dir.path().join((at + 1).to_string());
        start_with(&dir, &listen[at].to_string(), join, &options(at)).expect("the program starts")
    };
    let first = start(0, None);
    let mut flock = ClusterUnderTest { dir: tempfile::tempdir().expect("a directory"), members: vec![first] };
    for at in [1, 2] {
        let (token, through) = (flock.token(false), flock.members[0].address.clone());
        flock.members.push(start(at, Some((&through, &token))));
    }
    flock.until_voters(3);
    let leads = |flock: &ClusterUnderTest| {
        let at = flock.leader();
        let number = flock.members[at].number;
        let term = flock.heard().into_iter().find(|status| status.node == number).map(|status| status.term);
        (at, term)
    };
    let (leader, term) = leads(&flock);
    let client = flock.members[(leader + 1) % 3].connect();
    let used = |flock: &ClusterUnderTest| used_ns(&flock.members[leader], "dunlin-cluster");
    let before = used(&flock);
    let value = vec![7; 900 << 10];
    let keys: Vec<Vec<u8>> = (0..8).map(|key| format!("large-{key}").into_bytes()).collect();
    let large = keys.iter().fold(Transaction::new(), |all, key| all.put(key, &value));
    // Writes more bytes than the log may hold. The node then takes a snapshot and deletes the oldest changes while it
    // replicates.
    for number in 0..12 {
        loop {
            match client.kv().transact(&large) {
                Ok(_) => break,
                // On a busy machine the write may time out.
                Err(KvError::Unknown(_)) => {}
                Err(error) if error.code() == Some(ErrorCode::NoLeader) => {}
                Err(error) => panic!("transaction {number}: {error}"),
            }
        }
    }
    let after = used(&flock);
    assert_eq!(leads(&flock), (leader, term), "the leader changed");
    let (of_heartbeats, of_megabytes) = (after.0 - before.0, after.1 - before.1);
    assert!(
        of_heartbeats < of_megabytes,
        "the thread of heartbeats worked for {of_heartbeats} ns, those beside it for {of_megabytes} ns"
    );
}

/// A leader must accept writes although responses of its followers take longer than 30 ms.
#[test]
fn links_with_100_ms_of_delay_do_not_stop_writes() {
    let listen = [0, 1, 2].map(|_| port::free());
    let links = listen.map(|at| Proxy::with_delay(at, Duration::from_millis(100)));
    let options = |at: usize| vec![format!("advertise={}", links[at].address)];
    let dir = tempfile::tempdir().expect("a directory");
    let mut flock = ClusterUnderTest { dir, members: Vec::new() };
    for (at, address) in listen.iter().enumerate() {
        let (home, address) = (flock.dir.path().join((at + 1).to_string()), address.to_string());
        let member = match flock.members.first().map(|first| first.address.clone()) {
            None => start_with(&home, &address, None, &options(at)),
            Some(through) => start_with(&home, &address, Some((&through, &flock.token(false))), &options(at)),
        };
        flock.members.push(member.expect("the program starts"));
    }
    flock.until_voters(3);
    for number in 0..10 {
        let value = number.to_string();
        flock.put(number % 3, "key", &value);
        assert_eq!(flock.get((number + 1) % 3, "key"), value);
    }
}

/// A write that was sent to a frozen leader must fail or succeed long before the connection's timeout.
#[test]
fn write_to_a_frozen_leader_goes_to_the_next_leader() {
    // This timeout is longer than the test, so only a new leader or term can end the wait.
    let own = vec!["silent=600000".to_owned()];
    let mut flock = ClusterUnderTest::with(&[own.clone(), own.clone(), own]);
    for round in 0..3 {
        let leader = flock.leader();
        let other = (leader + 1) % 3;
        flock.put(other, "key", "before");
        flock.members[leader].process.stop();
        for number in 0..5 {
            flock.put(other, "key", &format!("{round}-{number}"));
        }
        assert_eq!(flock.get(other, "key"), format!("{round}-4"));
        flock.members[leader].process.go_on();
        flock.until_voters(3);
    }
}
