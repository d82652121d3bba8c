//! Leaders that have no room, or are ended: what those see who write meanwhile.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dunlin_client::{Client, ErrorCode, KvError, Options};
use dunlin_system_tests::port;
use tempfile::TempDir;

use super::cluster_stage::{Flock, Member, start, start_with};

/// A file system of this test's own, in memory.
struct Small(TempDir);

impl Small {
    /// Nothing where this user may not mount one.
    fn of(bytes: u64) -> Option<Small> {
        let dir = tempfile::tempdir().expect("a directory");
        let size = format!("size={bytes}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then(|| Small(dir))
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let mut file =
            OpenOptions::new().create(true).append(true).open(self.0.path().join("filler")).expect("a file");
        for bytes in [1 << 20, 1 << 10, 1] {
            while file.write_all(&vec![1; bytes]).is_ok() {}
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.path().join("filler")).expect("it is there");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

fn readyz(member: &Member) -> String {
    let door = member.door("http");
    let mut stream = TcpStream::connect(&door).expect("it is open");
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {door}\r\nConnection: close\r\n\r\n").expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    answer
}

/// It was ready, led, and refused all writes of the cluster.
#[test]
fn leader_with_a_full_disk_is_not_ready_and_another_leads() {
    let Some(small) = Small::of(192 << 20) else {
        return eprintln!("passed over: this user may not mount a file system");
    };
    let first = start(&small.0.path().join("1"), &port::free().to_string(), None).expect("it starts");
    let number = first.number;
    let mut flock = Flock { dir: tempfile::tempdir().expect("a directory"), members: vec![first] };
    flock.join("2").expect("it joins");
    flock.join("3").expect("it joins");
    flock.until_voters(3);
    flock.client().transfer(Some(number)).expect("the first leads");
    flock.until("the first leads", |heard| heard.iter().all(|status| status.leader == Some(number)));
    let is_ready = |flock: &Flock| readyz(&flock.members[0]).starts_with("HTTP/1.1 200");
    dunlin_wait::until("the first is ready", || is_ready(&flock));
    small.fill();
    let value = "x".repeat(256 << 10);
    let lacks_room = |flock: &Flock| {
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
    // Whichever node is asked.
    for at in 0..3 {
        flock.put(at, "key", &format!("at-{at}"));
    }
    small.make_room();
    flock.until_voters(3);
    dunlin_wait::until("the first is ready again", || is_ready(&flock));
    assert_eq!(flock.get(0, "key"), "at-2");
}

/// Each writer once got one `COMMAND_UNKNOWN` for each node that was ended.
#[test]
fn node_that_is_ended_leaves_no_write_unknown() {
    let doors: Vec<String> = (0..3).map(|_| port::free().to_string()).collect();
    let options: Vec<Vec<String>> = doors.iter().map(|door| vec![format!("door={door}")]).collect();
    let mut flock = Flock::with(&options);
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (url, is_over) = (format!("dunlin://{}", doors.join(",")), Arc::clone(&is_over));
            std::thread::spawn(move || {
                let client = Client::connect(&url, Options::default()).expect("a node is there");
                let (kv, mut count) = (client.kv(), 0_u64);
                while !is_over.load(Ordering::Relaxed) {
                    count += 1;
                    loop {
                        match kv.put(format!("of-{writer}"), count.to_string()) {
                            Ok(_) => break,
                            // On a busy machine a node that is there may lose the lead.
                            Err(KvError::Unknown(why)) if why.starts_with("the leader changed") => {}
                            Err(error) if error.code() == Some(ErrorCode::NoLeader) => {}
                            Err(error) => panic!("writer {writer}, put {count}: {error}"),
                        }
                    }
                }
                let held = kv.get(format!("of-{writer}")).expect("it can be read").expect("it was put");
                assert_eq!(*held.value, *count.to_string().as_bytes());
            })
        })
        .collect();
    for own in &options {
        let mut ended = flock.members.remove(0);
        ended.process.say("end");
        ended.process.until("ended in order");
        ended.process.wait();
        let again = start_with(&ended.dir, &ended.address, None, own).expect("it starts again");
        flock.members.push(again);
        flock.until_voters(3);
    }
    is_over.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().expect("no write failed"));
}
