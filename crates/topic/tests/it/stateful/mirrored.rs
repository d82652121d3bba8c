//! Tests of the states of mirrors: no subscriber receives a state that the owner has never had.

use std::sync::atomic::{AtomicU64, Ordering};

use super::publishers::{connected, read_notices};
use super::*;

/// An upstream that does nothing. The tests themselves feed the mirrors.
#[derive(Debug, Default)]
struct IdleUpstream(AtomicU64);

impl Upstream for IdleUpstream {
    fn clock(&self) -> Clock {
        STEADY
    }

    fn owned_until_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn forward(&self, _: ForwardedBatch<'_>) -> Result<u64, PublishError> {
        Err(PublishError::OwnerAway("nothing is forwarded".to_owned()))
    }

    fn outcome(&self, _: u64, _: &Arc<Waiter>, _: u32) -> AckProgress {
        AckProgress::Failed(PublishError::Closed)
    }

    fn leave(&self, _: &Arc<Waiter>) {}

    fn await_room(&self, _: &Arc<Waiter>) {}

    fn start_feed(&self, _: &Arc<Log>, _: Start) {}

    fn private_mirror(&self, _: &Arc<Log>, _: Start, _: bool, _: bool) -> Option<Arc<Log>> {
        None
    }
}

pub(super) struct Mirror {
    pub(super) topic: Arc<Topic>,
    upstream: Arc<IdleUpstream>,
}

impl Mirror {
    pub(super) fn new() -> Mirror {
        let upstream = Arc::<IdleUpstream>::default();
        let reducer = Some(ReducerConfig { kind: "board".to_owned(), options: Default::default() });
        let config = Arc::new(TopicConfig { reducer, ..config(64 << 10) });
        let board = |_: &ReducerConfig| Ok(Box::new(SlotValues::default()) as Box<dyn Reducer>);
        let of_owner: Arc<dyn Upstream> = upstream.clone();
        let topic = Topic::mirrored("t", config, &budget(), MANUAL, 1, board, &of_owner).unwrap();
        Mirror { topic: Arc::new(topic), upstream }
    }

    pub(super) fn log(&self) -> &Arc<Log> {
        &self.topic.logs()[0]
    }

    /// Returns the subscriber at the owner that feeds the mirror. This subscriber starts after the mirror's position,
    /// or with the state if the mirror has received nothing yet.
    pub(super) fn feed_of(&self, owner: &Topic) -> Subscriber {
        let start = self.log().fed_through().map_or(Start::Snapshot, Start::After);
        subscriber(owner, &SubscribeOptions { start, ..following() })
    }

    fn take(&self, event: &Event<'_>) -> bool {
        let log = self.log();
        match event {
            Event::Record(record) => {
                let mut bytes = Vec::new();
                record.frame.append_to(&mut bytes);
                return log
                    .feed(record.position, record.prev_seq, CheckedBatch::check(&bytes, 1, 1 << 20).unwrap())
                    .is_ok();
            }
            Event::Notice(Notice::Gap(gap)) => log.feed_gap(Position { epoch: gap.epoch, seq: gap.last }),
            Event::Notice(Notice::EpochChanged(changed)) => log.feed_epoch(changed),
            Event::Notice(Notice::Snapshot(state)) => log.feed_state(state.position, &state.bytes).unwrap(),
            Event::Notice(Notice::Checksum(sum)) => return log.feed_checksum(sum.position, sum.checksum),
            Event::Notice(Notice::Publishers(publishers)) => log.feed_publishers(publishers),
            Event::Notice(_) => {}
        }
        true
    }

    /// Feeds the mirror with all available events, and calls `between` after each of them.
    pub(super) fn drain(&self, feed: &mut Subscriber, mut between: impl FnMut()) {
        while let Some(event) = feed.try_next().unwrap() {
            assert!(self.take(&event), "{event:?}");
            between();
        }
    }

    fn assert_matches(&self, owner: &Topic) {
        let (ours, theirs) = (self.log().state_info().unwrap(), owner.logs()[0].state_info().unwrap());
        assert_eq!(ours, theirs);
    }

    /// The position and the checksum of the snapshot that a new follower of the mirror receives. `None` if it receives
    /// nothing yet.
    fn state(&self) -> Option<(Position, u64)> {
        let mut reader = subscriber(&self.topic, &following());
        match reader.try_next().unwrap() {
            Some(Event::Notice(Notice::Snapshot(state))) => Some((state.position, state.checksum)),
            None => None,
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn owner(epoch: u32) -> Arc<Topic> {
    let reducer = Some(ReducerConfig { kind: "board".to_owned(), options: Default::default() });
    let config = Arc::new(TopicConfig { reducer, ..config(64 << 10) });
    let board = |_: &ReducerConfig| Ok(Box::new(SlotValues::default()) as Box<dyn Reducer>);
    Arc::new(Topic::stateful("t", config, &budget(), MANUAL, epoch, board).unwrap())
}

#[test]
fn subscriber_of_a_mirror_may_resume_after_any_position() {
    let mirror = Mirror::new();
    let at = Position { epoch: 1, seq: u64::MAX };
    let options = SubscribeOptions { start: Start::After(at), ..following() };
    let mut follower = subscriber(&mirror.topic, &options);
    assert!(follower.try_next().unwrap().is_none());
}

#[test]
fn resumed_mirror_ignores_an_older_cached_snapshot() {
    let owned = owner(1);
    let mut setter = Setter::of(&owned);
    setter.set(500);
    // After this request, the owner has a cached snapshot.
    drop(subscriber(&owned, &following()).try_next().unwrap());
    setter.set(30);
    let mirror = Mirror::new();
    let mut feed = mirror.feed_of(&owned);
    mirror.drain(&mut feed, || ());
    mirror.assert_matches(&owned);
    let read_through = mirror.log().last().seq;
    mirror.log().clear_mirror();
    setter.set(2);
    // The mirror has to start again, and the owner sends it the same cached snapshot.
    let mut feed = mirror.feed_of(&owned);
    let Some(Event::Notice(Notice::Snapshot(cached))) = feed.try_next().unwrap() else { panic!("no state") };
    assert!(cached.position.seq < read_through, "this test needs one that is older");
    mirror.log().feed_state(cached.position, &cached.bytes).unwrap();
    mirror.drain(&mut feed, || ());
    mirror.assert_matches(&owned);
}

#[test]
fn state_of_an_ended_epoch_is_not_shown_for_the_next_epoch() {
    let (first, second) = (owner(1), owner(8));
    let mut setter = Setter::of(&first);
    setter.set(300);
    let mirror = Mirror::new();
    let mut feed = mirror.feed_of(&first);
    mirror.drain(&mut feed, || ());
    let mut of_second = Setter::of(&second);
    of_second.random = 77;
    of_second.set(20);
    let owner_states = [&first, &second].map(|owner| {
        let log = &owner.logs()[0];
        (log.last(), log.state_info().unwrap().1.checksum)
    });
    let mut reader = subscriber(&mirror.topic, &following());
    assert!(matches!(reader.try_next().unwrap(), Some(Event::Notice(Notice::Snapshot(_)))));
    let mut delivered = Vec::new();
    let mut feed = mirror.feed_of(&second);
    mirror.drain(&mut feed, || {
        delivered.extend(mirror.state());
        while let Some(event) = reader.try_next().unwrap() {
            if let Event::Notice(Notice::Snapshot(state)) = event {
                delivered.push((state.position, state.checksum));
            }
        }
    });
    assert!(
        delivered.iter().all(|state| owner_states.contains(state)),
        "{delivered:?} beside {owner_states:?}"
    );
    assert!(delivered.contains(&owner_states[1]));
    mirror.assert_matches(&second);
}

#[test]
fn mirror_far_behind_continues_with_the_state_of_its_owner() {
    let owned = owner(1);
    let mut setter = Setter::of(&owned);
    setter.set(10);
    let mirror = Mirror::new();
    let mut feed = mirror.feed_of(&owned);
    mirror.drain(&mut feed, || ());
    let mut expected: Vec<u64> = Vec::new();
    for more in [30, 3_000, 10_000] {
        for _ in 0..more {
            setter.set(1);
            expected.push(setter.expected.checksum());
        }
        let mut delivered = Vec::new();
        let mut feed = mirror.feed_of(&owned);
        mirror.drain(&mut feed, || delivered.extend(mirror.state()));
        mirror.assert_matches(&owned);
        assert!(!delivered.is_empty());
        for (at, checksum) in delivered {
            assert_eq!(checksum, expected[at.seq as usize - 11], "at {at}");
        }
    }
}

#[test]
fn wrong_state_of_a_mirror_is_detected_and_repaired() {
    let owned = owner(1);
    let mut setter = Setter::of(&owned);
    setter.set(200);
    let mirror = Mirror::new();
    let mut feed = mirror.feed_of(&owned);
    mirror.drain(&mut feed, || ());
    mirror.log().replay_into_state(200, &unpublished_record().frame()).unwrap();
    assert_ne!(mirror.log().state_info(), owned.logs()[0].state_info());
    let (position, of_owner) = owned.logs()[0].state_info().unwrap();
    assert!(!mirror.log().feed_checksum(position, of_owner.checksum));
    assert_eq!(mirror.state(), None, "a state known to be wrong is not delivered");
    assert_eq!(mirror.log().fed_through(), None);
    let mut feed = mirror.feed_of(&owned);
    mirror.drain(&mut feed, || ());
    mirror.assert_matches(&owned);
    assert!(mirror.log().feed_checksum(position, of_owner.checksum));
}

/// The frame of a record that was never published.
fn unpublished_record() -> Encoded {
    let payload = sets(&[(3, 12_345)]);
    let meta = RecordMeta::default();
    let encoded = meta.measure(payload.len()).unwrap();
    let mut bytes = vec![0; encoded.padded()];
    meta.encode(encoded, 0, &payload, &mut bytes);
    Encoded(bytes)
}

struct Encoded(Vec<u8>);

impl Encoded {
    fn frame(&self) -> Frame<'_> {
        Frame::split(&self.0).unwrap().0
    }
}

#[test]
fn new_owner_continues_from_the_state_of_its_mirror() {
    let owned = owner(1);
    let mut setter = Setter::of(&owned);
    setter.set(100);
    let mirror = Mirror::new();
    let mut feed = mirror.feed_of(&owned);
    mirror.drain(&mut feed, || ());
    let read = mirror.log().state_info().unwrap().1;
    // The mirror does not receive these records.
    setter.set(5);
    mirror.upstream.0.store(u64::MAX, Ordering::Relaxed);
    mirror.log().take_over(9, false);
    assert_eq!(mirror.log().state_info().unwrap().1, read);
    let third = Mirror::new();
    let mut feed = third.feed_of(&owned);
    third.drain(&mut feed, || ());
    let mut feed = third.feed_of(&mirror.topic);
    mirror.topic.publisher("t").publish(sets(&[(1, 2)]).as_slice()).unwrap();
    third.drain(&mut feed, || ());
    third.assert_matches(&mirror.topic);
}

#[test]
fn mirror_reports_the_publisher_count_of_its_owner() {
    let owned = owner(1);
    let mirror = Mirror::new();
    let local_publisher = mirror.topic.publisher("t");
    let mut feed = mirror.feed_of(&owned);
    mirror.drain(&mut feed, || ());
    let mut reader = subscriber(&mirror.topic, &following());
    assert_eq!(connected(&read_notices(&mut reader)), [false], "the owner counts publishers of the mirror");
    let mut setter = Setter::of(&owned);
    setter.set(1);
    mirror.drain(&mut feed, || ());
    assert_eq!(connected(&read_notices(&mut reader)), [true]);
    mirror.log().take_over(2, true);
    assert_eq!(connected(&read_notices(&mut reader)), [], "it is this process's own, and has a publisher");
    drop(local_publisher);
    assert_eq!(connected(&read_notices(&mut reader)), [false]);
}

#[test]
fn new_owner_waits_before_it_reports_publishers_as_gone() {
    let owned = owner(1);
    let mirror = Mirror::new();
    let mut feed = mirror.feed_of(&owned);
    mirror.drain(&mut feed, || ());
    let publishers = PublisherStatus {
        log: Arc::clone(mirror.log().name()),
        connected: true,
        since_ns: MANUAL.now_ns(),
        last_append_ns: None,
    };
    mirror.log().feed_publishers(&publishers);
    let mut reader = subscriber(&mirror.topic, &following());
    assert_eq!(connected(&read_notices(&mut reader)), []);
    mirror.log().take_over(2, true);
    assert_eq!(connected(&read_notices(&mut reader)), [], "they may be on their way");
    mirror.topic.notify_publisher_change();
    assert_eq!(connected(&read_notices(&mut reader)), [false], "none has come");
}

#[test]
fn publisher_is_refused_if_new_owner_lacks_its_last_record() {
    let owned = owner(1);
    let mut setter = Setter::of(&owned);
    setter.set(100);
    // The feed starts with a snapshot in the middle of the log, so the mirror never had the records before it.
    let mirror = Mirror::new();
    let mut feed = mirror.feed_of(&owned);
    mirror.drain(&mut feed, || ());
    let read = mirror.log().last();
    setter.set(5);
    let acknowledged = owned.logs()[0].last();
    let bytes = {
        let encoded = RecordMeta::default().measure(sets(&[(1, 2)]).len()).unwrap();
        let mut bytes = vec![0; encoded.padded()];
        RecordMeta::default().encode(encoded, 0, &sets(&[(1, 2)]), &mut bytes);
        bytes
    };
    let append = |claim: &Arc<StateClaim>| {
        let batch = CheckedBatch::check(&bytes, 1, 1 << 20).unwrap();
        let (claim, partition) = (Some(claim), 0);
        let append = BatchAppend {
            batch,
            partition,
            mark: None,
            expect_last: None,
            claim,
            evict: false,
            relayed: true,
        };
        mirror.topic.append_batch(MANUAL.now_ns(), append).map(|receipt| receipt.position)
    };
    mirror.upstream.0.store(u64::MAX, Ordering::Relaxed);
    mirror.log().take_over(9, false);
    let lost = Err(PublishError::StateLost("t".to_owned()));
    let of_lost = StateClaim::after(Position { seq: read.seq + 1, ..acknowledged });
    assert_eq!(append(&of_lost), lost);
    assert_eq!(append(&of_lost), lost, "a later append with the same claim");
    assert_eq!(append(&StateClaim::after(acknowledged)), lost);
    let next = Position { epoch: 9, seq: read.seq + 1 };
    let of_read = StateClaim::after(read);
    assert_eq!(append(&of_read), Ok(next));
    assert_eq!(of_read.last("t"), Ok(Some(next)));
    let of_before = StateClaim::after(Position { seq: 1, ..read });
    assert_eq!(append(&of_before).map(|at| at.seq), Ok(next.seq + 1));
    // The mirror has never received a record, and becomes the owner in an epoch that has no records yet.
    let empty_epoch = Mirror::new();
    empty_epoch.log().take_over(2, false);
    assert!(empty_epoch.log().has_lost(Position { epoch: 1, seq: 1 }));
}
