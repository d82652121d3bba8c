use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dunlin::topic::{
    Event, NewLogs, Notice, Pattern, ProducerMark, Publish, PublishError, Start, Subscribe, SubscribeError,
    SubscribeOptions, TopicConfig,
};
use dunlin::{Config, MissingTopicPolicy, Node, NodeLimits, TopicError};
use dunlin_wait::until;

use crate::{all, from_earliest, node};

fn with_pattern(pattern: &str) -> TopicConfig {
    TopicConfig { pattern: Some(pattern.to_owned()), ..TopicConfig::default() }
}

#[test]
fn publishing_to_an_unknown_subject_creates_its_topic() {
    let node = node();
    node.publisher("a.b").unwrap().publish("1").unwrap();
    assert_eq!(all(&mut node.subscribe("a.b", &from_earliest()).unwrap()), ["a.b=1"]);
    assert_eq!(node.topics(None, "", 10).topics.len(), 1);
}

#[test]
fn subscriber_that_resumes_creates_no_topic() {
    let node = node();
    let pattern = Pattern::parse("a.b").unwrap();
    let selected = node.select(&pattern, Start::Latest, MissingTopicPolicy::Await, NewLogs::new).unwrap();
    assert!(selected.logs.is_empty() && node.topics(None, "", 10).topics.is_empty());
    // Another caller creates the topic, and the waiting subscriber receives its logs.
    node.create_topic("a.b", TopicConfig { partitions: 2, ..TopicConfig::default() }, false).unwrap();
    assert_eq!(selected.newcomers.unwrap().take().len(), 2);
}

#[test]
fn node_without_auto_create_refuses_unknown_subjects() {
    let node = Node::start(Config { auto_create: false, ..Config::default() }).unwrap();
    assert_eq!(node.publisher("a").err(), Some(PublishError::NoTopic("a".to_owned())));
    let refused = node.subscribe("a", &SubscribeOptions::default()).err();
    assert_eq!(refused, Some(SubscribeError::NoTopic("a".to_owned())));
}

#[test]
fn topic_keeps_records_of_all_its_subjects_in_one_order() {
    let node = node();
    node.create_topic("orders", with_pattern("orders.>"), false).unwrap();
    for (subject, payload) in [("orders.eu", "1"), ("orders.us.east", "2"), ("orders.eu", "3")] {
        node.publisher(subject).unwrap().publish(payload).unwrap();
    }
    let mut whole = node.subscribe("orders.>", &from_earliest()).unwrap();
    assert_eq!(all(&mut whole), ["orders.eu=1", "orders.us.east=2", "orders.eu=3"]);
    let mut part = node.subscribe("orders.eu", &from_earliest()).unwrap();
    assert_eq!(all(&mut part), ["orders.eu=1", "orders.eu=3"]);
}

#[test]
fn topic_owns_subjects_by_its_pattern_not_by_its_name() {
    let node = node();
    node.create_topic("orders", with_pattern("orders.>"), false).unwrap();
    node.create_topic("other", with_pattern("x"), false).unwrap();
    assert_eq!(node.publisher("orders").err(), Some(PublishError::NoTopic("orders".to_owned())));
    node.create_topic("x", with_pattern("y.*"), false).unwrap();
    node.publisher("x").unwrap().publish("1").unwrap();
    assert_eq!(all(&mut node.subscribe("x", &from_earliest()).unwrap()), ["x=1"]);
    assert_eq!(node.with_topic("x", |topic| topic.pattern().to_owned()).as_deref(), Some("y.*"));
    node.delete_topic("x").unwrap();
    assert_eq!(node.with_topic("x", |_| ()), None);
    assert!(node.publisher("x").is_ok(), "topic `other` owns the subject");
}

#[test]
fn only_one_of_many_overlapping_topic_creations_succeeds() {
    let node = node();
    let patterns = ["a.>", "a.*", "*.b", "a.b", ">"];
    for round in 0..50 {
        let created: usize = thread::scope(|scope| {
            let create = |pattern: &'static str| {
                let node = node.clone();
                scope.spawn(move || {
                    node.create_topic(
                        &format!("t{round}.{pattern}x").replace(['*', '>'], "w"),
                        with_pattern(pattern),
                        false,
                    )
                })
            };
            let threads: Vec<_> = patterns.into_iter().map(create).collect();
            threads.into_iter().map(|thread| usize::from(thread.join().unwrap().is_ok())).sum()
        });
        assert_eq!(created, 1);
        node.topics(None, "", 10).topics.iter().for_each(|topic| node.delete_topic(topic.name()).unwrap());
    }
}

#[test]
fn overlapping_pattern_is_refused() {
    let node = node();
    node.create_topic("orders", with_pattern("orders.>"), false).unwrap();
    let refused = node.create_topic("eu", with_pattern("*.eu"), false).err();
    assert_eq!(refused, Some(TopicError::Overlaps("orders".to_owned())));
}

#[test]
fn topics_with_equal_settings_share_one_configuration_object() {
    let node = node();
    let small = || TopicConfig { record_bytes_max: 1_000, ..TopicConfig::default() };
    let create = |name, config| node.create_topic(name, config, false).unwrap();
    let (a, b) = (create("a", small()), create("b", small()));
    let (c, d) = (create("c", TopicConfig::default()), create("d", small()));
    assert!(Arc::ptr_eq(a.config(), b.config()));
    assert_eq!((c.config().record_bytes_max, d.config().record_bytes_max), (8 << 20, 1_000));
}

#[test]
fn create_topic_accepts_an_identical_topic_only_if_allowed() {
    let node = node();
    let config = TopicConfig { partitions: 2, ..TopicConfig::default() };
    node.create_topic("a", config.clone(), false).unwrap();
    assert!(node.create_topic("a", config.clone(), true).is_ok());
    let exists = Some(TopicError::Exists("a".to_owned()));
    assert_eq!(node.create_topic("a", config, false).err(), exists);
    assert_eq!(node.create_topic("a", TopicConfig::default(), true).err(), exists);
}

#[test]
fn reducer_options_that_differ_only_in_notation_are_equal() {
    let node = node();
    let with = |kind: &str, options: &[(&str, &str)]| {
        let options = options.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let reducer = dunlin::topic::ReducerConfig { kind: kind.to_owned(), options };
        TopicConfig { reducer: Some(reducer), ..TopicConfig::default() }
    };
    node.create_topic("book", with("book", &[("tick", "5")]), false).unwrap();
    let same = [("tick", "05"), ("depth", "10"), ("price_decimals", "0")];
    let named = TopicConfig { pattern: Some("book".to_owned()), ..with("book", &same) };
    node.create_topic("book", named, true).unwrap();
    let area = |max| with("region", &[("region", "1"), ("min", "0,0"), ("max", max)]);
    node.create_topic("area", area("10,10"), false).unwrap();
    node.create_topic("area", area("10.0, 1e1"), true).unwrap();
    let others = [
        ("book", with("book", &[("tick", "1")])),
        ("book", with("orders", &[("tick", "5")])),
        ("area", area("10,11")),
    ];
    for (name, other) in others {
        let exists = TopicError::Exists(name.to_owned());
        assert_eq!(node.create_topic(name, other, true).err(), Some(exists));
    }
}

#[test]
fn deletion_is_reported_and_recreation_raises_the_epoch() {
    let node = node();
    let mut publisher = node.publisher("a").unwrap();
    let first = publisher.publish("1").unwrap().position;
    let mut subscriber = node.subscribe("a", &from_earliest()).unwrap();
    node.delete_topic("a").unwrap();
    assert_eq!(all(&mut subscriber), ["a=1", "a deleted"]);
    assert_eq!(publisher.publish("2").err(), Some(PublishError::Closed));
    let second = node.publisher("a").unwrap().publish("3").unwrap().position;
    assert!(second.epoch > first.epoch, "{second} after {first}");
}

#[test]
fn returning_subscriber_is_notified_of_a_new_epoch() {
    let node = node();
    let old = node.publisher("a").unwrap().publish("1").unwrap().position;
    node.delete_topic("a").unwrap();
    node.publisher("a").unwrap().publish("2").unwrap();
    let resumed = SubscribeOptions { start: Start::After(old), ..Default::default() };
    let seen = all(&mut node.subscribe("a", &resumed).unwrap());
    assert!(seen[0].starts_with("EpochChanged") && seen[1] == "a=2", "{seen:?}");
}

#[test]
fn topic_beyond_the_topic_limit_of_a_node_is_refused() {
    let mut config = Config::default();
    config.limits.topics_max = 1;
    let node = Node::start(config).unwrap();
    node.publisher("a").unwrap();
    let refused = node.create_topic("b", TopicConfig::default(), false).err();
    assert_eq!(refused, Some(TopicError::Limit { limit: "topics_max", value: 1 }));
}

/// Keys, tasks and the node's status have topics of their own, which are created at the first use.
#[test]
fn topics_of_keys_and_tasks_are_exempt_from_the_topic_limit() {
    let mut config = Config::default();
    config.limits.topics_max = 1;
    let node = Node::start(config).unwrap();
    node.publisher("a").unwrap();
    node.control().unwrap();
    node.tasks().unwrap();
    node.node_topic().unwrap();
    assert!(node.failed_parts().is_empty(), "{:?}", node.failed_parts());
    let refused = node.create_topic("b", TopicConfig::default(), false).err();
    assert_eq!(refused, Some(TopicError::Limit { limit: "topics_max", value: 1 }));
}

#[test]
fn topics_are_listed_in_pages_ordered_by_name() {
    let node = node();
    for name in ["b", "a.x", "c", "a.y"] {
        node.publisher(name).unwrap();
    }
    let names = |page: dunlin::TopicPage| page.topics.iter().map(|t| t.name().to_owned()).collect::<Vec<_>>();
    let first = node.topics(None, "", 2);
    assert!(first.more);
    assert_eq!(names(first), ["a.x", "a.y"]);
    let second = node.topics(None, "a.y", 2);
    assert!(!second.more);
    assert_eq!(names(second), ["b", "c"]);
    assert_eq!(names(node.topics(Some(&Pattern::parse("a.*").unwrap()), "", 9)), ["a.x", "a.y"]);
}

#[test]
fn listing_in_pages_returns_every_kind_of_topic_exactly_once() {
    let node = node();
    for name in ["a", "a.b", "c.x", "d"] {
        node.publisher(name).unwrap();
    }
    node.create_topic("b", with_pattern("q.>"), false).unwrap();
    node.create_topic("c", with_pattern("c.y.*"), false).unwrap();
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let page = node.topics(None, &after, 1);
        names.extend(page.topics.iter().map(|topic| topic.name().to_owned()));
        after.clone_from(names.last().unwrap());
        if !page.more {
            break;
        }
    }
    assert_eq!(names, ["a", "a.b", "b", "c", "c.x", "d"]);
    node.delete_topic("b").unwrap();
    assert!(node.topics(Some(&Pattern::parse("b").unwrap()), "", 9).topics.is_empty());
}

#[test]
fn topic_names_reserved_for_the_system_are_refused() {
    let node = node();
    for name in ["$SYS.x", "_INBOX.1"] {
        let refused = node.create_topic(name, TopicConfig::default(), false).err();
        assert_eq!(refused, Some(TopicError::Reserved(name.to_owned())));
        assert!(node.publisher(name).is_err());
    }
}

#[test]
fn start_position_for_a_subscription_of_two_logs_is_refused() {
    let node = node();
    node.create_topic("a", TopicConfig { partitions: 2, ..TopicConfig::default() }, false).unwrap();
    let after = SubscribeOptions { start: Start::After(Default::default()), ..Default::default() };
    assert!(matches!(node.subscribe("a", &after).err(), Some(SubscribeError::ManyLogs { logs: 2, .. })));
}

#[test]
fn start_position_is_accepted_if_the_pattern_matches_one_log() {
    let node = node();
    let config = TopicConfig { pattern: Some("orders.>".to_owned()), ..TopicConfig::default() };
    let topic = node.create_topic("orders", config, false).unwrap();
    let mut publisher = node.publisher("orders.eu").unwrap();
    let first = publisher.publish("1").unwrap().position;
    publisher.publish("2").unwrap();
    let after = SubscribeOptions { start: Start::After(first), ..Default::default() };
    for pattern in ["orders.>", "orders.*", "orders.eu"] {
        let mut subscriber = node.subscribe(pattern, &after).unwrap();
        assert_eq!(all(&mut subscriber), ["orders.eu=2"], "{pattern}");
    }
    assert_eq!(topic.logs().len(), 1);
    // Another topic with subjects that `>` matches may be created. In its log, the same positions would denote other
    // records.
    assert!(matches!(node.subscribe(">", &after).err(), Some(SubscribeError::ManyLogs { logs: 2, .. })));
}

#[test]
fn stopped_node_notifies_publishers_and_subscribers() {
    let node = node();
    let mut publisher = node.publisher("a").unwrap();
    let mut subscriber = node.subscribe("a", &from_earliest()).unwrap();
    node.stop();
    assert_eq!(publisher.publish("1").err(), Some(PublishError::Closed));
    assert_eq!(all(&mut subscriber), ["a deleted"]);
}

#[test]
fn stalled_subscriber_can_read_records_of_a_deleted_topic() {
    let node = node();
    let mut publisher = node.publisher("ticks").unwrap();
    publisher.publish("tick").unwrap();
    let mut stalled = node.subscribe("ticks", &from_earliest()).unwrap();
    node.delete_topic("ticks").unwrap();
    node.tick();
    assert!(matches!(stalled.next().unwrap(), Event::Record(_)));
}

#[test]
fn unread_records_of_a_deleted_topic_become_a_gap() {
    let limits = NodeLimits { deleted_age_max: Duration::from_millis(50), ..NodeLimits::default() };
    let node = Node::start(Config { limits, ..Config::default() }).unwrap();
    let before = node.budget().used();
    let mut publisher = node.publisher("ticks").unwrap();
    for _ in 0..100 {
        publisher.publish("tick").unwrap();
    }
    let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    let mut stalled = node.subscribe("ticks", &options).unwrap();
    assert_eq!(stalled.drain(10, |_| ()).unwrap(), 10);
    node.delete_topic("ticks").unwrap();
    drop(publisher);
    until("an idle subscriber pins no memory", || {
        node.tick();
        node.budget().used() == before
    });
    assert!(matches!(stalled.next().unwrap(), Event::Notice(Notice::Lagging(_))));
    let Event::Notice(Notice::Gap(gap)) = stalled.next().unwrap() else { panic!("no gap") };
    assert_eq!((gap.first, gap.last), (11, 100));
    assert!(
        matches!(stalled.next().unwrap(), Event::Notice(Notice::Deleted { last, .. }) if last.seq == 100)
    );
}

#[test]
fn log_over_its_producer_limit_forgets_the_oldest_producer() {
    let retry = |producers_max| {
        let topic = dunlin::topic::LogLimits { producers_max, ..dunlin::topic::LogLimits::default() };
        let node = Node::start(Config {
            limits: NodeLimits { topic, ..NodeLimits::default() },
            ..Config::default()
        })
        .unwrap();
        let publish = |producer| {
            let mark = ProducerMark { producer, producer_epoch: 1, producer_seq: 1 };
            node.publisher("ticks").unwrap().with_producer(mark).publish("x").unwrap().duplicate
        };
        assert!(!publish(1) && !publish(2));
        publish(1)
    };
    assert!(retry(2), "the retry is recognized");
    assert!(!retry(1), "the second record displaced the first");
}
