use std::thread;

use dunlin::topic::{Publish, SubscribeOptions};

use crate::{all, from_earliest, node};

#[test]
fn wildcard_subscriber_reads_later_topics_from_the_start() {
    let node = node();
    node.publisher("m.a").unwrap().publish("before").unwrap();
    let mut subscriber = node.subscribe("m.*", &SubscribeOptions::default()).unwrap();
    node.publisher("m.b").unwrap().publish("1").unwrap();
    node.publisher("m.a").unwrap().publish("2").unwrap();
    node.publisher("n.a").unwrap().publish("other").unwrap();
    let mut seen = all(&mut subscriber);
    seen.sort();
    assert_eq!(seen, ["m.a=2", "m.b=1"]);
}

#[test]
fn subscriber_misses_no_topic_created_while_it_subscribes() {
    let node = node();
    let creator = {
        let node = node.clone();
        thread::spawn(move || {
            for n in 0..2_000 {
                node.publisher(&format!("t.{n}")).unwrap().publish("x").unwrap();
            }
        })
    };
    let mut subscribers: Vec<_> = (0..20)
        .map(|_| {
            thread::yield_now();
            node.subscribe("t.*", &from_earliest()).unwrap()
        })
        .collect();
    creator.join().unwrap();
    for subscriber in &mut subscribers {
        let mut seen = all(subscriber);
        assert_eq!(seen.len(), 2_000);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 2_000);
    }
}

#[test]
fn catch_all_subscription_reads_no_inbox() {
    let node = node();
    let mut everything = node.subscribe(">", &from_earliest()).unwrap();
    let _requester = node.requester(&SubscribeOptions::default()).unwrap();
    node.publisher("a").unwrap().publish("1").unwrap();
    assert_eq!(all(&mut everything), ["a=1"]);
    assert_eq!(node.topics(None, "", 10).topics.len(), 1);
}

#[test]
fn one_subscription_reads_several_patterns() {
    let node = node();
    let mut subscriber = node.subscribe_all(&["a", "b.*"], &from_earliest()).unwrap();
    for subject in ["a", "b.1", "c"] {
        node.publisher(subject).unwrap().publish("x").unwrap();
    }
    let mut seen = all(&mut subscriber);
    seen.sort();
    assert_eq!(seen, ["a=x", "b.1=x"]);
}
