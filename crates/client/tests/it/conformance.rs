//! Tests that a program observes the same events whether it publishes and subscribes in process, over TCP or over a
//! Unix socket.

use dunlin_client::Client;
use dunlin_client::topic::{
    Draft, Event, Notice, OnGap, Payload, Publish, PublishError, RecordMeta, Retention, Start, Subscribe,
    SubscribeOptions, TopicConfig,
};
use dunlin_wait::PATIENCE;

use crate::running_node::{RunningNode, patient};

/// Runs `program` in process, over TCP and over a Unix socket, each time with another topic. All three runs must
/// observe the same events.
fn run_over_all_transports(
    config: &TopicConfig,
    subject: &str,
    options: &SubscribeOptions,
    program: impl Program,
) {
    let running = RunningNode::start();
    let new_subject = |transport: &str| {
        let pattern = config.pattern.as_ref().map(|pattern| format!("{transport}.{pattern}"));
        running.node.create_topic(transport, TopicConfig { pattern, ..config.clone() }, false).unwrap();
        if subject.is_empty() { transport.to_owned() } else { format!("{transport}.{subject}") }
    };
    let local_subject = new_subject("local");
    let mut publisher = running.node.publisher(&local_subject).unwrap();
    let local = program.run(
        &mut publisher,
        |options| running.node.subscribe(&local_subject, options).unwrap(),
        options,
    );
    for (transport, url) in [("tcp", running.url()), ("unix", format!("unix://{}", running.unix.display()))] {
        let subject = new_subject(transport);
        let client = Client::connect(&url, patient()).unwrap();
        let mut publisher = client.publisher(&subject).unwrap();
        let remote = program.run(
            &mut publisher,
            |options| client.subscribe(&subject, options.clone()).unwrap(),
            options,
        );
        assert_eq!(remote, local, "{transport}");
    }
}

/// A program that uses only the traits `Publish` and `Subscribe`. It returns a text for each event that it observes.
trait Program {
    fn run<S: Subscribe>(
        &self,
        publisher: &mut impl Publish,
        subscribe: impl Fn(&SubscribeOptions) -> S,
        options: &SubscribeOptions,
    ) -> Vec<String>;
}

fn describe(event: &Event<'_>) -> String {
    match event {
        Event::Record(record) => {
            let tail = record.frame.subject_tail();
            let headers: Vec<_> = record.frame.headers().collect();
            format!("{} {tail} {:?} {:?} {headers:?}", record.seq(), record.frame.key(), record.payload())
        }
        Event::Notice(Notice::Gap(gap)) => format!("gap {}..{}", gap.first, gap.last),
        Event::Notice(Notice::Lagging(_)) => "lagging".to_owned(),
        Event::Notice(other) => format!("{other:?}"),
    }
}

fn read(subscriber: &mut impl Subscribe, events: usize) -> Vec<String> {
    (0..events)
        .map(|_| describe(&subscriber.next_timeout(PATIENCE).unwrap().expect("nothing came")))
        .collect()
}

struct PublishEveryWay;

impl Program for PublishEveryWay {
    fn run<S: Subscribe>(
        &self,
        publisher: &mut impl Publish,
        subscribe: impl Fn(&SubscribeOptions) -> S,
        options: &SubscribeOptions,
    ) -> Vec<String> {
        let mut subscriber = subscribe(options);
        let mut observed =
            vec![format!("{:?}", publisher.publish("one").map(|receipt| receipt.position.seq))];
        let headers: &[(&str, &[u8])] = &[("a", b"1"), ("b", b"")];
        let meta = RecordMeta { key: Some(b"key"), event_time_ns: Some(5), headers, ..RecordMeta::default() };
        let full = Draft { meta, payload: Payload::Copied(b"two") };
        let batch = [full, Draft::from("three")];
        observed.push(format!("{:?}", publisher.publish_batch(&batch).map(|receipt| receipt.position.seq)));
        observed.push(format!("{:?}", publisher.publish_expecting(9, "no")));
        observed.push(format!(
            "{:?}",
            publisher.publish_expecting(3, "four").map(|receipt| receipt.position.seq)
        ));
        publisher.send("five").unwrap();
        publisher.send("six").unwrap();
        observed.push(format!("{:?}", publisher.flush().map(|receipt| receipt.map(|it| it.position.seq))));
        let large = vec![7; 100_000];
        publisher.send(&large[..]).unwrap();
        observed.push(format!("{:?}", publisher.flush().map(|receipt| receipt.map(|it| it.position.seq))));
        observed.push(format!("{:?}", publisher.publish_batch(&[])));
        let error = publisher.publish(&[0; 300_000][..]);
        assert!(matches!(error, Err(PublishError::RecordTooLarge { .. })), "{error:?}");
        observed.extend(read(&mut subscriber, 7));
        observed
    }
}

#[test]
fn remote_and_local_clients_get_equal_records_and_receipts() {
    let config = TopicConfig { record_bytes_max: 200_000, ..TopicConfig::default() };
    run_over_all_transports(&config, "", &SubscribeOptions::default(), PublishEveryWay);
}

#[test]
fn pattern_topic_treats_remote_and_local_publishers_equally() {
    let config =
        TopicConfig { pattern: Some(">".to_owned()), record_bytes_max: 200_000, ..TopicConfig::default() };
    run_over_all_transports(&config, "eu.42", &SubscribeOptions::default(), PublishEveryWay);
}

struct StartPositions;

impl Program for StartPositions {
    fn run<S: Subscribe>(
        &self,
        publisher: &mut impl Publish,
        subscribe: impl Fn(&SubscribeOptions) -> S,
        options: &SubscribeOptions,
    ) -> Vec<String> {
        for number in 1..=5u8 {
            publisher.publish(&[number]).unwrap();
        }
        let third = publisher.publish(&[6]).unwrap().position;
        let from = |start| SubscribeOptions { start, ..options.clone() };
        let mut observed = read(&mut subscribe(&from(Start::Earliest)), 6);
        let mut latest = subscribe(&from(Start::Latest));
        let mut after = subscribe(&from(Start::After(third)));
        let mut time = subscribe(&from(Start::Time(1)));
        publisher.publish(&[7]).unwrap();
        observed.extend(read(&mut latest, 1));
        observed.extend(read(&mut after, 1));
        observed.extend(read(&mut time, 7));
        observed
    }
}

#[test]
fn remote_and_local_subscribers_start_at_equal_positions() {
    run_over_all_transports(&TopicConfig::default(), "", &SubscribeOptions::default(), StartPositions);
}

/// A program whose subscriber starts only when the topic no longer retains all records.
struct FallBehind;

impl Program for FallBehind {
    fn run<S: Subscribe>(
        &self,
        publisher: &mut impl Publish,
        subscribe: impl Fn(&SubscribeOptions) -> S,
        options: &SubscribeOptions,
    ) -> Vec<String> {
        let first = publisher.publish("x").unwrap().position;
        for _ in 0..400 {
            publisher.publish(&[1; 1000]).unwrap();
        }
        let mut subscriber = subscribe(&SubscribeOptions { start: Start::After(first), ..options.clone() });
        let mut observed = Vec::new();
        let mut at = first.seq;
        while at < 401 {
            let event = subscriber.next_timeout(PATIENCE).unwrap().expect("nothing came");
            match &event {
                Event::Record(record) => {
                    assert_eq!(record.seq(), at + 1);
                    at += 1;
                }
                Event::Notice(Notice::Gap(gap)) => {
                    assert_eq!(gap.first, at + 1);
                    at = gap.last;
                    observed.push(describe(&event));
                }
                Event::Notice(_) => {}
            }
        }
        observed
    }
}

#[test]
fn remote_and_local_subscribers_get_equal_gaps() {
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    let config = TopicConfig { retention, ..TopicConfig::default() };
    run_over_all_transports(
        &config,
        "",
        &SubscribeOptions { on_gap: OnGap::Oldest, ..Default::default() },
        FallBehind,
    );
}
