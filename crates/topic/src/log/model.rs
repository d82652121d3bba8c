//! A loom model of subscribers that go to sleep and are woken. Loom runs the log's list of sleepers, a waiter and its
//! waker with every possible interleaving of the threads.
//!
//! A lost wake-up leaves a thread asleep for ever, which loom reports as a deadlock. If a thread finds the lock taken
//! several times, loom skips further interleavings from there.

use std::sync::Arc;
use std::task::{Wake, Waker};

use dunlin_frame::RecordMeta;
use loom::{sync::Notify, thread};

use super::{AppendOptions, Log};
use crate::config::{Clock, TopicConfig};
use crate::cursor::{ConsumeMode, Cursor, ReadOutcome};
use crate::event::LogName;
use crate::memory::MemoryBudget;
use crate::publish::{Draft, Payload};
use crate::subscribe::{Start, SubscribeOptions};
use crate::wake::Waiter;

fn log() -> Arc<Log> {
    let name = LogName { topic: "t".to_owned(), subject_prefix: "t".to_owned(), partition: 0 };
    let budget = MemoryBudget::node(1 << 20, 1 << 20);
    Arc::new(Log::new(name, Arc::new(TopicConfig::default()), budget, Clock::new(|| 1), 1, &Arc::default()))
}

fn publish(log: &Log) {
    let draft = Draft { meta: RecordMeta::default(), payload: Payload::Copied(b"x") };
    log.append(AppendOptions::default(), &draft).unwrap();
}

struct Task(Notify);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

struct Subscriber {
    cursor: Cursor,
    waiter: Arc<Waiter>,
    task: Arc<Task>,
}

impl Subscriber {
    fn of(log: &Arc<Log>) -> Subscriber {
        let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
        let cursor = Cursor::new(Arc::clone(log), &options, None, ConsumeMode::Reads).unwrap();
        Subscriber { cursor, waiter: Waiter::new(), task: Arc::new(Task(Notify::new())) }
    }

    /// Reads one record, and sleeps until there is one.
    fn read(&mut self) {
        let waker = Waker::from(Arc::clone(&self.task));
        loop {
            if self.cursor.is_armed() && self.waiter.take_ready(|_| ()) {
                self.cursor.handle_wake();
            }
            match self.cursor.fill() {
                ReadOutcome::Records => {
                    assert_eq!(self.cursor.drain(1, |record| assert_eq!(record.payload(), b"x")), 1);
                    return;
                }
                ReadOutcome::Empty => {}
                other => panic!("unexpected {other:?}"),
            }
            if self.cursor.arm(&self.waiter, 0) && self.waiter.set_waker(&waker) {
                self.task.0.wait();
            }
        }
    }

    fn leave(mut self) {
        self.cursor.leave(&self.waiter, 0);
    }
}

#[test]
fn record_wakes_a_subscriber_that_is_falling_asleep() {
    loom::model(|| {
        let log = log();
        let mut subscriber = Subscriber::of(&log);
        let publisher = thread::spawn(move || publish(&log));
        subscriber.read();
        publisher.join().unwrap();
        subscriber.leave();
    });
}

#[test]
fn publish_wakes_two_sleeping_subscribers() {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(2);
    bounded.check(|| {
        let log = log();
        let subscribers = [Subscriber::of(&log), Subscriber::of(&log)];
        let sleeping = subscribers.map(|mut subscriber| {
            thread::spawn(move || {
                subscriber.read();
                subscriber.leave();
            })
        });
        publish(&log);
        sleeping.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn departing_subscriber_passes_its_wakeup_to_another() {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(2);
    bounded.check(|| {
        let log = log();
        let mut leaving = Subscriber::of(&log);
        assert!(leaving.cursor.arm(&leaving.waiter, 0));
        assert!(leaving.waiter.set_waker(&Waker::from(Arc::clone(&leaving.task))));
        let mut staying = Subscriber::of(&log);
        let threads = [thread::spawn(move || leaving.leave()), thread::spawn(move || staying.read())];
        publish(&log);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
