use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dunlin::topic::{Draft, Publish, ReducerConfig, TopicConfig};
use dunlin::wire::{ChannelPosition, Credit, Follow, FromClient, FromNode, MessageList, Position, StartAt};

use crate::peer::Peer;
use crate::{serve, serve_with};

const PLENTY: u64 = 1 << 40;

/// With conflation, a channel is queued again after it has sent a record. If its client consumes the record before the
/// channel's next turn, the channel is queued a second time.
#[test]
fn conflated_record_queued_twice_is_sent_once() {
    /// Number of attempts. With this number, some runs of the test hit the case described above.
    const STEPS: usize = 300;
    let (node, server) = serve();
    let reducer = Some(ReducerConfig { kind: "last".to_owned(), ..ReducerConfig::default() });
    node.create_topic("md", TopicConfig { reducer, ..TopicConfig::default() }, false).unwrap();
    let mut publisher = node.publisher("md").unwrap();
    let epoch = publisher.publish(key(0)).unwrap().position.epoch;
    let mut reader = Peer::connect(&server);
    reader.send(FromClient::Follow(Follow {
        subscription: 1,
        start: true,
        on_gap: true,
        conflate: true,
        test_loss_every: 0,
    }));
    reader.subscribe(1, "md", StartAt::Latest, PLENTY);
    let channel = reader.next(|message| match message {
        FromNode::Log(log) => Some(log.channel),
        _ => None,
    });
    let channel = channel.unwrap();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let (mut saying, ended) = (reader.stream.try_clone().unwrap(), &ended);
        scope.spawn(move || {
            // The reported position is far ahead of all records. Each record therefore counts as consumed as soon as it
            // is sent.
            let ahead = [ChannelPosition { channel, position: Position { epoch, seq: 1 << 40 } }];
            let credit = Credit { subscription: 1, granted: PLENTY, consumed: MessageList::new(&ahead) };
            let mut bytes = Vec::new();
            FromClient::Credit(credit).encode(&mut bytes);
            while !ended.load(Ordering::Relaxed) && saying.write_all(&bytes).is_ok() {}
        });
        scope.spawn(move || {
            for number in 1.. {
                publisher.publish(key(number)).unwrap();
                if ended.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let _ends = Ends(ended);
        let mut last = 0;
        for _ in 0..STEPS {
            let next = reader.next(|message| match message {
                FromNode::Batch(run) => Some((run.header.prev_seq, run.header.first_seq)),
                FromNode::Snapshot(part) if part.offset + part.bytes.len() as u64 == part.total => {
                    Some((last, part.position.seq))
                }
                _ => None,
            });
            assert!(
                next.is_some_and(|(since, at)| since == last && at > last),
                "{next:?} (what it follows, and where it stands) for a reader at {last}"
            );
            last = next.map_or(last, |(_, at)| at);
        }
    });
}

/// Checksums are sent at most twice a second, and heartbeats 20 times a second in this test. If a checksum may not be
/// sent with one heartbeat yet, a later heartbeat must send it.
#[test]
fn checksum_in_a_later_heartbeat_reveals_a_lost_last_record() {
    let (node, server) = serve_with(|config| config.limits.heartbeat_ms = 50);
    let reducer = Some(ReducerConfig { kind: "last".to_owned(), ..ReducerConfig::default() });
    node.create_topic("md", TopicConfig { reducer, ..TopicConfig::default() }, false).unwrap();
    let mut publisher = node.publisher("md").unwrap();
    publisher.publish(key(1)).unwrap();
    let mut reader = Peer::connect(&server);
    let (subscription, start, on_gap) = (1, true, true);
    reader.send(FromClient::Follow(Follow {
        subscription,
        start,
        on_gap,
        conflate: false,
        test_loss_every: 10,
    }));
    reader.subscribe(1, "md", StartAt::Latest, PLENTY);
    let snapshot = reader.next(|message| match message {
        FromNode::Snapshot(part) => Some(part.position.seq),
        _ => None,
    });
    assert_eq!(snapshot, Some(1), "with a checksum: the next is due half a second later");
    for number in 2..=10 {
        publisher.publish(key(number)).unwrap();
    }
    let mut heartbeats = 0;
    let checksum = reader.next(|message| match message {
        FromNode::Checksum(checksum) => Some(checksum.position.seq),
        FromNode::Heartbeat(_) => {
            heartbeats += 1;
            (heartbeats == 600).then_some(0)
        }
        _ => None,
    });
    assert_eq!(checksum, Some(10), "after {heartbeats} heartbeats");
}

/// If a record is withheld from a client, the client never consumes it. With conflation, the channel must not wait for
/// the client to consume such a record.
#[test]
fn conflated_subscription_continues_after_a_simulated_loss() {
    let (node, server) = serve_with(|config| config.limits.heartbeat_ms = 50);
    let reducer = Some(ReducerConfig { kind: "last".to_owned(), ..ReducerConfig::default() });
    node.create_topic("md", TopicConfig { reducer, ..TopicConfig::default() }, false).unwrap();
    let mut publisher = node.publisher("md").unwrap();
    let epoch = publisher.publish(key(1)).unwrap().position.epoch;
    for number in 2..=8 {
        publisher.publish(key(number)).unwrap();
    }
    let mut reader = Peer::connect(&server);
    let (subscription, start, on_gap, conflate) = (1, true, true, true);
    reader.send(FromClient::Follow(Follow { subscription, start, on_gap, conflate, test_loss_every: 10 }));
    reader.subscribe(1, "md", StartAt::Latest, PLENTY);
    let channel = reader.next(|message| match message {
        FromNode::Log(log) => Some(log.channel),
        _ => None,
    });
    let channel = channel.unwrap();
    let snapshot = reader.next(|message| match message {
        FromNode::Snapshot(part) => Some(part.position.seq),
        _ => None,
    });
    assert_eq!(snapshot, Some(8));
    let consume = |reader: &mut Peer, seq| {
        let consumed = [ChannelPosition { channel, position: Position { epoch, seq } }];
        let consumed = MessageList::new(&consumed);
        reader.send(FromClient::Credit(Credit { subscription, granted: PLENTY, consumed }));
    };
    let next_record = |reader: &mut Peer| {
        reader.next(|message| match message {
            FromNode::Batch(run) => Some((run.header.prev_seq, run.header.first_seq)),
            _ => None,
        })
    };
    consume(&mut reader, 8);
    publisher.publish(key(9)).unwrap();
    assert_eq!(next_record(&mut reader), Some((8, 9)));
    consume(&mut reader, 9);
    publisher.publish(key(10)).unwrap();
    let is_withheld = reader.next(|message| match message {
        FromNode::Heartbeat(heartbeat) => heartbeat
            .channels
            .iter()
            .any(|sent| sent.channel == channel && sent.position.seq == 10)
            .then_some(true),
        FromNode::Batch(_) => Some(false),
        _ => None,
    });
    assert_eq!(is_withheld, Some(true));
    publisher.publish(key(11)).unwrap();
    assert_eq!(next_record(&mut reader), Some((10, 11)), "the next record, as if record 10 had been sent");
}

#[test]
fn options_of_a_refused_subscription_are_discarded() {
    let (node, server) = serve_with(|config| config.limits.subscriptions_max = 2);
    node.create_topic("plain", TopicConfig::default(), false).unwrap();
    let mut reader = Peer::connect(&server);
    for subscription in 1..=4 {
        let follow = Follow { subscription, start: true, on_gap: true, conflate: false, test_loss_every: 0 };
        reader.send(FromClient::Follow(follow));
        reader.subscribe(subscription, "not..valid", StartAt::Latest, PLENTY);
        let refused = reader.next(|message| match message {
            FromNode::SubscriptionEnded(ended) => Some(Ok(ended.subscription)),
            FromNode::Error(error) => Some(Err(error.text.to_owned())),
            _ => None,
        });
        assert_eq!(refused, Some(Ok(subscription)));
    }
    // FOLLOW stated options for subscription 1. With these options, a topic without a state would refuse the
    // subscription. The options must therefore not apply any more.
    reader.subscribe(1, "plain", StartAt::Latest, PLENTY);
    let accepted = reader.next(|message| match message {
        FromNode::Subscribed(subscribed) => Some(Ok(subscribed.subscription)),
        FromNode::SubscriptionEnded(ended) => Some(Err(format!("{ended:?}"))),
        _ => None,
    });
    assert_eq!(accepted, Some(Ok(1)));
}

/// Sets the flag when it is dropped, so that the other threads end, even if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A record whose key is one of ten keys.
fn key(number: u64) -> Draft<'static> {
    const KEYS: [&[u8]; 10] = [b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9"];
    let mut draft = Draft::from("value");
    draft.meta.key = Some(KEYS[(number % 10) as usize]);
    draft
}
