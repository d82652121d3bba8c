//! Tests of clients that write while their cluster's leader has a full disk, is stopped or shut down, or replicates
//! megabytes.

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

use super::cluster_under_test::{ClusterNode, ClusterUnderTest, start, start_with};

/// A mounted file system of limited size, whose data are in memory.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts a file system of `bytes` bytes. Returns `None` if the user may not mount a file system.
    fn of(bytes: u64) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().expect("a directory");
        let size = format!("size={bytes}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then(|| SmallDisk(dir))
    }

    /// Writes a file that fills the file system.
    fn fill(&self) {
        let mut file =
            OpenOptions::new().create(true).append(true).open(self.0.path().join("filler")).expect("a file");
        for bytes in [1 << 20, 1 << 10, 1] {
            while file.write_all(&vec![1; bytes]).is_ok() {}
        }
    }

    fn free_space(&self) {
        std::fs::remove_file(self.0.path().join("filler")).expect("the file exists");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

fn readyz(member: &ClusterNode) -> String {
    let listener = member.listener("http");
    let mut stream = TcpStream::connect(&listener).expect("the port is open");
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {listener}\r\nConnection: close\r\n\r\n")
        .expect("the node reads the request");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("the node sends a response");
    response
}

/// A leader whose disk is full must give up the leadership, and must report that it is not ready.
#[test]
fn leader_with_a_full_disk_is_replaced_and_reports_not_ready() {
    let Some(small) = SmallDisk::of(192 << 20) else {
        return eprintln!("passed over: this user may not mount a file system");
    };
    let first =
        start(&small.0.path().join("1"), &port::free().to_string(), None).expect("the program starts");
    let number = first.number;
    let mut cluster =
        ClusterUnderTest { dir: tempfile::tempdir().expect("a directory"), members: vec![first] };
    cluster.join("2").expect("the node joins");
    cluster.join("3").expect("the node joins");
    cluster.wait_for_voters(3);
    cluster.client().transfer(Some(number)).expect("the first leads");
    cluster.wait_until("the first leads", |statuses| {
        statuses.iter().all(|status| status.leader == Some(number))
    });
    let is_ready = |cluster: &ClusterUnderTest| readyz(&cluster.members[0]).starts_with("HTTP/1.1 200");
    dunlin_wait::until("the first is ready", || is_ready(&cluster));
    small.fill();
    let value = "x".repeat(256 << 10);
    let lacks_room = |cluster: &ClusterUnderTest| {
        let statuses = cluster.statuses();
        let first = statuses.iter().find(|status| status.node == number);
        first
            .and_then(|status| status.missing.clone())
            .is_some_and(|reason| reason.starts_with("no room for "))
    };
    while !lacks_room(&cluster) {
        cluster.request(1, &format!("put large {value}"), "put large ");
    }
    cluster.wait_until("another leads", |statuses| {
        statuses.iter().all(|status| status.leader.is_some_and(|leader| leader != number))
    });
    let response = readyz(&cluster.members[0]);
    assert!(response.starts_with("HTTP/1.1 503") && response.contains("no room for "), "{response}");
    // Writes must succeed through every node.
    for at in 0..3 {
        cluster.put(at, "key", &format!("at-{at}"));
    }
    small.free_space();
    cluster.wait_for_voters(3);
    dunlin_wait::until("the first is ready again", || is_ready(&cluster));
    assert_eq!(cluster.get(0, "key"), "at-2");
}

/// If a leader is shut down in order, no write may fail with `COMMAND_UNKNOWN`.
#[test]
fn node_shutdown_leaves_no_write_with_an_unknown_outcome() {
    let listeners: Vec<String> = (0..3).map(|_| port::free().to_string()).collect();
    let options: Vec<Vec<String>> =
        listeners.iter().map(|listener| vec![format!("listener={listener}")]).collect();
    let mut cluster = ClusterUnderTest::with(&options);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (url, stop) = (format!("dunlin://{}", listeners.join(",")), Arc::clone(&stop));
            std::thread::spawn(move || {
                let client = Client::connect(&url, ClientOptions::default()).expect("a node is there");
                let (kv, mut count) = (client.kv(), 0_u64);
                while !stop.load(Ordering::Relaxed) {
                    count += 1;
                    loop {
                        match kv.put(format!("of-{writer}"), count.to_string()) {
                            Ok(_) => break,
                            // On a busy machine, a node may lose the leadership even if it is not being shut down. The
                            // loop then repeats the write.
                            Err(KvError::Unknown(reason)) if reason.starts_with("the leader changed") => {}
                            Err(error) if error.code() == Some(ErrorCode::NoLeader) => {}
                            Err(error) => panic!("writer {writer}, put {count}: {error}"),
                        }
                    }
                }
                let item =
                    kv.get(format!("of-{writer}")).expect("the key can be read").expect("the key exists");
                assert_eq!(*item.value, *count.to_string().as_bytes());
            })
        })
        .collect();
    for node_options in &options {
        let mut stopping = cluster.members.remove(0);
        stopping.process.write_line("end");
        stopping.process.read_until("ended in order");
        stopping.process.wait();
        let restarted =
            start_with(&stopping.dir, &stopping.address, None, node_options).expect("the node starts again");
        cluster.members.push(restarted);
        cluster.wait_for_voters(3);
    }
    stop.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().expect("no write failed"));
}

/// Returns the CPU time of the node's threads in ns, as two sums: of the threads whose name is `name`, and of the
/// threads whose name is longer and begins with `name`.
fn cpu_ns(member: &ClusterNode, name: &str) -> (u64, u64) {
    let (mut own_ns, mut other_ns) = (0, 0);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", member.process.pid())).expect("the process runs");
    for task in tasks.map(|task| task.expect("the thread can be listed").path()) {
        // A thread that ends while its files are read counts as 0.
        let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        let (comm, ns) = (read("comm"), read("schedstat"));
        let ns: u64 = ns.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
        match comm.trim_end() {
            comm if comm == name => own_ns += ns,
            comm if comm.starts_with(name) => other_ns += ns,
            _ => {}
        }
    }
    (own_ns, other_ns)
}

/// The node copies and encrypts megabytes for replication in a separate thread. Heartbeats must not wait for this
/// thread.
#[test]
fn large_transactions_change_neither_leader_nor_term() {
    let listen = [0, 1, 2].map(|_| port::free());
    let proxies = listen.map(|at| Proxy::with_delay(at, Duration::from_millis(5)));
    let options = |at: usize| vec![format!("advertise={}", proxies[at].address), "heartbeat=800".to_owned()];
    let dir = tempfile::tempdir().expect("a directory");
    let start = |at: usize, join: Option<(&str, &Path)>| {
        let dir = dir.path().join((at + 1).to_string());
        start_with(&dir, &listen[at].to_string(), join, &options(at)).expect("the program starts")
    };
    let first = start(0, None);
    let mut cluster =
        ClusterUnderTest { dir: tempfile::tempdir().expect("a directory"), members: vec![first] };
    for at in [1, 2] {
        let (token, join_address) = (cluster.token(false), cluster.members[0].address.clone());
        cluster.members.push(start(at, Some((&join_address, &token))));
    }
    cluster.wait_for_voters(3);
    let leader_and_term = |cluster: &ClusterUnderTest| {
        let at = cluster.leader();
        let number = cluster.members[at].number;
        let term =
            cluster.statuses().into_iter().find(|status| status.node == number).map(|status| status.term);
        (at, term)
    };
    let (leader, term) = leader_and_term(&cluster);
    let client = cluster.members[(leader + 1) % 3].connect();
    let cluster_cpu_ns = |cluster: &ClusterUnderTest| cpu_ns(&cluster.members[leader], "dunlin-cluster");
    let before = cluster_cpu_ns(&cluster);
    let value = vec![7; 900 << 10];
    let keys: Vec<Vec<u8>> = (0..8).map(|key| format!("large-{key}").into_bytes()).collect();
    let large = keys.iter().fold(Transaction::new(), |all, key| all.put(key, &value));
    // Writes more bytes than the log may hold. The node therefore also takes a snapshot and deletes the oldest entries
    // of the log while it replicates.
    for number in 0..12 {
        loop {
            match client.kv().transact(&large) {
                Ok(_) => break,
                // On a busy machine, the write may time out, and is then repeated.
                Err(KvError::Unknown(_)) => {}
                Err(error) if error.code() == Some(ErrorCode::NoLeader) => {}
                Err(error) => panic!("transaction {number}: {error}"),
            }
        }
    }
    let after = cluster_cpu_ns(&cluster);
    assert_eq!(leader_and_term(&cluster), (leader, term), "the leader changed");
    let (heartbeat_ns, replication_ns) = (after.0 - before.0, after.1 - before.1);
    assert!(
        heartbeat_ns < replication_ns,
        "the thread of heartbeats worked for {heartbeat_ns} ns, those beside it for {replication_ns} ns"
    );
}

/// A leader must accept writes even if its followers take longer than 30 ms to respond.
#[test]
fn links_with_100_ms_of_delay_do_not_stop_writes() {
    let listen = [0, 1, 2].map(|_| port::free());
    let proxies = listen.map(|at| Proxy::with_delay(at, Duration::from_millis(100)));
    let options = |at: usize| vec![format!("advertise={}", proxies[at].address)];
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = ClusterUnderTest { dir, members: Vec::new() };
    for (at, address) in listen.iter().enumerate() {
        let (node_dir, address) = (cluster.dir.path().join((at + 1).to_string()), address.to_string());
        let member = match cluster.members.first().map(|first| first.address.clone()) {
            None => start_with(&node_dir, &address, None, &options(at)),
            Some(join_address) => {
                start_with(&node_dir, &address, Some((&join_address, &cluster.token(false))), &options(at))
            }
        };
        cluster.members.push(member.expect("the program starts"));
    }
    cluster.wait_for_voters(3);
    for number in 0..10 {
        let value = number.to_string();
        cluster.put(number % 3, "key", &value);
        assert_eq!(cluster.get((number + 1) % 3, "key"), value);
    }
}

/// A write is sent to a leader, and then the leader is frozen. The write must get a result long before its connection
/// times out.
#[test]
fn write_to_a_frozen_leader_goes_to_the_next_leader() {
    // A connection to a silent node times out after 600 s, long after the end of this test. Within the test, only a new
    // leader or term can end the wait for the response.
    let node_options = vec!["silent=600000".to_owned()];
    let mut cluster = ClusterUnderTest::with(&[node_options.clone(), node_options.clone(), node_options]);
    for round in 0..3 {
        let leader = cluster.leader();
        let other = (leader + 1) % 3;
        cluster.put(other, "key", "before");
        cluster.members[leader].process.stop();
        for number in 0..5 {
            cluster.put(other, "key", &format!("{round}-{number}"));
        }
        assert_eq!(cluster.get(other, "key"), format!("{round}-4"));
        cluster.members[leader].process.resume();
        cluster.wait_for_voters(3);
    }
}
