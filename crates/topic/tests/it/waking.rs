//! Tests that every waiting subscriber is woken, in whatever way it waits and whenever the record arrives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use dunlin_topic::*;

use crate::fixture::*;

/// Lets two threads send a record back and forth. If a wake-up were missed, both threads would wait for ever.
fn ping_pong(wait: WaitStrategy, rounds: u64) {
    let topics = [large_topic(RUNNING), large_topic(RUNNING)];
    let options = SubscribeOptions { wait, ..earliest() };
    let mut readers = topics.each_ref().map(|topic| subscriber(topic, &options));
    let [first_reader, second_reader] = &mut readers;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut numbered = NumberedPublisher::of(&topics[1]);
            let mut witness = DeliveryChecker::from_seq(1);
            for seq in 1..=rounds {
                witness.follow(first_reader, seq);
                numbered.publish(1, 8);
            }
        });
        let mut numbered = NumberedPublisher::of(&topics[0]);
        let mut witness = DeliveryChecker::from_seq(1);
        for seq in 1..=rounds {
            numbered.publish(1, 8);
            witness.follow(second_reader, seq);
        }
    });
}

#[test]
fn parked_reader_is_woken_by_every_record() {
    ping_pong(WaitStrategy::Parked, 20_000);
}

#[test]
fn reader_that_spins_and_then_parks_is_woken_by_every_record() {
    ping_pong(WaitStrategy::Default, 20_000);
}

#[test]
fn spinning_reader_sees_every_record() {
    ping_pong(WaitStrategy::Spin, 2_000);
}

/// The waker of a task. It marks the task as scheduled, and unparks the executor's thread.
struct Scheduled {
    is_scheduled: AtomicBool,
    thread: thread::Thread,
}

impl Wake for Scheduled {
    fn wake(self: Arc<Self>) {
        self.is_scheduled.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Polls the subscriber until it is ready. As in an executor, the next poll happens only after a wake-up.
fn block_on(reader: &mut Subscriber) {
    let scheduled = Arc::new(Scheduled { is_scheduled: AtomicBool::new(true), thread: thread::current() });
    let waker = Waker::from(Arc::clone(&scheduled));
    loop {
        let deadline = Deadline::new();
        while !scheduled.is_scheduled.swap(false, Ordering::SeqCst) {
            thread::park_timeout(PATIENCE);
            deadline.check("a wake-up was lost");
        }
        if let Poll::Ready(outcome) = reader.poll_ready(&mut Context::from_waker(&waker)) {
            return outcome.unwrap();
        }
    }
}

#[test]
fn async_reader_is_woken_by_every_record() {
    let topics = [large_topic(RUNNING), large_topic(RUNNING)];
    let mut reader = subscriber(&topics[0], &earliest());
    let mut many = Subscriber::many(vec![cursor(&topics[1], &earliest())], None, earliest(), RUNNING);
    let rounds = 10_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut numbered = NumberedPublisher::of(&topics[1]);
            let mut witness = DeliveryChecker::from_seq(1);
            for seq in 1..=rounds {
                while witness.next <= seq {
                    block_on(&mut reader);
                    witness.drain(&mut reader);
                }
                numbered.publish(1, 8);
            }
        });
        let mut numbered = NumberedPublisher::of(&topics[0]);
        let mut witness = DeliveryChecker::from_seq(1);
        for seq in 1..=rounds {
            numbered.publish(1, 8);
            while witness.next <= seq {
                block_on(&mut many);
                witness.drain(&mut many);
            }
        }
    });
}

#[test]
fn blocking_and_async_subscribers_miss_no_record() {
    let topic = large_topic(RUNNING);
    let count = 5_000;
    let counted = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        for n in 0..6 {
            let wait = [WaitStrategy::Parked, WaitStrategy::Default][n % 2];
            let mut reader = subscriber(&topic, &SubscribeOptions { wait, ..earliest() });
            let counted = Arc::clone(&counted);
            scope.spawn(move || {
                let mut witness = DeliveryChecker::from_seq(1);
                if n < 4 {
                    witness.follow(&mut reader, count);
                } else {
                    while witness.next <= count {
                        block_on(&mut reader);
                        witness.drain(&mut reader);
                    }
                }
                counted.fetch_add(1, Ordering::SeqCst);
            });
        }
        let mut numbered = NumberedPublisher::of(&topic);
        for n in 0..count {
            numbered.publish(1, 8);
            if n % 16 == 0 {
                until("one has read everything and sleeps", || topic.logs()[0].info().waiting > 0);
            }
        }
    });
    assert_eq!(counted.load(Ordering::SeqCst), 6);
}

#[test]
fn record_wakes_a_sleeping_thread_despite_timed_out_ones() {
    let topic = large_topic(RUNNING);
    let mut timed_out = subscriber(&topic, &earliest());
    assert_eq!(timed_out.wait(Some(Duration::from_millis(1))), Ok(false));
    let mut polled = Subscriber::many(vec![cursor(&topic, &earliest())], None, earliest(), RUNNING);
    assert!(!polled.ready().unwrap());
    let mut sleeping = subscriber(&topic, &earliest());
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| sleeping.wait(Some(PATIENCE)));
        until("all three sleep", || topic.logs()[0].info().waiting == 3);
        NumberedPublisher::of(&topic).publish(1, 8);
        assert_eq!(sleeper.join().unwrap(), Ok(true), "one publish wakes the sleeping thread");
    });
    for reader in [&mut timed_out, &mut polled] {
        let mut witness = DeliveryChecker::from_seq(1);
        assert_eq!(witness.drain(reader), 1);
    }
}

#[test]
fn abandoned_subscriber_does_not_keep_others_asleep() {
    let topic = large_topic(MANUAL);
    let mut abandoned = subscriber(&topic, &earliest());
    let mut sleeping = subscriber(&topic, &earliest());
    let woken = Arc::new(Scheduled { is_scheduled: AtomicBool::new(false), thread: thread::current() });
    assert!(abandoned.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(sleeping.poll_ready(&mut Context::from_waker(&waker)).is_pending());
    topic.expire(MANUAL.now_ns());
    assert!(!woken.is_scheduled.load(Ordering::SeqCst), "there is no record, so no task is woken");
    NumberedPublisher::of(&topic).publish(1, 8);
    topic.expire(MANUAL.now_ns());
    assert!(woken.is_scheduled.load(Ordering::SeqCst));
    assert_eq!(DeliveryChecker::from_seq(1).drain(&mut sleeping), 1);
}

#[test]
fn woken_subscriber_wakes_the_next_one_before_reading() {
    let topic = large_topic(RUNNING);
    for waits_in_a_thread in [true, false] {
        let mut first = subscriber(&topic, &from(Start::Latest));
        let mut second = subscriber(&topic, &from(Start::Latest));
        let scheduled =
            || Arc::new(Scheduled { is_scheduled: AtomicBool::new(false), thread: thread::current() });
        let woken = [scheduled(), scheduled()];
        let wakers = woken.each_ref().map(|task| Waker::from(Arc::clone(task)));
        if !waits_in_a_thread {
            assert!(first.poll_ready(&mut Context::from_waker(&wakers[0])).is_pending());
            assert!(second.poll_ready(&mut Context::from_waker(&wakers[1])).is_pending());
            topic.publisher("t").publish(b"x").unwrap();
            assert!(first.poll_ready(&mut Context::from_waker(&wakers[0])).is_ready());
        } else {
            thread::scope(|scope| {
                let waiting = scope.spawn(|| first.wait(Some(PATIENCE)));
                until("the first sleeps", || topic.logs()[0].info().waiting == 1);
                assert!(second.poll_ready(&mut Context::from_waker(&wakers[1])).is_pending());
                topic.publisher("t").publish(b"x").unwrap();
                assert_eq!(waiting.join().unwrap(), Ok(true));
            });
        }
        assert!(woken[1].is_scheduled.load(Ordering::SeqCst), "in a thread: {waits_in_a_thread}");
    }
}

#[test]
fn dropped_cursor_passes_its_notification_to_the_others() {
    let topic = large_topic(MANUAL);
    let waiters = [Waiter::new(), Waiter::new(), Waiter::new()];
    let mut cursors = waiters.each_ref().map(|_| Some(cursor(&topic, &earliest())));
    for (cursor, waiter) in cursors.iter_mut().zip(&waiters) {
        assert!(cursor.as_mut().unwrap().arm(waiter, 0));
        assert!(waiter.set_waker(Waker::noop()));
    }
    NumberedPublisher::of(&topic).publish(1, 8);
    assert_eq!(waiters.each_ref().map(|waiter| waiter.is_ready()), [true, false, false]);
    cursors[0] = None;
    assert_eq!(waiters.each_ref().map(|waiter| waiter.is_ready()), [true; 3]);
}

#[test]
fn leaving_cursor_passes_its_wakeup_to_the_next_cursor() {
    for round in 0..200 {
        let topic = large_topic(RUNNING);
        let waiters: Vec<_> = (0..4).map(|_| Waiter::new()).collect();
        let mut cursors: Vec<_> = waiters
            .iter()
            .map(|waiter| {
                let mut cursor = cursor(&topic, &earliest());
                assert!(cursor.arm(waiter, 7));
                assert!(waiter.set_waker(Waker::noop()));
                cursor
            })
            .collect();
        if round % 2 == 0 {
            // In every second round, a cursor leaves while it sleeps.
            cursors[0].leave(&waiters[0], 7);
        }
        NumberedPublisher::of(&topic).publish(1, 8);
        let woken = 1 - round % 2;
        assert!(waiters[woken].is_ready());
        assert!(!waiters[3].is_ready(), "a publish wakes one, not all");
        cursors[woken].leave(&waiters[woken], 7);
        assert!(waiters[woken + 1].is_ready(), "a woken subscriber that leaves passes its wake-up on");
        assert_eq!(topic.logs()[0].info().waiting, 1 - woken);
    }
}

#[test]
fn topic_deletion_wakes_every_kind_of_waiter() {
    for wait in [WaitStrategy::Parked, WaitStrategy::Default, WaitStrategy::Spin] {
        for published in [0, 3] {
            let topic = large_topic(RUNNING);
            NumberedPublisher::of(&topic).publish(published, 8);
            let mut reader = subscriber(&topic, &SubscribeOptions { wait, ..earliest() });
            let mut witness = DeliveryChecker::from_seq(1);
            witness.drain(&mut reader);
            thread::scope(|scope| {
                let waiting = scope.spawn(|| reader.wait(None));
                // A subscriber that spins is never armed, and therefore not counted as waiting.
                until("it waits", || wait == WaitStrategy::Spin || topic.logs()[0].info().waiting == 1);
                topic.close();
                assert_eq!(waiting.join().unwrap(), Ok(true), "{wait:?} after {published}");
            });
            assert_eq!(witness.drain(&mut reader), 1);
            assert!(witness.deleted.is_some());
        }
    }
}

#[test]
fn wait_ends_at_its_timeout() {
    for wait in [WaitStrategy::Parked, WaitStrategy::Default, WaitStrategy::Spin] {
        let topic = large_topic(RUNNING);
        let mut reader = subscriber(&topic, &SubscribeOptions { wait, ..earliest() });
        let began = RUNNING.now_ns();
        assert_eq!(reader.wait(Some(Duration::from_millis(20))), Ok(false));
        assert!(RUNNING.now_ns() - began >= 20_000_000);
        assert!(reader.next_timeout(Duration::from_millis(1)).unwrap().is_none());
        assert!(reader.next_timeout(Duration::ZERO).unwrap().is_none());
    }
}

#[test]
fn waiter_reports_each_notification_exactly_once() {
    let waiter = Waiter::new();
    let each = 20_000;
    thread::scope(|scope| {
        for thread in 0..2u32 {
            let waiter = &waiter;
            scope.spawn(move || (0..each).for_each(|n| waiter.notify(thread * each + n)));
        }
        let mut seen = vec![false; 2 * each as usize];
        let mut left = seen.len();
        let deadline = Deadline::new();
        while left > 0 {
            waiter.take_ready(|token| {
                assert!(!std::mem::replace(&mut seen[token as usize], true));
                left -= 1;
            });
            deadline.check("all tokens come");
        }
    });
    assert!(!waiter.is_ready());
}

#[test]
fn subscribers_that_have_read_everything_stay_asleep() {
    let topic = large_topic(RUNNING);
    let mut readers: Vec<_> = (0..4)
        .map(|_| {
            let log = topic.logs()[0].clone();
            let cursor = Cursor::new(log, &SubscribeOptions::default(), None, ConsumeMode::Reads).unwrap();
            (cursor, Waiter::new())
        })
        .collect();
    let sleep = |cursor: &mut Cursor, waiter: &Arc<Waiter>| {
        assert!(cursor.arm(waiter, 0));
        assert!(waiter.set_waker(Waker::noop()));
    };
    readers.iter_mut().for_each(|(cursor, waiter)| sleep(cursor, waiter));
    NumberedPublisher::of(&topic).publish(1, 8);
    let mut reads = 0;
    while let Some((cursor, waiter)) = readers.iter_mut().find(|(_, waiter)| waiter.is_ready()) {
        assert!(waiter.take_ready(|_| ()));
        cursor.handle_wake();
        assert!(matches!(cursor.fill(), ReadOutcome::Records), "a reader is woken only for a record");
        reads += cursor.drain(10, |_| ());
        assert!(matches!(cursor.fill(), ReadOutcome::Empty));
        sleep(cursor, waiter);
    }
    assert_eq!(reads, 4);
}
