//! NATS clients of a cluster: where they are told that its nodes are, and how soon new subjects have topics.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Instant;

use dunlin_system_tests::process::PATIENCE;

use crate::cluster_stage::{Flock, Member};

/// A client that takes an `INFO` at any time.
struct Peer(BufReader<TcpStream>);

impl Peer {
    fn connect(address: &str) -> Peer {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut peer = Peer(BufReader::new(stream));
        peer.say("CONNECT {\"verbose\":false,\"protocol\":1}");
        peer
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    /// The next line; a node that asks whether the client is there is answered.
    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the node ended the connection");
        if line.starts_with("PING") {
            self.say("PONG");
        }
        line.trim_end().to_owned()
    }

    /// Reads one `INFO` after another until its `connect_urls` are these.
    fn await_urls(&mut self, wanted: &BTreeSet<String>) {
        let mut last = None;
        loop {
            let mut line = String::new();
            match self.0.read_line(&mut line) {
                Ok(1..) => {}
                ended => panic!("{ended:?} where {wanted:?} were expected; the last were {last:?}"),
            }
            if line.starts_with("PING") {
                self.say("PONG");
            }
            let Some(info) = line.strip_prefix("INFO ") else { continue };
            let info: serde_json::Value = serde_json::from_str(info).unwrap();
            let urls = info["connect_urls"].as_array().into_iter().flatten();
            let urls: BTreeSet<String> = urls.map(|url| url.as_str().unwrap().to_owned()).collect();
            if urls == *wanted {
                return;
            }
            last = Some(urls);
        }
    }
}

fn urls(members: &[Member]) -> BTreeSet<String> {
    members.iter().map(|member| member.door("nats")).collect()
}

#[test]
fn connect_urls_follow_nodes_that_come_and_go() {
    let mut flock = Flock::of(2);
    let mut peers: Vec<Peer> = urls(&flock.members).iter().map(|address| Peer::connect(address)).collect();
    let await_all = |peers: &mut Vec<Peer>, flock: &Flock| {
        let wanted = urls(&flock.members);
        peers.iter_mut().for_each(|peer| peer.await_urls(&wanted));
        // A client that connects now reads the same.
        Peer::connect(wanted.first().unwrap()).await_urls(&wanted);
    };
    await_all(&mut peers, &flock);
    let third = flock.join("3").expect("it joins");
    flock.until_voters(3);
    await_all(&mut peers, &flock);
    let killed = flock.kill(third);
    await_all(&mut peers, &flock);
    // At another address: its listeners have other ports.
    flock.restart(&killed);
    await_all(&mut peers, &flock);
    let address = flock.members[third].door("nats");
    let mut of_third = Peer::connect(&address);
    of_third.await_urls(&urls(&flock.members));
}

/// Each once was agreed on by a question of its own, one after another.
#[test]
fn new_subjects_of_one_read_are_agreed_on_together() {
    const SUBJECTS: usize = 200;
    // Entries of the log keep leases alive, too.
    let own = vec!["lease=600000".to_owned()];
    let flock = Flock::with(&[own.clone(), own.clone(), own]);
    let mut peer = Peer::connect(&flock.members[1].door("nats"));
    peer.say("SUB new.> 1\r\nPING");
    while peer.line() != "PONG" {}
    let entries = || flock.heard().iter().map(|status| status.last).max().expect("a node answers");
    let (before, began) = (entries(), Instant::now());
    let subjects: BTreeSet<String> = (0..SUBJECTS).map(|number| format!("new.{number}")).collect();
    let records: Vec<String> = subjects.iter().map(|subject| format!("PUB {subject} 1\r\nx")).collect();
    peer.say(&records.join("\r\n"));
    let mut received = BTreeSet::new();
    while received.len() < SUBJECTS {
        let line = peer.line();
        let subject = line.strip_prefix("MSG ").and_then(|message| message.split(' ').next());
        received.extend(subject.map(str::to_owned));
    }
    assert_eq!(received, subjects);
    let taken = entries() - before;
    println!("{SUBJECTS} new subjects took {taken} entries of the log and {:?}", began.elapsed());
    assert!(taken < SUBJECTS as u64 / 4, "{taken} entries");
}
