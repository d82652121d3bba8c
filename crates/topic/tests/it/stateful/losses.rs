//! Tests of followers that lack records: they resume after a position, or the topic withholds records from them as a
//! test.

use std::num::NonZeroU32;

use super::*;

#[test]
fn missed_records_are_replaced_by_the_state_if_it_is_smaller() {
    let topic = stateful(1 << 20, &budget(), MANUAL);
    let mut setter = Setter::of(&topic);
    setter.set(500);
    let resumed = |seq| {
        let start = Start::After(Position { epoch: 1, seq });
        subscriber(&topic, &SubscribeOptions { start, ..following() })
    };
    let mut follower = BoardFollower::default();
    follower.drain(&mut resumed(0));
    follower.assert_matches(&setter);
    assert_eq!((follower.records, follower.snapshots), (500, 0));
    setter.set(10_000);
    follower.drain(&mut resumed(500));
    follower.assert_matches(&setter);
    assert_eq!(
        (follower.records, follower.snapshots),
        (500, 1),
        "some 300 KB of records for a state of 1,600 bytes"
    );
}

#[test]
fn subscriber_three_records_behind_gets_records_not_a_snapshot() {
    let topic = stateful(64 << 20, &budget(), MANUAL);
    let mut setter = Setter::of(&topic);
    // The records have many times as many bytes as the state, and all of them are in the newest segment.
    setter.set(20_000);
    let mut follower = BoardFollower::default();
    follower.drain(&mut subscriber(&topic, &following()));
    setter.set(3);
    let start = Start::After(Position { epoch: 1, seq: 20_000 });
    follower.drain(&mut subscriber(&topic, &SubscribeOptions { start, ..following() }));
    follower.assert_matches(&setter);
    assert_eq!((follower.records, follower.merged, follower.snapshots), (3, 0, 1));
}

#[test]
fn simulated_losses_happen_once_and_are_all_detected() {
    for options in [following(), SubscribeOptions { on_gap: OnGap::Snapshot, ..earliest() }] {
        let topic = stateful(1 << 20, &budget(), MANUAL);
        let mut setter = Setter::of(&topic);
        let test_loss_every = NonZeroU32::new(50);
        let mut reader = subscriber(&topic, &SubscribeOptions { test_loss_every, ..options });
        let mut follower = BoardFollower::default();
        for round in 0..200 {
            setter.set(round % 9);
            if round % 3 == 0 {
                follower.drain(&mut reader);
            }
        }
        advance_clock(Duration::from_secs(1));
        follower.drain(&mut reader);
        follower.assert_matches(&setter);
        let due: Vec<u64> = (1..=setter.seq).filter(|seq| seq.is_multiple_of(50)).collect();
        assert_eq!(follower.losses, due, "each is lost, noticed and repaired once");
    }
}

#[test]
fn loss_of_the_last_records_is_detected_by_the_checksum() {
    let topic = stateful(1 << 20, &budget(), MANUAL);
    let mut setter = Setter::of(&topic);
    let mut reader =
        subscriber(&topic, &SubscribeOptions { test_loss_every: NonZeroU32::new(10), ..following() });
    let mut follower = BoardFollower::default();
    setter.set(10);
    follower.drain(&mut reader);
    setter.set(10);
    follower.drain(&mut reader);
    assert_eq!(follower.at, 19, "nothing reported the loss");
    advance_clock(Duration::from_secs(1));
    follower.drain(&mut reader);
    follower.assert_matches(&setter);
    assert_eq!(follower.checks, 1);
}

#[test]
fn checksum_is_sent_again_after_a_subscriber_repairs_a_loss() {
    let topic = stateful(1 << 20, &budget(), MANUAL);
    let mut setter = Setter::of(&topic);
    let mut reader =
        subscriber(&topic, &SubscribeOptions { test_loss_every: NonZeroU32::new(10), ..following() });
    let mut follower = BoardFollower::default();
    follower.drain(&mut reader);
    setter.set(50);
    // The subscriber receives all records and the checksum before it requests the missing record, as may happen over a
    // connection.
    for _ in 0..2 {
        while reader
            .drain(usize::MAX, |event| {
                if !follower.lost {
                    follower.check(event)
                }
            })
            .unwrap()
            > 0
        {}
        advance_clock(Duration::from_secs(1));
    }
    assert_eq!((follower.at, follower.lost), (9, true));
    follower.drain(&mut reader);
    advance_clock(Duration::from_secs(1));
    follower.drain(&mut reader);
    follower.assert_matches(&setter);
}

#[test]
fn topic_setting_simulates_losses_for_each_subscriber() {
    let reducer = Some(ReducerConfig { kind: "board".to_owned(), options: Default::default() });
    let test_loss_every = NonZeroU32::new(10);
    let config_with_losses = Arc::new(TopicConfig { reducer, test_loss_every, ..config(1 << 20) });
    let board = |_: &ReducerConfig| Ok(Box::new(SlotValues::default()) as Box<dyn Reducer>);
    let topic = Arc::new(Topic::stateful("t", config_with_losses, &budget(), MANUAL, 1, board).unwrap());
    let mut setter = Setter::of(&topic);
    let own = SubscribeOptions { test_loss_every: NonZeroU32::new(7), ..following() };
    let mut readers = [(following(), 10), (own, 7)]
        .map(|(options, every)| (subscriber(&topic, &options), BoardFollower::default(), every));
    for _ in 0..50 {
        setter.set(1);
        readers.iter_mut().for_each(|(reader, follower, _)| follower.drain(reader));
    }
    advance_clock(Duration::from_secs(1));
    for (reader, follower, every) in &mut readers {
        follower.drain(reader);
        follower.assert_matches(&setter);
        let due: Vec<u64> = (1..=50).filter(|seq: &u64| seq.is_multiple_of(*every)).collect();
        assert_eq!(follower.losses, due);
    }
}

#[test]
fn simulated_loss_hides_a_record_from_a_conflated_subscriber() {
    let topic = stateful(1 << 20, &budget(), MANUAL);
    let mut setter = Setter::of(&topic);
    setter.set(109);
    let test_loss_every = NonZeroU32::new(10);
    let mut reader = subscriber(&topic, &SubscribeOptions { test_loss_every, ..conflated() });
    let mut delivered = Vec::new();
    for _ in 109..=112 {
        while let Some(event) = reader.try_next().unwrap() {
            if let Event::Record(record) = event {
                delivered.push((record.prev_seq, record.seq()));
            }
        }
        setter.set(1);
    }
    assert_eq!(delivered, [(110, 111), (111, 112)], "the record 110 is withheld");
}

#[test]
fn conflated_subscriber_repairs_each_simulated_loss() {
    let topic = stateful(1 << 20, &budget(), MANUAL);
    let mut setter = Setter::of(&topic);
    setter.set(105);
    let test_loss_every = NonZeroU32::new(10);
    let mut reader = subscriber(&topic, &SubscribeOptions { test_loss_every, ..conflated() });
    let mut follower = BoardFollower::default();
    follower.drain(&mut reader);
    for _ in 106..=155 {
        setter.set(1);
        follower.drain(&mut reader);
    }
    follower.assert_matches(&setter);
    assert_eq!(follower.losses, [110, 120, 130, 140, 150]);
}

#[test]
fn topic_that_simulates_losses_cannot_be_durable() {
    let test_loss_every = NonZeroU32::new(10);
    let refused =
        TopicConfig { test_loss_every, durable: Some(DurableOptions::default()), ..config(1 << 20) }.check();
    assert!(
        matches!(refused, Err(ConfigError::Unfit(why)) if why.contains("cannot be durable")),
        "{refused:?}"
    );
}
