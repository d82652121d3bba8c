//! Publishers and readers of a state that another node owns.

use std::sync::mpsc;

use dunlin::topic::{FoldConfig, OnGap};
use dunlin_client::{Relay, Relayed, RunToRelay};
use dunlin_server::grpc::proto::dunlin as v1;

use super::*;

fn book() -> TopicConfig {
    TopicConfig {
        fold: Some(FoldConfig { kind: "book".to_owned(), ..FoldConfig::default() }),
        ..TopicConfig::default()
    }
}

fn follow(client: &Client) -> dunlin_client::Subscriber {
    let options = SubscribeOptions { on_gap: OnGap::Snapshot, ..from(Start::Snapshot) };
    client.subscribe("md", options).unwrap()
}

/// Reads until it is told that this is so.
fn until_told(reader: &mut dunlin_client::Subscriber, connected: bool) {
    loop {
        match reader.next_timeout(PATIENCE).unwrap() {
            Some(Event::Notice(Notice::Publishers(told))) if told.connected == connected => return,
            Some(_) => {}
            None => panic!("it is not told that connected is {connected}"),
        }
    }
}

/// A level of a book; a size below zero is refused.
fn level(number: i64) -> Vec<u8> {
    let size = if number % 100 == 0 { -1 } else { number };
    [&[1, 1, 0, 0, 0, 0, 0, 0][..], &number.to_le_bytes(), &size.to_le_bytes()].concat()
}

#[test]
fn refused_record_takes_no_other_along_to_another_node() {
    let hall = Hall::of(3);
    hall.topic_at(1, "md", book());
    let log = || hall.node(1).topic("md").unwrap().logs()[0].fold_info().unwrap();
    let client = hall.client(2);
    let mut publisher = client.publisher("md").unwrap();
    let mut left_out = 0;
    let mut told = |outcome: Result<(), PublishError>| match outcome {
        Ok(()) => true,
        Err(PublishError::LeftOut { more, .. }) => {
            left_out += 1 + more;
            false
        }
        Err(other) => panic!("{other}"),
    };
    for number in 1..=1_000 {
        told(publisher.send(&level(number)[..]).map(drop));
    }
    while !told(publisher.flush().map(drop)) {}
    assert_eq!((left_out, log().0.seq, log().1.entries), (10, 990, 990));

    let mut peer = hall.nats(3);
    let mut burst = Vec::new();
    for number in 1_001..=2_000 {
        burst.extend_from_slice(b"PUB md 24\r\n");
        burst.extend_from_slice(&level(number));
        burst.extend_from_slice(b"\r\n");
    }
    burst.extend_from_slice(b"PING\r\n");
    peer.send(&burst);
    // The owner answers in its own time: `PONG` may come before.
    let (pongs, refused): (Vec<_>, Vec<_>) = (0..11).map(|_| peer.line()).partition(|line| line == "PONG");
    assert_eq!(pongs.len(), 1, "{refused:?}");
    refused
        .iter()
        .for_each(|line| assert!(line.starts_with("-ERR") && line.contains("state refuses it"), "{line}"));
    assert_eq!((log().0.seq, log().1.entries), (1_980, 1_980));

    grpc::run(async {
        let (through, refused) = stream_levels(&hall, 2_001..=3_000).await;
        assert_eq!(through, 1_000);
        let expected: Vec<u64> = (1..=10).map(|of| 100 * of - 1).collect();
        assert_eq!(refused, expected, "each by its own number, and the stream went on");
    });
    assert_eq!((log().0.seq, log().1.entries), (2_970, 2_970));
}

/// Publishes levels through node 3 in one stream: how far it was answered, and which were refused.
async fn stream_levels(hall: &Hall, numbers: std::ops::RangeInclusive<i64>) -> (u64, Vec<u64>) {
    let address = format!("http://{}", hall.address(3, Door::Grpc));
    let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap();
    let messages: Vec<_> = numbers
        .map(|number| v1::PublishStreamRequest {
            subject: "md".to_owned(),
            records: vec![v1::Draft { payload: level(number).into(), ..Default::default() }],
            ..Default::default()
        })
        .collect();
    let mut client = grpc::Dunlin::new(channel);
    let mut answers = client.publish_stream(tokio_stream::iter(messages)).await.unwrap().into_inner();
    let (mut through, mut refused) = (0, Vec::new());
    while let Some(answer) = answers.message().await.unwrap() {
        through = answer.through;
        refused.extend(answer.refused.iter().map(|refused| refused.index));
    }
    (through, refused)
}

#[test]
fn readers_of_every_node_are_told_of_publishers_at_any_node() {
    let hall = Hall::of(3);
    hall.topic_at(1, "md", book());
    let clients = [1, 2, 3].map(|id| hall.client(id));
    let mut readers = clients.each_ref().map(follow);
    readers.iter_mut().for_each(|reader| until_told(reader, false));
    for id in [1, 2, 3] {
        let publishing = hall.client(id);
        let publisher = publishing.publisher("md").unwrap();
        readers.iter_mut().for_each(|reader| until_told(reader, true));
        drop((publisher, publishing));
        readers.iter_mut().for_each(|reader| until_told(reader, false));
    }
}

#[test]
fn state_that_changes_hands_keeps_its_publishers() {
    let hall = Hall::of(3);
    hall.topic_at(1, "md", book());
    let (reading, publishing) = (hall.client(2), hall.client(3));
    let mut reader = follow(&reading);
    until_told(&mut reader, false);
    let publisher = publishing.publisher("md").unwrap();
    until_told(&mut reader, true);
    for owner in [2, 3] {
        let ownership = hall.members.lock().unwrap()[&owner].ownership.clone();
        ownership.move_topic("md", owner).unwrap();
        until("the owner has it", || !hall.node(owner).topic("md").unwrap().logs()[0].is_mirror());
        // Who joins is told the same.
        let mut joined = follow(&reading);
        let first = joined.next_timeout(PATIENCE).unwrap();
        assert!(matches!(first, Some(Event::Notice(Notice::Snapshot(_)))), "{first:?}");
    }
    hall.kill(1);
    drop((publisher, publishing));
    until_told(&mut reader, false);
}

#[test]
fn owner_takes_nothing_behind_what_it_gave_back() {
    let hall = Hall::of(2);
    hall.topic_at(2, "t", TopicConfig::default());
    let url = hall.urls.lock().unwrap()[&1].clone();
    let node = Client::connect(&url, Options { name: "$node-7".to_owned(), ..unhurried() }).unwrap();
    let record = |text: &str| {
        let (meta, mut frame) = (Meta::default(), Vec::new());
        let encoded = meta.measure(text.len()).unwrap();
        frame.resize(encoded.padded(), 0);
        meta.encode(encoded, 0, text.as_bytes(), &mut frame);
        frame
    };
    let hand_on = |relay: &Relay, text: &str| {
        let (sender, told) = mpsc::channel();
        let frames = &record(text)[..];
        let run = RunToRelay { partition: 0, frames, count: 1, producer_seq: None, expect_last: None };
        relay.send(run, Box::new(move |relayed| sender.send(relayed).unwrap()));
        let mut outcome = None;
        until("it is answered", || {
            node.pump(POLL);
            outcome = told.try_recv().ok();
            outcome.is_some()
        });
        outcome.unwrap()
    };
    let relay = node.relay("t", None);
    // It owns the topic by the time at which what was sent behind the first arrives.
    let given_back = hand_on(&relay, "first");
    assert!(matches!(given_back, Relayed::NotTaken(_)), "{given_back:?}");
    let ownership = hall.members.lock().unwrap()[&1].ownership.clone();
    ownership.move_topic("t", 1).unwrap();
    until("it owns the topic", || !hall.node(1).topic("t").unwrap().logs()[0].is_mirror());
    let given_back = hand_on(&relay, "second");
    assert!(matches!(given_back, Relayed::NotTaken(_)), "{given_back:?}");
    let relay = node.relay("t", None);
    for (seq, text) in [(1, "first"), (2, "second")] {
        match hand_on(&relay, text) {
            Relayed::Answered(Ok(receipt)) => assert_eq!(receipt.position.seq, seq),
            other => panic!("{other:?}"),
        }
    }
}
