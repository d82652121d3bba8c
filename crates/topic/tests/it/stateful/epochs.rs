//! Tests of followers of a state when the log's epoch changes.

use super::mirrored::Mirror;
use super::*;

fn on_disk(disk: &Arc<MemoryStore>, epoch: u32) -> Arc<Topic> {
    let reducer = Some(ReducerConfig { kind: "board".to_owned(), options: Default::default() });
    let config = Arc::new(TopicConfig { reducer, ..durable(AckLevel::Memory) });
    let board = |_: &ReducerConfig| Ok(Box::new(SlotValues::default()) as Box<dyn Reducer>);
    let disks: Vec<(RecoveredLog, Arc<dyn Store>)> = vec![(disk.recovered(epoch), Arc::clone(disk) as _)];
    Arc::new(Topic::durable_stateful("t", config, &budget(), MANUAL, disks, board).unwrap())
}

fn at(epoch: u32, seq: u64) -> Position {
    Position { epoch, seq }
}

/// Checks that a conflated follower that resumes after the position `after` first receives the change of epoch, and
/// then the state at `end`.
fn check_catch_up(topic: &Arc<Topic>, after: Position, known_through: u64, end: Position) {
    let mut reader = subscriber(topic, &SubscribeOptions { start: Start::After(after), ..conflated() });
    match reader.try_next().unwrap() {
        Some(Event::Notice(Notice::EpochChanged(changed))) => {
            assert_eq!((changed.old, changed.last_seen), (after.epoch, after.seq));
            assert_eq!(changed.known_through, Some(known_through));
            assert_eq!(changed.new_first, at(end.epoch, end.seq + 1));
        }
        other => panic!("{other:?}"),
    }
    match reader.try_next().unwrap() {
        Some(Event::Notice(Notice::Snapshot(snapshot))) => assert_eq!(snapshot.position, end),
        other => panic!("{other:?}"),
    }
    while let Some(event) = reader.try_next().unwrap() {
        assert!(matches!(event, Event::Notice(Notice::Checksum(_) | Notice::Publishers(_))), "{event:?}");
    }
}

#[test]
fn conflated_reader_of_an_earlier_epoch_gets_the_current_state() {
    let disk = MemoryStore::new();
    for (epoch, records) in [(1, 50), (2, 30), (5, 20)] {
        let topic = on_disk(&disk, epoch);
        let log = &topic.logs()[0];
        let mut setter = Setter::of(&topic);
        setter.seq = log.last().seq;
        setter.set(records);
        disk.sync(log);
    }
    let topic = on_disk(&disk, 5);
    check_catch_up(&topic, at(1, 40), 50, at(5, 100));
    check_catch_up(&topic, at(2, 60), 80, at(5, 100));
}

#[test]
fn conflated_subscriber_of_a_mirror_continues_after_a_takeover() {
    let owned = super::mirrored::owner(1);
    let mut setter = Setter::of(&owned);
    setter.set(50);
    let mirror = Mirror::new();
    let mut feed = mirror.feed_of(&owned);
    mirror.drain(&mut feed, || ());
    setter.set(50);
    mirror.drain(&mut feed, || ());
    mirror.log().take_over(4, true);
    check_catch_up(&mirror.topic, at(1, 60), 100, at(4, 100));
}

#[test]
fn conflated_reader_gets_only_stored_records_if_the_disk_fails() {
    let disk = MemoryStore::new();
    let topic = on_disk(&disk, 1);
    let log = &topic.logs()[0];
    let mut setter = Setter::of(&topic);
    setter.set(10);
    disk.sync(log);
    let mut reader = subscriber(&topic, &SubscribeOptions { start: Start::After(at(1, 4)), ..conflated() });
    // These records are never stored. Neither a state nor a merged record that includes them may be delivered.
    setter.set(5);
    topic.close();
    log.fail("gone");
    let (mut seen, mut ended) = (Vec::new(), false);
    while let Ok(Some(event)) = reader.try_next() {
        match event {
            Event::Record(record) => seen.push(record.seq()),
            Event::Notice(Notice::Deleted { .. }) => ended = true,
            _ => {}
        }
    }
    assert!(ended);
    assert_eq!(seen, [5, 6, 7, 8, 9, 10]);
}
