use std::time::{Duration, Instant};

use dunlin::topic::{Publish, Retention, TopicConfig};
use dunlin::wire::{
    ChannelPosition, Credit, FromClient, FromNode, LogPosition, MessageList, Position, Resume, StartAt,
};
use dunlin_wait::Deadline;

use crate::peer::Peer;
use crate::{serve, serve_with};

const PLENTY: u64 = 1 << 40;

#[test]
fn subscription_delivers_all_records_in_order() {
    let (node, server) = serve();
    let mut subscriber = Peer::connect(&server);
    subscriber.subscribe(1, "s", StartAt::Latest, PLENTY);
    subscriber.await_subscribed();
    let publishing = std::thread::spawn(move || {
        let mut publisher = node.publisher("s").unwrap();
        for number in 0..50_000u64 {
            publisher.publish(&number.to_le_bytes()).unwrap();
        }
    });
    for (seq, payload) in subscriber.records(50_000) {
        assert_eq!(u64::from_le_bytes(payload.try_into().unwrap()), seq - 1);
    }
    publishing.join().unwrap();
}

#[test]
fn each_of_many_subscribers_gets_every_record() {
    let (node, server) = serve();
    let mut subscribers: Vec<Peer> = (0..250).map(|_| Peer::connect(&server)).collect();
    for subscriber in &mut subscribers {
        subscriber.subscribe(1, "s", StartAt::Latest, PLENTY);
        subscriber.await_subscribed();
    }
    let mut publisher = node.publisher("s").unwrap();
    // The first subscriber waits for each record before the next is published, so the thread is busy all the time.
    for number in 0..1_000u64 {
        publisher.publish(&number.to_le_bytes()).unwrap();
        assert_eq!(subscribers[0].records(1)[0].0, number + 1);
    }
    for subscriber in &mut subscribers[1..] {
        let records = subscriber.records(1_000);
        assert!((1..=1_000).eq(records.into_iter().map(|(seq, _)| seq)));
    }
    // The subscribers have read all records, and wait for the log's next record. A single record must then reach all of
    // them.
    publisher.publish(&[0]).unwrap();
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.records(1)[0].0, 1_001);
    }
}

#[test]
fn payloads_passed_by_reference_arrive_unchanged() {
    let (node, server) = serve();
    let mut subscriber = Peer::connect(&server);
    subscriber.subscribe(1, "s", StartAt::Latest, PLENTY);
    subscriber.await_subscribed();
    let mut publisher = node.publisher("s").unwrap();
    let sizes = [5_000, 100, 300_001, 70_007, 8];
    for (at, size) in sizes.into_iter().enumerate() {
        publisher.publish(bytes::Bytes::from(vec![at as u8; size])).unwrap();
    }
    for (at, (seq, payload)) in subscriber.records(sizes.len()).into_iter().enumerate() {
        assert_eq!(seq, at as u64 + 1);
        assert!(payload == vec![at as u8; sizes[at]]);
    }
}

#[test]
fn records_beyond_the_credit_wait_until_the_credit_is_renewed() {
    let (node, server) = serve();
    let mut publisher = node.publisher("s").unwrap();
    for _ in 0..100 {
        publisher.publish(&[0; 1_000]).unwrap();
    }
    let mut subscriber = Peer::connect(&server);
    subscriber.subscribe(1, "s", StartAt::Earliest, 10_000);
    subscriber.await_subscribed();
    let (mut sent, mut last, mut ping_sent, mut answered) = (0, None, false, false);
    while !answered {
        // The subscriber has used up its credit here. Only the response to its ping may still arrive.
        if sent >= 10_000 && !ping_sent {
            ping_sent = true;
            subscriber.send(FromClient::Ping(dunlin::wire::Ping { token: 5 }));
        }
        subscriber.next(|m| {
            match m {
                FromNode::Batch(run) => {
                    sent += run.header.bytes as usize + dunlin::wire::RUN_HEAD_BYTES;
                    last = Some(run.header);
                }
                FromNode::Pong(_) => answered = true,
                _ => {}
            }
            Some(())
        });
    }
    assert!((10_000..10_000 + (16 << 10) + 40).contains(&sent), "{sent}");
    let last = last.unwrap();
    let position = Position { epoch: last.epoch, seq: last.last_seq() };
    let consumed = [ChannelPosition { channel: last.topic_id, position }];
    let credit = Credit { subscription: 1, granted: 50_000, consumed: MessageList::new(&consumed) };
    subscriber.send(FromClient::Credit(credit));
    let next =
        subscriber.next(|m| if let FromNode::Batch(run) = m { Some(run.header) } else { None }).unwrap();
    assert_eq!(next.prev_seq, last.last_seq());
}

#[test]
fn subscription_without_credit_delays_no_other_subscription() {
    let (node, server) = serve();
    let mut subscriber = Peer::connect(&server);
    subscriber.subscribe(1, "starved", StartAt::Latest, 0);
    subscriber.subscribe(2, "fed", StartAt::Latest, PLENTY);
    subscriber.await_subscribed();
    subscriber.await_subscribed();
    node.publisher("starved").unwrap().publish("x").unwrap();
    node.publisher("fed").unwrap().publish("y").unwrap();
    assert_eq!(subscriber.records(1), vec![(1, b"y".to_vec())]);
}

#[test]
fn slow_tcp_subscriber_gets_exact_gaps() {
    let (node, server) = serve();
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    node.create_topic("s", TopicConfig { retention, ..TopicConfig::default() }, false).unwrap();
    let mut subscriber = Peer::connect(&server);
    subscriber.subscribe(1, "s", StartAt::Earliest, 5_000);
    subscriber.await_subscribed();
    let mut publisher = node.publisher("s").unwrap();
    for number in 0..10_000u64 {
        publisher.publish(&number.to_le_bytes()).unwrap();
    }
    subscriber.send(FromClient::Credit(Credit {
        subscription: 1,
        granted: PLENTY,
        consumed: MessageList::new(&[]),
    }));
    let (mut read_seq, mut missed) = (0, 0);
    while read_seq < 10_000 {
        let (first, last, gap) = subscriber
            .next(|m| match m {
                FromNode::Batch(run) => Some((run.header.prev_seq + 1, run.header.last_seq(), false)),
                FromNode::Gap(gap) => Some((gap.first, gap.last, true)),
                _ => None,
            })
            .unwrap();
        assert_eq!(first, read_seq + 1);
        missed += if gap { last - first + 1 } else { 0 };
        read_seq = last;
    }
    assert!(missed > 5_000, "missed {missed}");
}

#[test]
fn subscriber_position_advances_past_filtered_records() {
    let (node, server) = serve();
    let config = TopicConfig { pattern: Some("o.>".to_owned()), ..TopicConfig::default() };
    node.create_topic("o", config, false).unwrap();
    let mut subscriber = Peer::connect(&server);
    subscriber.subscribe(1, "o.eu", StartAt::Latest, PLENTY);
    subscriber.await_subscribed();
    for (subject, payload) in [("o.us", "1"), ("o.eu", "2"), ("o.us", "3")] {
        node.publisher(subject).unwrap().publish(payload).unwrap();
    }
    assert_eq!(subscriber.records(1), vec![(2, b"2".to_vec())]);
    let through = subscriber.next(|m| if let FromNode::Advance(a) = m { Some(a.through.seq) } else { None });
    assert_eq!(through, Some(3));
    let read_seq = subscriber.next(|m| match m {
        FromNode::Heartbeat(heartbeat) => {
            heartbeat.channels.iter().next().map(|channel| channel.position.seq)
        }
        _ => None,
    });
    assert_eq!(read_seq, Some(3));
}

#[test]
fn skipping_many_records_in_one_log_does_not_delay_other_logs() {
    let (node, server) = serve();
    for topic in ["a", "m", "z"] {
        let retention = Retention { bytes: 32 << 20, ..Retention::default() };
        let config = TopicConfig { pattern: Some(format!("{topic}.>")), retention, ..TopicConfig::default() };
        node.create_topic(topic, config, false).unwrap();
    }
    // This long history is in the topic, but the subscription matches only the topic's last record.
    let mut unwanted = node.publisher("m.us").unwrap();
    (0..12_000).for_each(|_| _ = unwanted.publish(&[0; 1_000]).unwrap());
    for topic in ["m", "a", "z"] {
        node.publisher(&format!("{topic}.eu")).unwrap().publish(topic).unwrap();
    }
    let mut subscriber = Peer::connect(&server);
    subscriber.subscribe(1, "*.eu", StartAt::Earliest, PLENTY);
    subscriber.await_subscribed();
    let mut records: Vec<_> = (0..3).flat_map(|_| subscriber.records(1)).collect();
    assert_eq!(records.pop(), Some((12_001, b"m".to_vec())), "the long history comes last");
    records.sort_unstable();
    assert_eq!(records, [(1, b"a".to_vec()), (1, b"z".to_vec())]);
}

#[test]
fn tcp_wildcard_subscriber_reads_topics_created_later() {
    let (node, server) = serve();
    let mut subscriber = Peer::connect(&server);
    subscriber.subscribe(1, "m.*", StartAt::Latest, PLENTY);
    subscriber.await_subscribed();
    for name in ["m.a", "n.a", "m.b"] {
        node.publisher(name).unwrap().publish("x").unwrap();
    }
    // A record of the first topic may arrive before the second topic's announcement.
    let (mut topics, mut seqs) = (Vec::new(), Vec::new());
    while topics.len() < 2 || seqs.len() < 2 {
        subscriber.next(|m| match m {
            FromNode::Log(log) => {
                topics.push(log.topic.to_owned());
                Some(())
            }
            FromNode::Batch(run) => {
                seqs.push(run.header.first_seq);
                Some(())
            }
            _ => None,
        });
    }
    topics.sort();
    assert_eq!(topics, ["m.a", "m.b"]);
    assert_eq!(seqs, [1, 1]);
}

#[test]
fn resumed_wildcard_subscriber_continues_and_adds_new_topics() {
    let (node, server) = serve();
    let position = node.publisher("m.a").unwrap().publish("seen").unwrap().position;
    node.publisher("m.a").unwrap().publish("not seen").unwrap();
    node.publisher("m.b").unwrap().publish("new").unwrap();
    let mut subscriber = Peer::connect(&server);
    let position = Position { epoch: position.epoch, seq: position.seq };
    let logs = [LogPosition { topic: "m.a", partition: 0, position }];
    subscriber.send(FromClient::Resume(Resume { subscription: 3, logs: MessageList::new(&logs) }));
    subscriber.subscribe(3, "m.*", StartAt::Resume, PLENTY);
    let mut payloads = Vec::new();
    while payloads.len() < 2 {
        let run = subscriber
            .next(|m| if let FromNode::Batch(r) = m { Some((r.header, r.frames.to_vec())) } else { None });
        let (header, frames) = run.unwrap();
        assert_eq!(header.count, 1);
        let (frame, _) = dunlin::topic::Frame::check(&frames, frames.len()).unwrap();
        payloads.push(String::from_utf8(frame.payload().to_vec()).unwrap());
    }
    payloads.sort();
    assert_eq!(payloads, ["new", "not seen"]);
}

#[test]
fn deleted_topic_ends_its_tcp_subscription() {
    let (node, server) = serve();
    let mut subscriber = Peer::connect(&server);
    subscriber.subscribe(1, "s", StartAt::Latest, PLENTY);
    subscriber.await_subscribed();
    node.delete_topic("s").unwrap();
    assert!(subscriber.next_text().unwrap().starts_with("Deleted"));
    assert!(subscriber.next_text().unwrap().starts_with("SubscriptionEnded"));
}

#[test]
fn node_confirms_the_end_of_an_unsubscribed_subscription() {
    let (node, server) = serve();
    let mut subscriber = Peer::connect(&server);
    subscriber.subscribe(1, "s", StartAt::Latest, PLENTY);
    subscriber.await_subscribed();
    subscriber.send(FromClient::Unsubscribe { subscription: 1 });
    let ended = subscriber.next_text().unwrap();
    assert!(ended.contains("code: Ended"), "{ended}");
    node.publisher("s").unwrap().publish("x").unwrap();
    subscriber.subscribe(1, "s", StartAt::Earliest, PLENTY);
    assert_eq!(subscriber.records(1).len(), 1);
}

#[test]
fn server_sends_goodbye_when_it_stops() {
    let (_node, server) = serve();
    let mut subscriber = Peer::connect(&server);
    let stopping = std::thread::spawn(move || server.stop());
    assert!(subscriber.next_text().unwrap().starts_with("Goodbye"));
    assert_eq!(subscriber.next_text(), None);
    drop(subscriber);
    stopping.join().unwrap();
}

#[test]
fn idle_client_gets_a_heartbeat_in_every_interval() {
    let (_node, server) = serve_with(|config| config.limits.heartbeat_ms = 200);
    let mut peer = Peer::connect(&server);
    let mut heard_at = || {
        peer.next(|m| matches!(m, FromNode::Heartbeat(_)).then_some(())).unwrap();
        Instant::now()
    };
    // If every second heartbeat were missing, the time between two heartbeats would always be two intervals. On a slow
    // machine, the test only takes longer.
    let (mut before, mut near, deadline) = (heard_at(), 0, Deadline::new());
    while near < 5 {
        let now = heard_at();
        near += u32::from(now - before < Duration::from_millis(300));
        before = now;
        deadline.check(format!("five pairs of heartbeats an interval apart, of which came {near}"));
    }
}
