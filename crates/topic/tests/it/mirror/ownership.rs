//! Tests of logs whose owner changes.

use super::*;

#[test]
fn subscriber_that_starts_after_a_takeover_sees_no_old_epoch() {
    let owned = small_topic();
    let owner = Owner::of(&owned);
    let mirror = mirror_of(&owner, config(64 << 10));
    let _reader = subscriber(&mirror, &from(Start::Latest));
    publish(&owned, &["1", "2"]);
    feed(&mut subscriber(&owned, &earliest()), &mirror.logs()[0]);
    owner.until_ns.store(u64::MAX, Ordering::Relaxed);
    mirror.logs()[0].take_over(2, true);
    advance_clock(std::time::Duration::from_secs(1));
    let since_ns = MANUAL.now_ns();
    publish(&mirror, &["3"]);
    let of_time = |ns| read_events(&mut subscriber(&mirror, &from(Start::Time(ns))));
    assert_eq!(of_time(since_ns), ["2-3 3"]);
    let earlier = ["1-1 1", "1-2 2", "1 after 2 of Some(2) becomes 2-3", "2-3 3"];
    assert_eq!(of_time(0), earlier);
}

#[test]
fn records_keep_their_epochs_when_read_after_a_takeover() {
    let owned = small_topic();
    let owner = Owner::of(&owned);
    let mirror = mirror_of(&owner, config(64 << 10));
    let _reader = subscriber(&mirror, &from(Start::Latest));
    publish(&owned, &["1", "2"]);
    feed(&mut subscriber(&owned, &earliest()), &mirror.logs()[0]);
    owner.until_ns.store(u64::MAX, Ordering::Relaxed);
    mirror.logs()[0].take_over(2, true);
    publish(&mirror, &["3"]);
    let epoch_of = |seq| mirror.logs()[0].read(seq, |record| record.position.epoch);
    assert_eq!([1, 2, 3].map(epoch_of), [Some(1), Some(1), Some(2)]);
}

#[test]
fn mirror_with_all_records_takes_over_without_loss() {
    let owned = small_topic();
    let owner = Owner::of(&owned);
    let mirror = mirror_of(&owner, config(64 << 10));
    let (mut quick, mut slow) =
        (subscriber(&mirror, &from(Start::Latest)), subscriber(&mirror, &from(Start::Latest)));
    publish(&owned, &["1", "2"]);
    feed(&mut subscriber(&owned, &earliest()), &mirror.logs()[0]);
    assert_eq!(read_events(&mut quick), ["1-1 1", "1-2 2"]);
    owner.until_ns.store(u64::MAX, Ordering::Relaxed);
    mirror.logs()[0].take_over(5, true);
    publish(&mirror, &["3"]);
    let epoch_change = "1 after 2 of Some(2) becomes 5-3";
    assert_eq!(read_events(&mut quick), [epoch_change, "5-3 3"]);
    assert_eq!(read_events(&mut slow), ["1-1 1", "1-2 2", epoch_change, "5-3 3"]);
    assert_eq!(read_events(&mut subscriber(&mirror, &earliest())), ["1-1 1", "1-2 2", epoch_change, "5-3 3"]);
}

#[test]
fn epoch_of_a_dead_owner_ends_without_a_known_last_record() {
    let owned = small_topic();
    let owner = Owner::of(&owned);
    let mirror = mirror_of(&owner, config(64 << 10));
    let mut reader = subscriber(&mirror, &from(Start::Latest));
    publish(&owned, &["1", "2"]);
    feed(&mut subscriber(&owned, &earliest()), &mirror.logs()[0]);
    owner.until_ns.store(u64::MAX, Ordering::Relaxed);
    mirror.logs()[0].take_over(5, false);
    publish(&mirror, &["3"]);
    assert_eq!(read_events(&mut reader), ["1-1 1", "1-2 2", "1 after 2 of None becomes 5-3", "5-3 3"]);
    // This subscriber has already read later records of the old epoch, at another node.
    let ahead = from(Start::After(Position { epoch: 1, seq: 9 }));
    assert_eq!(read_events(&mut subscriber(&mirror, &ahead)), ["1 after 9 of None becomes 5-3", "5-3 3"]);
}

#[test]
fn new_epoch_with_lower_sequences_hides_no_gap() {
    let owned = small_topic();
    let owner = Owner::of(&owned);
    let mirror = mirror_of(&owner, config(64 << 10));
    let mut reader = subscriber(&mirror, &from(Start::Latest));
    let log = &mirror.logs()[0];
    publish(&owned, &["1", "2", "3"]);
    feed(&mut subscriber(&owned, &earliest()), log);
    assert_eq!(read_events(&mut reader), ["1-1 1", "1-2 2", "1-3 3"]);
    // A new owner, which had only record 1 of epoch 1, has begun epoch 5 with record 2.
    let name = Arc::clone(log.name());
    let new_first = Position { epoch: 5, seq: 2 };
    log.feed_epoch(&EpochChanged { log: name, old: 1, last_seen: 3, known_through: None, new_first });
    // The new owner has already dropped the records 2 and 3 of epoch 5.
    log.feed_gap(Position { epoch: 5, seq: 3 });
    owner.until_ns.store(u64::MAX, Ordering::Relaxed);
    log.take_over(5, false);
    publish(&mirror, &["4"]);
    let mut events = read_events(&mut reader);
    events.retain(|event| !event.starts_with("Lagging"));
    assert_eq!(events, ["1 after 3 of None becomes 5-2", "gap 5: 2-3", "5-4 4"]);
}

#[test]
fn records_of_a_deposed_owner_are_ignored() {
    let owned = small_topic();
    let mirror = mirror_of(&Owner::of(&owned), config(64 << 10));
    let mut reader = subscriber(&mirror, &from(Start::Latest));
    let log = &mirror.logs()[0];
    let mut deposed = subscriber(&owned, &earliest());
    publish(&owned, &["1"]);
    feed(&mut deposed, log);
    assert_eq!(read_events(&mut reader), ["1-1 1"]);
    let next = Arc::new(Topic::new("t", Arc::new(config(64 << 10)), &budget(), MANUAL, 8).unwrap());
    publish(&next, &["new"]);
    feed(&mut subscriber(&next, &from(Start::After(log.fed_through().unwrap()))), log);
    publish(&owned, &["2", "3"]);
    feed(&mut deposed, log);
    assert_eq!(read_events(&mut reader), ["1 after 1 of None becomes 8-1", "8-1 new"]);
}

#[test]
fn owner_appends_only_while_its_lease_lasts() {
    let other = small_topic();
    let owner = Owner::of(&other);
    let own = mirror_of(&owner, config(64 << 10));
    owner.until_ns.store(STEADY.now_ns() + 1_000, Ordering::Relaxed);
    own.logs()[0].take_over(1, true);
    publish(&own, &["mine"]);
    advance_clock(std::time::Duration::from_nanos(999));
    publish(&own, &["mine too"]);
    advance_clock(std::time::Duration::from_nanos(1));
    publish(&own, &["not mine"]);
    assert_eq!(read_events(&mut subscriber(&own, &earliest())), ["1-1 mine", "1-2 mine too"]);
    assert_eq!(read_events(&mut subscriber(&other, &earliest())), ["1-1 not mine"]);
    owner.until_ns.store(STEADY.now_ns() + 1_000, Ordering::Relaxed);
    publish(&own, &["mine again"]);
    assert_eq!(own.logs()[0].last().seq, 3);
}

#[test]
fn setting_the_clock_back_does_not_extend_the_lease_of_an_owner() {
    let other = small_topic();
    let owner = Owner::of(&other);
    let own = mirror_of(&owner, config(64 << 10));
    owner.until_ns.store(STEADY.now_ns() + 1_000, Ordering::Relaxed);
    own.logs()[0].take_over(1, true);
    publish(&own, &["mine"]);
    set_clock_back(std::time::Duration::from_secs(600));
    advance_clock(std::time::Duration::from_nanos(1_000));
    publish(&own, &["not mine"]);
    assert_eq!(read_events(&mut subscriber(&own, &earliest())), ["1-1 mine"]);
    assert_eq!(read_events(&mut subscriber(&other, &earliest())), ["1-1 not mine"]);
}

#[test]
fn epoch_of_a_moved_log_ends_where_the_next_owner_starts() {
    let owner = Owner::of(&small_topic());
    let old = mirror_of(&owner, config(64 << 10));
    owner.until_ns.store(u64::MAX, Ordering::Relaxed);
    old.logs()[0].take_over(1, true);
    publish(&old, &["1", "2"]);
    let mut reader = subscriber(&old, &earliest());
    let next = mirror_of(&Owner::of(&old), config(64 << 10));
    old.logs()[0].hand_over(false, Some(4));
    let local = |start| SubscribeOptions { local_only: true, ..from(start) };
    feed(&mut subscriber(&old, &local(Start::Earliest)), &next.logs()[0]);
    assert_eq!(next.logs()[0].last(), Position { epoch: 4, seq: 2 }, "it is positioned at the next epoch");
    let all = ["1-1 1", "1-2 2", "1 after 2 of Some(2) becomes 4-3"];
    assert_eq!(read_events(&mut reader), all);
    let before_first = Position { epoch: 1, seq: 0 };
    assert_eq!(read_events(&mut subscriber(&next, &local(Start::After(before_first)))), all);
}

#[test]
fn non_owner_cannot_end_an_epoch_of_a_topic() {
    let owned = small_topic();
    let mirror = mirror_of(&Owner::of(&owned), config(64 << 10));
    mirror.logs()[0].hand_over(false, Some(4));
    assert_eq!(mirror.logs()[0].last(), Position { epoch: 1, seq: 0 });
}

#[test]
fn owner_that_lacks_the_start_of_an_epoch_reports_a_gap() {
    let (owner, mirror, _newest) = mirror_fed_mid_epoch();
    let log = &mirror.logs()[0];
    publish(&owner.topic, &["d"]);
    feed(&mut subscriber(&owner.topic, &from(Start::After(log.fed_through().unwrap()))), log);
    owner.until_ns.store(u64::MAX, Ordering::Relaxed);
    log.take_over(9, false);
    publish(&mirror, &["e"]);
    let reader = from(Start::After(Position { epoch: 1, seq: 9 }));
    let all =
        ["1 after 9 of None becomes 8-1", "gap 8: 1-3", "8-4 d", "8 after 4 of None becomes 9-5", "9-5 e"];
    assert_eq!(read_events(&mut subscriber(&mirror, &reader)), all);
}

#[test]
fn mirror_does_not_become_owner_with_an_older_epoch() {
    let (owner, mirror, _newest) = mirror_fed_mid_epoch();
    owner.until_ns.store(u64::MAX, Ordering::Relaxed);
    mirror.logs()[0].take_over(7, false);
    assert!(mirror.logs()[0].is_mirror());
    publish(&mirror, &["d"]);
    assert_eq!(mirror.logs()[0].last(), Position { epoch: 8, seq: 3 }, "it is not appended to the mirror");
    assert_eq!(owner.topic.logs()[0].last(), Position { epoch: 8, seq: 4 });
}

#[test]
fn publisher_at_the_owner_waits_for_room_in_the_log() {
    let owned = small_topic();
    let owner = Owner::of(&owned);
    let mirror = mirror_of(&owner, config(64 << 10));
    let _reader = subscriber(&mirror, &from(Start::Latest));
    let forwarding = Waiter::new();
    mirror.await_room(0, &forwarding);
    assert!(forwarding.is_ready(), "requests to the owner have room");
    owner.until_ns.store(u64::MAX, Ordering::Relaxed);
    mirror.logs()[0].take_over(2, true);
    publish(&mirror, &["1"]);
    let waiting = Waiter::new();
    mirror.await_room(0, &waiting);
    assert!(!waiting.is_ready(), "no subscriber has made room");
    mirror.logs()[0].hand_over(false, None);
    assert!(waiting.is_ready(), "another node is the owner");
}
