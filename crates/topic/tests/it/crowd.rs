//! Tests with ten thousand sleeping subscribers: a publish wakes one of them, and subscribers that were woken wake the
//! others.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_topic::*;

use crate::fixture::*;

const SLEEPERS: usize = 10_000;

/// An executor: the list of tasks that were woken and have to run, in this order.
#[derive(Default)]
struct Executor(Mutex<Vec<usize>>);

struct Task {
    index: usize,
    executor: Arc<Executor>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.executor.0.lock().unwrap().push(self.index);
    }
}

impl Executor {
    fn take(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

struct Crowd {
    topic: Arc<Topic>,
    executor: Arc<Executor>,
    readers: Vec<Option<Subscriber>>,
}

impl Crowd {
    fn sleeping() -> Crowd {
        let topic = large_topic(MANUAL);
        let executor = Arc::new(Executor::default());
        let readers = (0..SLEEPERS).map(|_| Some(subscriber(&topic, &earliest()))).collect();
        let mut crowd = Crowd { topic, executor, readers };
        (0..SLEEPERS).for_each(|index| assert!(crowd.poll(index).is_pending()));
        assert_eq!(crowd.topic.logs()[0].info().waiting, SLEEPERS);
        crowd
    }

    fn poll(&mut self, index: usize) -> Poll<Result<(), SubscribeError>> {
        let waker = Waker::from(Arc::new(Task { index, executor: Arc::clone(&self.executor) }));
        let reader = self.readers[index].as_mut().unwrap();
        reader.poll_ready(&mut Context::from_waker(&waker))
    }

    /// Runs woken tasks, and the tasks that they wake, by calling `each`, until none is left. Returns how many tasks
    /// were run.
    fn run(&mut self, mut each: impl FnMut(&mut Option<Subscriber>, usize)) -> usize {
        let mut ran = 0;
        loop {
            let woken = self.executor.take();
            if woken.is_empty() {
                return ran;
            }
            for index in woken {
                ran += 1;
                each(&mut self.readers[index], index);
            }
        }
    }
}

#[test]
fn publish_wakes_all_subscribers_in_turn() {
    let mut crowd = Crowd::sleeping();
    for round in 1..=3 {
        let mut publisher = crowd.topic.publisher("t");
        publisher.publish(&(round as u64).to_le_bytes()).unwrap();
        assert_eq!(crowd.executor.0.lock().unwrap().len(), 1, "the publisher pays for one wake");
        let mut read = 0;
        let ran = crowd.run(|reader, _| {
            read += reader.as_mut().unwrap().drain(usize::MAX, |_| ()).unwrap();
        });
        assert_eq!((ran, read), (SLEEPERS, SLEEPERS));
        (0..SLEEPERS).for_each(|index| assert!(crowd.poll(index).is_pending()));
    }
}

#[test]
fn dropping_a_woken_subscriber_leaves_no_subscriber_asleep() {
    let mut crowd = Crowd::sleeping();
    NumberedPublisher::of(&crowd.topic).publish(1, 8);
    let mut read = 0;
    let ran = crowd.run(|reader, index| {
        // All other tasks are woken, directly or indirectly, by the first 100 tasks. Every second of these 100 leaves,
        // and every third of all tasks.
        if (index < 100 && index % 2 == 0) || index % 3 == 0 {
            *reader = None;
        } else {
            read += reader.as_mut().unwrap().drain(usize::MAX, |_| ()).unwrap();
        }
    });
    assert_eq!(ran, SLEEPERS);
    assert_eq!(read, crowd.readers.iter().flatten().count());
    assert_eq!(crowd.topic.logs()[0].info().waiting, 0);
}

#[test]
fn dropped_sleeping_subscribers_are_not_counted_as_waiting() {
    let mut crowd = Crowd::sleeping();
    for index in (0..SLEEPERS).rev().filter(|index| index % 2 == 0) {
        crowd.readers[index] = None;
    }
    assert_eq!(crowd.topic.logs()[0].info().waiting, SLEEPERS / 2);
    NumberedPublisher::of(&crowd.topic).publish(1, 8);
    let mut read = 0;
    crowd.run(|reader, _| read += reader.as_mut().unwrap().drain(usize::MAX, |_| ()).unwrap());
    assert_eq!(read, SLEEPERS / 2);
}

#[test]
fn topic_deletion_wakes_every_sleeping_subscriber() {
    let mut crowd = Crowd::sleeping();
    crowd.topic.close();
    let mut events = 0;
    crowd.run(|reader, _| events += reader.as_mut().unwrap().drain(usize::MAX, |_| ()).unwrap());
    assert_eq!(events, SLEEPERS);
}
