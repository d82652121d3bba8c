//! Tests of cursors that read only a few subjects: which records wake such a cursor, and where it continues.

use std::sync::Arc;

use dunlin_topic::*;

use crate::fixture::*;

const TOKEN: u32 = 7;

fn wide_topic(retention_bytes: u64) -> Arc<Topic> {
    let config = TopicConfig { pattern: Some("users.>".to_owned()), ..config(retention_bytes) };
    Arc::new(Topic::new("users", Arc::new(config), &budget(), MANUAL, 1).unwrap())
}

/// A cursor as a listener's session has it, with a waiter and the records that were read.
struct Subscriber {
    cursor: Cursor,
    waiter: Arc<Waiter>,
    seen: Vec<u64>,
    gaps: usize,
}

impl Subscriber {
    fn of(topic: &Arc<Topic>, pattern: &str) -> Subscriber {
        let selection = Pattern::parse(pattern).unwrap().select(&Pattern::parse("users.>").unwrap());
        let Selection::Tails(tails) = selection else { panic!("{pattern} selects some") };
        let (log, filter) = (Arc::clone(&topic.logs()[0]), Filter::of_tails(tails));
        let cursor = Cursor::new(log, &from(Start::Latest), Some(filter), ConsumeMode::Explicit).unwrap();
        Subscriber { cursor, waiter: Waiter::new(), seen: Vec::new(), gaps: 0 }
    }

    /// Reads everything, and then goes to sleep.
    fn read(&mut self) {
        loop {
            match self.cursor.fill() {
                ReadOutcome::Records => {
                    let seen = &mut self.seen;
                    self.cursor.drain(usize::MAX, |record| seen.push(record.seq()));
                }
                ReadOutcome::Empty if self.cursor.arm(&self.waiter, TOKEN) => return,
                ReadOutcome::Empty | ReadOutcome::Skipped => {}
                ReadOutcome::Notice(Notice::Gap(_)) => self.gaps += 1,
                ReadOutcome::Notice(_) => {}
                ReadOutcome::Closed => return,
            }
        }
    }

    /// If the cursor was woken, reads everything and goes to sleep again. Returns whether it was woken.
    fn was_woken(&mut self) -> bool {
        let was_woken = self.waiter.take_ready(|_| ());
        if was_woken {
            self.cursor.handle_wake();
            self.read();
        }
        was_woken
    }
}

fn publish(topic: &Arc<Topic>, user: usize) -> u64 {
    topic.publisher(&format!("users.{user}.x")).publish(b"hello").unwrap().position.seq
}

#[test]
fn record_wakes_only_cursors_of_its_subject() {
    let topic = wide_topic(1 << 20);
    let mut subscribers: Vec<Subscriber> =
        (0..100).map(|user| Subscriber::of(&topic, &format!("users.{user}.>"))).collect();
    subscribers.iter_mut().for_each(Subscriber::read);
    for user in [3, 3, 50, 99, 100] {
        let seq = publish(&topic, user);
        for (at, subscriber) in subscribers.iter_mut().enumerate() {
            assert_eq!(subscriber.was_woken(), at == user, "subscriber {at} of record {seq} for {user}");
        }
    }
    let seen: Vec<&[u64]> = [3, 50, 99].map(|at| &subscribers[at].seen[..]).to_vec();
    assert_eq!(seen, [&[1, 2][..], &[3], &[4]]);
}

#[test]
fn woken_cursor_continues_after_the_skipped_records() {
    let topic = wide_topic(1 << 20);
    let mut subscriber = Subscriber::of(&topic, "users.1.>");
    subscriber.read();
    (0..1_000).for_each(|_| _ = publish(&topic, 2));
    assert!(!subscriber.was_woken());
    let seq = publish(&topic, 1);
    assert!(subscriber.waiter.take_ready(|_| ()));
    subscriber.cursor.handle_wake();
    assert_eq!(
        (subscriber.cursor.next().seq, subscriber.cursor.prev_seq()),
        (seq, 0),
        "nothing of it is looked at"
    );
    subscriber.read();
    assert_eq!(subscriber.seen, [seq]);
}

#[test]
fn sleeping_cursor_advances_over_records_of_other_subjects() {
    let topic = wide_topic(1 << 20);
    let mut subscriber = Subscriber::of(&topic, "users.1.>");
    subscriber.read();
    assert!(!subscriber.cursor.skip_unwanted(), "nothing has come");
    let last = [2, 2, 2].map(|user| publish(&topic, user))[2];
    assert!(!subscriber.was_woken());
    assert!(subscriber.cursor.skip_unwanted());
    assert_eq!((subscriber.cursor.read_through().seq, subscriber.cursor.lag()), (last, 0));
    let wanted = publish(&topic, 1);
    assert!(!subscriber.cursor.skip_unwanted(), "a wanted record is not skipped");
    assert!(subscriber.was_woken());
    assert_eq!(subscriber.seen, [wanted]);
}

#[test]
fn cursor_reports_no_gap_for_records_of_other_subjects() {
    let topic = wide_topic(64 << 10);
    let mut subscriber = Subscriber::of(&topic, "users.1.>");
    subscriber.read();
    let mut woken = 0;
    for _ in 0..20_000 {
        publish(&topic, 2);
        woken += usize::from(subscriber.was_woken());
        assert!(subscriber.cursor.lag() < 1_000, "it is woken long before the history ends");
    }
    assert!((1..1_000).contains(&woken), "{woken} times");
    assert_eq!((subscriber.gaps, subscriber.seen.len()), (0, 0));
}

#[test]
fn filtered_cursors_miss_no_record_when_they_sleep_at_random() {
    let topic = wide_topic(1 << 20);
    let patterns = ["users.1.>", "users.*.x", "users.2.x", "users.3.y", "users.2.*", "users.1.x"];
    let mut subscribers: Vec<Subscriber> =
        patterns.iter().map(|pattern| Subscriber::of(&topic, pattern)).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut published = Vec::new();
    for _ in 0..20_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let at = (random >> 8) as usize % subscribers.len();
        match random % 4 {
            // The cursor reads although it was not woken, as in a session that was woken for another cursor.
            0 => subscribers[at].read(),
            1 => drop(subscribers[at].was_woken()),
            _ => {
                let user = (random >> 16) as usize % 4;
                published.push((publish(&topic, user), format!("users.{user}.x")));
            }
        }
    }
    for (subscriber, pattern) in subscribers.iter_mut().zip(patterns) {
        // A cursor that still sleeps and was not notified must have read everything.
        subscriber.was_woken();
        if !subscriber.cursor.is_armed() {
            subscriber.read();
        }
        let pattern = Pattern::parse(pattern).unwrap();
        let wanted =
            published.iter().filter(|(_, subject)| pattern.matches(Subject::parse(subject).unwrap()));
        assert!(subscriber.seen.iter().eq(wanted.map(|(seq, _)| seq)), "{pattern}");
    }
}

#[test]
fn deleted_topic_wakes_cursors_with_a_subject_filter() {
    let topic = wide_topic(1 << 20);
    let mut subscriber = Subscriber::of(&topic, "users.1.>");
    subscriber.read();
    topic.close();
    assert!(subscriber.waiter.take_ready(|_| ()));
}
