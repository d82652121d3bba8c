//! Where NATS clients of a cluster are told that its nodes are.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

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
