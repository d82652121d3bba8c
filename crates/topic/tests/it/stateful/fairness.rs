//! Tests that a conflated subscriber of several logs reads all of them equally often.

use super::*;

#[test]
fn slow_conflated_subscriber_of_many_logs_starves_no_log() {
    const LOGS: usize = 10;
    let board = |_: &ReducerConfig| Ok(Box::new(SlotValues::default()) as Box<dyn Reducer>);
    let topic = |number: usize| {
        let reducer = Some(ReducerConfig { kind: "board".to_owned(), options: Default::default() });
        let config = Arc::new(TopicConfig { reducer, ..config(64 << 10) });
        Arc::new(Topic::stateful(&format!("t{number}"), config, &budget(), MANUAL, 1, board).unwrap())
    };
    let topics: Vec<_> = (0..LOGS).map(topic).collect();
    let cursors = topics.iter().map(|topic| cursor(topic, &conflated())).collect();
    let mut reader = Subscriber::many(cursors, None, conflated(), MANUAL);
    let mut publishers: Vec<_> = topics.iter().map(|topic| topic.publisher(topic.name())).collect();
    let mut read = Vec::new();
    for round in 0..200 {
        // For every record that the subscriber reads, a record is published to each log.
        for (publisher, slot) in publishers.iter_mut().zip(0..) {
            publisher.publish(sets(&[(round % 7, round + slot)]).as_slice()).unwrap();
        }
        match reader.try_next().unwrap().expect("there is something") {
            Event::Record(record) => read.push(record.log.topic.clone()),
            Event::Notice(Notice::Snapshot(snapshot)) => read.push(snapshot.log.topic.clone()),
            other => panic!("unexpected {other:?}"),
        }
    }
    for turn in read.windows(LOGS) {
        let mut logs = turn.to_vec();
        logs.sort();
        logs.dedup();
        assert_eq!(logs.len(), LOGS, "{turn:?}");
    }
}
