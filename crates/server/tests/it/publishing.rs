use std::time::Duration;

use dunlin::topic::{ReliableOptions, Retention, Start, Subscribe, SubscribeOptions, TopicConfig};
use dunlin::wire::{self, ErrorCode, FromClient, FromNode, OpenPublisher, Publish, PublishHeader, StartAt};
use dunlin_wait::PATIENCE;

use crate::peer::{Peer, frames};
use crate::serve;

#[test]
fn published_records_are_acknowledged_and_reach_another_client() {
    let (_node, server) = serve();
    let mut subscriber = Peer::connect(&server);
    subscriber.subscribe(7, "a.b", StartAt::Earliest, 1 << 20);
    subscriber.await_subscribed();
    let mut writer = Peer::connect(&server);
    writer.open_publisher(1, "a.b");
    writer.publish(1, 1, &[b"one", b"two"]);
    writer.publish(1, 3, &[b"three"]);
    let mut through = 0;
    while through < 3 {
        through =
            writer.next(|m| if let FromNode::Published(p) = m { Some(p.through) } else { None }).unwrap();
    }
    let expected: Vec<(u64, Vec<u8>)> =
        vec![(1, b"one".to_vec()), (2, b"two".to_vec()), (3, b"three".to_vec())];
    assert_eq!(subscriber.records(3), expected);
}

#[test]
fn message_larger_than_the_read_buffer_arrives_whole() {
    let (node, server) = serve();
    let payload: Vec<u8> = (0..3_000_000u32).map(|i| i as u8).collect();
    let mut writer = Peer::connect(&server);
    writer.open_publisher(1, "large");
    writer.publish(1, 1, &[&payload]);
    writer.next(|m| matches!(m, FromNode::Published(_)).then_some(())).unwrap();
    let options = SubscribeOptions { start: Start::Earliest, ..Default::default() };
    let mut subscriber = node.subscribe("large", &options).unwrap();
    let Ok(Some(dunlin::topic::Event::Record(record))) = subscriber.try_next() else { panic!() };
    assert!(record.payload() == payload);
}

#[test]
fn invalid_subject_or_unopened_publisher_is_refused() {
    let (_node, server) = serve();
    let mut peer = Peer::connect(&server);
    peer.open_publisher(1, "a..b");
    let refused =
        peer.next(|m| if let FromNode::PublisherRefused(r) = m { Some(r.refusal.code) } else { None });
    assert_eq!(refused, Some(ErrorCode::Subject));
    peer.publish(2, 1, &[b"x"]);
    let refused =
        peer.next(|m| if let FromNode::PublishRefused(r) = m { Some(r.refusal.code) } else { None });
    assert_eq!(refused, Some(ErrorCode::NotOpen));
}

#[test]
fn full_reliable_topic_delays_only_its_own_publisher() {
    let (node, server) = serve();
    let reliable = ReliableOptions { wait_max: Duration::from_millis(300), ..ReliableOptions::default() };
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    let config = TopicConfig { reliable: Some(reliable), retention, ..TopicConfig::default() };
    node.create_topic("full", config, false).unwrap();
    let options =
        SubscribeOptions { registered: true, name: "slow".to_owned(), ..SubscribeOptions::default() };
    let mut subscriber = node.subscribe("full", &options).unwrap();

    let mut writer = Peer::connect(&server);
    writer.open_publisher(1, "full");
    let payload = [7; 1_000];
    for number in 1..=100 {
        writer.publish(1, number, &[&payload]);
    }
    let mut other = Peer::connect(&server);
    other.open_publisher(1, "other");
    other.publish(1, 1, &[b"x"]);
    other.next(|m| matches!(m, FromNode::Published(_)).then_some(())).unwrap();

    let refused = writer
        .next(|m| if let FromNode::PublishRefused(r) = m { Some(format!("{}", r.refusal)) } else { None });
    assert!(refused.clone().unwrap().starts_with("FULL: subscriber \"slow\" has not"), "{refused:?}");
    let mut read = 0;
    while read < 20 {
        assert!(subscriber.wait(Some(PATIENCE)).unwrap());
        read += subscriber.drain(100, |_| ()).unwrap();
    }
}

#[test]
fn blocked_publisher_continues_when_there_is_room() {
    let (node, server) = serve();
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    let config =
        TopicConfig { reliable: Some(ReliableOptions::default()), retention, ..TopicConfig::default() };
    node.create_topic("full", config, false).unwrap();
    let options = SubscribeOptions { registered: true, ..SubscribeOptions::default() };
    let mut subscriber = node.subscribe("full", &options).unwrap();
    let mut writer = Peer::connect(&server);
    writer.open_publisher(1, "full");
    let payload = [7; 1_000];
    for number in 1..=500 {
        writer.publish(1, number, &[&payload]);
    }
    let mut read = 0;
    while read < 500 {
        let found = subscriber.drain(50, |event| assert!(matches!(event, dunlin::topic::Event::Record(_))));
        read += found.unwrap();
        assert!(read == 500 || subscriber.wait(Some(PATIENCE)).unwrap());
    }
}

#[test]
fn publisher_without_a_wait_limit_is_never_refused() {
    let (node, server) = serve();
    let reliable = Some(ReliableOptions { wait_max: Duration::MAX, ..ReliableOptions::default() });
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    node.create_topic("full", TopicConfig { reliable, retention, ..TopicConfig::default() }, false).unwrap();
    let options = SubscribeOptions { registered: true, ..SubscribeOptions::default() };
    let mut subscriber = node.subscribe("full", &options).unwrap();
    let mut writer = Peer::connect(&server);
    writer.open_publisher(1, "full");
    (1..=500).for_each(|number| writer.publish(1, number, &[&[7; 1_000]]));
    let mut read = 0;
    while read < 500 {
        assert!(subscriber.wait(Some(PATIENCE)).unwrap());
        read += subscriber.drain(50, |_| ()).unwrap();
    }
}

#[test]
fn connection_can_read_a_full_topic_to_which_it_publishes() {
    let (node, server) = serve();
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    let config =
        TopicConfig { reliable: Some(ReliableOptions::default()), retention, ..TopicConfig::default() };
    node.create_topic("full", config, false).unwrap();
    let mut peer = Peer::connect(&server);
    peer.send(FromClient::Subscribe(wire::Subscribe {
        subscription: 1,
        credit: 1 << 40,
        start: StartAt::Latest,
        on_gap: wire::OnGap::Fail,
        registered: true,
        pattern: "full",
        name: "itself",
    }));
    peer.await_subscribed();
    peer.open_publisher(1, "full");
    let payload = [7; 1_000];
    for number in 1..=300 {
        peer.publish(1, number, &[&payload]);
    }
    let mut last = 0;
    while last < 300 {
        let run = peer.next(|m| match m {
            FromNode::Batch(run) => Some(run.header),
            FromNode::PublishRefused(refused) => panic!("{refused:?}"),
            _ => None,
        });
        let header = run.unwrap();
        last = header.last_seq();
        let position = wire::Position { epoch: header.epoch, seq: last };
        let consumed = [wire::ChannelPosition { channel: header.topic_id, position }];
        let credit =
            wire::Credit { subscription: 1, granted: 1 << 40, consumed: wire::MessageList::new(&consumed) };
        peer.send(FromClient::Credit(credit));
    }
}

#[test]
fn batches_after_a_refused_batch_are_refused_until_its_retry() {
    let (_node, server) = serve();
    let mut peer = Peer::connect(&server);
    let (publisher, producer, producer_epoch) = (1, 5, 1);
    peer.send(FromClient::OpenPublisher(OpenPublisher { publisher, producer, producer_epoch, subject: "s" }));
    let response = |peer: &mut Peer| {
        peer.next(|m| match m {
            FromNode::Published(published) => Some(Ok((published.through, published.duplicate))),
            FromNode::PublishRefused(refused) => Some(Err((refused.producer_seq, refused.refusal.code))),
            _ => None,
        })
        .unwrap()
    };
    let mut broken = frames(&[b"broken"]);
    broken[4] = 9;
    let (count, bytes) = (1, broken.len() as u32);
    let header = PublishHeader { publisher, partition: 0, expect_seq: 0, producer_seq: 1, count, bytes };
    peer.send(FromClient::Publish(Publish { flags: wire::FLAG_ACK, header, frames: &broken }));
    peer.publish(1, 2, &[b"behind it"]);
    assert_eq!(response(&mut peer), Err((1, ErrorCode::BadFrame)));
    assert_eq!(response(&mut peer), Err((2, ErrorCode::ProducerGap)));
    // The records are published one by one, because one response may acknowledge several records.
    peer.publish(1, 1, &[b"one"]);
    assert_eq!(response(&mut peer), Ok((1, false)));
    peer.publish(1, 2, &[b"two"]);
    assert_eq!(response(&mut peer), Ok((2, false)));
}
