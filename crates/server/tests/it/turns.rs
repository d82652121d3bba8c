//! Tests that a session with much work does not delay the other sessions of its thread.
//!
//! A client sends, in one write, a record for a watcher, then commands with much work, and then a request for the
//! watcher's position. The watcher is a session of the same thread. The position in the response shows whether the
//! watcher's session ran between the commands.

use std::io::Write as _;

use dunlin::Node;
use dunlin::topic::{Publish as _, Retention, TopicConfig};
use dunlin::wire::{
    FLAG_ACK, FromClient, FromNode, GroupKind, JoinGroup, NamedTopic, OnGap, OpenPublisher, Ping, Publish,
    PublishHeader, StartAt, Subscribe,
};
use dunlin_server::Server;

use crate::nats_peer::{NatsPeer, serve_nats};
use crate::peer::{Peer, frames};
use crate::{serve, serve_with};

const PLENTY: u64 = 1 << 40;
/// Number of the topics `many.*`. Their search and their channels take many turns.
const TOPICS: u32 = 3_000;

fn create_topics(node: &Node) {
    for number in 0..TOPICS {
        node.create_topic(&format!("many.{number}"), TopicConfig::default(), false).unwrap();
    }
}

fn connect_watcher(server: &Server) -> Peer {
    let mut watcher = Peer::connect(server);
    watcher.subscribe(1, "watched", StartAt::Latest, PLENTY);
    watcher.await_subscribed();
    watcher
}

fn subscribe_to_all(number: u32) -> FromClient<'static> {
    FromClient::Subscribe(Subscribe {
        subscription: number,
        credit: PLENTY,
        start: StartAt::Latest,
        on_gap: OnGap::Oldest,
        registered: false,
        pattern: "many.*",
        name: "",
    })
}

/// Sends a record for the watcher, the commands, and a request for the watcher's position, all in one write. Returns the
/// sequence number of the position.
fn watcher_seq_after(server: &Server, commands: &[FromClient<'_>]) -> u64 {
    let mut bytes = Vec::new();
    let (producer, producer_epoch) = (0, 0);
    let open = OpenPublisher { publisher: 1, producer, producer_epoch, subject: "watched" };
    FromClient::OpenPublisher(open).encode(&mut bytes);
    let frames = frames(&[b"x".as_slice()]);
    let header = PublishHeader {
        publisher: 1,
        partition: 0,
        expect_seq: 0,
        producer_seq: 1,
        count: 1,
        bytes: frames.len() as u32,
    };
    FromClient::Publish(Publish { flags: FLAG_ACK, header, frames: &frames }).encode(&mut bytes);
    commands.iter().for_each(|command| command.encode(&mut bytes));
    FromClient::DescribeTopic(NamedTopic { request: 1, topic: "watched" }).encode(&mut bytes);
    let mut peer = Peer::connect(server);
    peer.stream.write_all(&bytes).unwrap();
    let seq = peer.next(|message| match message {
        FromNode::Topic(topic) => topic.subscribers.iter().next().map(|subscriber| subscriber.position.seq),
        _ => None,
    });
    seq.expect("the topic has a subscriber")
}

#[test]
fn many_cheap_commands_do_not_delay_another_session() {
    let (_node, server) = serve();
    let mut watcher = connect_watcher(&server);
    let pings: Vec<_> = (0..2_000).map(|token| FromClient::Ping(Ping { token })).collect();
    assert_eq!(watcher_seq_after(&server, &pings), 1);
    assert_eq!(watcher.records(1), [(1, b"x".to_vec())]);
}

#[test]
fn wildcard_subscriptions_do_not_delay_another_session() {
    let (node, server) = serve();
    create_topics(&node);
    let mut watcher = connect_watcher(&server);
    let commands: Vec<_> = (1..6)
        .flat_map(|number| [subscribe_to_all(number), FromClient::Unsubscribe { subscription: number }])
        .collect();
    assert_eq!(watcher_seq_after(&server, &commands), 1);
    assert_eq!(watcher.records(1), [(1, b"x".to_vec())]);
}

#[test]
fn id_of_an_ended_subscription_can_be_used_again() {
    let (node, server) = serve();
    create_topics(&node);
    let mut peer = Peer::connect(&server);
    peer.send(subscribe_to_all(1));
    peer.send(FromClient::Unsubscribe { subscription: 1 });
    peer.send(subscribe_to_all(1));
    let ended = peer.next(|message| match message {
        FromNode::SubscriptionEnded(ended) => Some(ended.subscription),
        _ => None,
    });
    assert_eq!(ended, Some(1));
    let logs = peer.next(|message| match message {
        FromNode::Subscribed(subscribed) => Some(subscribed.logs),
        _ => None,
    });
    assert_eq!(logs, Some(TOPICS));
}

fn join(number: u32, topic: &'static str, group: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    FromClient::JoinGroup(JoinGroup {
        subscription: number,
        credit: PLENTY,
        kind: GroupKind::Share,
        start: StartAt::Earliest,
        claim_ms: 0,
        attempts_max: 0,
        dead_letter: "",
        topic,
        group,
        member: "",
    })
    .encode(&mut bytes);
    bytes
}

#[test]
fn ended_subscription_frees_channels_for_a_group_member() {
    let (node, server) = serve_with(|config| config.limits.channels_max = TOPICS as usize);
    create_topics(&node);
    let mut peer = Peer::connect(&server);
    peer.send(subscribe_to_all(1));
    peer.await_subscribed();
    let mut bytes = Vec::new();
    FromClient::Unsubscribe { subscription: 1 }.encode(&mut bytes);
    bytes.extend(join(2, "many.0", "g"));
    peer.stream.write_all(&bytes).unwrap();
    let mut next = || {
        peer.next(|message| match message {
            FromNode::SubscriptionEnded(ended) => Some(("ended", ended.subscription)),
            FromNode::Subscribed(subscribed) => Some(("subscribed", subscribed.subscription)),
            _ => None,
        })
    };
    assert_eq!(next(), Some(("ended", 1)));
    assert_eq!(next(), Some(("subscribed", 2)));
}

#[test]
fn group_members_with_many_records_delay_no_subscription() {
    const GROUPS: u32 = 80;
    const RECORDS: usize = 1_000;
    let (node, server) = serve();
    let mut publisher = node.publisher("jobs").unwrap();
    for _ in 0..RECORDS {
        publisher.publish("job").unwrap();
    }
    node.publisher("watched").unwrap().publish("x").unwrap();
    let mut bytes: Vec<u8> =
        (1..=GROUPS).flat_map(|number| join(number, "jobs", &format!("g{number}"))).collect();
    FromClient::Subscribe(Subscribe {
        subscription: GROUPS + 1,
        credit: PLENTY,
        start: StartAt::Earliest,
        on_gap: OnGap::Oldest,
        registered: false,
        pattern: "watched",
        name: "",
    })
    .encode(&mut bytes);
    let mut peer = Peer::connect(&server);
    peer.stream.write_all(&bytes).unwrap();
    let mut delivered = 0;
    let came = peer.next(|message| match message {
        FromNode::Deliver(deliver) => {
            delivered += deliver.records.len();
            None
        }
        FromNode::Batch(_) => Some(()),
        _ => None,
    });
    assert_eq!(came, Some(()));
    assert!(delivered < GROUPS as usize * RECORDS / 2, "{delivered} records came before");
}

/// Sends the client's messages `bytes`, which begin a subscription or membership 1 with one record, and a large
/// subscription 2. Checks that the record arrives before the node has begun subscription 2.
fn assert_record_precedes_the_second_subscription(server: &Server, bytes: &[u8]) {
    let mut peer = Peer::connect(server);
    peer.stream.write_all(bytes).unwrap();
    let mut next = || {
        peer.next(|message| match message {
            FromNode::Subscribed(subscribed) => Some(("subscribed", subscribed.subscription)),
            FromNode::Batch(_) | FromNode::Deliver(_) => Some(("record", 1)),
            _ => None,
        })
    };
    assert_eq!(next(), Some(("subscribed", 1)));
    assert_eq!(next(), Some(("record", 1)));
    assert_eq!(next(), Some(("subscribed", 2)));
}

#[test]
fn large_subscription_does_not_delay_a_small_subscription() {
    let (node, server) = serve();
    create_topics(&node);
    node.publisher("watched").unwrap().publish("x").unwrap();
    let mut bytes = Vec::new();
    FromClient::Subscribe(Subscribe {
        subscription: 1,
        credit: PLENTY,
        start: StartAt::Earliest,
        on_gap: OnGap::Oldest,
        registered: false,
        pattern: "watched",
        name: "",
    })
    .encode(&mut bytes);
    subscribe_to_all(2).encode(&mut bytes);
    assert_record_precedes_the_second_subscription(&server, &bytes);
}

#[test]
fn large_subscription_does_not_delay_records_of_a_group_member() {
    let (node, server) = serve();
    create_topics(&node);
    node.publisher("jobs").unwrap().publish("x").unwrap();
    let mut bytes = join(1, "jobs", "g");
    subscribe_to_all(2).encode(&mut bytes);
    assert_record_precedes_the_second_subscription(&server, &bytes);
}

#[test]
fn ending_a_large_queue_subscription_delays_no_other_session() {
    let (node, server) = serve_nats(|_| {});
    let create = |name: String| node.create_topic(&name, TopicConfig::default(), false).unwrap();
    let topics: Vec<_> = (0..1_000).map(|number| create(format!("queued.{number}"))).collect();
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    node.create_topic("watched", TopicConfig { retention, ..TopicConfig::default() }, false).unwrap();
    let mut watcher = connect_watcher(&server);
    let mut peer = NatsPeer::open(&server);
    peer.subscribe("queued.* q 1");
    assert!(topics.iter().all(|topic| node.groups(topic).len() == 1));
    // The topic retains only the records before `UNSUB`, or those after it.
    let payload = "x".repeat(2_000);
    let records = format!("PUB watched {}\r\n{payload}\r\n", payload.len()).repeat(20);
    peer.send(format!("{records}UNSUB 1\r\n{records}PING\r\n").as_bytes());
    assert_eq!(watcher.records(40).last().map(|(seq, _)| *seq), Some(40));
    assert_eq!(peer.line(), "PONG");
    assert!(topics.iter().all(|topic| node.groups(topic).is_empty()));
}

#[test]
fn nats_wildcard_subscription_does_not_delay_another_session() {
    let (node, server) = serve_nats(|_| {});
    create_topics(&node);
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    node.create_topic("watched", TopicConfig { retention, ..TopicConfig::default() }, false).unwrap();
    let mut watcher = connect_watcher(&server);
    let mut peer = NatsPeer::open(&server);
    // The topic retains only the records before the subscription, or those after it. A watcher that did not run in
    // between would miss records.
    let payload = "x".repeat(2_000);
    let records = format!("PUB watched {}\r\n{payload}\r\n", payload.len()).repeat(20);
    peer.send(format!("{records}SUB many.* 1\r\nUNSUB 1\r\n{records}PING\r\n").as_bytes());
    assert_eq!(watcher.records(40).last().map(|(seq, _)| *seq), Some(40));
    assert_eq!(peer.line(), "PONG");
}

#[test]
fn nats_wildcard_subscription_reads_all_of_many_topics() {
    let (node, server) = serve_nats(|_| {});
    create_topics(&node);
    let mut peer = NatsPeer::open(&server);
    // The subscription is complete when its `PONG` arrives.
    peer.subscribe("many.* 1");
    for number in [0, TOPICS - 1] {
        peer.publish(&format!("many.{number}"), "x");
        assert_eq!(peer.text(), (format!("many.{number}"), "x".to_owned()));
    }
}
