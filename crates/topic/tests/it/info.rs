//! Tests of what operators can see of a topic: its subscribers and their positions, and its publishers.

use dunlin_topic::*;

use crate::fixture::*;

fn named(name: &str, start: Start) -> SubscribeOptions {
    SubscribeOptions { name: name.to_owned(), ..from(start) }
}

#[test]
fn named_subscriber_is_listed_with_its_position_and_losses() {
    let topic = small_topic();
    let mut numbered = NumberedPublisher::of(&topic);
    let mut slow = subscriber(&topic, &named("slow", Start::Earliest));
    let mut quick = subscriber(&topic, &named("quick", Start::Earliest));
    let _nameless = subscriber(&topic, &earliest());
    numbered.publish(10, 100);
    assert_eq!(slow.drain(3, |_| ()).unwrap(), 3);
    while quick.try_next().unwrap().is_some() {}
    let seen: Vec<_> = topic.subscribers().into_iter().map(|r| (r.name, r.position.seq, r.lag)).collect();
    assert_eq!(seen, [("slow".to_owned(), 3, 7), ("quick".to_owned(), 10, 0)]);

    numbered.publish(2_000, 100);
    let mut lost = 0;
    while let Some(event) = slow.try_next().unwrap() {
        if let Event::Notice(Notice::Gap(gap)) = event {
            lost = gap.records();
        }
    }
    assert!(lost > 0);
    let listed = topic.subscribers();
    let slow_now = listed.iter().find(|one| one.name == "slow").unwrap();
    assert_eq!((slow_now.missed, slow_now.lag), (lost, 0));
    drop(slow);
    assert_eq!(topic.subscribers().len(), 1, "who has gone is not shown");
}

#[test]
fn publishers_are_counted_while_they_have_the_topic_open() {
    let topic = small_topic();
    assert_eq!(topic.publishers(), 0);
    let (one, two) = (topic.publisher("t"), topic.publisher("t"));
    assert_eq!(topic.publishers(), 2);
    drop((one, two));
    assert_eq!(topic.publishers(), 0);
}
