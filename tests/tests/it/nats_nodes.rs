//! Tests of the NATS listeners of a cluster's nodes: the node addresses that clients receive, the creation of topics
//! for new subjects, and the inboxes of users.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dunlin_server::access::hash_password;
use dunlin_system_tests::process::PATIENCE;

use crate::cluster_under_test::{ClusterNode, ClusterUnderTest};

/// Pause between two clients that connect while the cluster changes.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// A NATS client for tests. The node may send it a message `INFO` at any time.
struct Peer(BufReader<TcpStream>);

impl Peer {
    fn connect(address: &str) -> Peer {
        Peer::connect_with(address, "")
    }

    /// Connects a client. `credentials` is a part of the JSON in the message `CONNECT`.
    fn connect_with(address: &str, credentials: &str) -> Peer {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut peer = Peer(BufReader::new(stream));
        peer.write_line(&format!("CONNECT {{\"verbose\":false,\"protocol\":1{credentials}}}"));
        peer
    }

    fn write_line(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    /// Returns the next line from the node. If the line is `PING`, responds with `PONG` first.
    fn read_line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the node ended the connection");
        if line.starts_with("PING") {
            self.write_line("PONG");
        }
        line.trim_end().to_owned()
    }

    /// Reads `INFO` messages until `connect_urls` contains exactly these addresses.
    fn wait_for_urls(&mut self, expected: &BTreeSet<String>) {
        // The node sends its first PONG in response to this PING. It sends no second message `INFO` before this PONG.
        self.write_line("PING");
        let mut last = None;
        loop {
            let mut line = String::new();
            match self.0.read_line(&mut line) {
                Ok(1..) => {}
                outcome => panic!("{outcome:?}; expected {expected:?}, last received {last:?}"),
            }
            if line.starts_with("PING") {
                self.write_line("PONG");
            }
            let Some(urls) = line.strip_prefix("INFO ").map(connect_urls) else { continue };
            if urls == *expected {
                return;
            }
            last = Some(urls);
        }
    }
}

/// The `connect_urls` of a message `INFO`.
fn connect_urls(info: &str) -> BTreeSet<String> {
    let info: serde_json::Value = serde_json::from_str(info).unwrap();
    let urls = info["connect_urls"].as_array().into_iter().flatten();
    urls.map(|url| url.as_str().unwrap().to_owned()).collect()
}

fn urls(members: &[ClusterNode]) -> BTreeSet<String> {
    members.iter().map(|member| member.listener("nats")).collect()
}

#[test]
fn nats_connect_urls_are_those_of_the_current_cluster_nodes() {
    let mut cluster = ClusterUnderTest::of(2);
    let mut peers: Vec<Peer> = urls(&cluster.members).iter().map(|address| Peer::connect(address)).collect();
    let wait_for_all = |peers: &mut Vec<Peer>, cluster: &ClusterUnderTest| {
        let expected = urls(&cluster.members);
        peers.iter_mut().for_each(|peer| peer.wait_for_urls(&expected));
        // A new client receives the same addresses when it connects.
        Peer::connect(expected.first().unwrap()).wait_for_urls(&expected);
    };
    wait_for_all(&mut peers, &cluster);
    let third = cluster.join("3").expect("the node joins");
    cluster.wait_for_voters(3);
    wait_for_all(&mut peers, &cluster);
    let killed = cluster.kill(third);
    wait_for_all(&mut peers, &cluster);
    // The restarted node listens at new ports.
    cluster.restart(&killed);
    wait_for_all(&mut peers, &cluster);
    let address = cluster.members[third].listener("nats");
    let mut third_client = Peer::connect(&address);
    third_client.wait_for_urls(&urls(&cluster.members));
}

/// A node looks for changes of the cluster about once per second. A client that connects right after a change receives
/// the new addresses in its first `INFO`, and the node must not send it the same addresses again.
#[test]
fn nats_client_never_receives_the_same_connect_urls_twice() {
    let mut cluster = ClusterUnderTest::of(2);
    let address = cluster.members[0].listener("nats");
    let connect = || {
        let mut peer = Peer::connect(&address);
        // After the first PONG, the node may send INFO at any time.
        peer.write_line("PING");
        peer
    };
    let is_over = AtomicBool::new(false);
    let mut first = connect();
    let peers = thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let (mut peers, end) = (Vec::new(), Instant::now() + PATIENCE);
            while !is_over.load(Ordering::Acquire) && Instant::now() < end {
                peers.push(connect());
                thread::sleep(CONNECT_PAUSE);
            }
            peers
        });
        cluster.join("3").expect("the node joins");
        first.wait_for_urls(&urls(&cluster.members));
        is_over.store(true, Ordering::Release);
        connecting.join().unwrap()
    });
    for mut peer in peers {
        peer.write_line("PING");
        let (mut received, mut pongs) = (Vec::<BTreeSet<String>>::new(), 0);
        while pongs < 2 {
            let line = peer.read_line();
            pongs += usize::from(line == "PONG");
            received.extend(line.strip_prefix("INFO ").map(connect_urls));
        }
        assert!(received.windows(2).all(|pair| pair[0] != pair[1]), "{received:?}");
    }
}

/// A client publishes to many new subjects at once. The creation of their topics must take only a few entries of the
/// cluster's log, not one entry for each topic.
#[test]
fn topics_created_in_one_burst_share_raft_log_entries() {
    const SUBJECTS: usize = 200;
    // Renewing a lease takes an entry of the log too. The leases of this test are so long that no lease is renewed
    // during the test.
    let node_options = vec!["lease=600000".to_owned()];
    let cluster = ClusterUnderTest::with(&[node_options.clone(), node_options.clone(), node_options]);
    let mut peer = Peer::connect(&cluster.members[1].listener("nats"));
    peer.write_line("SUB new.> 1\r\nPING");
    while peer.read_line() != "PONG" {}
    let entries = || cluster.statuses().iter().map(|status| status.last).max().expect("a node answers");
    let (before, start) = (entries(), Instant::now());
    let subjects: BTreeSet<String> = (0..SUBJECTS).map(|number| format!("new.{number}")).collect();
    let records: Vec<String> = subjects.iter().map(|subject| format!("PUB {subject} 1\r\nx")).collect();
    peer.write_line(&records.join("\r\n"));
    let mut received = BTreeSet::new();
    while received.len() < SUBJECTS {
        let line = peer.read_line();
        let subject = line.strip_prefix("MSG ").and_then(|message| message.split(' ').next());
        received.extend(subject.map(str::to_owned));
    }
    assert_eq!(received, subjects);
    let used = entries() - before;
    println!("{SUBJECTS} new subjects took {used} entries of the log and {:?}", start.elapsed());
    assert!(used < SUBJECTS as u64 / 4, "{used} entries");
}

/// Every node must refuse a user's subscription to the inbox of another user. Otherwise, the first user would receive
/// the other user's replies.
#[test]
fn inbox_of_another_user_is_refused_at_each_node() {
    const PASSWORD: &str = "correct horse";
    let dir = tempfile::tempdir().unwrap();
    let users = dir.path().join("users.toml");
    let hash = hash_password(PASSWORD.as_bytes()).unwrap();
    let user_entry = |name: &str| {
        format!("[users.{name}]\npassword = \"{hash}\"\npublish = [\">\"]\nsubscribe = [\"orders.>\"]\n")
    };
    std::fs::write(&users, user_entry("ana") + &user_entry("cid")).unwrap();
    let node_options = vec![format!("users={}", users.display())];
    let cluster = ClusterUnderTest::with(&[node_options.clone(), node_options.clone(), node_options]);
    let connect = |member: usize, user: &str| {
        let credentials = format!(",\"user\":\"{user}\",\"pass\":\"{PASSWORD}\"");
        Peer::connect_with(&cluster.members[member].listener("nats"), &credentials)
    };
    let subscribe = |peer: &mut Peer, inbox: &str, sid: u32| {
        peer.write_line(&format!("SUB {inbox} {sid}\r\nPING"));
        let responses = std::iter::from_fn(|| Some(peer.read_line()).filter(|line| line != "PONG"));
        responses.filter(|line| line.starts_with("-ERR")).collect::<Vec<_>>()
    };
    let mut ana = connect(0, "ana");
    assert_eq!(subscribe(&mut ana, "_INBOX.ana.*", 1), [""; 0]);
    for member in 0..3 {
        let mut cid = connect(member, "cid");
        for inbox in ["_INBOX.ana.*", "_INBOX.ana.7", "_INBOX.ana.>"] {
            let refused = subscribe(&mut cid, inbox, 1);
            let expected = format!("-ERR 'Permissions Violation for Subscription to \"{inbox}\"'");
            assert_eq!(refused, [expected], "at node {}", member + 1);
        }
        cid.write_line("PUB _INBOX.ana.1 2\r\nok");
        let received = std::iter::from_fn(|| Some(ana.read_line())).find(|line| !line.starts_with("INFO"));
        assert_eq!(received.as_deref(), Some("MSG _INBOX.ana.1 1 2"));
        assert_eq!(ana.read_line(), "ok");
        // A user may subscribe to an inbox on a second connection while the first connection still has a subscription
        // to it. This happens when a client reconnects before its old node has noticed that the first connection is
        // lost.
        assert_eq!(subscribe(&mut connect(member, "ana"), "_INBOX.ana.*", 1), [""; 0]);
        assert_eq!(subscribe(&mut cid, "_INBOX.cid.*", 2), [""; 0]);
    }
}
