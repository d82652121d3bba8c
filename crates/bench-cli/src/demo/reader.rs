//! A reader of the demo, which runs in the demo's process or in a child process. The reader adds each event (a record
//! or a notice) to the account of the event's topic, until the reader is stopped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use dunlin_topic::{Event, Position, Subscribe, SubscribeError};

use super::account::{ReadReportsByTopic, add_event};

/// One reader of the demo: its accounts of received records and gaps, its stop flag, and its pause.
#[derive(Debug, Default)]
pub struct DemoReader {
    accounts: Mutex<ReadReportsByTopic>,
    stop: AtomicBool,
    /// The pause after each record; `None` for no pauses.
    pub sleep: Option<Duration>,
}

/// The interval at which an idle reader checks whether to stop.
const IDLE: Duration = Duration::from_millis(50);
/// The most events that a reader handles before it releases the lock of the accounts for other threads.
const EVENTS_MAX: usize = 512;

impl DemoReader {
    pub fn with_sleep(sleep: Option<Duration>) -> DemoReader {
        DemoReader { sleep, ..DemoReader::default() }
    }

    pub fn accounts(&self) -> MutexGuard<'_, ReadReportsByTopic> {
        // Handling an event never panics, so the accounts are valid even if the lock is poisoned.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the reader has read each topic up to the position in `ends`.
    pub fn has_read_all(&self, ends: &BTreeMap<String, Position>) -> bool {
        let accounts = self.accounts();
        ends.iter()
            .filter(|(_, last)| last.seq > 0)
            .all(|(topic, last)| accounts.get(topic).is_some_and(|account| account.through >= *last))
    }

    /// Reads until stopped. If the subscription ends by itself, adds an error to the accounts of `topics`.
    pub fn read(&self, mut subscriber: impl Subscribe, topics: &[String]) {
        while !self.stop.load(Ordering::Relaxed) {
            match self.step(&mut subscriber) {
                Ok(()) => {}
                Err(SubscribeError::Connection(_)) => thread::sleep(IDLE),
                Err(error) => {
                    // When a node stops, it closes the subscription. The closed subscription is an error only if the
                    // reader was not told to stop before.
                    if !self.stop.load(Ordering::Relaxed) {
                        self.fault(topics, &format!("the subscription ended: {error}"));
                    }
                    return;
                }
            }
        }
    }

    pub fn fault(&self, topics: &[String], text: &str) {
        let mut accounts = self.accounts();
        for topic in topics {
            accounts.entry(topic.clone()).or_default().faults.push(text.to_owned());
        }
    }

    fn step(&self, subscriber: &mut impl Subscribe) -> Result<(), SubscribeError> {
        let count = match self.sleep {
            None => {
                // The lock is held while events are handled, and not while the reader waits for events.
                let mut accounts = self.accounts();
                subscriber.drain(EVENTS_MAX, |event| add_event(&mut accounts, &event))?
            }
            Some(pause) => self.step_slowly(subscriber, pause)?,
        };
        if count == 0 {
            subscriber.wait(Some(IDLE))?;
        }
        Ok(())
    }

    fn step_slowly(&self, subscriber: &mut impl Subscribe, pause: Duration) -> Result<usize, SubscribeError> {
        let Some(event) = subscriber.try_next()? else { return Ok(0) };
        add_event(&mut self.accounts(), &event);
        if matches!(event, Event::Record(_)) {
            thread::sleep(pause);
        }
        Ok(1)
    }
}
