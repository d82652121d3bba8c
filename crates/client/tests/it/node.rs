//! Tests of the client over TCP and over a Unix socket, with a real node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dunlin_client::topic::{
    Draft, Event, Notice, OnGap, Pattern, Publish, PublishError, RecordMeta, ReliableOptions, Retention,
    Subscribe, SubscribeError, SubscribeOptions, TopicConfig,
};
use dunlin_client::{CallError, Client, ErrorCode, PublisherOptions, RequestError};
use dunlin_wait::{Deadline, PATIENCE};

use crate::peer::event_text;
use crate::running_node::{RunningNode, from_earliest, patient};

#[test]
fn records_arrive_unchanged_over_tcp_and_unix_sockets() {
    let running = RunningNode::start();
    for url in [running.url(), format!("unix://{}", running.unix.display())] {
        let client = Client::connect(&url, patient()).unwrap();
        let config = TopicConfig { pattern: Some("orders.>".to_owned()), ..TopicConfig::default() };
        client.create_topic("orders", &config, true).unwrap();
        let mut subscriber = client.subscribe("orders.*", SubscribeOptions::default()).unwrap();
        let mut publisher = client.publisher("orders.eu").unwrap();
        let headers: &[(&str, &[u8])] = &[("trace", b"1")];
        let meta = RecordMeta { key: Some(b"k"), event_time_ns: Some(7), headers, ..RecordMeta::default() };
        let payload = dunlin_client::topic::Payload::Copied(b"hello");
        let receipt = publisher.publish(Draft { meta, payload }).unwrap();
        let Event::Record(record) = subscriber.next().unwrap() else { panic!("no record") };
        assert_eq!((record.position, record.payload()), (receipt.position, &b"hello"[..]));
        assert_eq!((record.subject().as_str(), record.frame.key()), ("orders.eu", Some(&b"k"[..])));
        assert_eq!(record.frame.headers().collect::<Vec<_>>(), headers);
        assert!(record.frame.append_time_ns() > 0);
    }
}

#[test]
fn million_small_records_arrive_in_order() {
    const RECORDS: u64 = 1_000_000;
    let running = RunningNode::start();
    let config = TopicConfig {
        retention: Retention { bytes: 1 << 20, ..Retention::default() },
        reliable: Some(ReliableOptions::default()),
        ..TopicConfig::default()
    };
    running.client().create_topic("t", &config, false).unwrap();
    let options = SubscribeOptions { registered: true, ..from_earliest() };
    let mut subscriber = running.client().subscribe("t", options).unwrap();
    let client = running.client();
    let publishing = thread::spawn(move || {
        let mut publisher = client.publisher("t").unwrap();
        for number in 1..=RECORDS {
            publisher.send(&number.to_le_bytes()).unwrap();
        }
        publisher.flush().unwrap().unwrap().position.seq
    });
    let mut read = 0;
    while read < RECORDS {
        assert!(subscriber.wait(Some(PATIENCE)).unwrap(), "stuck after {read}");
        subscriber
            .drain(usize::MAX, |event| match event {
                Event::Record(record) => {
                    read += 1;
                    assert_eq!(record.payload(), read.to_le_bytes());
                }
                Event::Notice(notice) => panic!("{notice:?}"),
            })
            .unwrap();
    }
    assert_eq!(publishing.join().unwrap(), RECORDS);
}

#[test]
fn slow_subscriber_receives_exact_gaps() {
    let running = RunningNode::start();
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    let client = running.client();
    client.create_topic("t", &TopicConfig { retention, ..TopicConfig::default() }, false).unwrap();
    let mut subscriber = running.client().subscribe("t", from_earliest()).unwrap();
    let mut publisher = client.publisher("t").unwrap();
    const RECORDS: u64 = 200_000;
    for number in 1..=RECORDS {
        publisher.send(&number.to_le_bytes()).unwrap();
    }
    publisher.flush().unwrap();
    let (mut at, mut read, mut lost) = (0, 0, 0);
    while at < RECORDS {
        match subscriber.next_timeout(PATIENCE).unwrap().expect("stuck") {
            Event::Record(record) => {
                assert_eq!((record.seq(), record.payload()), (at + 1, &(at + 1).to_le_bytes()[..]));
                (at, read) = (at + 1, read + 1);
            }
            Event::Notice(Notice::Gap(gap)) => {
                assert_eq!(gap.first, at + 1);
                (at, lost) = (gap.last, lost + gap.records());
            }
            Event::Notice(Notice::Lagging(_)) => {}
            Event::Notice(other) => panic!("{other:?}"),
        }
    }
    assert!(lost > 0 && read + lost == RECORDS, "{read} seen, {lost} missed");
}

#[test]
fn gap_ends_a_subscription_that_is_set_to_fail_on_gaps() {
    let running = RunningNode::start();
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    let client = running.client();
    client.create_topic("t", &TopicConfig { retention, ..TopicConfig::default() }, false).unwrap();
    let options = SubscribeOptions { on_gap: OnGap::Fail, ..from_earliest() };
    let mut subscriber = running.client().subscribe("t", options).unwrap();
    let mut publisher = client.publisher("t").unwrap();
    for _ in 0..20_000 {
        publisher.send(&[0; 500]).unwrap();
    }
    publisher.flush().unwrap();
    let error = loop {
        match subscriber.next_timeout(PATIENCE) {
            Ok(event) => drop(event.expect("stuck")),
            Err(error) => break error,
        }
    };
    assert_eq!(error, SubscribeError::Lost);
}

#[test]
fn wildcard_subscription_reads_topics_created_later() {
    let running = RunningNode::start();
    let client = running.client();
    let mut subscriber = client.subscribe("news.>", SubscribeOptions::default()).unwrap();
    for name in ["news.a", "news.b", "other.c"] {
        client.create_topic(name, &TopicConfig::default(), false).unwrap();
        client.publisher(name).unwrap().publish(name).unwrap();
    }
    let mut subjects = Vec::new();
    while subjects.len() < 2 {
        if let Some(Event::Record(record)) = subscriber.next_timeout(PATIENCE).unwrap() {
            subjects.push(record.subject());
        }
    }
    subjects.sort();
    assert_eq!(subjects, ["news.a", "news.b"]);
    assert!(!subscriber.wait(Some(Duration::from_millis(50))).unwrap());
}

#[test]
fn remote_and_local_refusals_have_equal_error_types() {
    let running = RunningNode::start();
    let client = running.client();
    assert_eq!(client.publisher("no.such").err(), Some(PublishError::NoTopic("no.such".to_owned())));
    assert!(matches!(client.subscribe("no.such", Default::default()), Err(SubscribeError::NoTopic(_))));
    assert!(client.subscribe("bad..name", Default::default()).is_err());
    client.create_topic("t", &TopicConfig::default(), false).unwrap();
    let Err(CallError::Refused(refused)) = client.create_topic("t", &TopicConfig::default(), false) else {
        panic!("created twice")
    };
    assert_eq!(refused.code, ErrorCode::TopicExists);
    let mut publisher = client.publisher("t").unwrap();
    let receipt = publisher.publish("one").unwrap();
    let moved = publisher.publish_expecting(9, "two");
    assert_eq!(moved, Err(PublishError::SeqMoved { expected: 9, last_seq: 1 }));
    let next = publisher.publish_expecting(receipt.position.seq, "two").unwrap();
    assert_eq!(next.position.seq, 2);
    assert_eq!(publisher.publish("three").unwrap().position.seq, 3);
}

#[test]
fn topics_are_listed_described_and_deleted() {
    let running = RunningNode::start();
    let client = running.client();
    for number in 0..300 {
        client.create_topic(&format!("t.{number:03}"), &TopicConfig::default(), false).unwrap();
    }
    let listed = client.topics("t.*").unwrap();
    assert_eq!(listed.len(), 300);
    assert_eq!(listed[299].name, "t.299");
    client.publisher("t.000").unwrap().publish("x").unwrap();
    let _open = client.publisher("t.000").unwrap();
    let described = client.describe_topic("t.000").unwrap();
    assert_eq!(described.publishers, Some(1));
    assert_eq!((described.name.as_str(), described.logs[0].last_seq), ("t.000", 1));
    let mut subscriber = client.subscribe("t.000", from_earliest()).unwrap();
    client.delete_topic("t.000").unwrap();
    let error = loop {
        match subscriber.next_timeout(PATIENCE) {
            Ok(event) => drop(event.expect("stuck")),
            Err(error) => break error,
        }
    };
    assert_eq!(error, SubscribeError::Closed);
    assert_eq!(client.topics("").unwrap().len(), 299);
}

#[test]
fn node_and_client_responders_answer_requests() {
    let running = RunningNode::start();
    let client = running.client();
    for name in ["inside", "outside", "nobody"] {
        client.create_topic(name, &TopicConfig::default(), false).unwrap();
    }
    let _inside = running.node.respond("inside", |mut request| {
        let payload = request.record().payload().to_vec();
        request.reply(&payload[..]).unwrap();
    });
    let ended = Arc::new(AtomicBool::new(false));
    let is_ended = Arc::clone(&ended);
    let other = running.client();
    let mut subscriber = other.subscribe("outside", SubscribeOptions::default()).unwrap();
    let outside = thread::spawn(move || {
        let mut responder = other.responder();
        while !is_ended.load(Ordering::Relaxed) {
            if let Some(Event::Record(record)) = subscriber.next_timeout(Duration::from_millis(20)).unwrap() {
                responder.reply(record.frame.reply().unwrap(), record.payload()).unwrap();
            }
        }
    });
    let mut requester = client.requester();
    for number in 0..200u64 {
        for subject in ["inside", "outside"] {
            let reply = requester.request(subject, &number.to_le_bytes(), PATIENCE).unwrap();
            assert_eq!(reply.payload, number.to_le_bytes(), "{subject}");
        }
    }
    let timeout = Duration::from_millis(30);
    assert_eq!(
        requester.request("nobody", "?", timeout),
        Err(RequestError::NoResponder("nobody".to_owned()))
    );
    ended.store(true, Ordering::Relaxed);
    outside.join().unwrap();
}

#[test]
fn client_replies_only_to_inboxes_and_allowed_subjects() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("own", &TopicConfig::default(), false).unwrap();
    let mut subscriber = client.subscribe("own", SubscribeOptions::default()).unwrap();
    let mut responder = client.responder();
    let refused = responder.reply("own", "refused");
    assert!(matches!(refused, Err(PublishError::Forbidden(_))), "{refused:?}");
    let own = [Pattern::parse("own").unwrap()];
    responder.reply_within(&own, "own", "allowed").unwrap();
    let Event::Record(record) = subscriber.next().unwrap() else { panic!("no record") };
    assert_eq!(record.payload(), b"allowed");
}

#[test]
fn remote_and_local_publishers_choose_the_same_partition() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("t", &TopicConfig { partitions: 4, ..TopicConfig::default() }, false).unwrap();
    let mut remote = client.publisher("t").unwrap();
    let mut local = running.node.publisher("t").unwrap();
    for key in [&b"a"[..], b"b", b"c", b"d", b"e", b"f"] {
        let draft = || {
            let meta = RecordMeta { key: Some(key), ..RecordMeta::default() };
            Draft { meta, payload: dunlin_client::topic::Payload::Copied(b"x") }
        };
        assert_eq!(remote.publish(draft()).unwrap().partition, local.publish(draft()).unwrap().partition);
    }
}

#[test]
fn subscriber_gets_records_sent_without_acknowledgements() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("t", &TopicConfig::default(), false).unwrap();
    let mut subscriber = client.subscribe("t", SubscribeOptions::default()).unwrap();
    let quiet = PublisherOptions { quiet: true, identity: None };
    let mut publisher = client.publisher_with("t", quiet).unwrap();
    for _ in 0..100 {
        publisher.send("x").unwrap();
    }
    for seq in 1..=100 {
        assert!(event_text(&subscriber.next().unwrap()).ends_with(&format!("-{seq} x")));
    }
}

#[test]
fn threads_publishing_over_one_connection_all_get_responses() {
    const THREADS: usize = 6;
    const RECORDS: usize = 2_000;
    let running = RunningNode::start();
    running.node.create_topic("t", TopicConfig::default(), false).unwrap();
    let client = running.client();
    let deadline = Deadline::new();
    let publishing: Vec<_> = (0..THREADS)
        .map(|_| {
            let client = client.clone();
            thread::spawn(move || {
                let mut publisher = client.publisher("t").unwrap();
                for _ in 0..RECORDS {
                    publisher.publish("x").unwrap();
                }
            })
        })
        .collect();
    publishing.into_iter().for_each(|thread| thread.join().unwrap());
    // A thread that the client does not wake sleeps for 100 ms. If this happens often, this deadline passes.
    deadline.check("all are woken");
    assert_eq!(running.node.topic("t").unwrap().logs()[0].last().seq, (THREADS * RECORDS) as u64);
}
