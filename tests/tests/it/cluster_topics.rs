//! Tests of topics in a cluster of processes: each node is a process. Through any node, a client can publish to every
//! topic and read every topic.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dunlin_client::topic::{
    DurableOptions, Event, Notice, Publish, PublishError, Retention, Start, Subscribe, SubscribeOptions,
    TopicConfig,
};
use dunlin_client::{Client, Group, GroupOptions, Subscriber};
use dunlin_system_tests::process::PATIENCE;
pub use dunlin_wait::until;

use super::cluster_under_test::{ClusterNode, ClusterUnderTest};

pub fn from(start: Start) -> SubscribeOptions {
    SubscribeOptions { start, ..SubscribeOptions::default() }
}

/// Reads until record `last` has arrived. Returns the numbers of the records that were received, and the notices.
pub fn read_until(subscriber: &mut Subscriber, last: u64) -> (Vec<u64>, Vec<Notice>) {
    let (mut numbers, mut notices) = (Vec::new(), Vec::new());
    while numbers.last() != Some(&last) {
        match subscriber.next_timeout(PATIENCE).expect("the subscription goes on") {
            Some(Event::Record(record)) => {
                let text = std::str::from_utf8(record.payload()).expect("a number");
                numbers.push(text.parse().expect("a number"));
            }
            Some(Event::Notice(notice)) => notices.push(notice),
            None => panic!("only {} records, the last {:?}; {notices:?}", numbers.len(), numbers.last()),
        }
    }
    (numbers, notices)
}

pub fn publish(client: &Client, topic: &str, numbers: impl IntoIterator<Item = u64>) {
    let mut publisher = client.publisher(topic).expect("a publisher");
    for number in numbers {
        publisher.send(number.to_string().as_bytes()).expect("the record is accepted");
    }
    publisher.flush().expect("all is taken");
}

/// A minimal NATS client.
struct Nats(BufReader<TcpStream>);

impl Nats {
    fn connect(member: &ClusterNode) -> Nats {
        let stream = TcpStream::connect(member.listener("nats")).expect("the port is open");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut nats = Nats(BufReader::new(stream));
        nats.send("CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\n");
        nats.flush();
        nats
    }

    fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).expect("the program reads its standard input");
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the program prints something");
        line.trim_end().to_owned()
    }

    /// Waits until the node has handled all messages that this client has sent.
    fn flush(&mut self) {
        self.send("PING\r\n");
        while self.read_line() != "PONG" {}
    }

    /// Returns the subject, the reply subject and the payload of the next message.
    fn read_message(&mut self) -> (String, String, String) {
        loop {
            let line = self.read_line();
            assert!(!line.starts_with("-ERR"), "{line}");
            let Some(rest) = line.strip_prefix("MSG ") else { continue };
            let words: Vec<&str> = rest.split(' ').collect();
            let reply = if words.len() == 4 { words[2] } else { "" };
            let bytes: usize = words.last().unwrap().parse().expect("a length");
            let mut payload = vec![0; bytes + 2];
            self.0.read_exact(&mut payload).expect("a payload");
            let payload = String::from_utf8_lossy(&payload[..bytes]).into_owned();
            return (words[0].to_owned(), reply.to_owned(), payload);
        }
    }
}

/// Sends a request to a node's HTTP listener, and returns the response.
pub fn http(member: &ClusterNode, method: &str, path: &str, body: &str) -> String {
    let host = member.listener("http");
    let mut stream = TcpStream::connect(&host).expect("the port is open");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("an answer");
    response
}

#[test]
fn deleted_topic_is_gone_and_its_name_is_free_on_every_node() {
    let cluster = ClusterUnderTest::of(3);
    let clients: Vec<Client> = cluster.members.iter().map(ClusterNode::connect).collect();
    let subscribe_all = |client: &Client| client.subscribe("markets.>", from(Start::Earliest)).unwrap();
    let mut readers: Vec<Subscriber> = clients.iter().map(subscribe_all).collect();
    for round in 0..6 {
        let (maker, other) = (&clients[round % 3], &clients[(round + 1) % 3]);
        let retention = Retention { bytes: DurableOptions::RETENTION_BYTES_DEFAULT, ..Retention::default() };
        let durable = (round % 2 == 0).then(DurableOptions::default);
        let config = TopicConfig { durable, retention, ..TopicConfig::default() };
        maker.create_topic("markets.a", &config, false).expect("the name is free");
        publish(other, "markets.a", 1..=100);
        maker.delete_topic("markets.a").expect("the topic exists");
        for (node, reader) in readers.iter_mut().enumerate() {
            let (numbers, notices) = read_until(reader, 100);
            assert!(
                numbers.iter().copied().eq(1..=100),
                "round {round}, node {node}: {numbers:?}, {notices:?}"
            );
            assert!(notices.is_empty(), "round {round}, node {node}: {notices:?}");
            let end = reader.next_timeout(PATIENCE).expect("the subscription goes on");
            let is_end = matches!(end, Some(Event::Notice(Notice::Deleted { last, .. })) if last.seq == 100);
            assert!(is_end, "round {round}, node {node}: no notice of the end");
        }
    }
    clients[0].create_topic("markets.last", &TopicConfig::default(), false).expect("the name is free");
    publish(&clients[0], "markets.last", 1..=1);
    for (member, reader) in cluster.members.iter().zip(&mut readers) {
        assert_eq!(read_until(reader, 1), (vec![1], Vec::new()), "nothing came after the end");
        let listed = http(member, "GET", "/v1/topics?pattern=markets.%3E", "");
        assert!(!listed.contains("markets.a"), "{listed}");
    }
}

#[test]
fn every_topic_can_be_used_at_every_node_and_by_every_protocol() {
    let cluster = ClusterUnderTest::of(3);
    let clients: Vec<Client> = cluster.members.iter().map(ClusterNode::connect).collect();
    // Each topic is created through another node. The first record of each topic is published before the topic's
    // subscribers start, and all further records after that.
    for (maker, topic) in ["first", "second", "third"].into_iter().enumerate() {
        publish(&clients[maker], topic, [0]);
        let mut readers: Vec<Subscriber> =
            clients.iter().map(|client| client.subscribe(topic, from(Start::Earliest)).unwrap()).collect();
        for (at, client) in clients.iter().enumerate() {
            let first = 1 + 500 * at as u64;
            publish(client, topic, first..first + 500);
        }
        for reader in &mut readers {
            let (numbers, notices) = read_until(reader, 1_500);
            assert!(numbers.iter().copied().eq(0..=1_500), "{topic}: {} records", numbers.len());
            let is_loss_notice = |notice: &Notice| matches!(notice, Notice::Gap(_) | Notice::EpochChanged(_));
            assert!(!notices.iter().any(is_loss_notice), "{topic}: {notices:?}");
        }
    }
    // Subscribes to topics that do not exist yet, with Dunlin's own protocol and with NATS.
    let mut made_reader = clients[2].subscribe("made.>", from(Start::Latest)).unwrap();
    let mut nats: Vec<Nats> = cluster.members.iter().map(Nats::connect).collect();
    for nats in &mut nats {
        nats.send("SUB made.> 1\r\n");
        nats.flush();
    }
    nats[0].send("PUB made.here 1\r\n1\r\n");
    assert_eq!(read_until(&mut made_reader, 1).0, [1]);
    let response = http(&cluster.members[1], "POST", "/v1/topics/made.here", "2");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert_eq!(read_until(&mut made_reader, 2).0, [2]);
    publish(&clients[2], "made.here", [3]);
    for nats in &mut nats {
        let received: Vec<String> = (0..3).map(|_| nats.read_message().2).collect();
        assert_eq!(received, ["1", "2", "3"]);
    }
    let listed = http(&cluster.members[1], "GET", "/v1/topics", "");
    for topic in ["first", "second", "third", "made.here"] {
        assert!(listed.contains(&format!("\"{topic}\"")), "{listed}");
    }
}

/// Returns the owner and the epoch of a topic, according to the node to which this client is connected.
pub fn owner(client: &Client, topic: &str) -> (u64, u32) {
    let settings = client.topic_settings(topic).expect("the topic exists");
    let number = |name: &str| {
        settings.iter().find(|(other, _)| other == name).and_then(|(_, value)| value.parse().ok())
    };
    (number("owner").expect("an owner") as u64, number("owner.epoch").unwrap_or(0))
}

/// Moves a topic to a member. Waits until all nodes know that this member is the owner.
fn move_topic(cluster: &ClusterUnderTest, clients: &[Client], topic: &str, to: usize) {
    let number = cluster.members[to].number;
    let epoch = clients[(to + 1) % clients.len()].move_topic(topic, number).expect("the topic moves");
    until("all know who owns the topic", || {
        clients.iter().all(|client| {
            let (owner, known_epoch) = owner(client, topic);
            owner == number && known_epoch >= epoch
        })
    });
}

fn epoch_changes(notices: &[Notice]) -> Vec<(u32, Option<u64>)> {
    let epoch_change = |notice: &Notice| match notice {
        Notice::EpochChanged(changed) => Some((changed.old, changed.known_through)),
        _ => None,
    };
    notices.iter().filter_map(epoch_change).collect()
}

#[test]
fn topic_moved_under_load_loses_no_record() {
    // The leases are so long that no owner loses its lease even on a slow machine.
    let options = vec!["cluster.lease_ttl=1m".to_owned()];
    let cluster = ClusterUnderTest::with(&[options.clone(), options.clone(), options]);
    let clients: Vec<Client> = cluster.members.iter().map(ClusterNode::connect).collect();
    publish(&clients[0], "t", [0]);
    move_topic(&cluster, &clients, "t", 0);
    let mut readers: Vec<Subscriber> =
        clients.iter().map(|client| client.subscribe("t", from(Start::Latest)).unwrap()).collect();
    let (publisher, published) = (clients[1].clone(), Arc::new(AtomicU64::new(0)));
    let published_count = Arc::clone(&published);
    let publisher_thread = std::thread::spawn(move || {
        let mut publisher = publisher.publisher("t").unwrap();
        for number in 1..=3_000_u64 {
            publisher.publish(number.to_string().as_bytes()).expect("the record is accepted");
            published_count.store(number, Ordering::Relaxed);
        }
    });
    for to in [1, 2, 0] {
        let more = published.load(Ordering::Relaxed) + 200;
        until("more is published", || published.load(Ordering::Relaxed) >= more.min(3_000));
        move_topic(&cluster, &clients, "t", to);
    }
    publisher_thread.join().expect("all was taken");
    for reader in &mut readers {
        let (numbers, notices) = read_until(reader, 3_000);
        assert!(numbers.iter().copied().eq(1..=3_000), "{} records, {notices:?}", numbers.len());
        assert!(!notices.iter().any(|notice| matches!(notice, Notice::Gap(_))), "{notices:?}");
        assert!(
            epoch_changes(&notices).iter().all(|(_, known_through)| known_through.is_some()),
            "{notices:?}"
        );
    }
    let refused = clients[0].move_topic("t", 77).unwrap_err().to_string();
    assert!(refused.contains("77"), "{refused}");
    let response = http(
        &cluster.members[0],
        "PUT",
        "/v1/topics/t/owner",
        &format!("{{\"node\":{}}}", cluster.members[2].number),
    );
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let number = cluster.members[2].number;
    until("the topic is moved over HTTP", || owner(&clients[1], "t").0 == number);
    let described = http(&cluster.members[0], "GET", "/v1/topics/t", "");
    assert!(described.contains(&format!("\"node\":{number}")), "{described}");
}

#[test]
fn volatile_topic_has_a_new_epoch_after_the_loss_of_its_owner() {
    let mut cluster = ClusterUnderTest::of(3);
    let clients: Vec<Client> = cluster.members.iter().map(ClusterNode::connect).collect();
    publish(&clients[0], "t", [0]);
    move_topic(&cluster, &clients, "t", 0);
    let mut readers = [1, 2].map(|at| clients[at].subscribe("t", from(Start::Latest)).unwrap());
    publish(&clients[1], "t", 1..=500);
    for reader in &mut readers {
        assert!(read_until(reader, 500).0.into_iter().eq(1..=500));
    }
    let (_, before) = owner(&clients[1], "t");
    let dead = cluster.kill(0);
    // A record may be refused. Or its response may be lost, so that its outcome is unknown. In both cases, the test
    // publishes a record with the next number.
    let mut publisher = clients[1].publisher("t").unwrap();
    let mut number = 501;
    until("the topic has another owner", || match publisher.publish(number.to_string().as_bytes()) {
        Ok(_) => true,
        Err(PublishError::OwnerAway(_) | PublishError::Unknown(_)) => {
            number += 1;
            false
        }
        Err(error) => panic!("{error}"),
    });
    publish(&clients[2], "t", number + 1..=number + 100);
    for reader in &mut readers {
        let (numbers, notices) = read_until(reader, number + 100);
        assert!(
            numbers.is_sorted() && numbers.ends_with(&[number, number + 1]) || numbers.len() >= 101,
            "{numbers:?}"
        );
        assert_eq!(epoch_changes(&notices), [(before, None)], "{notices:?}");
    }
    // The restarted node has no records of the topic. Clients of this node must nevertheless be able to use the topic.
    cluster.restart(&dead);
    cluster.wait_for_voters(3);
    let restarted = cluster.members.last().expect("the node is back").connect();
    let mut reader = restarted.subscribe("t", from(Start::Latest)).unwrap();
    publish(&restarted, "t", [9_001]);
    assert_eq!(read_until(&mut reader, 9_001).0, [9_001]);
    for reader in &mut readers {
        assert_eq!(read_until(reader, 9_001).0, [9_001]);
    }
}

#[test]
fn thawed_former_owner_forwards_records_to_the_new_owner() {
    let cluster = ClusterUnderTest::of(3);
    let clients: Vec<Client> = cluster.members.iter().map(ClusterNode::connect).collect();
    publish(&clients[0], "t", [0]);
    move_topic(&cluster, &clients, "t", 0);
    let mut readers: Vec<Subscriber> =
        clients.iter().map(|client| client.subscribe("t", from(Start::Latest)).unwrap()).collect();
    publish(&clients[0], "t", 1..=100);
    for reader in &mut readers {
        assert_eq!(read_until(reader, 100).0.len(), 100);
    }
    cluster.members[0].process.stop();
    let stopped = cluster.members[0].number;
    let mut publisher = clients[1].publisher("t").unwrap();
    until("another owns the topic", || {
        let _ = publisher.publish(b"101");
        owner(&clients[1], "t").0 != stopped
    });
    publish(&clients[2], "t", 200..=300);
    cluster.members[0].process.resume();
    // The former owner runs again and still accepts records. It must forward these records to the new owner, so that
    // all subscribers receive them.
    let mut late = clients[0].publisher("t").unwrap();
    until("who was deposed hands on", || late.publish(b"400").is_ok());
    for reader in &mut readers {
        let (numbers, notices) = read_until(reader, 400);
        assert!(!epoch_changes(&notices).is_empty(), "{notices:?}");
        let tail: Vec<u64> = numbers.into_iter().filter(|number| (200..=300).contains(number)).collect();
        assert!(tail.iter().copied().eq(200..=300), "{tail:?}");
    }
    assert_ne!(owner(&clients[0], "t").0, stopped);
}

/// While an owner is being shut down, it accepts its last records. Each of these records must reach every subscriber
/// exactly once, although another node may own the topic by then.
#[test]
fn owner_delivers_each_durable_record_once_while_it_shuts_down() {
    let mut cluster = ClusterUnderTest::of(3);
    let (owner, other) = (cluster.members[0].connect(), cluster.members[2].connect());
    let durable = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    owner.create_topic("kept", &durable, false).expect("the topic is created");
    let mut reader = other.subscribe("kept", from(Start::Latest)).unwrap();
    let published = Arc::new(AtomicU64::new(0));
    let published_count = Arc::clone(&published);
    // This client is connected to the owner. It publishes until the owner has ended.
    std::thread::spawn(move || {
        let mut publisher = owner.publisher("kept").unwrap();
        let is_published = |number: &u64| publisher.publish(number.to_string().as_bytes()).is_ok();
        (1..).take_while(is_published).for_each(|number| published_count.store(number, Ordering::Release));
    });
    until("100 records are published", || published.load(Ordering::Acquire) >= 100);
    let mut stopping = cluster.members.remove(0);
    stopping.process.write_line("end");
    stopping.process.read_until("ended in order");
    stopping.process.wait();
    let last = published.load(Ordering::Acquire);
    let (numbers, notices) = read_until(&mut reader, last);
    assert!(numbers.iter().copied().eq(numbers[0]..=last), "{} up to {last}: {notices:?}", numbers.len());
}

#[test]
fn durable_topic_waits_for_its_killed_owner_and_keeps_records() {
    let mut cluster = ClusterUnderTest::of(3);
    let clients: Vec<Client> = cluster.members.iter().map(ClusterNode::connect).collect();
    let durable = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    clients[0].create_topic("kept", &durable, false).expect("the topic is created");
    assert_eq!(owner(&clients[0], "kept").0, cluster.members[0].number);
    let mut reader = clients[2].subscribe("kept", from(Start::Earliest)).unwrap();
    publish(&clients[1], "kept", 1..=300);
    assert!(read_until(&mut reader, 300).0.into_iter().eq(1..=300));
    publish(&clients[2], "kept", 301..=600);
    let dead = cluster.kill(0);
    let mut nats = Nats::connect(&cluster.members[0]);
    let mut publisher = clients[1].publisher("kept").unwrap();
    let mut reason = String::new();
    until("publishers are told that the owner is away", || {
        match publisher.publish(b"0") {
            Ok(_) => panic!("no node could have accepted the record"),
            Err(PublishError::OwnerAway(why)) => reason = why,
            Err(PublishError::Unknown(_)) => {}
            Err(error) => panic!("{error}"),
        }
        reason.contains("waits for its owner")
    });
    assert!(reason.contains(&format!("node {}", dead.number)), "{reason}");
    nats.send("PUB kept 1\r\n0\r\n");
    let refused = nats.read_line();
    assert!(refused.starts_with("-ERR") && refused.contains("waits for its owner"), "{refused}");
    let response = http(&cluster.members[0], "POST", "/v1/topics/kept", "0");
    assert!(response.contains("503") && response.contains("OWNER_AWAY"), "{response}");
    // This subscriber starts while the owner is down. It must receive records as soon as the owner runs again.
    let mut waiting_reader = clients[1].subscribe("kept", from(Start::Latest)).unwrap();
    cluster.restart(&dead);
    until("the topic accepts records again", || publisher.publish(b"1000").is_ok());
    let (numbers, notices) = read_until(&mut reader, 1_000);
    let kept: Vec<u64> = numbers.iter().copied().filter(|number| (301..=600).contains(number)).collect();
    assert!(kept.iter().copied().eq(301..=600), "{} of what was synced: {notices:?}", kept.len());
    let (numbers, _) = read_until(&mut waiting_reader, 1_000);
    assert_eq!(numbers.last(), Some(&1_000));
    let mut late = clients[2].subscribe("kept", from(Start::Earliest)).unwrap();
    let (numbers, notices) = read_until(&mut late, 1_000);
    let acknowledged: Vec<u64> =
        numbers.iter().copied().filter(|number| (1..=600).contains(number)).collect();
    assert!(acknowledged.iter().copied().eq(1..=600), "{} records, {notices:?}", numbers.len());
    let moved = clients[1].move_topic("kept", cluster.members[0].number).unwrap_err().to_string();
    assert!(moved.contains("disk"), "{moved}");
}

#[test]
fn any_node_relays_requests_and_names_the_owner_of_a_group() {
    let cluster = ClusterUnderTest::of(3);
    let clients: Vec<Client> = cluster.members.iter().map(ClusterNode::connect).collect();
    // The responder is a NATS client of one node. The requesters are clients of the other nodes, with NATS and with
    // Dunlin's own protocol.
    let mut responder_nats = Nats::connect(&cluster.members[2]);
    responder_nats.send("SUB double 1\r\n");
    responder_nats.flush();
    publish(&clients[2], "double", []);
    let responder_thread = std::thread::spawn(move || {
        loop {
            let (_, reply, payload) = responder_nats.read_message();
            let Ok(number) = payload.parse::<u64>() else { return };
            let response = (2 * number).to_string();
            responder_nats.send(&format!("PUB {reply} {}\r\n{response}\r\n", response.len()));
        }
    });
    let mut requester_nats = Nats::connect(&cluster.members[0]);
    requester_nats.send("SUB _INBOX.abc.* 1\r\n");
    for number in 1..=50_u64 {
        let payload = number.to_string();
        requester_nats.send(&format!("PUB double _INBOX.abc.{number} {}\r\n{payload}\r\n", payload.len()));
        let (subject, _, response) = requester_nats.read_message();
        assert_eq!((subject, response), (format!("_INBOX.abc.{number}"), (2 * number).to_string()));
    }
    for (at, client) in clients.iter().enumerate() {
        let mut requester = client.requester();
        for number in 1..=20_u64 {
            let reply = requester.request("double", number.to_string().as_bytes(), PATIENCE);
            let reply = reply.unwrap_or_else(|error| panic!("request {number} of node {at}: {error}"));
            assert_eq!(reply.payload, (2 * number).to_string().as_bytes());
        }
    }
    publish(&clients[0], "double", []);
    requester_nats.send("PUB double 4\r\ndone\r\n");
    responder_thread.join().expect("the thread ends");
    // Clients can join a share group only at the owner of the group's topic.
    let (number, _) = owner(&clients[0], "double");
    for (member, client) in cluster.members.iter().zip(&clients) {
        let joined = client.join(Group { topic: "double", name: "g" }, GroupOptions::default());
        if member.number == number {
            assert!(joined.is_ok());
        } else {
            let refused = joined.expect_err("another node owns the topic").to_string();
            assert!(
                refused.contains("ELSEWHERE") && refused.contains(&format!("node {number} at 127.0.0.1:")),
                "{refused}"
            );
        }
    }
}
