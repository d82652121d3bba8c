use dunlin::Node;
use dunlin::topic::{
    Event, LossCounters, Notice, Publish, Retention, Start, Subscribe, SubscribeOptions, TopicConfig,
};

use crate::{from_earliest, node};

/// The configuration of a topic that retains some hundred records of 100 bytes each.
fn short_retention() -> TopicConfig {
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    TopicConfig { retention, ..TopicConfig::default() }
}

fn named_options(name: &str) -> SubscribeOptions {
    SubscribeOptions { name: name.to_owned(), protocol: "test", ..from_earliest() }
}

fn publish(node: &Node, topic: &str, records: usize) {
    let mut publisher = node.publisher(topic).unwrap();
    for _ in 0..records {
        publisher.publish([7; 100].as_slice()).unwrap();
    }
}

#[test]
fn busiest_topics_and_slowest_subscriptions_come_first() {
    let node = node();
    for (topic, records) in [("a", 1), ("b", 3), ("c", 2)] {
        publish(&node, topic, records);
    }
    let _one = node.subscribe("a", &named_options("one")).unwrap();
    let _three = node.subscribe("b", &named_options("three")).unwrap();
    let _none =
        node.subscribe("c", &SubscribeOptions { start: Start::Latest, ..named_options("none") }).unwrap();
    let survey = node.survey(2, 2);
    let busiest: Vec<_> =
        survey.busiest.iter().map(|seen| (seen.topic.name(), seen.totals.records)).collect();
    assert_eq!(busiest, [("b", 3), ("c", 2)]);
    let slowest: Vec<_> =
        survey.slowest.iter().map(|seen| (seen.subscriber.name.as_str(), seen.subscriber.lag)).collect();
    assert_eq!(slowest, [("three", 3), ("one", 1)]);
    assert_eq!((survey.topics, survey.subscriptions, survey.totals.records), (3, 3, 6));
    assert_eq!(survey.slowest[0].subscriber.protocol, "test");
}

#[test]
fn totals_include_removed_records_and_deleted_topics() {
    let node = node();
    let bytes_of_one = {
        publish(&node, "one", 1);
        node.survey(1, 0).totals.bytes
    };
    assert!((100..200).contains(&bytes_of_one), "{bytes_of_one}");
    node.create_topic("t", short_retention(), false).unwrap();
    publish(&node, "t", 5_000);
    let survey = node.survey(1, 0);
    assert_eq!((survey.totals.records, survey.totals.bytes), (5_001, 5_001 * bytes_of_one));
    assert!(survey.busiest[0].retained_records < 1_000, "{:?}", survey.busiest);
    node.delete_topic("t").unwrap();
    let after = node.survey(1, 0);
    assert_eq!((after.totals, after.topics), (survey.totals, 1));
}

#[test]
fn losses_of_a_slow_subscriber_are_counted_and_timed() {
    let node = node();
    node.create_topic("t", short_retention(), false).unwrap();
    let mut slow = node.subscribe("t", &named_options("slow")).unwrap();
    publish(&node, "t", 5_000);
    let before = node.survey(1, 1);
    assert_eq!(before.totals.losses, LossCounters::default(), "no subscriber was notified yet");
    assert_eq!((before.slowest[0].subscriber.lagging_ns, before.slowest[0].subscriber.missed_ns), (0, 0));
    let mut lost = 0;
    while let Some(event) = slow.try_next().unwrap() {
        if let Event::Notice(Notice::Gap(gap)) = event {
            lost += gap.records();
        }
    }
    let survey = node.survey(1, 1);
    let (losses, subscriber) = (survey.totals.losses, &survey.slowest[0].subscriber);
    assert!(lost > 4_000 && losses.warnings >= 1, "{lost} {losses:?}");
    assert_eq!((losses.gaps, losses.records, subscriber.missed, subscriber.lag), (1, lost, lost, 0));
    assert!(subscriber.lagging_ns > 0 && subscriber.missed_ns > 0, "{subscriber:?}");
}
